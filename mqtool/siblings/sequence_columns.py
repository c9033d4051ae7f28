"""Reads many values of one `Sequence` layout at once: fixed fields as arrays, byte strings as ranges of the buffer."""

from typing import Any

import numpy as np
from msgspec import Struct, field

from mqtool.formats.sequence import Sequence, Step

_VARINT_BYTES = 5
_BITS = 7


class SequenceColumns(Struct):
    """The fields of many values in one buffer, as columns.

    Attributes:
        data: uint8 buffer.
        good: bool per value: whether `Sequence.parse` could read it. The fields of other values are meaningless.
        fixed: arrays by name of a fixed field.
        starts, lengths: int64 arrays by name of a field of counted bytes: position of the bytes in the buffer, and
            length.
        after: int64, position in the buffer after each value.
        places: int64 arrays by name of a fixed field: its position in the buffer.
    """

    data: np.ndarray
    good: np.ndarray
    after: np.ndarray
    fixed: dict[str, np.ndarray] = field(default_factory=dict)
    starts: dict[str, np.ndarray] = field(default_factory=dict)
    lengths: dict[str, np.ndarray] = field(default_factory=dict)
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
