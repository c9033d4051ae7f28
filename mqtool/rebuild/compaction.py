"""Rebuilds compacted topics: the log and the queue that a broker keeps for each of their queues.

A broker serves a compacted topic from these files only. It appends to them what it dispatches, and never creates them
again from the CommitLog. Source: CompactionStore, CompactionLog, SparseConsumeQueue (5.5.0).
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.formats import commit_log, file_names, properties
from mqtool.formats.commit_log import BLANK_SIZE, Record
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    SPARSE_END_UNIT,
    BatchConsumeQueueUnit,
    tags_code,
)
from mqtool.formats.topics import TopicQueue
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.queue_writer import QueueName
from mqtool.records.damage import Damage
from mqtool.store.file_sizes import compaction_sizes
from mqtool.store.files import MappedFile, list_mapped_files
from mqtool.store.layout import queue_directories
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.readable_parts import UnreadableParts
from mqtool.store.queues.consume_queue import Queue, has_record, valid_units
from mqtool.store.store import Store
from mqtool.store.target import CompactedLog

_LOG, _QUEUE = file_names.COMPACTION_LOG, file_names.COMPACTION_CONSUME_QUEUE
_EVER = 1 << 63
_KEYS_MARK = properties.mark(properties.KEYS)


class CompactedQueue(Struct, frozen=True):
    """One rebuilt queue of a compacted topic."""

    name: TopicQueue  # topic and queue id
    offsets: np.ndarray  # int64, queue offsets of its messages
    lost: np.ndarray  # int64, queue offsets of messages that its old units prove and that no file has any more
    notes: tuple[str, ...] = ()  # parts that could not be read, in sentences


class _Message(Struct, frozen=True):
    """One message and the log from which it can be read."""

    log: CommitLog  # a compacted log or a CommitLog
    physical_offset: int  # and size: of its record there
    size: int
    queue_offset: int  # of the message
    keys: bytes  # its KEYS, by which the broker compacts; b"" if it has none
    has_body: bool  # a message without a body deletes its key


def rebuild_compaction(
    stores: Sequence[Store], new: Store, output: OutputFiles, without_topics: Collection[str] = ()
) -> Iterator[CompactedQueue]:
    """Writes the compacted topics of a store into a new one, and yields each of their queues.

    Every valid record of the first store's compacted log is kept. What that log lacks is taken from those of the copies
    and from the CommitLog: messages that its units name, messages after its end, and the newest one of each key, which
    compaction never removes. The new store has its CommitLog, its queues and its topics.
    """
    queues = {(queue.topic, queue.queue_id): queue for queue in new.disk_queues() if not queue.is_batch}
    compacted = {topic for topic, config in new.metadata.topics.items() if config.is_compacted}
    names = {key for key in queues if key[0] in compacted}
    files: dict[str, list[MappedFile]] = {_LOG: [], _QUEUE: []}
    for store in stores:
        for part, listed in files.items():
            for topic, queue_id, path in queue_directories(store.path / part):
                names.add((topic, queue_id))
                listed.extend(list_mapped_files(path).files)
    sizes = compaction_sizes(stores[0].config, files[_LOG], files[_QUEUE])
    for name in sorted(names):
        if name[0] in without_topics:
            continue
        with contextlib.ExitStack() as stack:
            old, *copies = [stack.enter_context(_OldQueue(store, name)) for store in stores]
            copied = [message for copy in copies for message in (*copy.messages.values(), *copy.replaced)]
            messages = _merged(old, [*old.replaced, *copied, *_queued(new, queues.get(name))])
            written = np.array(_write(messages, QueueName(*name), output, *sizes), np.int64)
            notes = tuple(note for queue in (old, *copies) for note in queue.unreadable.sentences())
        yield CompactedQueue(name, written, np.setdiff1d(np.array(sorted(old.proved), np.int64), written), notes)


class _OldQueue:
    """A compacted queue of one store, as its files are.

    Attributes:
        messages: the valid ones, by queue offset. A record whose queue offset does not fit between those of its
            neighbours on which record and unit agree is left out.
        proved: queue offsets that units state.
        replaced: messages in files of a compaction that was interrupted: the old files and the new ones.
        unreadable: parts of its files.
    """

    def __init__(self, store: Store, name: TopicQueue) -> None:
        log, queue = (store.path / part / name[0] / str(name[1]) for part in (_LOG, _QUEUE))
        self.unreadable = UnreadableParts()
        self._logs: list[CompactedLog] = []
        listed = list_mapped_files(log)
        deleted = [
            MappedFile(path, base, path.stat().st_size)
            for path in listed.strays
            if path.suffix == file_names.DELETE_SUFFIX
            and (base := file_names.parse_mapped_file_name(path.stem)) is not None
        ]
        units: dict[int, int] = {}
        for file in list_mapped_files(queue).files:
            with self.unreadable.open(file.path, file.size) as opened:
                rows = valid_units(opened.read(0, file.size))
            units.update(zip(rows["physical_offset"].tolist(), rows["base_queue_offset"].tolist(), strict=True))
        self.messages = {message.queue_offset: message for message in self._in_order(listed.files, units)}
        compacting = list_mapped_files(log / file_names.COMPACTING).files
        self.replaced = [message for files in (deleted, compacting) for message in self._in_order(tuple(files), {})]
        valid = {message.physical_offset for message in self.messages.values()}
        self.proved = {offset for physical, offset in units.items() if physical not in valid} | set(self.messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for log in self._logs:
            log.close()

    def _in_order(self, files: tuple[MappedFile, ...], units: dict[int, int]) -> Iterator[_Message]:
        log = CompactedLog(files)
        log.unreadable = self.unreadable
        self._logs.append(log)
        messages = [
            _message(log, commit_log.parse_record(item.view, position))
            for item in log.walk()
            if not isinstance(item, Damage)
            for position in item.positions.tolist()
        ]
        ceilings = [_EVER]
        for message in reversed(messages):
            is_agreed = units.get(message.physical_offset) == message.queue_offset
            ceilings.append(message.queue_offset if is_agreed else ceilings[-1])
        last = -1
        for message, ceiling in zip(messages, reversed(ceilings[:-1]), strict=True):
            if last < message.queue_offset < ceiling:
                yield message
                last = message.queue_offset


def _message(log: CommitLog, record: Record) -> _Message:
    keys = properties.value(record.properties, _KEYS_MARK).strip()
    return _Message(log, record.physical_offset, record.total_size, record.queue_offset, keys, bool(record.body))


def _queued(store: Store, queue: Queue | None) -> Iterator[_Message]:
    """Yields the messages of an ordinary queue whose records are in the log."""
    if queue is None:
        return
    units = queue.units()
    for physical, size in units[has_record(units)][["physical_offset", "size"]].tolist():
        if physical >= store.commit_log.min_offset:
            yield _message(store.commit_log, store.commit_log.record(physical, size))


def _merged(old: _OldQueue, others: Sequence[_Message]) -> list[_Message]:
    """Returns the messages of a compacted queue, with those of `others` that it lacks, by queue offset."""
    messages = dict(old.messages)
    last = max(messages, default=-1)
    newest: dict[bytes, int] = {}
    for message in (*messages.values(), *others):
        newest[message.keys] = max(message.queue_offset, newest.get(message.keys, -1))
    for message in others:
        offset = message.queue_offset
        is_newest = message.has_body and newest[message.keys] == offset
        if message.keys and (offset in old.proved or offset > last or is_newest):
            messages.setdefault(offset, message)
    return [messages[offset] for offset in sorted(messages)]


def _write(messages: list[_Message], name: QueueName, output: OutputFiles, log_size: int, queue_size: int) -> list[int]:
    """Writes log and queue as CompactionAppendMessageCallback does; returns the queue offsets written.

    Messages that do not fit into a file are left out.
    """
    written: list[int] = []
    base = position = unit = 0

    def write(part: str, size: int, at: int, data: bytes) -> None:
        output.write(f"{name.below(part)}/{file_names.mapped_file_name(base)}", size, at, data)

    for message in messages:
        if message.size + BLANK_SIZE > log_size:
            continue
        is_queue_full = (unit + 1) * BATCH_UNIT_SIZE >= queue_size
        if is_queue_full or position + message.size + BLANK_SIZE > log_size:
            write(_LOG, log_size, position, commit_log.build_blank(log_size - position))
            write(_QUEUE, queue_size, unit * BATCH_UNIT_SIZE, BATCH_CONSUME_QUEUE_UNIT.build(SPARSE_END_UNIT))
            base, position, unit = base + log_size, 0, 0
        record = replace(message.log.record(message.physical_offset, message.size), physical_offset=base + position)
        write(_LOG, log_size, position, properties.renew_crc32(commit_log.build_record(record)))
        tags = properties.decode(record.properties).get(properties.TAGS)
        row = BatchConsumeQueueUnit(
            base + position, message.size, tags_code(tags), record.store_timestamp, message.queue_offset, 1
        )
        write(_QUEUE, queue_size, unit * BATCH_UNIT_SIZE, BATCH_CONSUME_QUEUE_UNIT.build(row))
        written.append(message.queue_offset)
        position, unit = position + message.size, unit + 1
    return written
