"""Record starts in the CommitLog according to the queues.

Used only where the log itself does not show them, so units are read on demand, for one range of the log at a time:
memory does not grow with the store.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.store.queues.consume_queue import Queue, has_record

RANGE = 256 << 20
"""Bytes of the log whose units are held."""
_BEFORE = 16 << 20
"""Bytes before the range in which a record may start that reaches into it."""


class QueueStartIndex:
    """Answers for physical offsets; see `records.record_search.RecordStartIndex`."""

    def __init__(self, queues: Callable[[], Sequence[Queue]]) -> None:
        """Reads nothing yet."""
        self._queues = queues
        self._held = -1
        self._starts = self._ends = np.empty(0, np.int64)

    def __call__(self, physical_offset: int) -> bool | None:
        """Returns True if a record starts at an offset, False if one that a queue names contains it, otherwise None."""
        at = self._last_before(physical_offset)
        if at < 0:
            return None
        if self._starts[at] == physical_offset:
            return True
        return False if physical_offset < self._ends[at] else None

    def floor(self, physical_offset: int) -> int | None:
        """Returns the nearest record start at or below an offset according to a queue, None if none is near."""
        at = self._last_before(physical_offset)
        return int(self._starts[at]) if at >= 0 else None

    def _last_before(self, physical_offset: int) -> int:
        number = physical_offset // RANGE
        if number != self._held:
            self._load(number * RANGE - _BEFORE, (number + 1) * RANGE)
            self._held = number
        return int(np.searchsorted(self._starts, physical_offset, side="right")) - 1

    def _load(self, low: int, high: int) -> None:
        starts, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for queue in self._queues():
            for units in _units_near(queue, low, high):
                start, size = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
                real = has_record(units) & (start >= low) & (start < high) & (size >= commit_log.MIN_RECORD_SIZE)
                starts.append(start[real])
                sizes.append(size[real])
        start, size = np.concatenate(starts), np.concatenate(sizes)
        order = np.argsort(start, kind="stable")
        self._starts = start[order]
        self._ends = self._starts + size[order]


def _units_near(queue: Queue, low: int, high: int) -> Iterator[np.ndarray]:
    """Yields the units of the files that can point into [low, high); the units of a queue ascend."""
    firsts = [_first_offset(queue, number) for number in range(len(queue.files))]
    known = [(number, first) for number, first in enumerate(firsts) if first is not None]
    begin = max((number for number, first in known if first <= low), default=0)
    end = min((number for number, first in known if first >= high and number > begin), default=len(firsts))
    for number in range(begin, end):
        try:
            yield queue.units_of(number)
        except StoreError:  # queues that cannot be read say nothing
            continue


def _first_offset(queue: Queue, number: int) -> int | None:
    try:
        unit = queue.unit_at(number, 0)
    except StoreError:
        return None
    return int(unit[0]["physical_offset"]) if has_record(unit).any() else None
