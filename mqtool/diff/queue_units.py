"""Compares the ConsumeQueues of two stores unit by unit, as they are on disk."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field

from mqtool.diff.differences import Interval, QueueDifference
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.store.queues.consume_queue import Queue, has_record

UNIT = CONSUME_QUEUE_UNIT.dtype
STEP = 1 << 18
"""Number of units that are compared at a time."""
MAX_RUNS = 1000
"""Maximum number of runs of queue offsets reported for each store and queue; further messages are only counted."""


class _OffsetRanges(Struct):
    """Collects queue offsets of messages as runs, and counts the messages."""

    runs: list[Interval] = field(default_factory=list)
    messages: int = 0

    def add(self, first: int, last: int) -> None:
        self.messages += last - first + 1
        if self.runs and self.runs[-1][1] + 1 == first:
            self.runs[-1] = (self.runs[-1][0], last)
        elif len(self.runs) < MAX_RUNS:
            self.runs.append((first, last))

    def add_each(self, offsets: np.ndarray) -> None:
        """Adds ascending queue offsets."""
        if len(offsets):
            breaks = np.flatnonzero(np.diff(offsets) != 1)
            first = np.concatenate([[0], breaks + 1])
            last = np.concatenate([breaks, [len(offsets) - 1]])
            for low, high in zip(offsets[first].tolist(), offsets[last].tolist(), strict=True):
                self.add(low, high)


def compare_queue(a: Queue | None, b: Queue | None) -> QueueDifference | None:
    """Compares one queue; returns None if both stores have the same messages at the same queue offsets.

    Only units whose record is in the CommitLog count: units of deleted messages and units that point past the end of
    the log are ignored.

    Raises:
        StoreError: a file cannot be read.
    """
    bounds = _bounds(a), _bounds(b)
    only, different = (_OffsetRanges(), _OffsetRanges()), _OffsetRanges()
    if any(queue is not None and queue.is_batch for queue in (a, b)):
        _batches(a, b, only, different)
    else:
        for offsets, left, right in _blocks(a, b, bounds):
            in_a, in_b = has_record(left), has_record(right)
            only[0].add_each(offsets[in_a & ~in_b])
            only[1].add_each(offsets[in_b & ~in_a])
            different.add_each(offsets[in_a & in_b & (left != right)])
    if bounds[0] == bounds[1] and not (only[0].messages or only[1].messages or different.messages):
        return None
    named = a or b
    assert named is not None
    return QueueDifference(
        named.topic,
        named.queue_id,
        *bounds,
        tuple(only[0].runs),
        tuple(only[1].runs),
        only[0].messages,
        only[1].messages,
        different.messages,
        different.runs[0][0] if different.runs else None,
    )


def _bounds(queue: Queue | None) -> Interval | None:
    return None if queue is None else (max(0, queue.min_offset), queue.max_offset)


def _blocks(
    a: Queue | None, b: Queue | None, bounds: tuple[Interval | None, Interval | None]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (queue offsets, units of a, units of b) for each block that differs; missing units are zero."""
    known = [each for each in bounds if each is not None and each[0] < each[1]]
    low, high = min((each[0] for each in known), default=0), max((each[1] for each in known), default=0)
    for first in range(low, high, STEP):
        last = min(high, first + STEP)
        left, right = _units(a, bounds[0], first, last), _units(b, bounds[1], first, last)
        if left.tobytes() != right.tobytes():
            yield np.arange(first, last), left, right


def _units(queue: Queue | None, bounds: Interval | None, first: int, last: int) -> np.ndarray:
    """Returns the units of queue offsets `first` to `last` (exclusive); units outside the queue's bounds are zero."""
    padded = np.zeros(last - first, UNIT)
    if queue is None or bounds is None:
        return padded
    low, high = max(first, bounds[0]), min(last, bounds[1])
    for number, file in enumerate(queue.files):
        base = file.base // queue.unit_size
        start, end = max(low, base), min(high, file.end // queue.unit_size)
        if start < end:
            units = queue.units_of(number)[start - base : end - base]
            padded[start - first : start - first + len(units)] = units
    return padded


def _batches(
    a: Queue | None, b: Queue | None, only: tuple[_OffsetRanges, _OffsetRanges], different: _OffsetRanges
) -> None:
    """Compares BatchConsumeQueues, matching their units by first queue offset."""
    sides = [_by_first_offset(queue) for queue in (a, b)]
    for mine, other, unmatched in ((sides[0], sides[1], only[0]), (sides[1], sides[0], only[1])):
        for first in sorted(mine.keys() - other.keys()):
            unmatched.add(first, first + max(1, int(mine[first]["batch_size"])) - 1)
    for first in sorted(sides[0].keys() & sides[1].keys()):
        unit_a, unit_b = sides[0][first], sides[1][first]
        if unit_a.tobytes() != unit_b.tobytes():
            different.add(first, first + max(1, int(unit_a["batch_size"])) - 1)


def _by_first_offset(queue: Queue | None) -> dict[int, np.void]:
    if queue is None or not queue.is_batch:
        return {}
    units, (low, high) = queue.units(), (max(0, queue.min_offset), queue.max_offset)
    first = units["base_queue_offset"].astype(np.int64)
    inside = np.flatnonzero(has_record(units) & (first >= low) & (first < high))
    return {int(first[number]): units[number] for number in inside.tolist()}
