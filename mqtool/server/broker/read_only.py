"""Provides a read-only store with the reading methods of an open engine.

Damaged messages are skipped: the next offset of an answer is after them. Rules of a get: `store.queues.get_message`.
"""

from collections.abc import Callable
from pathlib import Path

from mqtool.engine import GetResult, GetStatus, QueryResult, StoreOptions
from mqtool.errors import StoreError
from mqtool.formats import commit_log, java, properties
from mqtool.formats.commit_log import Record
from mqtool.formats.index_file import TAG_MARK
from mqtool.store.queues.by_time import Boundary
from mqtool.store.queues.get_message import LONGEST_PULL, MessageFilter, get_message
from mqtool.store.queues.pull import QueueOnDisk, units_from
from mqtool.store.store import Store


class ReadOnlyMessages:
    """Reads a store, with the methods of `MessageStore`.

    Attributes:
        path: root of the store.
        options: options with which the store would be opened for writing.
    """

    def __init__(self, store: Store, options: StoreOptions) -> None:
        """Wraps a store that is open for reading."""
        self._store = store
        self.path: Path = store.path
        self.options = options

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int = 32,
        message_filter: MessageFilter | None = None,
        max_bytes: int = LONGEST_PULL,
    ) -> GetResult:
        """Returns messages of a queue from a queue offset on; the arguments are those of `MessageStore.get_message`."""
        queue = self._store.queue(topic, queue_id)
        view = None if queue is None else QueueOnDisk(queue)
        result = get_message(view, self, queue_offset, max_msg_nums, message_filter, max_bytes)
        if result.status is GetStatus.OFFSET_FOUND_NULL:  # at this status a consumer waits before the next pull
            following = min(result.max_offset, queue_offset + 1)
            return result._replace(status=GetStatus.NO_MATCHED_MESSAGE, next_begin_offset=following)
        return result

    # -- the log as a view (`store.queues.get_message.LogView`) ------------------------------------

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte."""
        return self._store.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset after the last readable byte."""
        return self._store.commit_log.max_offset

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Returns the bytes of a record; None if it is damaged or missing."""
        record = self._valid_record(physical_offset, size)
        return None if record is None else memoryview(commit_log.build_record(record))

    def after_missing(self, physical_offset: int) -> int:
        """Returns the offset unchanged, because the record after a damaged one may be valid."""
        return physical_offset

    def properties(self, record: memoryview) -> dict[str, str]:
        """Returns the properties of a record."""
        return properties.decode(commit_log.parse_record(record).properties)

    def _valid_record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Returns the record at a physical offset; None if it is damaged or missing."""
        try:
            record = self._store.commit_log.record(physical_offset, size)
        except StoreError:
            return None
        return record if commit_log.body_crc(record.body) == record.body_crc else None

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the record at a physical offset; None if no valid record begins there."""
        try:
            record = self._store.commit_log.record_at(physical_offset)
        except StoreError:
            return None
        return memoryview(commit_log.build_record(record))

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = java.LONG_MAX, *, tag: bool = False
    ) -> QueryResult:
        """Returns messages by key; the arguments are those of `MessageStore.query_message`."""
        messages = self._store.query_message(topic, TAG_MARK + key if tag else key, max_num, begin, end)
        files = self._store.index_files()
        newest = files[-1].header if files and messages else None
        updated = (newest.end_timestamp, newest.end_physical_offset) if newest is not None else (0, 0)
        offsets = [message.physical_offset for message in messages]
        records = [data for data in map(self.message_at, offsets) if data is not None]
        return QueryResult(records, offsets, *updated)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Returns a queue offset by time; the arguments are those of `MessageStore.offset_in_queue_by_time`."""
        return self._store.offset_in_queue_by_time(topic, queue_id, timestamp, boundary.value)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns the store timestamp of a message; -1 if the message is missing or damaged."""
        units = self.units(topic, queue_id, queue_offset, 1)
        record = self._valid_record(units[0][0], units[0][1]) if units else None
        return record.store_timestamp if record is not None else -1

    def earliest_store_time(self) -> int:
        """Returns the store timestamp of the first record; -1 for an empty log."""
        record = self._valid_record(self.min_physical_offset) if self._store.commit_log.segments else None
        return record.store_timestamp if record is not None else -1

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns (min offset, max offset) of a queue; as the engine for one that does not exist."""
        queue = self._store.queue(topic, queue_id)
        if queue is None:
            return -1 if topic in self._store.dispatch_rules.batch_topics else 0, 0
        return queue.min_offset, queue.max_offset

    def queues(self) -> list[tuple[str, int]]:
        """Returns (topic, queue id) of all queues."""
        return [(queue.topic, queue.queue_id) for queue in self._store.queues()]

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Returns (physical offset, size, tags code) of units from a queue offset on."""
        queue = self._store.queue(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        units: list[tuple[int, int, int]] = []
        for unit in units_from(queue, queue_offset, count):
            if len(units) == count or unit.queue_offset >= queue.max_offset:
                break
            units.append((unit.physical_offset, unit.size, unit.tags_code))
        return units

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first existing byte of the log."""
        return self._store.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Physical offset after the last readable byte."""
        return self._store.commit_log.max_offset

    @property
    def flushed_offset(self) -> int:
        """End of the log, since all of it is on disk."""
        return self.max_physical_offset

    @property
    def dispatch_behind(self) -> int:
        """Always 0: the queues appear as a broker's start would complete them."""
        return 0

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Does nothing, because no message will arrive."""
