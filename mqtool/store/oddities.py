"""What an operator should know first about a store. Hints, not findings: `verify` proves."""

from collections.abc import Iterator
from itertools import pairwise

from mqtool.errors import UnreadableError
from mqtool.formats import file_names
from mqtool.formats.topics import LMQ_PREFIX, SCHEDULE_TOPIC
from mqtool.store.store import Store


def oddities(store: Store) -> list[str]:
    """Returns sentences, the most important first."""
    return [*_stop(store), *_log(store), *_queues(store), *_index(store), *_metadata(store), *store.layout.oddities]


def _stop(store: Store) -> Iterator[str]:
    if not store.clean_stop:
        yield "the last broker did not shut down cleanly, or is running: abort exists"
    if store.checkpoint is None:
        yield "there is no checkpoint that can be read"


def _log(store: Store) -> Iterator[str]:
    log = store.commit_log
    entries = [file for file in store.layout.commit_log.files if file.entries]
    if entries:
        yield f"the log from physical offset {entries[0].base} on is a DLedger log, {entries[0].path.parent}"
    elif store.layout.dledger_dirs:
        yield f"{store.layout.dledger_dirs[0].name}/ is there, and no data file of a DLedger log in use"
    if log.tail.kind not in ("clean", "unreadable"):  # "unreadable" was reported before, with the other unknowns
        yield f"after the last record: {log.tail.kind}, {log.tail.length} bytes: {log.tail.detail}"
    for before, after in pairwise(store.layout.commit_log.files):
        if before.end < after.base:
            yield f"no file holds physical offsets {before.end} to {after.base}"
        elif before.end > after.base:
            yield f"{before.path.name} and {after.path.name} overlap by {before.end - after.base} bytes"
    empty = [segment.path.name for segment in log.segments if not segment.size]
    if empty:
        yield f"segments without a byte: {', '.join(empty[:5])}"


def _queues(store: Store) -> Iterator[str]:
    log, is_known = store.commit_log, not store.unlisted
    dispatched = max((queue.max_physical_offset for queue in store.disk_queues()), default=0)
    if is_known and log.segments and dispatched < log.max_offset and log.tail.kind != "unreadable":
        yield f"the queues end at physical offset {dispatched}, the log at {log.max_offset}"
    for queue in store.queues():
        name = f"{queue.topic}/{queue.queue_id}"
        if queue.strays:
            yield f"queue {name} contains files that do not belong to it: {queue.strays[0].name}"
        ends = [file.end for file in queue.files]
        if any(end != file.base for end, file in zip(ends, queue.files[1:], strict=False)) and not queue.is_batch:
            yield f"files of queue {name} do not follow one another"
    if store.rocksdb and store.rocksdb.exists:
        yield store.unread_queues or "the queues are in RocksDB"


def _index(store: Store) -> Iterator[str]:
    yield from (f"index file {problem}" for problem in store.unread_index_files)
    for file in store.disk_index_files():
        try:
            if file.entry_count and not file.slot_count:
                yield f"index file {file.path.name}: its chains fit no number of slots"
        except UnreadableError as error:
            yield f"index file {file.path.name}: {error.reason}"
        if not store.unlisted and file.header.end_physical_offset > store.commit_log.max_offset:
            end = file.header.end_physical_offset
            yield f"index file {file.path.name} ends at physical offset {end}, after the end of the log"


def _metadata(store: Store) -> Iterator[str]:
    yield from (f"configuration: {problem}" for problem in store.metadata.problems)
    if store.metadata.topics_file is not None:
        unknown = sorted({queue.topic for queue in store.queues()} - set(store.metadata.topics))
        foreign = [topic for topic in unknown if not topic.startswith((LMQ_PREFIX, SCHEDULE_TOPIC))]
        if foreign:
            yield f"topics with queues but without configuration: {', '.join(foreign[:5])}"
    ahead = [lag for lag in store.lags() if lag.max_offset is not None and lag.consumer_offset > lag.max_offset]
    for lag in () if store.unlisted else ahead[:5]:
        place = f"{lag.topic}/{lag.queue_id}"
        yield f"group {lag.group} is ahead of queue {place}: {lag.consumer_offset} of {lag.max_offset}"
    if store.metadata.topics_file is None:
        yield f"there is no {file_names.TOPICS} that can be read: which topics there should be is unknown"
