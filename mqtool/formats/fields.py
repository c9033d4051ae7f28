"""Declares the fields of layouts: name, Java type, description.

All integers of the store are big-endian and signed, as `java.nio.ByteBuffer` writes them. Stores of .NET programs
are little-endian, as `BinaryWriter` writes them: `le32` and similar functions.
"""

from collections.abc import Callable
from typing import Any

import construct as cs


def _integer(kind: cs.Construct) -> Callable[[str, str], cs.Construct]:
    """Returns the function that declares a field of a kind, by its name and docs text."""
    return lambda name, docs: name / kind * docs


i16 = _integer(cs.Int16sb)
"""A Java short."""
u16 = _integer(cs.Int16ub)
"""A Java short whose 16 bits are interpreted as unsigned."""
i32 = _integer(cs.Int32sb)
"""A Java int."""
i64 = _integer(cs.Int64sb)
"""A Java long."""
u8 = _integer(cs.Int8ub)
"""A .NET byte."""
le16u = _integer(cs.Int16ul)
"""A .NET ushort, little-endian."""
le32 = _integer(cs.Int32sl)
"""A .NET int, little-endian."""
le64 = _integer(cs.Int64sl)
"""A .NET long, little-endian."""


def raw(name: str, size: int, docs: str) -> cs.Construct:
    """Bytes that are not interpreted."""
    return name / cs.Bytes(size) * docs


def either(
    name: str, test: Callable[[Any], Any], then: cs.Construct, otherwise: cs.Construct, docs: str
) -> cs.Construct:
    """A field whose layout depends on an earlier field."""
    return name / cs.IfThenElse(test, then, otherwise) * docs


def sized(name: str, length_field: str, docs: str) -> cs.Construct:
    """Bytes whose length is in an earlier field; a negative length means none, as in the broker."""
    return name / cs.Bytes(lambda context: max(0, context[length_field])) * docs
