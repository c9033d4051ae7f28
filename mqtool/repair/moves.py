"""Maps physical offsets across a change that moves records together."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np


class Moves:
    """Ranges of a log that moved, each by one distance, ascending in both logs; bytes outside of them are left out.

    A range takes 24 bytes: where kept and purged records alternate there is one for each record.

    Attributes:
        start: physical offset at which the new log begins.
    """

    def __init__(self, start: int = 0) -> None:
        """Starts without a range."""
        self.start = start
        self._old, self._new, self._length = array("q"), array("q"), array("q")

    def add(self, old: int, new: int, length: int) -> None:
        """Adds a range after all others, or extends the last one if both move by the same distance without a gap."""
        if self._old:
            moved = self._length[-1]
            if self._old[-1] + moved == old and self._new[-1] + moved == new:
                self._length[-1] = moved + length
                return
        self._old.append(old)
        self._new.append(new)
        self._length.append(length)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yields (old, new, length) of each range."""
        return zip(self._old, self._new, self._length, strict=True)

    def records(self, physical: np.ndarray) -> np.ndarray:
        """Returns the new physical offsets of records, int64; -1 for records that are left out."""
        if not self._old:
            return np.full(len(physical), -1, np.int64)
        old, new, length = (np.frombuffer(column, np.int64) for column in (self._old, self._new, self._length))
        number = np.maximum(np.searchsorted(old, physical, side="right") - 1, 0)
        shift = physical - old[number]
        return np.where((shift >= 0) & (shift < length[number]), new[number] + shift, -1)

    def position(self, physical: int) -> int:
        """Returns the new end of what is kept before an old physical offset."""
        number = bisect_right(self._old, physical) - 1
        if number < 0:
            return self.start
        return self._new[number] + min(physical - self._old[number], self._length[number])

    def origin(self, physical: int) -> int | None:
        """Returns the old offset of the last byte before a new physical offset; None if there is none."""
        number = bisect_right(self._new, physical - 1) - 1
        if number < 0:
            return None
        return self._old[number] + min(physical - self._new[number], self._length[number]) - 1
