"""Compares two stores part by part; their ConsumeQueues unit by unit, as they are on disk.

"a" is the first store, "b" the second.
"""

from collections.abc import Collection, Iterator

import numpy as np
from msgspec import Struct, field

from mqtool.diff.log_records import (
    Interval,
    Region,
    common,
    compare_bytes,
    coverage,
    differing_records,
    regions_of,
    same_length,
    without,
)
from mqtool.errors import UnreadableError
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.records.damage import Damage
from mqtool.records.dispatch import is_queued
from mqtool.store import Store
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.store.queues.rocksdb_queues import has_queues_only_in_database

UNIT = CONSUME_QUEUE_UNIT.dtype

STEP = 1 << 18
"""Number of units that are compared at a time."""

MAX_RUNS = 1000
"""Maximum number of runs of queue offsets reported for each store and queue; further messages are only counted."""

PARTS = ("log", "queues", "offsets")
"""The parts of a store that can be compared."""

Key = tuple[str, str, int]


class UnsharedRange(Struct, frozen=True):
    """A range of the log that only one store has."""

    side: str  # the store that has it, "a" or "b"
    start: int  # and end: physical offsets, half-open
    end: int
    # "front" (the other store's retention deleted it, or it was never copied), "end" (not copied yet, or cut off),
    # "gap" (a segment between two others is missing).
    kind: str
    messages: int  # number of valid records that start in the range and belong into a queue


class LogTail(Struct, frozen=True):
    """The bytes after the last record of one store. They are not part of the log and do not count as a difference."""

    kind: str  # clean, torn, stale or garbage, as in `mqtool.records.damage.Tail`
    start: int  # physical offset after the last record
    length: int  # number of bytes up to the last one that is not zero
    same: int  # number of leading bytes that the other store has at the same physical offsets
    detail: str  # description in words


class LogDifference(Struct, frozen=True):
    """Differences of two CommitLogs."""

    # a, b: for each log, the physical offset of its first byte and that after its last record; None if the log is
    # empty.
    a: Interval | None
    b: Interval | None
    # The range, from the later of the two starts on, in which both are equal; None if the logs do not overlap.
    common: Interval | None
    # Physical offset of the first record that differs, or at which one log ends; None if both are equal up to their
    # common end.
    diverges_at: int | None
    first_byte: int | None  # physical offset of the first differing byte; None if all common bytes are equal
    same_bytes: int  # and different_bytes: numbers of equal and of differing bytes in the ranges that both have
    different_bytes: int
    # Number of differing bytes after a BLANK. A broker does not clear them, so they do not count as a difference.
    filler_bytes: int
    regions: tuple[Region, ...]  # the differing regions, ascending; at most `MAX_REGIONS`
    region_count: int  # number of all differing regions
    messages_a: int  # and messages_b: number of messages of each log in all regions
    messages_b: int
    alone: tuple[UnsharedRange, ...]  # ranges that only one log has, ascending
    tail_a: LogTail | None  # and tail_b: the bytes after the last record of each log
    tail_b: LogTail | None

    @property
    def equal(self) -> bool:
        """Whether both logs hold the same records and nothing else."""
        return not self.region_count and not self.alone


class QueueDifference(Struct, frozen=True):
    """Differences of one queue."""

    topic: str  # and queue_id: which queue
    queue_id: int
    # bounds_a, bounds_b: min and max offset of the queue in each store; None if the store does not have it.
    bounds_a: Interval | None
    bounds_b: Interval | None
    # only_a, only_b: messages that only one store has, as runs of queue offsets: first and last, both inclusive.
    only_a: tuple[Interval, ...]
    only_b: tuple[Interval, ...]
    messages_a: int  # and messages_b: number of messages that only one store has
    messages_b: int
    different: int  # number of messages whose units differ: other records, sizes or tags codes
    first_different: int | None  # queue offset of the first of them; None if there is none


class OffsetDifference(Struct, frozen=True):
    """A consumer offset that differs between the stores; None in the store that has none."""

    group: str
    topic: str
    queue_id: int
    offset_a: int | None
    offset_b: int | None


class Difference(Struct, frozen=True):
    """Result of a comparison."""

    log: LogDifference | None  # differences of the CommitLogs; None if they were not compared
    queues: tuple[QueueDifference, ...]  # queues that differ, sorted by topic and queue id
    offsets: tuple[OffsetDifference, ...]  # consumer offsets that differ, sorted by group, topic and queue id
    queues_compared: int  # and offsets_compared: numbers of queues and consumer offsets compared
    offsets_compared: int
    not_compared: tuple[str, ...] = ()  # descriptions of what could not be compared

    @property
    def equal(self) -> bool:
        """Whether everything could be compared and is equal."""
        same_log = self.log is None or self.log.equal
        return same_log and not self.queues and not self.offsets and not self.not_compared


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
    """Compares one queue; returns None if both have the same messages at the same queue offsets; raises StoreError.

    Only units whose record is in the CommitLog count: units of deleted messages and units that point past the end of
    the log are ignored.
    """
    bounds = _queue_bounds(a), _queue_bounds(b)
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


def _queue_bounds(queue: Queue | None) -> Interval | None:
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


