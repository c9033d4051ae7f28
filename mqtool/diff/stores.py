"""Compares two stores part by part."""

from collections.abc import Collection, Iterator

from mqtool.diff.commit_logs import compare_logs
from mqtool.diff.differences import Difference, LogDifference, OffsetDifference, QueueDifference
from mqtool.diff.queue_units import compare_queue
from mqtool.errors import UnreadableError
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.store import Store
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.queues.queue_database import has_queues_only_in_database

PARTS = ("log", "queues", "offsets")
"""The parts of a store that can be compared."""

Key = tuple[str, str, int]


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
