"""RecordViews: the records of a get as a sequence that creates a view only when one is accessed."""

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from operator import add, sub
from typing import overload

from mqtool import native
from mqtool.engine.queue.consume_queue import UNIT


@cache
def _units_struct(count: int) -> struct.Struct:
    """Returns the layout of `count` consecutive units, as one flat sequence of fields."""
    return struct.Struct(UNIT.format[:1] + UNIT.format[1:] * count)


class RecordViews(Sequence[memoryview]):
    """Records in one segment, uncopied; they stay valid even after the segment is deleted."""

    __slots__ = ("_base", "_count", "_made", "_pin", "_size", "_units")

    def __init__(self, pin: memoryview, base: int, units: bytes, count: int, size: int) -> None:
        """Creates no view yet.

        Args:
            pin: `File.pin` of the segment.
            base: physical offset of the segment's first byte.
            units: that point to the records; all records must be complete.
            count: number of units.
            size: sum of the records' sizes.
        """
        self._pin = pin
        self._base = base
        self._units = units
        self._count = count
        self._size = size
        self._made: list[memoryview] | None = None

    def _views(self) -> list[memoryview]:
        if self._made is None:
            numbers = _units_struct(self._count).unpack(self._units)
            view = self._pin
            starts = list(map(sub, numbers[0::3], [self._base] * self._count))
            self._made = [view[at:end] for at, end in zip(starts, map(add, starts, numbers[1::3]), strict=True)]
        return self._made

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> list[memoryview]: ...
    def __getitem__(self, place: int | slice) -> "memoryview | list[memoryview]":
        return self._views()[place]

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self._views())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._views() == list(other)

    __hash__ = None  # type: ignore[assignment] # as a list

    def __repr__(self) -> str:
        return repr(self._views())

    def joined(self) -> bytes:
        """Returns a copy of the records, concatenated."""
        if not native.in_use():
            return b"".join(self._views())
        return native.engine.join_records(self._units, self._count, self._pin, self._base, self._size)

    def copy_to(self, target: bytearray, at: int) -> int:
        """Copies the records into a bytearray with room for them; returns the position after them."""
        end = at + self._size
        if native.in_use() and type(target) is bytearray and end <= len(target):
            return native.engine.copy_records(self._units, self._count, self._pin, self._base, self._size, target, at)
        target[at:end] = self.joined()
        return end
