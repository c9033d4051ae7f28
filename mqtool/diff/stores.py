"""Compares two stores part by part."""

from collections.abc import Collection, Iterator

from mqtool.diff.differences import (
    Difference,
    Interval,
    LogDifference,
    LogTail,
    OffsetDifference,
    QueueDifference,
    UnsharedRange,
)
from mqtool.diff.log_bytes import common, compare_bytes, coverage, same_length, without
from mqtool.diff.log_records import differing_records, regions_of
from mqtool.diff.queue_units import compare_queue
from mqtool.errors import UnreadableError
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.records.damage import Damage
from mqtool.records.dispatch import is_queued
from mqtool.store import Store
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.queues.rocksdb_queues import has_queues_only_in_database

PARTS = ("log", "queues", "offsets")
"""The parts of a store that can be compared."""
Key = tuple[str, str, int]


def compare_logs(a: CommitLog, b: CommitLog, on_progress: OnProgress = ignore) -> LogDifference:
    """Compares two logs.

    Args:
        a, b: the logs.
        on_progress: called with the number of bytes compared so far, and the number of bytes that both logs have.

    Raises:
        StoreError: a file cannot be read.
    """
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
        _bounds(a, in_a),
        _bounds(b, in_b),
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


def _bounds(log: CommitLog, covered: list[Interval]) -> Interval | None:
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
    """Compares two stores; nothing is written to either.

    Args:
        a, b: the stores.
        parts: which of `PARTS` to compare.
        on_progress: called with the number of CommitLog bytes compared so far, and the number that both stores have.

    Raises:
        StoreError: a file was deleted or cut meanwhile.
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
