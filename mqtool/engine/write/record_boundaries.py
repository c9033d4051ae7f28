"""RecordBoundaries: where the records begin that were appended last.

Dispatch would otherwise follow `total_size` from record to record, the only step of it that looks at each record
by itself. What the boundaries says is checked against the log, so that it may be short, or empty: then dispatch hops.
"""

from bisect import bisect_left

MOST = 1 << 20
"""Records that are kept; a dispatcher that is further behind than that finds its way in the log."""


class RecordBoundaries:
    """Written under the append lock, read and shortened by the dispatcher. Each step is one of a list: no further lock.

    Attributes:
        note: takes the physical offset at which a record begins, once its bytes count as written.
        note_many: takes those of records in a row.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self.note = self._starts.append
        self.note_many = self._starts.extend

    def __len__(self) -> int:
        return len(self._starts)

    def bound(self) -> None:
        """Forgets everything if it is too much; called by the writer now and then."""
        if len(self._starts) > MOST:
            self._starts.clear()

    def forget(self, end: int) -> None:
        """Forgets what lies below a physical offset."""
        del self._starts[: bisect_left(self._starts, end)]

    def find(self, start: int, end: int) -> list[int]:
        """Returns where records begin from one that begins at `start` on, below `end`.

        Args:
            start: physical offset of a record.
            end: physical offset.

        Returns:
            Physical offsets, ascending; none if the boundaries does not know of a record at `start`.
        """
        starts = self._starts
        low = bisect_left(starts, start)
        found = starts[low : bisect_left(starts, end, low)]
        return found if found and found[0] == start else []
