"""Searches: messages by key, a queue's offset by time, store timestamps.

Docs page: docs/engine.md. Source: DefaultMessageStore.queryMessage/getStoreTime, CommitLog.pickupStoreTimestamp
(4.9.7, 5.5.0).
"""

import numpy as np

from mqtool import native
from mqtool.engine.index.index_files import Index
from mqtool.engine.queue.batch_queue import BatchQueue
from mqtool.engine.queue.queues import AnyQueue, Queues
from mqtool.engine.read.reader import Reader
from mqtool.engine.statuses import QueryResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.errors import CorruptionError, FormatError
from mqtool.formats import commit_log, index_file
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from mqtool.store.files import MappedFile as FileOnDisk
from mqtool.store.queues import by_time
from mqtool.store.queues.by_time import Boundary

UNKNOWN_TIME = -1


class Searcher:
    """Answers searches; thread-safe."""

    def __init__(self, reader: Reader, queues: Queues, index: Index | None) -> None:
        self._reader = reader
        self._log: CommitLog = reader.log
        self._queues = queues
        self._index = index
        self._finder: native.engine.Finder[QueryResult] | None = None
        if native.in_use() and index is not None:
            self._finder = native.engine.Finder(index, reader.log.queue, QueryResult)

    # -- by key --------------------------------------------------------------------------------------------------

    def query(self, topic: str, key: str, max_num: int, begin: int, end: int, *, tag: bool = False) -> QueryResult:
        """Returns records by the hash of their key; arguments as for `MessageStore.query_message`."""
        index, limit = self._index, min(max_num, self._reader.options.max_query)
        if self._finder is not None and not tag:
            result = self._finder.query(topic, key, limit, begin, end)
            if result is not None:
                return result
        if index is None or not index.files:
            return QueryResult([], [], 0, 0)
        text = index_file.tag_key_text(topic, key) if tag else index_file.key_text(topic, key)
        offsets = index.query(index_file.key_hash(text), limit, begin, end)
        if not offsets:
            return QueryResult([], [], 0, 0)
        offsets.sort()
        newest = index.files[-1].header
        # The broker repeats the query up to three times while no entry leads to a record; the result is the same.
        records: list[memoryview] = []
        places: list[int] = []
        for offset in offsets:
            record = self.record_at(offset)
            if record is not None:
                records.append(record)
                places.append(offset)
        return QueryResult(records, places, newest.end_timestamp, newest.end_physical_offset)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the record at a physical offset, None if there is no record."""
        file = self._log.queue.find(physical_offset)
        if file is None or not file.available:
            return None
        position, end = physical_offset - file.file_from_offset, file.read_position
        if position + commit_log.FRAME.size > end:
            return None
        view, left = file.view(), end - position
        if view is None:
            return None
        size = commit_log.frame_size(view, position, left)
        is_blank = size == left and commit_log.is_blank(view, position)  # a BLANK takes all that is left
        return view[position : position + size] if size and not is_blank else None

    # -- by time -------------------------------------------------------------------------------------------------

    def store_time(self, physical_offset: int, size: int) -> int:
        """Returns the store timestamp of a record, -1 if it is not completely in the log (pickupStoreTimestamp)."""
        record = self._log.read(physical_offset, size) if physical_offset >= self._log.queue.min_offset else None
        if record is None or size < commit_log.MIN_RECORD_SIZE:
            return UNKNOWN_TIME
        return commit_log.store_timestamp(record)

    def earliest_store_time(self) -> int:
        """Returns the store timestamp of the first record in the log, -1 if there is none."""
        first = self.record_at(max(0, self._log.queue.min_offset))
        return commit_log.store_timestamp(first) if first is not None else UNKNOWN_TIME

    def store_time_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns the store timestamp of a message, -1 if there is no such message (getMessageStoreTimeStamp)."""
        queue = self._queues.get(topic, queue_id)
        if isinstance(queue, BatchQueue):
            batch = next(queue.units_from(queue_offset), None)
            return self.store_time(batch.physical_offset, batch.size) if batch is not None else UNKNOWN_TIME
        unit = queue.unit(queue_offset) if queue is not None else None
        return self.store_time(unit[0], unit[1]) if unit is not None else UNKNOWN_TIME

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Returns a queue offset by time; arguments as `MessageStore.offset_in_queue_by_time`."""
        queue = self._queues.get(topic, queue_id)
        view = _QueueView(queue) if queue is not None and queue.files.files else None
        return by_time.offset_in_queue_by_time(
            _LogView(self._log),  # type: ignore[arg-type]
            view,  # type: ignore[arg-type]
            timestamp,
            boundary,
            release=self._reader.options.release,
        )


class _LogView:
    """Adapts the log to `store.queues.by_time`."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.min_offset = log.queue.min_offset
        self.max_offset = log.queue.max_offset

    def record(self, physical_offset: int, size: int) -> commit_log.Record:
        """Returns the record at a physical offset; raises StoreError if there is no record."""
        data = self._log.read(physical_offset, size)
        try:
            return commit_log.parse_record(data or b"")
        except FormatError as error:
            raise CorruptionError(str(error), "commitlog", physical_offset) from error


class _QueueView:
    """Adapts a queue to `store.queues.by_time`: its current bounds, and the units of each file."""

    def __init__(self, queue: AnyQueue) -> None:
        self._unit = BATCH_CONSUME_QUEUE_UNIT if queue.is_batch else CONSUME_QUEUE_UNIT
        self._mapped = queue.files.files
        self.files = [FileOnDisk(file.file.path, file.file_from_offset, file.size) for file in self._mapped]
        self._units: dict[int, np.ndarray] = {}
        self.is_batch = queue.is_batch
        self.unit_size = self._unit.size
        self.min_offset = queue.min_offset
        self.max_offset = queue.max_offset

    def units_of(self, number: int) -> np.ndarray:
        """Returns the units of one file, the same at each call; none if it was deleted before the first."""
        if number not in self._units:
            file = self._mapped[number]
            size = file.read_position - file.read_position % self._unit.size
            self._units[number] = np.frombuffer(file.read(0, size), self._unit.dtype)
        return self._units[number]

    def modified_ms(self, number: int) -> int:
        """Returns when a file was last written, ms since epoch; 0 if it is deleted; used by the search of 4.x."""
        try:
            return self.files[number].path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def units(self) -> np.ndarray:
        """Returns all units."""
        return np.concatenate([self.units_of(number) for number in range(len(self._mapped))])
