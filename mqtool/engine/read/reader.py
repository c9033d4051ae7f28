"""Reads messages of a queue starting at an offset, with the broker's limits and statuses.

Docs page: docs/engine.md. Source: DefaultMessageStore.getMessage, isTheBatchFull, checkInDiskByCommitOffset
(4.9.7, 5.5.0).
"""

import os
from collections.abc import Iterator

from mqtool.engine.options import StoreOptions
from mqtool.engine.queue.batch_queue import BatchQueue
from mqtool.engine.queue.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue
from mqtool.engine.queue.queues import AnyQueue, Queues
from mqtool.engine.read.filters import MessageFilter
from mqtool.engine.read.get_fast_path import fast_get
from mqtool.engine.statuses import GetResult, GetStatus
from mqtool.engine.write.commit_log import CommitLog
from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.formats.batch_consume_queue import BATCH_UNIT_SIZE
from mqtool.formats.consume_queue import is_ext_address

LONGEST_PULL = 128 << 20
_SHORTEST_PULL = 100

_Unit = tuple[int, int, int, int, int]
"""queue offset, messages, physical offset, size, tags code."""


def physical_memory() -> int:
    """Returns the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Reader:
    """Answers gets; thread-safe.

    Attributes:
        options: of the store.
        log: the CommitLog.
        memory: bytes at the end of the log that count as being in memory.
    """

    def __init__(self, options: StoreOptions, log: CommitLog, queues: Queues) -> None:
        self.options = options
        self.log = log
        self._queues = queues
        self.memory = physical_memory() * options.memory_ratio // 100

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int = 32,
        message_filter: MessageFilter | None = None,
        max_bytes: int = LONGEST_PULL,
    ) -> GetResult:
        """Returns messages of a queue; arguments and result as for `MessageStore.get_message`."""
        queue = self._queues.get(topic, queue_id)
        lowest, highest = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        if queue is None or highest == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, lowest, highest, [], [])
        if queue_offset < lowest:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, lowest, lowest, highest, [], [])
        if queue_offset == highest:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, lowest, highest, [], [])
        if queue_offset > highest:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, highest, lowest, highest, [], [])
        if message_filter is None and isinstance(queue, ConsumeQueue):
            bound = max(_SHORTEST_PULL, min(max_bytes, LONGEST_PULL))
            found = fast_get(self.options, self.log, queue, queue_offset, max_msg_nums, bound, self.memory)
            if found is not None:
                return found
        return _Get(self, queue, queue_offset, max_msg_nums, message_filter, max_bytes).run(lowest, highest)

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Returns the bytes of a record, None if the log does not contain all of them (CommitLog.getMessage).

        As in the broker, offset 0 means the oldest segment once the segment that contained it is deleted.
        """
        log = self.log
        found = log.read(physical_offset, size)
        if found is None and physical_offset == 0 and log.queue.min_offset > 0:
            return log.read(log.queue.min_offset, size)
        return found


class _Get:
    """One get in progress."""

    def __init__(
        self, reader: Reader, queue: AnyQueue, offset: int, count: int, wanted: MessageFilter | None, max_bytes: int
    ) -> None:
        self._reader = reader
        self._queue = queue
        self._offset = offset
        self._count = count
        self._filter = wanted
        self._max_bytes = max(_SHORTEST_PULL, min(max_bytes, LONGEST_PULL))
        self._status = GetStatus.NO_MATCHED_MESSAGE
        self._next = offset
        self._records: list[memoryview] = []
        self._offsets: list[int] = []
        self._messages = 0
        self._size = 0
        self._last_looked_at = 0
        self._skip_to: int | None = None

    def run(self, lowest: int, highest: int) -> GetResult:
        """Scans one file of the queue."""
        in_memory_from = self._reader.log.queue.max_offset - self._reader.memory
        found = False
        for unit in self._units(highest):
            found = True
            if not self._take(unit, in_memory_from):
                break
        if not found:
            self._status = GetStatus.OFFSET_FOUND_NULL
            if isinstance(self._queue, ConsumeQueue):
                self._next = self._queue.next_file_offset(self._next)
        suggest = self._last_looked_at < in_memory_from
        return GetResult(self._status, self._next, lowest, highest, self._records, self._offsets, self._size, suggest)

    def _units(self, highest: int) -> Iterator[_Unit]:
        """Yields units from the offset to the end of the queue file that contains it."""
        queue, options = self._queue, self._reader.options
        if isinstance(queue, BatchQueue):
            most = max(options.max_filter_bytes // BATCH_UNIT_SIZE, self._count) + 1
            for unit in queue.units_from(self._offset, most):
                yield unit.base_queue_offset, unit.batch_size, unit.physical_offset, unit.size, unit.tags_code
            return
        # The limit of the search is a number of queue bytes; it does not depend on where the file ends.
        most = -(-max(options.max_filter_bytes, self._count * UNIT_SIZE) // UNIT_SIZE)
        end = min(highest, self._offset + most)
        number, step = self._offset, self._count + 1
        while number < end:
            data = queue.read(number, min(step, end - number))
            if not data:
                return
            for physical_offset, size, code in UNIT.iter_unpack(data):
                yield number, 1, physical_offset, size, code
                number += 1
            if number % (queue.files.file_size // UNIT_SIZE) == 0:
                return
            step = most

    def _take(self, unit: _Unit, in_memory_from: int) -> bool:
        """Adds the message of one unit to the result; returns False if the get ends before it."""
        number, count, physical_offset, size, code = unit
        if self._messages and self._is_full(count, size, in_memory=physical_offset >= in_memory_from):
            return False
        if self._size >= self._max_bytes:
            return False
        self._last_looked_at = physical_offset
        self._next = number + count
        if self._skip_to is not None and physical_offset < self._skip_to:
            return True
        if self._filter is not None and not self._passes_unit(code):
            return True
        record = self._reader.record(physical_offset, size)
        if record is None:
            if not self._records:
                self._status = GetStatus.MESSAGE_WAS_REMOVING
            file_size = self._reader.options.commit_log_file_size
            self._skip_to = physical_offset + file_size - physical_offset % file_size
            return True
        if self._filter is not None and not self._filter.by_record(_properties_of(record)):
            return True
        self._records.append(record)
        self._offsets.append(number)
        self._messages += count
        self._size += size
        self._status = GetStatus.FOUND
        self._skip_to = None
        return True

    def _passes_unit(self, code: int) -> bool:
        assert self._filter is not None
        ext = self._queue.ext.get(code) if self._queue.ext is not None and is_ext_address(code) else None
        return self._filter.by_unit(code, ext)

    def _is_full(self, count: int, size: int, *, in_memory: bool) -> bool:
        """Whether one more message exceeds a limit (isTheBatchFull); not called before the first message."""
        options = self._reader.options
        if self._messages + count > self._count or self._size + size > self._max_bytes:
            return True
        if in_memory:
            most_bytes, most = options.max_get_bytes_in_memory, options.max_get_count_in_memory
        else:
            most_bytes, most = options.max_get_bytes_on_disk, options.max_get_count_on_disk
        return self._size + size > most_bytes or self._messages > most - 1


def _properties_of(record: memoryview) -> dict[str, str]:
    try:
        return properties.decode(commit_log.parse_record(record).properties)
    except FormatError:
        # After the first segment is deleted, a unit with offset 0 leads to the start of the oldest segment.
        return {}
