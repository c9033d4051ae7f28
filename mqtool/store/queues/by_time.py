"""Finds the queue offset for a store time: the broker's search, with both boundaries.

Source: ConsumeQueueStore.getOffsetInQueueByTime, ConsumeQueue.binarySearchInQueueByTime (5.5.0),
ConsumeQueue.getOffsetInQueueByTime (4.9.7). Tests compare it with answers of the real store.
"""

import enum

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats.release import Release
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import Queue


class Boundary(enum.Enum):
    """Which of several offsets with the same time to return (BoundaryType)."""

    LOWER = "LOWER"
    """The smallest offset whose message is not older than the time."""
    UPPER = "UPPER"
    """The largest offset whose message is not younger."""


class _TimeSearch:
    def __init__(self, log: CommitLog, queue: Queue) -> None:
        self._log = log
        self._queue = queue

    def store_time(self, number: int, index: int) -> int:
        """Returns the store time of the record that a unit names, -1 if it cannot be read (pickupStoreTimestamp)."""
        unit = self._queue.units_of(number)[index]
        physical_offset, size = int(unit["physical_offset"]), int(unit["size"])
        if physical_offset < self._log.min_offset or physical_offset + size > self._log.max_offset:
            return -1
        try:
            return self._log.record(physical_offset, size).store_timestamp
        except StoreError:
            return -1

    def counts(self) -> list[int]:
        """Number of units in use in each file, up to the queue's end."""
        queue, counts = self._queue, []
        for number, file in enumerate(queue.files):
            first = file.base // queue.unit_size
            counts.append(max(0, min(len(queue.units_of(number)), queue.max_offset - first)))
        return counts

    def choose(self, time: int, boundary: Boundary, counts: list[int]) -> int | None:
        """Returns the number of the file to search (MappedFileQueue.getConsumeQueueMappedFileByTime)."""
        used = [number for number, count in enumerate(counts) if count]
        if not used:
            return None
        if boundary is Boundary.UPPER:
            return next((n for n in reversed(used) if self.store_time(n, 0) <= time), None)
        return next((n for n in used[:-1] if self.store_time(n, counts[n] - 1) >= time), used[-1])

    def search(self, number: int, time: int, boundary: Boundary, count: int) -> int:
        queue = self._queue
        first = queue.files[number].base // queue.unit_size
        low, ceiling = max(0, queue.min_offset - first), count - 1
        if self.store_time(number, ceiling) < time:
            return first + ceiling + (boundary is Boundary.LOWER)
        if self.store_time(number, low) > time:
            return first if boundary is Boundary.LOWER else 0
        return self._halve(number, time, boundary, (low, ceiling, first))

    def _halve(self, number: int, time: int, boundary: Boundary, bounds: tuple[int, int, int]) -> int:
        low, high, first = bounds
        left = right = -1
        ceiling = high
        units = self._queue.units_of(number)
        while low <= high:
            middle = (low + high) // 2
            if int(units[middle]["physical_offset"]) < self._log.min_offset:
                low, left = middle + 1, middle
                continue
            stored_time = self.store_time(number, middle)
            if stored_time < 0:
                return 0
            if stored_time == time:
                return first + self._edge(number, middle, time, boundary, ceiling)
            if stored_time > time:
                high = middle - 1
                right = middle
            else:
                low = middle + 1
                left = middle
        chosen = right if boundary is Boundary.LOWER else left
        return first + chosen if chosen >= 0 else 0

    def nearest(self, time: int, counts: list[int]) -> int:
        """Searches like 4.x: the first file modified since, and in it the unit nearest in time."""
        queue = self._queue
        modified = (number for number in range(len(queue.files)) if queue.modified_ms(number) >= time)
        number = next(modified, len(queue.files) - 1)
        first = queue.files[number].base // queue.unit_size
        units = queue.units_of(number)
        low, high = max(0, queue.min_offset - first), counts[number] - 1
        left, right, left_time, right_time = -1, -1, -1, -1
        while low <= high:
            middle = (low + high) // 2
            if int(units[middle]["physical_offset"]) < self._log.min_offset:
                low, left = middle + 1, middle
                continue
            stored_time = self.store_time(number, middle)
            if stored_time < 0:
                return 0
            if stored_time == time:
                return first + middle
            if stored_time > time:
                high, right, right_time = middle - 1, middle, stored_time
            else:
                low, left, left_time = middle + 1, middle, stored_time
        if left_time == -1 or (right_time != -1 and time - left_time > right_time - time):
            return max(0, first + right)
        return first + left

    def _edge(self, number: int, at: int, time: int, boundary: Boundary, ceiling: int) -> int:
        """Moves across equal times to the first or last of them."""
        step, stop = (-1, 0) if boundary is Boundary.LOWER else (1, ceiling)
        while at != stop and self.store_time(number, at + step) == time:
            at += step
        return at


def offset_in_queue_by_time(
    log: CommitLog, queue: Queue | None, time: int, boundary: Boundary, *, release: Release
) -> int:
    """Returns the queue offset that the broker returns for a store time in ms; 0 for an unknown queue.

    Releases 4.x have no boundary.
    """
    if queue is None or not queue.files:
        return 0
    if queue.is_batch:
        return _in_batches(queue, time, boundary)
    search = _TimeSearch(log, queue)
    counts = search.counts()
    if release < (5, 0):
        return search.nearest(time, counts)
    number = search.choose(time, boundary, counts)
    offset = search.search(number, time, boundary, counts[number]) if number is not None else 0
    return max(queue.min_offset, min(offset, queue.max_offset))


def _in_batches(queue: Queue, time: int, boundary: Boundary) -> int:
    """Searches a batch queue, whose units contain the time (BatchConsumeQueue.getOffsetInQueueByTime)."""
    units = queue.units()
    if not len(units):
        return -1
    times, bases = units["store_timestamp"].astype(np.int64), units["base_queue_offset"]
    if time >= times[-1]:
        return int(bases[-1])
    at = int(np.searchsorted(times, time)) if boundary is Boundary.LOWER else _batch_upper(times.tolist(), time)
    return int(bases[at]) if at >= 0 else max(0, queue.min_offset)


def _batch_upper(times: list[int], time: int) -> int:
    """Bisects like 5.5.0 for UPPER, which finds little more than exact times; -1 if it finds nothing."""
    left, right = 0, len(times) - 1
    while left <= right:
        middle = (left + right) // 2
        if times[middle] == time or (middle == right and times[middle] > time):
            return middle
        if middle == left and times[middle] > time:
            return -1
        if times[middle] < time:
            left = middle + 1
        else:
            right = middle - 1
    return -1
