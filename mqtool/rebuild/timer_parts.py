"""Parked messages and timer slots, as used while the timer's files are rebuilt."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from mqtool.formats import timer
from mqtool.records.frames import Frames


class Parked(Struct, frozen=True):
    """A message in the timer topic: position of its record, deliver time, and identity."""

    queue_offset: int
    physical_offset: int
    size: int
    stored: int
    due: int
    key: str
    rolls: int
    is_delete: bool
    topic: str | None


class Placed(Struct, frozen=True):
    """A message and its slot, which it leaves at `due`, in ms; `done` if it has left the slot or must not enter it."""

    message: Parked
    write_time: int
    due: int
    magic: int
    done: bool


class Slot(Struct):
    """A slot of the wheel: its second and its chain of units."""

    time: int
    first: int = timer.NO_POSITION
    last: int = timer.NO_POSITION
    count: int = 0


def rows_with(frames: Frames, word: bytes) -> Iterator[int]:
    """Yields the indices of frames whose bytes contain a word."""
    data = bytes(frames.view)
    at = data.find(word)
    while at >= 0:
        row = int(np.searchsorted(frames.positions, at, side="right")) - 1
        if row >= 0:
            yield row
            at = max(at, int(frames.positions[row] + frames.sizes[row]) - 1)
        at = data.find(word, at + 1)
