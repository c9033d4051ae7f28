"""Reads a queue of a store on disk as a consumer does: the broker's getMessage over its files.

The queue may be as it is on disk, or as a start would complete it (`store.recovered`): both are a `Queue`. Tests
compare it with answers of the real store.
"""

from collections.abc import Iterator

from msgspec import Struct, field

from mqtool.errors import CorruptionError, StoreError, UnreadableError
from mqtool.formats.consume_queue import ConsumeQueueExtUnit
from mqtool.records.damage import Damage, DamageKind
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.message import Message, from_record
from mqtool.store.queues import get_message as core
from mqtool.store.queues.consume_queue import ExtUnits, Queue
from mqtool.store.queues.get_message import GetStatus, TagFilter, Unit, find_batch_unit, next_file


class GetResult(Struct, frozen=True):
    """Result of a pull."""

    status: GetStatus  # as the broker's
    next_begin_offset: int  # where the next pull should begin
    min_offset: int  # and max_offset: of the queue
    max_offset: int
    messages: list[Message] = field(default_factory=list)  # in queue order
    # Records that the queue names but that cannot be decoded; a broker would deliver their bytes.
    damage: list[Damage] = field(default_factory=list)


def get_message(
    log: CommitLog, queue: Queue | None, queue_offset: int, max_msg_nums: int, tags: str | None
) -> GetResult:
    """Answers a pull as the broker would with the complete log in its page cache; the queue is None if it is unknown.

    `tags` is an expression, "a || b", "*" or None for all; only hashes are compared, as in the broker.
    """
    view = None if queue is None else QueueOnDisk(queue)
    message_filter = None if tags is None else TagFilter(tags)
    answer: core.Found[Message | Damage]
    answer = core.get_message(view, _LogOnDisk(log), queue_offset, max_msg_nums, message_filter)
    return GetResult(
        answer.status,
        answer.next_begin_offset,
        answer.min_offset,
        answer.max_offset,
        [record for record in answer.records if isinstance(record, Message)],
        [record for record in answer.records if isinstance(record, Damage)],
    )


class _LogOnDisk:
    """The records of a log on disk as messages, or as damage if they cannot be decoded."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        return self._log.max_offset

    def record(self, physical_offset: int, size: int) -> Message | Damage | None:
        log, end = self._log, physical_offset + size
        index = log.segment_at(physical_offset)
        if index is None or end > log.segments[index].end or end > log.max_offset:
            return None
        try:
            return from_record(log.record(physical_offset, size))
        except CorruptionError as error:
            kind, reason = DamageKind.BAD_HEADER, error.reason
        except StoreError as error:
            kind = DamageKind.UNREADABLE if isinstance(error, UnreadableError) else DamageKind.MISSING
            reason = error.reason
        segment = log.segments[index]
        return Damage(physical_offset, end, kind, reason).at(segment.path, segment.base)

    def after_missing(self, physical_offset: int) -> int:
        return next_file(physical_offset, max([segment.size for segment in self._log.segments], default=0) or 1)

    def properties(self, record: Message | Damage) -> dict[str, str]:
        return record.properties if isinstance(record, Message) else {}


class QueueOnDisk:
    """The units of a queue on disk, as `get_message.QueueView`."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.file_units = 0 if queue.is_batch else max(1, queue.file_units)
        self.min_offset, self.max_offset, self.unit_size = queue.min_offset, queue.max_offset, queue.unit_size

    def units_from(self, queue_offset: int, count: int, limit: int) -> Iterator[Unit]:  # noqa: ARG002 - all are read
        """Yields units to the end of the file that holds an offset, also zeros after its last unit in use."""
        number = queue_offset
        for unit in units_from(self._queue, queue_offset, limit):
            yield unit
            number += 1
        file = None if self._queue.is_batch else self._queue.find_file(queue_offset)
        if file is not None:
            end = min(queue_offset + limit, self._queue.files[file].end // self.unit_size)
            yield from (Unit(zeros, 1, 0, 0, 0) for zeros in range(number, end))

    def ext_unit(self, address: int) -> ConsumeQueueExtUnit | None:
        """Returns the unit of the queue's extension at an address, None if there is none."""
        queue = self._queue
        return ExtUnits(queue.path.parents[2], queue.topic, queue.queue_id).unit_at(address)


def units_from(queue: Queue, queue_offset: int, limit: int | None = None) -> Iterator[Unit]:
    """Yields units of one file from a queue offset on; like the broker's iterator it never crosses a file."""
    if queue.is_batch:
        yield from _batch_units_from(queue, queue_offset)
        return
    number = queue.find_file(queue_offset)
    if number is None:
        return
    first = queue_offset - queue.files[number].base // queue.unit_size
    units = queue.units_of(number)[first : None if limit is None else first + limit]
    for index, (physical_offset, size, tags_code) in enumerate(units.tolist()):
        yield Unit(queue_offset + index, 1, physical_offset, size, tags_code)


def unit_at(queue: Queue, queue_offset: int) -> Unit | None:
    """Returns the unit of the message at a queue offset; None if the queue has no message there."""
    unit = next(iter(units_from(queue, queue_offset, 1)), None)
    return None if unit is None or unit.size <= 0 or queue_offset >= queue.max_offset else unit


def _batch_units_from(queue: Queue, queue_offset: int) -> Iterator[Unit]:
    files = map(queue.units_of, range(len(queue.files) - 1, -1, -1))
    hit = find_batch_unit(((units, units["base_queue_offset"]) for units in files), queue.max_offset, queue_offset)
    if hit is None:
        return
    units, first = hit
    columns = ("base_queue_offset", "batch_size", "physical_offset", "size", "tags_code")
    yield from map(Unit, *(units[name][first:].tolist() for name in columns))
