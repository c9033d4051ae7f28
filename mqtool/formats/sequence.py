"""Layouts of fixed fields and bytes that carry their own length, with a derived fast reader.

Declared like every layout; `Sequence` turns the declaration into a few `struct.Struct`s, so that a record costs
microseconds and not the tens of them that construct takes. Used by the records of the .NET stores, whose strings
are length and bytes.
"""

import struct
from dataclasses import fields as dataclass_fields
from typing import Any, Generic, TypeVar

import construct as cs

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec
from mqtool.formats.codec import Buffer

T = TypeVar("T")

_LONGEST_VARINT = 5
"""Bytes of the longest ULEB128 that is a 32-bit length."""


def bytes32(name: str, docs: str) -> cs.Construct:
    """Bytes behind their count, an i32, little-endian."""
    return name / cs.Prefixed(cs.Int32sl, cs.GreedyBytes) * docs


def bytes_leb(name: str, docs: str) -> cs.Construct:
    """Bytes behind their count, a ULEB128, as BinaryWriter writes strings."""
    return name / cs.Prefixed(cs.VarInt, cs.GreedyBytes) * docs


class Sequence(Generic[T]):
    """A layout together with its value class and derived reader.

    The value class is a dataclass whose field names are the layout's, in order.

    Attributes:
        name: for errors and docs.
        layout: the construct declaration.
        minimum: bytes of the layout with nothing in its variable fields.
    """

    def __init__(self, name: str, view: type[T], *members: cs.Construct) -> None:
        self.name = name
        self.view = view
        self.layout = cs.Struct(*members)
        self._names = [member.name for member in members]
        declared = [field.name for field in dataclass_fields(view)]  # type: ignore[arg-type]
        if declared != self._names:
            raise TypeError(f"{name}: fields of {view.__name__} are not those of the layout: {self._names}")
        self._steps = _steps(members)
        self.minimum = sum(head.size + (0 if kind is not cs.VarInt else 1) for head, _, kind in self._steps)

    def parse(self, data: Buffer, position: int = 0, end: int | None = None) -> tuple[T, int]:
        """Reads one value.

        Args:
            data: where it lies.
            position: where it starts.
            end: where it has to end at the latest; the end of the data by default.

        Returns:
            The value, and the position after it.

        Raises:
            TruncatedError: a field does not end before `end`.
        """
        end = len(data) if end is None else end
        values: list[Any] = []
        at = position
        for head, _, kind in self._steps:
            if at + head.size > end:
                raise self._truncated(len(values), position, end)
            found = head.unpack_from(data, at)
            at += head.size
            if kind is None:
                values += found
                continue
            if kind is cs.VarInt:
                values += found
                length, at = self._varint(data, at, end, len(values), position)
            else:
                values += found[:-1]
                length = found[-1]
            if length < 0 or at + length > end:
                raise self._truncated(len(values), position, end)
            values.append(bytes(data[at : at + length]))
            at += length
        return self.view(*values), at

    def build(self, value: T) -> bytes:
        """Returns the bytes of one value.

        Raises:
            FormatError: a value does not fit its field.
        """
        values = [getattr(value, name) for name in self._names]
        parts: list[bytes] = []
        taken = 0
        try:
            for head, count, kind in self._steps:
                fixed = values[taken : taken + count]
                taken += count
                if kind is None:
                    parts.append(head.pack(*fixed))
                    continue
                raw = values[taken]
                taken += 1
                if kind is cs.VarInt:
                    parts += (head.pack(*fixed), bytes(cs.VarInt.build(len(raw))), raw)
                else:
                    parts += (head.pack(*fixed, len(raw)), raw)
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
        found = f"does not end within the {end - position} bytes"
        return TruncatedError(found, layout=self.name, field=name, position=position)


def _steps(members: tuple[cs.Construct, ...]) -> list[tuple[struct.Struct, int, Any]]:
    """Returns readers of the runs of fixed fields, how many those are, and the kind of length that follows."""
    steps: list[tuple[struct.Struct, int, Any]] = []
    run: list[cs.Construct] = []
    for member in members:
        plain = member.subcon.subcon if isinstance(member.subcon, cs.Renamed) else member.subcon
        if not isinstance(plain, cs.Prefixed):
            run.append(member)
            continue
        counted = plain.lengthfield is not cs.VarInt
        head = _struct([*run, "length" / plain.lengthfield] if counted else run)
        steps.append((head, len(run), cs.Int32sl if counted else cs.VarInt))
        run = []
    return [*steps, (_struct(run), len(run), None)] if run else steps


def _struct(run: list[cs.Construct]) -> struct.Struct:
    layout = cs.Struct(*run)
    return codec.struct_of(codec.leading_fields(layout))
