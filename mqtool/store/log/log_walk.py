"""Creates walks over the files of a log. No other code outside `mqtool.records` does.

Code that reads a log takes `Frames` and `Damage` from `CommitLog.walk`, or segment by segment from `walk_file`. Where
the log itself does not show where records start, the units of the queues do. They are read on demand, for one range of
the log at a time: memory does not grow with the store.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.records.entries import walk_kind
from mqtool.records.record_search import RecordStartIndex
from mqtool.records.walk import SegmentSpan, SegmentWalk, Skim
from mqtool.store.files import MappedFile
from mqtool.store.queues.consume_queue import Queue, has_record

RANGE = 256 << 20
"""Bytes of the log whose units are held."""

BEFORE = 16 << 20
"""Bytes before the range in which a record may start that reaches into it."""


class Readable(Protocol):
    """What a walk needs of a file; `ReadFile` and its wrappers have it."""

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position; fewer only at the end of the file."""

    def data_end(self) -> int:
        """Returns a position after which the file contains only zeros."""


def walk_file(
    file: Readable,
    segment: MappedFile,
    *,
    start: int = 0,
    end: int | None = None,
    is_last: bool = False,
    crc: bool = True,
    with_crc: bool = False,
    refills: bool = False,
    start_index: RecordStartIndex | None = None,
    skim: Skim | None = None,
) -> SegmentWalk:
    """Returns the walk over one file, or over a part of it.

    Args:
        segment: its base, its size, and whether its records are DLedger entries.
        start: position of a record; from any other position the walk finds the next one.
        end: position after the last record to read, None for the end of the file.
        is_last: no file of the log follows: an unfinished end is its tail, not damage.
        crc: whether a wrong body CRC makes a record damage.
        with_crc: CRCs are asked for later: they are computed in the same pass if that is faster.
        refills: read every window into the same memory, if the file supports that; frames are then valid only until
            the next item is taken.
        start_index: another source of record starts.
        skim: takes records that the walk need not read itself; not used for records in DLedger entries.
    """
    size = segment.size if end is None else end
    full_size = max(segment.size, size)
    span = SegmentSpan(
        segment.base, size, start, file.data_end(), is_last, entries=segment.entries, full_size=full_size
    )
    read_into = getattr(file, "read_into", None) if refills else None
    return walk_kind(span)(
        file.read, span, check_crc=crc, with_crc=with_crc, start_index=start_index, read_into=read_into, skim=skim
    )


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
            self._load(number * RANGE - BEFORE, (number + 1) * RANGE)
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
