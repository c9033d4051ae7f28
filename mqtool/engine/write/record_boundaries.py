"""RecordBoundaries: start positions of the most recently appended records.

Without them dispatch follows `total_size` from record to record, which is its only step that handles records one by
one. They are optional: dispatch checks them against the log, and scans the log if they are missing.
"""

from bisect import bisect_left

MOST = 1 << 20
"""Maximum number of records kept; a dispatcher that lags more than that scans the log."""


class RecordBoundaries:
    """Written under the append lock, read and shortened by the dispatcher.

    Each step is a single list operation, which is atomic in CPython: no further lock is needed.

    Attributes:
        starts: what is kept, ascending.
        note: adds the physical offset of a record, after `wrote` has passed it.
        note_many: adds those of consecutive records.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.note = self.starts.append
        self.note_many = self.starts.extend

    def __len__(self) -> int:
        return len(self.starts)

    def bound(self) -> None:
        """Discards everything if there are more than `MOST`, which limits memory while dispatch lags."""
        if len(self.starts) > MOST:
            self.starts.clear()

    def forget(self, end: int) -> None:
        """Discards starts below a physical offset."""
        del self.starts[: bisect_left(self.starts, end)]

    def find(self, start: int, end: int) -> list[int]:
        """Returns the starts of records from `start` on, below `end`.

        Args:
            start: physical offset of a record.
            end: physical offset.

        Returns:
            Physical offsets, ascending; empty if no record is known to start at `start`.
        """
        starts = self.starts
        low = bisect_left(starts, start)
        found = starts[low : bisect_left(starts, end, low)]
        return found if found and found[0] == start else []