def compare_logs(a: CommitLog, b: CommitLog, on_progress: OnProgress = ignore) -> LogDifference:
    """Compares two logs; reports the bytes compared so far, and those that both have; raises StoreError."""
    in_a, in_b = coverage(a), coverage(b)
    both = common(in_a, in_b)
    runs = compare_bytes(a, b, both, on_progress)
    regions = regions_of(runs, differing_records(a, runs), differing_records(b, runs))
    alone = _unshared("a", a, in_a, in_b) + _unshared("b", b, in_b, in_a)
    alone.sort(key=lambda part: (part.start, part.side))
    begins = both[0][0] if both else 0
    splits = [part.start for part in alone if part.start >= begins] if both else [part.start for part in alone]
    changed = [regions.first[0].start] if regions.first else []
    diverges_at = min(changed + splits, default=None)
    first = next((int(s) for s in runs.starts.tolist() if regions.first and s >= regions.first[0].start), None)
    agreed = None if not both else (begins, both[-1][1] if diverges_at is None else max(begins, diverges_at))
    return LogDifference(
        _log_bounds(a, in_a),
        _log_bounds(b, in_b),
        agreed,
        diverges_at,
        first,
        runs.same,
        regions.different,
        regions.filler,
        regions.first,
        regions.count,
        regions.messages_a,
        regions.messages_b,
        tuple(alone),
        _tail(a, b),
        _tail(b, a),
    )


def _log_bounds(log: CommitLog, covered: list[Interval]) -> Interval | None:
    if not log.segments:
        return None
    return log.min_offset, max(log.min_offset, covered[-1][1] if covered else log.min_offset)


def _unshared(side: str, log: CommitLog, mine: list[Interval], others: list[Interval]) -> list[UnsharedRange]:
    unshared = []
    for start, end in without(mine, others):
        kind = "gap"
        if not others or start >= others[-1][1]:
            kind = "end"
        elif end <= others[0][0]:
            kind = "front"
        unshared.append(UnsharedRange(side, start, end, kind, _messages(log, start, end)))
    return unshared


def _messages(log: CommitLog, start: int, end: int) -> int:
    walk = log.walk(start, end, crc=False)
    return sum(int(is_queued(item).sum()) for item in walk if not isinstance(item, Damage))


def _tail(log: CommitLog, other: CommitLog) -> LogTail | None:
    if not log.segments:
        return None
    tail = log.tail
    same = same_length(log, other, tail.end, tail.length) if tail.length else 0
    return LogTail(tail.kind, tail.end, tail.length, same, tail.detail)


def compare(a: Store, b: Store, parts: Collection[str] = PARTS, on_progress: OnProgress = ignore) -> Difference:
    """Compares some of `PARTS` of two stores; nothing is written to either.

    Progress is the number of CommitLog bytes compared so far, and the number that both stores have. Raises StoreError
    if a file was deleted or cut meanwhile.
    """
    unread: dict[str, list[str]] = {}
    log: LogDifference | None = None
    if "log" in parts:
        try:
            log = compare_logs(a.commit_log, b.commit_log, on_progress)
        except UnreadableError as error:
            unread[str(error)] = ["the logs"]
    queues: list[QueueDifference] = []
    names: list[tuple[str, int]] = []
    if "queues" in parts:
        left, right = _queues(a), _queues(b)
        names = sorted({*left, *right})
        for name in names:
            try:
                difference = compare_queue(left.get(name), right.get(name))
            except UnreadableError as error:
                unread.setdefault(str(error), []).append(f"queue {name[0]}/{name[1]}")
            else:
                queues += [] if difference is None else [difference]
    offsets: list[OffsetDifference] = []
    keys: list[Key] = []
    if "offsets" in parts:
        before, after = dict(_offsets(a)), dict(_offsets(b))
        keys = sorted({*before, *after})
        offsets = [
            OffsetDifference(*key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)
        ]
    left_out = [f"{first}{f' and {len(more)} more' if more else ''}: {why}" for why, (first, *more) in unread.items()]
    left_out += [words for side, store in (("a", a), ("b", b)) for words in _unread(side, store, parts)]
    return Difference(log, tuple(queues), tuple(offsets), len(names), len(keys), tuple(left_out))


def _queues(store: Store) -> dict[tuple[str, int], Queue]:
    return {(queue.topic, queue.queue_id): queue for queue in store.disk_queues()}


def _offsets(store: Store) -> Iterator[tuple[Key, int]]:
    for group, topics in store.metadata.consumer_offsets.items():
        for topic, queues in topics.items():
            for queue_id, offset in queues.items():
                yield (group, topic, queue_id), offset


def _unread(side: str, store: Store, parts: Collection[str]) -> Iterator[str]:
    """Describes parts of a store that could not be compared and may therefore differ."""
    if "queues" in parts and has_queues_only_in_database(store.path, store.config):
        yield f"{side}: the queues are in RocksDB, which is not read"
    if "log" in parts and store.layout.has_unread_ledger:
        yield f"{side}: the DLedger log has no data file, or is not in use"
    if "offsets" in parts:
        yield from (f"{side}: {words}" for words in store.metadata.offset_tables.problems)
