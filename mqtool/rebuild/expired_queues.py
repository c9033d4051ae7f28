"""Queues whose messages have all expired: the last unit of each, with which a copy continues at the same queue offset.

A log does not contain these queues any more, so a rebuild does not create them. A broker keeps the last file of a
queue, and gives its next message the queue offset after the last unit, whose record has expired
(MappedFileQueue.deleteExpiredFileByOffset, ConsumeQueue.getMaxOffsetInQueue, 4.9.7 and 5.5.0). In RocksDB it keeps the
bound (RocksDBConsumeQueueOffsetTable.loadMaxConsumeQueueOffsets, 5.5.0).
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mqtool.formats import file_names
from mqtool.formats.commit_log import MIN_RECORD_SIZE
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    PRE_BLANK,
    UNIT_SIZE,
    ConsumeQueueUnit,
)
from mqtool.rebuild.files import FileSequence, OutputFiles
from mqtool.rebuild.queue_writer import QueueName
from mqtool.rebuild.settings import RebuildSettings
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store, open_store

NOWHERE = 1
"""Physical offset before a log that begins later, for units without a record: 4.9 takes the first file of the log for
0, wherever that begins (CommitLog.getData, 4.9.7)."""


class ExpiredQueue(Struct, frozen=True):
    """The last unit of a queue that has no message left."""

    name: QueueName  # of the queue
    is_batch: bool  # whether it is a BatchConsumeQueue
    queue_offset: int  # of the unit
    physical_offset: int  # of its record, before the start of the log
    unit: bytes  # as a file stores it, with a tags code of 0, since nothing reads it any more

    def moved(self) -> "ExpiredQueue":
        """Returns the same for a store whose records have other physical offsets: its record is before all of them."""
        if self.is_batch:
            batch = BATCH_CONSUME_QUEUE_UNIT.parse(self.unit)
            unit = BATCH_CONSUME_QUEUE_UNIT.build(replace(batch, physical_offset=NOWHERE))
        else:
            plain = CONSUME_QUEUE_UNIT.parse(self.unit)
            unit = CONSUME_QUEUE_UNIT.build(replace(plain, physical_offset=NOWHERE))
        return replace(self, physical_offset=NOWHERE, unit=unit)


def expired_queues(store: Store, existing: Collection[QueueName], log_start: int) -> Iterator[ExpiredQueue]:
    """Yields the queues of a store that have units, none of which a new log or its queues contain.

    Args:
        store: opened.
        existing: queues that the new store has.
        log_start: physical offset at which the new log starts.

    Raises:
        StoreError: a queue cannot be read.
    """
    known, queues = set(existing), store.disk_queues()
    bounds = {bound.name: bound for bound in _bounds(store, log_start)}
    for queue in queues:
        name = QueueName(queue.topic, queue.queue_id)
        expired = None if name in known or not name.is_path else _last_of(queue, name, log_start)
        newer = bounds.get(name)  # compaction may have deleted only the newest units
        if expired is not None and (newer is None or newer.queue_offset <= expired.queue_offset):
            known.add(name)
            yield expired
    for name, bound in bounds.items():
        if name not in known and name.is_path:
            yield bound


def _last_of(queue: Queue, name: QueueName, log_start: int) -> ExpiredQueue | None:
    last = queue.last_unit(lambda units: units["physical_offset"] < log_start)
    if last is None:
        return None
    number, index, stored = last
    unit = stored.copy()
    unit["tags_code"] = 0
    offset = int(unit["base_queue_offset"]) if queue.is_batch else queue.files[number].base // UNIT_SIZE + index
    return ExpiredQueue(name, queue.is_batch, offset, int(unit["physical_offset"]), unit.tobytes())


def _bounds(store: Store, log_start: int) -> Iterator[ExpiredQueue]:
    """Yields the queues of which RocksDB has only the bound: compaction deletes units before the start of the log."""
    database = store.rocksdb.database if store.rocksdb else None
    if database is None or store.rocksdb is None or store.rocksdb.problem:
        return
    for name, bound in database.ends().items():
        if 0 <= bound.physical_offset < log_start and bound.queue_offset >= 0:
            plain = ConsumeQueueUnit(bound.physical_offset, MIN_RECORD_SIZE, 0)  # the bound does not state the size
            unit = CONSUME_QUEUE_UNIT.build(plain)
            yield ExpiredQueue(QueueName(*name), False, bound.queue_offset, bound.physical_offset, unit)


def write_expired_queues(
    stores: Iterable[Store],
    target: Path,
    settings: RebuildSettings,
    config: BrokerConfig | None = None,
    *,
    expired_before: int | None = None,
    without_topics: Collection[str] = (),
) -> None:
    """Writes the ends of queues whose messages have expired into a new store that has its log and its other queues.

    Args:
        stores: the old store and its copies, opened; the first that has the end of a queue decides.
        target: root of the new store.
        settings: sizes of the new files.
        config: to read the new store with.
        expired_before: physical offset in the old stores before which records have expired, if they have other offsets
            in the new store; None if they have the same.
        without_topics: topics whose queues begin at 0 again.

    Raises:
        StoreError: a queue cannot be read or written.
    """
    with open_store(target, config) as opened:
        existing = {QueueName(queue.topic, queue.queue_id) for queue in opened.disk_queues()}
        log_start = opened.commit_log.min_offset if expired_before is None else expired_before
    with OutputFiles(target) as output:
        for store in stores:
            for expired in expired_queues(store, existing, log_start):
                existing.add(expired.name)
                if expired.name.topic not in without_topics:
                    write_expired(expired if expired_before is None else expired.moved(), output, settings)


def has_expired_queue(store: Store, expired_before: int) -> bool:
    """Whether a store has a queue of which no message is left.

    Args:
        store: opened.
        expired_before: physical offset before which records have expired.

    Raises:
        StoreError: a queue cannot be read.
    """
    left = {
        QueueName(queue.topic, queue.queue_id)
        for queue in store.disk_queues()
        if queue.last_unit(lambda units: units["physical_offset"] >= expired_before) is not None
    }
    return next(expired_queues(store, left, expired_before), None) is not None


def write_expired(queue: ExpiredQueue, output: OutputFiles, settings: RebuildSettings) -> None:
    """Writes the file of a queue that ends with its expired unit.

    Raises:
        StoreError: the operating system refuses.
    """
    if queue.is_batch:
        unit = BATCH_CONSUME_QUEUE_UNIT.size
        size = settings.batch_consume_queue_size // unit * unit
        files = FileSequence(output, queue.name.below(file_names.BATCH_CONSUME_QUEUE), size)
    else:
        files = FileSequence(output, queue.name.below(file_names.CONSUME_QUEUE), settings.consume_queue_size)
        before = queue.queue_offset % (files.file_size // UNIT_SIZE)
        files.start((queue.queue_offset - before) * UNIT_SIZE)
        files.append(CONSUME_QUEUE_UNIT.build(PRE_BLANK) * before)
    files.append(queue.unit)
    files.flush()
