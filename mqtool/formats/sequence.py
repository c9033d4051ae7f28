"""Layouts of fixed fields and length-prefixed bytes, with a derived fast reader.

Declared like every layout. `Sequence` converts the declaration to a few `struct.Struct`s, so that a record takes
microseconds instead of the tens of microseconds that construct takes. Used for the records of the .NET stores, whose
strings are stored as length and bytes.
"""

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import construct as cs
from msgspec import Struct

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec
from mqtool.formats.codec import Buffer

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T", bound=Struct)

_LONGEST_VARINT = 5
"""Bytes of the longest ULEB128 that is a 32-bit length."""


def bytes32(name: str, docs: str) -> cs.Construct:
    """Bytes with a length prefix: an i32, little-endian."""
    return name / cs.Prefixed(cs.Int32sl, cs.GreedyBytes) * docs


def bytes_leb(name: str, docs: str) -> cs.Construct:
    """Bytes with a length prefix: a ULEB128, as BinaryWriter writes strings."""
    return name / cs.Prefixed(cs.VarInt, cs.GreedyBytes) * docs


class Step(Struct, frozen=True):
    """A run of fixed fields, and the variable field after it."""

    head: struct.Struct  # reads the fixed fields, and the length of the bytes after them if that is an i32
    fields: tuple[codec.Field, ...]  # of the head
    names: tuple[str, ...]  # of the fixed fields
    counted: str = ""  # name of the bytes that follow; "" if none do
    varint: bool = False  # their length is a ULEB128 after the head

    @property
    def dtype(self) -> "np.dtype[np.void]":
        """The numpy record type of the head."""
        return codec.dtype_of(self.fields)


class Sequence(Generic[T]):
    """A layout together with its value class and derived reader.

    The value class is a `msgspec.Struct` whose field names are the layout's, in order. `minimum` is the size in bytes
    if all variable fields are empty; `steps` are the runs of fixed fields with the variable field after each, for
    readers of many values at once.
    """

    def __init__(self, name: str, view: type[T], *members: cs.Construct) -> None:
        self.name = name
        self.view = view
        self.layout = cs.Struct(*members)
        self._names = [member.name for member in members]
        if list(view.__struct_fields__) != self._names:
            raise TypeError(f"{name}: fields of {view.__name__} are not those of the layout: {self._names}")
        self.steps = tuple(_steps(members))
        self.minimum = sum(step.head.size + step.varint for step in self.steps)

    def parse(self, data: Buffer, position: int = 0, end: int | None = None) -> tuple[T, int]:
        """Returns one value and the position after it; raises TruncatedError if it does not end before `end`.

        The end is by default that of the data.
        """
        end = len(data) if end is None else end
        values: list[Any] = []
        at = position
        for step in self.steps:
            if at + step.head.size > end:
                raise self._truncated(len(values), position, end)
            numbers = step.head.unpack_from(data, at)
            at += step.head.size
            if not step.counted:
                values += numbers
                continue
            if step.varint:
                values += numbers
                length, at = self._varint(data, at, end, len(values), position)
            else:
                values += numbers[:-1]
                length = numbers[-1]
            if length < 0 or at + length > end:
                raise self._truncated(len(values), position, end)
            values.append(bytes(data[at : at + length]))
            at += length
        return self.view(*values), at

    def build(self, value: T) -> bytes:
        """Returns the bytes of one value; raises FormatError if a value does not fit its field."""
        values = [getattr(value, name) for name in self._names]
        parts: list[bytes] = []
        taken = 0
        try:
            for step in self.steps:
                fixed = values[taken : taken + len(step.names)]
                taken += len(fixed)
                if not step.counted:
                    parts.append(step.head.pack(*fixed))
                    continue
                raw = values[taken]
                taken += 1
                if step.varint:
                    parts += (step.head.pack(*fixed), bytes(cs.VarInt.build(len(raw))), raw)
                else:
                    parts += (step.head.pack(*fixed, len(raw)), raw)
        except struct.error as error:
            raise FormatError(f"cannot be written: {error}", layout=self.name) from error
        return b"".join(parts)

    def _varint(self, data: Buffer, at: int, end: int, field: int, position: int) -> tuple[int, int]:
        length = shift = 0
        for place in range(at, min(at + _LONGEST_VARINT, end)):
            byte = data[place]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return length, place + 1
        raise self._truncated(field, position, end)

    def _truncated(self, field: int, position: int, end: int) -> TruncatedError:
        name = self._names[min(field, len(self._names) - 1)]
        reason = f"does not end within the {end - position} bytes"
        return TruncatedError(reason, layout=self.name, field=name, position=position)


def _steps(members: tuple[cs.Construct, ...]) -> Iterator[Step]:
    """Yields the runs of fixed fields with the variable field after each."""
    run: list[cs.Construct] = []
    for member in members:
        plain = member.subcon.subcon if isinstance(member.subcon, cs.Renamed) else member.subcon
        if not isinstance(plain, cs.Prefixed):
            run.append(member)
            continue
        varint = plain.lengthfield is cs.VarInt
        yield _step(run if varint else [*run, "length" / plain.lengthfield], run, member.name, varint=varint)
        run = []
    if run:
        yield _step(run, run)


def _step(head: list[cs.Construct], run: list[cs.Construct], counted: str = "", *, varint: bool = False) -> Step:
    fields = codec.leading_fields(cs.Struct(*head))
    names = tuple(member.name for member in run)
    return Step(codec.struct_of(fields), fields, names, counted, varint)
