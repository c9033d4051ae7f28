"""Reads messages of a live queue: provides queues and log as views to `store.queues.get_message`, which has the rules.

Docs page: docs/engine.md.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from operator import add, sub
from typing import overload

from mqtool import native
from mqtool.engine.options import StoreOptions
from mqtool.engine.queue.batch_queue import BatchQueue
from mqtool.engine.queue.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue
from mqtool.engine.queue.queues import Queues
from mqtool.engine.statuses import GetResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.formats.consume_queue import BATCH_UNIT_SIZE, ConsumeQueueExtUnit
from mqtool.store.queues.filters import MessageFilter
from mqtool.store.queues.get_message import (
    LONGEST_PULL,
    SHORTEST_PULL,
    Found,
    GetLimits,
    GetStatus,
    get_message,
    next_file,
)


@cache
def _units_struct(count: int) -> struct.Struct:
    """Returns the layout of `count` consecutive units, as one flat sequence of fields."""
    return struct.Struct(UNIT.format[:1] + UNIT.format[1:] * count)


class RecordViews(Sequence[memoryview]):
    """Records in one segment, uncopied; they stay valid even after the segment is deleted."""

    __slots__ = ("_base", "_count", "_made", "_pin", "_size", "_units")

    def __init__(self, pin: memoryview, base: int, units: bytes, count: int, size: int) -> None:
        """Creates no view yet.

        Args:
            pin: `File.pin` of the segment.
            base: physical offset of the segment's first byte.
            units: that point to the records; all records must be complete.
            count: number of units.
            size: sum of the records' sizes.
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


def physical_memory() -> int:
    """Returns the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Reader:
    """Answers gets; thread-safe.

    Attributes:
        options: of the store.
        log: the CommitLog.
        limits: of a get.
    """

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
            physical_memory() * options.memory_ratio // 100,
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
