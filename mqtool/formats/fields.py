"""Declares the fields of layouts: name, Java type, description.

All integers of the store are big-endian and signed, as `java.nio.ByteBuffer` writes them. Stores of .NET programs
are little-endian, as `BinaryWriter` writes them: `le32` and similar functions.
"""

from collections.abc import Callable
from typing import Any

import construct as cs


def i16(name: str, docs: str) -> cs.Construct:
    """A Java short."""
    return name / cs.Int16sb * docs


def u16(name: str, docs: str) -> cs.Construct:
    """A Java short whose 16 bits are interpreted as unsigned."""
    return name / cs.Int16ub * docs


def i32(name: str, docs: str) -> cs.Construct:
    """A Java int."""
    return name / cs.Int32sb * docs


def i64(name: str, docs: str) -> cs.Construct:
    """A Java long."""
    return name / cs.Int64sb * docs


def u8(name: str, docs: str) -> cs.Construct:
    """A .NET byte."""
    return name / cs.Int8ub * docs


def le16u(name: str, docs: str) -> cs.Construct:
    """A .NET ushort, little-endian."""
    return name / cs.Int16ul * docs


def le32(name: str, docs: str) -> cs.Construct:
    """A .NET int, little-endian."""
    return name / cs.Int32sl * docs


def le64(name: str, docs: str) -> cs.Construct:
    """A .NET long, little-endian."""
    return name / cs.Int64sl * docs


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
