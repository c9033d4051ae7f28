"""Reads messages of a live queue: provides queues and log as views to `store.queues.get_message`, which has the rules.

Docs page: docs/engine.md.
"""

import os
from collections.abc import Iterator

from mqtool import native
from mqtool.engine.options import StoreOptions
from mqtool.engine.queue.batch_queue import BatchQueue
from mqtool.engine.queue.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue
from mqtool.engine.queue.queues import Queues
from mqtool.engine.read.record_views import RecordViews
from mqtool.engine.statuses import GetResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.formats.batch_consume_queue import BATCH_UNIT_SIZE
from mqtool.formats.consume_queue_ext import ConsumeQueueExtUnit
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
