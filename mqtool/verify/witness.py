"""What the queues know about one segment: where records start.

Asked only where the CommitLog is damaged. Units of one segment are held at a time; files that cannot hold
any are left out by their first units, since a queue's units ascend.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.formats.consume_queue import PRE_BLANK_SIZE_FIELD
from mqtool.store.files import MappedFile, ReadFile
from mqtool.verify.survey import QueueFiles, unit_chunks


class SegmentWitness:
    """Answers for physical offsets of one segment."""

    def __init__(self, queues: Sequence[QueueFiles], start: int, end: int) -> None:
        """Reads nothing yet.

        Args:
            queues: all queues.
            start, end: physical offsets of the segment.
        """
        self._queues = queues
        self._start = start
        self._end = end

    def __call__(self, physical_offset: int) -> bool | None:
        """Returns True if a record starts here, False if it lies inside one that a queue names, else None."""
        starts, ends = self._records
        at = int(np.searchsorted(starts, physical_offset, side="right")) - 1
        if at < 0:
            return None
        if starts[at] == physical_offset:
            return True
        return False if physical_offset < ends[at] else None

    @cached_property
    def _records(self) -> tuple[np.ndarray, np.ndarray]:
        starts, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for units in self._units():
            start = units["physical_offset"].astype(np.int64)
            size = units["size"].astype(np.int64)
            real = (size >= commit_log.MIN_RECORD_SIZE) & (size < PRE_BLANK_SIZE_FIELD)
            real &= (start >= self._start) & (start + size <= self._end)
            starts.append(start[real])
            sizes.append(size[real])
        start, size = np.concatenate(starts), np.concatenate(sizes)
        order = np.argsort(start, kind="stable")
        return start[order], (start + size)[order]

    def _units(self) -> Iterator[np.ndarray]:
        for queue in self._queues:
            for file in self._files(queue):
                try:
                    yield from (units for _, units in unit_chunks(file, queue.unit))
                except StoreError:  # reported where the queues are checked
                    continue

    def _files(self, queue: QueueFiles) -> list[MappedFile]:
        """Returns the files of a queue between the last that starts before the segment and the first behind it."""
        first = [_first_offset(file, queue) for file in queue.files]
        low = max((i for i, offset in enumerate(first) if offset is not None and offset <= self._start), default=0)
        high = min(
            (i for i, offset in enumerate(first) if offset is not None and offset >= self._end and i > low),
            default=len(first),
        )
        return list(queue.files[low:high])


def _first_offset(file: MappedFile, queue: QueueFiles) -> int | None:
    """Returns where the first unit of a file points, None if it is not written or pre-blank."""
    try:
        with ReadFile(file.path) as opened:
            data = opened.read(0, queue.unit.size)
    except StoreError:
        return None
    if len(data) < queue.unit.size:
        return None
    unit = np.frombuffer(data, queue.unit.dtype, 1)[0]
    real = 0 < int(unit["size"]) < PRE_BLANK_SIZE_FIELD
    return int(unit["physical_offset"]) if real else None
