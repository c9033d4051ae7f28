"""Searching: messages by key, a queue's offset by time, store times.

Docs page: docs/engine.md. Source: DefaultMessageStore.queryMessage/getStoreTime, CommitLog.pickupStoreTimestamp,
ConsumeQueueStore.getOffsetInQueueByTime, ConsumeQueue.binarySearchInQueueByTime,
MappedFileQueue.getConsumeQueueMappedFileByTime (4.9.7, 5.5.0).
"""

from enum import Enum

from mqtool.engine.batch_queue import BatchQueue
from mqtool.engine.commit_log import CommitLog
from mqtool.engine.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue
from mqtool.engine.index import Index
from mqtool.engine.mapped_file import MappedFile
from mqtool.engine.queues import Queues
from mqtool.engine.read import Reader
from mqtool.engine.statuses import QueryResult
from mqtool.formats import commit_log, index_file
from mqtool.formats.commit_log import SysFlag, field_offset

_TOTAL_SIZE = commit_log.FRAME
_SYS_FLAG_AT = field_offset("sys_flag")
_STORE_TIME_AT = (field_offset("store_timestamp", 0), field_offset("store_timestamp", 1))
_QUERY_ROUNDS = 3
UNKNOWN_TIME = -1


class Boundary(Enum):
    """Which of the messages of one moment is meant (BoundaryType)."""

    LOWER = "LOWER"
    """The first stored at or after it."""
    UPPER = "UPPER"
    """The last stored at or before it."""


class Searcher:
    """Searches, for any number of threads."""

    def __init__(self, reader: Reader, queues: Queues, index: Index | None) -> None:
        self._reader = reader
        self._log: CommitLog = reader.log
        self._queues = queues
        self._index = index

    # -- by key --------------------------------------------------------------------------------------------------

    def query(self, topic: str, key: str, max_num: int, begin: int, end: int, *, tag: bool = False) -> QueryResult:
        """Returns records whose key text has the key's hash; arguments as `MessageStore.query_message`."""
        if self._index is None or not self._index.files:
            return QueryResult([], [], 0, 0)
        newest = self._index.files[-1].header
        text = index_file.tag_key_text(topic, key) if tag else index_file.key_text(topic, key)
        hashed, last = index_file.key_hash(text), end
        records: list[memoryview] = []
        found: list[int] = []
        for _ in range(_QUERY_ROUNDS):
            offsets = sorted(self._index.query(hashed, max_num, begin, last))
            if not offsets:
                break
            for number, offset in enumerate(offsets):
                record = self.record_at(offset)
                if record is None:
                    continue
                if number == 0:
                    last = commit_log.parse_record(record).store_timestamp
                records.append(record)
                found.append(offset)
            if records or last < begin:
                break
        return QueryResult(records, found, newest.end_timestamp, newest.end_physical_offset)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the record at a physical offset by the size that stands there; None if there is none."""
        head = self._log.read(physical_offset, _TOTAL_SIZE.size)
        if head is None:
            return None
        total, magic = _TOTAL_SIZE.unpack(head)
        if magic not in (commit_log.MAGIC_V1, commit_log.MAGIC_V2) or total < commit_log.MIN_RECORD_SIZE:
            return None
        return self._log.read(physical_offset, total)

    # -- by time -------------------------------------------------------------------------------------------------

    def store_time(self, physical_offset: int, size: int) -> int:
        """Returns the store timestamp of a record, -1 if its bytes are not all in the log (pickupStoreTimestamp)."""
        record = self._log.read(physical_offset, size) if physical_offset >= self._log.queue.min_offset else None
        if record is None or size < _STORE_TIME_AT[1] + 8:
            return UNKNOWN_TIME
        sys_flag = int.from_bytes(record[_SYS_FLAG_AT : _SYS_FLAG_AT + 4], "big")
        at = _STORE_TIME_AT[bool(sys_flag & SysFlag.BORN_HOST_V6)]
        return int.from_bytes(record[at : at + 8], "big", signed=True)

    def earliest_store_time(self) -> int:
        """Returns the store timestamp of the first record in the log, -1 if there is none."""
        first = self.record_at(max(0, self._log.queue.min_offset))
        return commit_log.parse_record(first).store_timestamp if first is not None else UNKNOWN_TIME

    def store_time_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns the store timestamp of a message, -1 if it is not there (getMessageStoreTimeStamp)."""
        queue = self._queues.get(topic, queue_id)
        if isinstance(queue, BatchQueue):
            units = queue.units_from(queue_offset, 1)
            return units[0].store_timestamp if units else UNKNOWN_TIME
        unit = queue.unit(queue_offset) if queue is not None else None
        return self.store_time(unit[0], unit[1]) if unit is not None else UNKNOWN_TIME

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Returns a queue offset by time; arguments as `MessageStore.offset_in_queue_by_time`."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        if isinstance(queue, BatchQueue):
            found = queue.offset_by_time(timestamp)
        else:
            found = self._in_queue(queue, timestamp, boundary)
        return min(max(found, queue.min_offset), queue.max_offset)

    def _in_queue(self, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> int:
        file = self._file_for(queue, timestamp, boundary)
        if file is None:
            return 0
        base = file.file_from_offset // UNIT_SIZE
        low = max(queue.min_offset, base)
        high = base + file.read_position // UNIT_SIZE - 1
        if high < low:
            return base if boundary is Boundary.LOWER else 0
        if self._time_at(queue, high) < timestamp:
            return high + 1 if boundary is Boundary.LOWER else high
        if self._time_at(queue, low) > timestamp:
            return base if boundary is Boundary.LOWER else 0
        return self._between(queue, low, high, timestamp, boundary)

    def _between(self, queue: ConsumeQueue, low: int, high: int, timestamp: int, boundary: Boundary) -> int:
        """Binary search; a unit that cannot be read makes the answer 0, as in the real store."""
        left, right, first, last = -1, -1, low, high
        while high >= low:
            middle = (low + high) // 2
            unit = queue.unit(middle)
            if unit is None or unit[0] < self._log.queue.min_offset:
                low = middle + 1
                continue
            moment = self.store_time(unit[0], unit[1])
            if moment < 0:
                return 0
            if moment == timestamp:
                return self._walk(queue, middle, first if boundary is Boundary.LOWER else last, timestamp)
            if moment > timestamp:
                high, right = middle - 1, middle
            else:
                low, left = middle + 1, middle
        return max(0, right if boundary is Boundary.LOWER else left)

    def _walk(self, queue: ConsumeQueue, at: int, limit: int, timestamp: int) -> int:
        step = -1 if limit <= at else 1
        while at != limit and self._time_at(queue, at + step) == timestamp:
            at += step
        return at

    def _time_at(self, queue: ConsumeQueue, queue_offset: int) -> int:
        unit = queue.unit(queue_offset)
        return self.store_time(unit[0], unit[1]) if unit is not None else UNKNOWN_TIME

    def _file_for(self, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> MappedFile | None:
        """Returns the file in which the moment lies, by the times of first and last units."""
        files = queue.files.files
        if not files:
            return None
        if boundary is Boundary.LOWER:
            for file in files[:-1]:
                if self._unit_time(file, file.size - UNIT_SIZE) >= timestamp:
                    return file
            return files[-1]
        for file in reversed(files):
            if self._unit_time(file, 0) <= timestamp:
                return file
        return None

    def _unit_time(self, file: MappedFile, position: int) -> int:
        data = file.file.read(position, UNIT_SIZE)
        if len(data) < UNIT_SIZE:
            return UNKNOWN_TIME
        physical_offset, size, _ = UNIT.unpack(data)
        return self.store_time(physical_offset, size)
