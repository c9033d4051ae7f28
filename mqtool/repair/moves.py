"""Maps physical offsets across a change that moves records together."""

from collections.abc import Sequence

import numpy as np


class Moves:
    """Ranges of the log that moved, each by one distance.

    Attributes:
        start: physical offset at which the new log begins.
    """

    def __init__(self, stretches: Sequence[tuple[int, int, int]], start: int = 0) -> None:
        """Takes (old, new, length) of each range, ascending in both; bytes outside of them are left out."""
        self.start = start
        self._old, self._new, self._length = np.array(stretches, np.int64).reshape(-1, 3).T

    def records(self, physical: np.ndarray) -> np.ndarray:
        """Returns the new physical offsets of records, int64; -1 for records that are left out."""
        if not len(self._old):
            return np.full(len(physical), -1, np.int64)
        number = np.maximum(np.searchsorted(self._old, physical, side="right") - 1, 0)
        shift = physical - self._old[number]
        return np.where((shift >= 0) & (shift < self._length[number]), self._new[number] + shift, -1)

    def position(self, physical: int) -> int:
        """Returns the new end of what is kept before an old physical offset."""
        number = int(np.searchsorted(self._old, physical, side="right")) - 1
        if number < 0:
            return self.start
        return int(self._new[number]) + min(physical - int(self._old[number]), int(self._length[number]))

    def origin(self, physical: int) -> int | None:
        """Returns the old offset of the last byte before a new physical offset; None if there is none."""
        number = int(np.searchsorted(self._new, physical, side="left")) - 1
        if number < 0:
            return None
        return int(self._old[number]) + min(physical - int(self._new[number]), int(self._length[number])) - 1
