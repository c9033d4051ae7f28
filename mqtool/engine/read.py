"""Reads and searches a live store: messages of a queue, messages by key, a queue's offset by time, store timestamps.

`Reader` provides queues and log as views to `store.queues.get_message`, which has the rules of a get, `Searcher` to
`store.queues.by_time`. Docs page: docs/engine.md. Source: DefaultMessageStore.queryMessage/getStoreTime,
CommitLog.pickupStoreTimestamp (4.9.7, 5.5.0).
"""

import os
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from operator import add, sub
from typing import overload

import numpy as np

from mqtool import native
from mqtool.engine.index import Index
from mqtool.engine.options import StoreOptions
from mqtool.engine.queues import UNIT, UNIT_SIZE, AnyQueue, BatchQueue, ConsumeQueue, Queues
from mqtool.engine.statuses import GetResult, QueryResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.errors import CorruptionError, FormatError
from mqtool.formats import commit_log, index_file, properties
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    CONSUME_QUEUE_UNIT,
    ConsumeQueueExtUnit,
)
from mqtool.store.files import MappedFile as FileOnDisk
from mqtool.store.queues import by_time
from mqtool.store.queues.by_time import Boundary
from mqtool.store.queues.get_message import (
    LONGEST_PULL,
    SHORTEST_PULL,
    Found,
    GetLimits,
    GetStatus,
    MessageFilter,
    get_message,
    next_file,
)

UNKNOWN_TIME = -1


@cache
def _units_struct(count: int) -> struct.Struct:
    """Returns the layout of `count` consecutive units, as one flat sequence of fields."""
    return struct.Struct(UNIT.format[:1] + UNIT.format[1:] * count)


class RecordViews(Sequence[memoryview]):
    """Records in one segment, uncopied; they stay valid even after the segment is deleted."""

    __slots__ = ("_base", "_count", "_made", "_pin", "_size", "_units")

    def __init__(self, pin: memoryview, base: int, units: bytes, count: int, size: int) -> None:
        """Creates no view yet.

        `pin` is `File.pin` of the segment, `base` the physical offset of its first byte. `count` units point to the
        records, all of which must be complete; `size` is the sum of the records' sizes.
        """
        self._pin = pin
        self._base = base
        self._units = units
        self._count = count
        self._size = size
        self._made: list[memoryview] | None = None

    def _views(self) -> list[memoryview]:
        if self._made is None:
            numbers = _units_struct(self._count).unpack(self._units)
            view = self._pin
            starts = list(map(sub, numbers[0::3], [self._base] * self._count))
            self._made = [view[at:end] for at, end in zip(starts, map(add, starts, numbers[1::3]), strict=True)]
        return self._made

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> list[memoryview]: ...
    def __getitem__(self, place: int | slice) -> "memoryview | list[memoryview]":
        return self._views()[place]

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self._views())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._views() == list(other)

    __hash__ = None  # type: ignore[assignment] # as a list

    def __repr__(self) -> str:
        return repr(self._views())

    def joined(self) -> bytes:
        """Returns a copy of the records, concatenated."""
        if not native.in_use():
            return b"".join(self._views())
        return native.engine.join_records(self._units, self._count, self._pin, self._base, self._size)

    def copy_to(self, target: bytearray, at: int) -> int:
        """Copies the records into a bytearray with room for them; returns the position after them."""
        end = at + self._size
        if native.in_use() and type(target) is bytearray and end <= len(target):
            return native.engine.copy_records(self._units, self._count, self._pin, self._base, self._size, target, at)
        target[at:end] = self.joined()
        return end


class Reader:
    """Answers gets; thread-safe. It is a view of the log, too (`store.queues.get_message.LogView`)."""

    def __init__(self, options: StoreOptions, log: CommitLog, queues: Queues) -> None:
        self.log = log
        self._queues = queues
        self.change_limits(options)
        self._getter: native.engine.Getter[GetResult] | None = None
        if native.in_use():
            self._getter = native.engine.Getter(
                queues.by_key,
                ConsumeQueue,
                self,
                log.queue,
                GetStatus.FOUND,
                Found,
                RecordViews,
                SHORTEST_PULL,
                LONGEST_PULL,
            )

    def change_limits(self, options: StoreOptions) -> None:
        """Applies the limits of other options from now on."""
        self.options = options
        self.limits = GetLimits(
            options.max_get_bytes_in_memory,
            options.max_get_count_in_memory,
            options.max_get_bytes_on_disk,
            options.max_get_count_on_disk,
            options.max_filter_bytes,
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * options.memory_ratio // 100,
        )

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
        if message_filter is None and self._getter is not None:
            result = self._getter.get(topic, queue_id, queue_offset, max_msg_nums, max_bytes)
            if result is not None:
                return result
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return get_message(None, self, queue_offset, max_msg_nums)
        if isinstance(queue, BatchQueue):
            view: _Units | _BatchUnits = _BatchUnits(queue)
        else:
            view = _Units(queue)
        return get_message(view, self, queue_offset, max_msg_nums, message_filter, max_bytes, self.limits)

    # -- the log as a view (`store.queues.get_message.LogView`) ------------------------------------

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte of the log; -1 if it has no segment."""
        return self.log.queue.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset after the last byte of the log."""
        return self.log.queue.max_offset

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Returns the bytes of a record, None if the log does not contain all of them (CommitLog.getMessage)."""
        return self.log.read(physical_offset, size)

    def after_missing(self, physical_offset: int) -> int:
        """Returns where the next file of the log begins (CommitLog.rollNextFile)."""
        return next_file(physical_offset, self.options.commit_log_file_size)

    def properties(self, record: memoryview) -> dict[str, str]:
        """Returns the properties of a record."""
        try:
            return properties.decode(commit_log.parse_record(record).properties)
        except FormatError:
            # A unit of zeros names 0 bytes of the oldest segment.
            return {}


class _Units:
    """The units of a live ConsumeQueue, as a view."""

    unit_size = UNIT_SIZE

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self.file_units = queue.files.file_size // UNIT_SIZE
        self.min_offset, self.max_offset = queue.min_offset, queue.max_offset

    def units_from(self, queue_offset: int, count: int, limit: int) -> Iterator[tuple[int, int, int, int, int]]:
        queue, number, step, end = self._queue, queue_offset, count, queue_offset + limit
        while number < end:
            data = queue.read(number, min(step, end - number))
            if not data:
                return
            for physical_offset, size, code in UNIT.iter_unpack(data):
                yield number, 1, physical_offset, size, code
                number += 1
            if number % self.file_units == 0:
                return
            step = limit

    def ext_unit(self, address: int) -> ConsumeQueueExtUnit | None:
        return self._queue.ext.get(address) if self._queue.ext is not None else None


class _BatchUnits:
    """The units of a live BatchConsumeQueue, as a view."""

    unit_size = BATCH_UNIT_SIZE
    file_units = 0

    def __init__(self, queue: BatchQueue) -> None:
        self._queue = queue
        self.min_offset, self.max_offset = queue.min_offset, queue.max_offset

    def units_from(
        self,
        queue_offset: int,
        count: int,  # noqa: ARG002 - units are read one by one
        limit: int,  # noqa: ARG002
    ) -> Iterator[tuple[int, int, int, int, int]]:
        for unit in self._queue.units_from(queue_offset):
            yield unit.base_queue_offset, unit.batch_size, unit.physical_offset, unit.size, unit.tags_code

    def ext_unit(self, address: int) -> ConsumeQueueExtUnit | None:  # noqa: ARG002 - it has no extension
        return None


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
