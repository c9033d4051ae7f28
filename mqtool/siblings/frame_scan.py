"""Scans a buffer for consecutive frames, and reads the fields of their records as columns; no object per record.

A scan follows the length before each record, and checks the length after it. Fixed fields become arrays, byte strings
ranges of the buffer.
"""

import struct
from typing import Any

import numpy as np
from msgspec import Struct, field

from mqtool.formats.equeue import FRAME_OVERHEAD, LENGTH
from mqtool.formats.sequence import Sequence, Step

FIRST_WINDOW, WINDOW = 1 << 16, 8 << 20
"""Sizes of read windows in bytes: the first one after the start or after damage, and the maximum to which they grow."""

_ONE = LENGTH.struct
_TWO = struct.Struct("<" + 2 * _ONE.format.removeprefix("<"))
"""The length after a record, followed by the length before the next one."""


class FrameRun(Struct, frozen=True):
    """Consecutive frames in a buffer."""

    data: np.ndarray  # uint8 buffer that contains the frames
    base: int  # data position of the buffer's first byte
    starts: np.ndarray  # int64, position in the buffer of each record, after the length before it
    sizes: np.ndarray  # int64, size of each record in bytes

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def positions(self) -> np.ndarray:
        """Data positions of the frames, int64."""
        return self.starts + (self.base - LENGTH.size)

    @property
    def end(self) -> int:
        """Data position after the last frame; without frames, that of the buffer's first byte."""
        return self.base + (int(self.starts[-1] + self.sizes[-1]) + LENGTH.size if len(self) else 0)

    def first(self, count: int) -> "FrameRun":
        """Returns the first `count` frames."""
        return self if count == len(self) else FrameRun(self.data, self.base, self.starts[:count], self.sizes[:count])

    def record(self, number: int) -> bytes:
        """Returns the bytes of the record with the given index."""
        start = int(self.starts[number])
        return self.data[start : start + int(self.sizes[number])].tobytes()


def scan_frames(data: bytes, base: int, limit: int) -> FrameRun:
    """Returns the frames from the start of a buffer up to the first invalid or incomplete one.

    Args:
        data: the buffer.
        base: data position of its first byte.
        limit: maximum size of a record in bytes.
    """
    view, size = memoryview(data), LENGTH.size
    first_length, two, last = _ONE.unpack_from, _TWO.unpack_from, len(view) - _TWO.size
    starts: list[int] = []
    append = starts.append
    at, length = size, first_length(view)[0] if len(view) >= size else 0
    while 0 < length <= limit:
        end = at + length
        if end > last:
            if end + size <= len(view) and first_length(view, end)[0] == length:
                append(at)
                at = end + FRAME_OVERHEAD
            break
        tail, following = two(view, end)
        if tail != length:
            break
        append(at)
        at, length = end + FRAME_OVERHEAD, following
    positions = np.array(starts, np.int64)
    sizes = np.diff(np.append(positions, at)) - FRAME_OVERHEAD
    return FrameRun(np.frombuffer(data, np.uint8), base, positions, sizes)


_VARINT_BYTES = 5
_BITS = 7


class SequenceColumns(Struct):
    """The fields of many values in one buffer, as columns."""

    data: np.ndarray  # uint8 buffer
    # bool per value: whether `Sequence.parse` could read it. The fields of other values are meaningless.
    good: np.ndarray
    after: np.ndarray  # int64, position in the buffer after each value
    fixed: dict[str, np.ndarray] = field(default_factory=dict)  # arrays by name of a fixed field
    # starts, lengths: int64 arrays by name of a field of counted bytes: position of the bytes in the buffer, and length
    starts: dict[str, np.ndarray] = field(default_factory=dict)
    lengths: dict[str, np.ndarray] = field(default_factory=dict)
    # int64 arrays by name of a fixed field: its position in the buffer
    places: dict[str, np.ndarray] = field(default_factory=dict)

    def first(self, count: int) -> "SequenceColumns":
        """Returns the first `count` values."""
        if count == len(self.good):
            return self
        fixed, starts, lengths, places = (
            {name: column[:count] for name, column in columns.items()}
            for columns in (self.fixed, self.starts, self.lengths, self.places)
        )
        return SequenceColumns(self.data, self.good[:count], self.after[:count], fixed, starts, lengths, places)


def read_columns(sequence: Sequence[Any], data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> SequenceColumns:
    """Reads the fields of many values.

    Args:
        sequence: layout of the values.
        data: uint8 buffer.
        starts: int64, position in the buffer at which each value begins.
        ends: int64, position at which each value must end at the latest.
    """
    columns = SequenceColumns(data, np.ones(len(starts), bool), starts)
    at = starts.copy()
    for step in sequence.steps:
        head = _heads(step, columns, at, ends)
        for name, member in zip(step.names, step.fields, strict=False):  # the count may follow them
            columns.fixed[name], columns.places[name] = head[name], at + member.offset
        at = at + step.head.size
        if not step.counted:
            continue
        length = _varints(columns, at, ends) if step.varint else head["length"].astype(np.int64)
        columns.good &= (length >= 0) & (length <= ends - at)
        length = np.where(columns.good, length, 0)
        columns.starts[step.counted], columns.lengths[step.counted] = at, length
        at = at + length
    columns.after = at
    return columns


def _heads(step: Step, columns: SequenceColumns, at: np.ndarray, ends: np.ndarray) -> np.ndarray:
    size = step.head.size
    columns.good &= at + size <= ends
    if not size or len(columns.data) < size:
        columns.good &= size == 0
        return np.zeros(len(at), step.dtype)
    sliding = np.ndarray((len(columns.data) - size + 1,), f"V{size}", columns.data, strides=(1,))
    return sliding[np.where(columns.good, at, 0)].view(step.dtype)


def _varints(columns: SequenceColumns, at: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Reads a varint at each position and moves the positions in `at` past it."""
    value = np.zeros(len(at), np.int64)
    open_ = columns.good.copy()
    for number in range(_VARINT_BYTES):
        columns.good &= ~open_ | (at < ends)
        open_ &= columns.good
        byte = columns.data[np.where(open_, at, 0)].astype(np.int64) if len(columns.data) else value
        value |= np.where(open_, (byte & 0x7F) << (_BITS * number), 0)
        at += open_
        open_ &= byte >= 0x80
    columns.good &= ~open_
    return value
