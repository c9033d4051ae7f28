"""A read-only store with the reading methods of an open engine; nothing is written.

Damaged messages are skipped: the next offset of an answer is after them. Source of the answers: `store.pull`,
DefaultMessageStore.getMessage (5.5.0).
"""

from collections.abc import Callable
from pathlib import Path

from mqtool.engine import GetResult, GetStatus, QueryResult, StoreOptions
from mqtool.engine.read.filters import MessageFilter
from mqtool.errors import StoreError
from mqtool.formats import commit_log, java, properties
from mqtool.formats.commit_log import Record
from mqtool.store.by_time import Boundary
from mqtool.store.consume_queue import Queue
from mqtool.store.pull import units_from
from mqtool.store.store import Store

_MAX_BYTES = 262_144
_MAX_MESSAGES = 32
_MAX_UNITS = 800


class ReadOnlyMessages:
    """Reads of one store, with the methods of `MessageStore`.

    Attributes:
        path: its root.
        options: what it would be opened with.
    """

    def __init__(self, store: Store, options: StoreOptions) -> None:
        """Takes a store that is open for reading."""
        self._store = store
        self.path: Path = store.path
        self.options = options

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int = _MAX_MESSAGES,
        message_filter: MessageFilter | None = None,
        max_bytes: int = _MAX_BYTES,
    ) -> GetResult:
        """Returns messages of a queue from an offset on; arguments as `MessageStore.get_message`."""
        queue = self._store.queue(topic, queue_id)
        low, high = self.queue_bounds(topic, queue_id)
        if queue is None or high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [], [])
        status, following = _beyond(queue_offset, low, high)
        if status is not None:
            return GetResult(status, following, low, high, [], [])
        return self._collect(queue, queue_offset, (low, high), max_msg_nums, message_filter, max_bytes)

    def _collect(
        self,
        queue: Queue,
        queue_offset: int,
        bounds: tuple[int, int],
        most: int,
        message_filter: MessageFilter | None,
        max_bytes: int,
    ) -> GetResult:
        records: list[memoryview] = []
        offsets: list[int] = []
        size, following, looked_at = 0, queue_offset, 0
        for unit in units_from(queue, queue_offset) or ():
            if unit.queue_offset >= bounds[1] or looked_at >= _MAX_UNITS or len(records) >= min(most, _MAX_MESSAGES):
                break
            looked_at += 1
            passes = message_filter is None or message_filter.by_unit(unit.tags_code, None)
            record = self._sound(unit.physical_offset, unit.size) if passes else None
            if (
                record is not None
                and message_filter is not None
                and not message_filter.by_record(properties.decode(record.properties))
            ):
                record = None
            if record is not None:
                if records and size + unit.size > min(max_bytes, _MAX_BYTES):
                    break
                records.append(memoryview(commit_log.build_record(record)))
                offsets.append(unit.queue_offset)
                size += unit.size
            following = unit.queue_offset + unit.count
        if looked_at == 0:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, min(bounds[1], queue_offset + 1), *bounds, [], [])
        status = GetStatus.FOUND if records else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, following, *bounds, records, offsets, size)

    def _sound(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Returns the record at an offset, None if it is damaged or missing."""
        try:
            record = self._store.commit_log.record(physical_offset, size)
        except StoreError:
            return None
        return record if commit_log.body_crc(record.body) == record.body_crc else None

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the record at a physical offset, None if no valid one begins there."""
        try:
            record = self._store.commit_log.record_at(physical_offset)
        except StoreError:
            return None
        return memoryview(commit_log.build_record(record))

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = java.LONG_MAX, *, tag: bool = False
    ) -> QueryResult:
        """Returns messages by key; arguments as `MessageStore.query_message`."""
        found = self._store.query_message(topic, f"T#{key}" if tag else key, max_num, begin, end)
        files = self._store.index_files()
        newest = files[-1].header if files else None
        updated = (newest.end_timestamp, newest.end_physical_offset) if newest is not None else (0, 0)
        offsets = [message.physical_offset for message in found]
        records = [data for data in map(self.message_at, offsets) if data is not None]
        return QueryResult(records, offsets, *updated)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Returns a queue offset by time; arguments as `MessageStore.offset_in_queue_by_time`."""
        return self._store.offset_in_queue_by_time(topic, queue_id, timestamp, boundary.value)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns the store timestamp of a message, -1 if it is not there or damaged."""
        found = self.units(topic, queue_id, queue_offset, 1)
        record = self._sound(found[0][0], found[0][1]) if found else None
        return record.store_timestamp if record is not None else -1

    def earliest_store_time(self) -> int:
        """Returns the store timestamp of the first record, -1 for an empty log."""
        record = self._sound(self.min_physical_offset) if self._store.commit_log.segments else None
        return record.store_timestamp if record is not None else -1

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns (min offset, max offset) of a queue; (0, 0) if it is not there."""
        queue = self._store.queue(topic, queue_id)
        return (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def queues(self) -> list[tuple[str, int]]:
        """Returns topic and queue id of every queue."""
        return [(queue.topic, queue.queue_id) for queue in self._store.queues()]

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Returns (physical offset, size, tags code) of units from a queue offset on."""
        queue = self._store.queue(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        found: list[tuple[int, int, int]] = []
        for unit in units_from(queue, queue_offset) or ():
            if len(found) == count or unit.queue_offset >= queue.max_offset:
                break
            found.append((unit.physical_offset, unit.size, unit.tags_code))
        return found

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte of the log that is there."""
        return self._store.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Physical offset after the last byte that can be read."""
        return self._store.commit_log.max_offset

    @property
    def flushed_offset(self) -> int:
        """All bytes of the log are on the disk."""
        return self.max_physical_offset

    @property
    def dispatch_behind(self) -> int:
        """Nothing waits: queues are shown as a start would complete them."""
        return 0

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Does nothing: no message will arrive."""


def _beyond(queue_offset: int, low: int, high: int) -> tuple[GetStatus | None, int]:
    """Returns the status of an offset outside a queue and the next offset; None as the status of one inside."""
    if queue_offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if queue_offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, queue_offset
    if queue_offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None, queue_offset
