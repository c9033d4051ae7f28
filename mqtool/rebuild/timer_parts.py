"""Parked messages and where the timer keeps them, while its files are rebuilt."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mqtool.formats import timer
from mqtool.records.frames import Frames


@dataclass(frozen=True, slots=True)
class Parked:
    """A message of the topic: its record's place, when it is due, and who it is."""

    queue_offset: int
    physical_offset: int
    size: int
    stored: int
    due: int
    key: str
    rolls: int
    is_delete: bool
    topic: str | None


@dataclass(frozen=True, slots=True)
class Placed:
    """A message with the slot that it has: until `due`, ms; `done` if it left it, or is not to."""

    message: Parked
    write_time: int
    due: int
    magic: int
    done: bool


@dataclass(slots=True)
class Slot:
    """A slot of the wheel: its second and the chain of units in it."""

    time: int
    first: int = timer.NO_POSITION
    last: int = timer.NO_POSITION
    count: int = 0


def rows_with(frames: Frames, word: bytes) -> Iterator[int]:
    """Yields the rows whose bytes hold a word."""
    data = bytes(frames.view)
    at = data.find(word)
    while at >= 0:
        row = int(np.searchsorted(frames.positions, at, side="right")) - 1
        if row >= 0:
            yield row
            at = max(at, int(frames.positions[row] + frames.sizes[row]) - 1)
        at = data.find(word, at + 1)
