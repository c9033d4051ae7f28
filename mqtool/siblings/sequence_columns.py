"""Many values of one `Sequence` at once: fixed fields as arrays, bytes as ranges of the buffer they lie in."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mqtool.formats.sequence import Sequence, Step

_VARINT_BYTES = 5
_BITS = 7


@dataclass(slots=True)
class SequenceColumns:
    """The fields of values that lie in one buffer.

    Attributes:
        data: uint8 buffer.
        good: bool per value: `Sequence.parse` would read it; of the others every field is meaningless.
        fixed: arrays by name of field.
        starts, lengths: int64 arrays by name of a field of bytes after their count: its places in the buffer.
        places: int64 arrays by name of a fixed field: where it lies.
    """

    data: np.ndarray
    good: np.ndarray
    fixed: dict[str, np.ndarray] = field(default_factory=dict)
    starts: dict[str, np.ndarray] = field(default_factory=dict)
    lengths: dict[str, np.ndarray] = field(default_factory=dict)
    places: dict[str, np.ndarray] = field(default_factory=dict)

    def first(self, count: int) -> "SequenceColumns":
        """Returns the first values only."""
        if count == len(self.good):
            return self
        fixed, starts, lengths, places = (
            {name: column[:count] for name, column in columns.items()}
            for columns in (self.fixed, self.starts, self.lengths, self.places)
        )
        return SequenceColumns(self.data, self.good[:count], fixed, starts, lengths, places)


def read_columns(sequence: Sequence[Any], data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> SequenceColumns:
    """Reads values.

    Args:
        sequence: their layout.
        data: uint8 buffer.
        starts: int64, where each begins.
        ends: int64, where each has to end at the latest.
    """
    found = SequenceColumns(data, np.ones(len(starts), bool))
    at = starts.copy()
    for step in sequence.steps:
        head = _heads(step, found, at, ends)
        for name, member in zip(step.names, step.fields, strict=False):  # the count may follow them
            found.fixed[name], found.places[name] = head[name], at + member.offset
        at = at + step.head.size
        if not step.counted:
            continue
        length = _varints(found, at, ends) if step.varint else head["length"].astype(np.int64)
        found.good &= (length >= 0) & (length <= ends - at)
        length = np.where(found.good, length, 0)
        found.starts[step.counted], found.lengths[step.counted] = at, length
        at = at + length
    return found


def _heads(step: Step, found: SequenceColumns, at: np.ndarray, ends: np.ndarray) -> np.ndarray:
    size = step.head.size
    found.good &= at + size <= ends
    if not size or len(found.data) < size:
        found.good &= size == 0
        return np.zeros(len(at), step.dtype)
    sliding = np.ndarray((len(found.data) - size + 1,), f"V{size}", found.data, strides=(1,))
    return sliding[np.where(found.good, at, 0)].view(step.dtype)


def _varints(found: SequenceColumns, at: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Reads counts at places, which are moved after them."""
    value = np.zeros(len(at), np.int64)
    open_ = found.good.copy()
    for number in range(_VARINT_BYTES):
        found.good &= ~open_ | (at < ends)
        open_ &= found.good
        byte = found.data[np.where(open_, at, 0)].astype(np.int64) if len(found.data) else value
        value |= np.where(open_, (byte & 0x7F) << (_BITS * number), 0)
        at += open_
        open_ &= byte >= 0x80
    found.good &= ~open_
    return value
