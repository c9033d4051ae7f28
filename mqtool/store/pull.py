"""Reading a queue as a consumer does: the broker's getMessage, its statuses and next offsets.

Source: DefaultMessageStore.getMessage of 4.9.7 and 5.5.0; judged by the real store's answers.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mqtool.errors import CorruptionError, StoreError, UnreadableError
from mqtool.formats import java
from mqtool.records.damage import Damage, DamageKind
from mqtool.store.commit_log import CommitLog
from mqtool.store.consume_queue import Queue
from mqtool.store.message import Message, from_record


class GetStatus(enum.Enum):
    """GetMessageStatus of the broker."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True, slots=True)
class GetResult:
    """What a pull gives.

    Attributes:
        status: as the broker's.
        next_begin_offset: where the next pull should begin.
        min_offset, max_offset: of the queue.
        messages: those found, in queue order.
        damage: records that the queue names but that cannot be decoded; a broker would deliver their bytes.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[Message] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


_MAX_FILTER_BYTES = 16_000
_MAX_BYTES_IN_MEMORY = 262_144
_MAX_COUNT_IN_MEMORY = 32


@dataclass(slots=True)
class _Unit:
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    count: int


def get_message(
    log: CommitLog, queue: Queue | None, queue_offset: int, max_msg_nums: int, tags: str | None
) -> GetResult:
    """Answers a pull as the broker would with the whole log in its page cache.

    Args:
        log: the CommitLog.
        queue: None if the topic or queue is unknown.
        queue_offset: first wanted.
        max_msg_nums: at most so many messages.
        tags: a tag expression, "a || b", "*" or None for all; only hashes are compared, as in the broker.
    """
    if queue is None or queue.max_offset == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, queue.min_offset if queue else 0, 0)
    low, high = queue.min_offset, queue.max_offset
    if queue_offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
    if queue_offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    units = units_from(queue, queue_offset)
    if units is None:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, _next_file(queue, queue_offset), low, high)
    return _collect(log, queue, units, queue_offset, max_msg_nums, tag_codes(tags))


def tag_codes(tags: str | None) -> set[int] | None:
    """Returns the hashes that a tag expression admits, None for all (FilterAPI.buildSubscriptionData)."""
    if tags is None or not tags.strip() or tags.strip() == "*":
        return None
    return {java.string_hash(tag.strip()) for tag in tags.split("||") if tag.strip()}


def _collect(
    log: CommitLog, queue: Queue, units: Iterator[_Unit], start: int, most: int, codes: set[int] | None
) -> GetResult:
    result = GetResult(GetStatus.NO_MATCHED_MESSAGE, start, queue.min_offset, queue.max_offset)
    status, following, taken, count = GetStatus.NO_MATCHED_MESSAGE, start, 0, 0
    skip_below: int | None = None
    scan_limit = max(_MAX_FILTER_BYTES, most * queue.unit_size)
    for unit in units:
        if unit.queue_offset >= queue.max_offset or (unit.queue_offset - start) * queue.unit_size >= scan_limit:
            break
        if count and _is_full(unit, most, taken, count):
            break
        following = unit.queue_offset + unit.count
        if skip_below is not None and unit.physical_offset < skip_below:
            continue
        if codes is not None and java.to_int32(unit.tags_code) not in codes:
            continue
        if not _is_readable(log, unit):
            if not count:
                status = GetStatus.MESSAGE_WAS_REMOVING
            skip_below = _next_segment(log, unit.physical_offset)
            continue
        _add(log, unit, result)
        status, skip_below = GetStatus.FOUND, None
        taken, count = taken + unit.size, count + unit.count
    return GetResult(status, following, result.min_offset, result.max_offset, result.messages, result.damage)


def _is_full(unit: _Unit, most: int, taken: int, count: int) -> bool:
    too_many = count + unit.count > most or count >= _MAX_COUNT_IN_MEMORY
    return too_many or taken + unit.size > _MAX_BYTES_IN_MEMORY


def _add(log: CommitLog, unit: _Unit, result: GetResult) -> None:
    try:
        result.messages.append(from_record(log.record(unit.physical_offset, unit.size)))
    except CorruptionError as error:
        end = unit.physical_offset + unit.size
        damage = Damage(unit.physical_offset, end, DamageKind.BAD_HEADER, str(error), error.path)
        result.damage.append(damage)
    except StoreError as error:
        end = unit.physical_offset + unit.size
        kind = DamageKind.UNREADABLE if isinstance(error, UnreadableError) else DamageKind.MISSING
        result.damage.append(Damage(unit.physical_offset, end, kind, str(error), error.path))


def _is_readable(log: CommitLog, unit: _Unit) -> bool:
    index = log.segment_at(unit.physical_offset)
    end = unit.physical_offset + unit.size
    return index is not None and end <= log.segments[index].end and end <= log.max_offset


def _next_segment(log: CommitLog, physical_offset: int) -> int:
    size = max([segment.size for segment in log.segments], default=0) or 1
    return physical_offset + size - physical_offset % size


def _next_file(queue: Queue, queue_offset: int) -> int:
    per_file = max(1, queue.file_units)
    return queue_offset + per_file - queue_offset % per_file


def units_from(queue: Queue, queue_offset: int) -> Iterator[_Unit] | None:
    """Returns the units of one file from a queue offset on, as the broker's iterator: it never crosses a file."""
    if queue.is_batch:
        return _batch_units_from(queue, queue_offset)
    number = queue.find_file(queue_offset)
    if number is None:
        return None
    first = queue.files[number].base // queue.unit_size
    units = queue.units_of(number)[queue_offset - first :]
    if not len(units):
        return None
    return _simple_units(units, queue_offset)


def _simple_units(units: np.ndarray, queue_offset: int) -> Iterator[_Unit]:
    for index, (physical_offset, size, tags_code) in enumerate(units.tolist()):
        yield _Unit(queue_offset + index, physical_offset, size, tags_code, 1)


def _batch_units_from(queue: Queue, queue_offset: int) -> Iterator[_Unit] | None:
    for number in range(len(queue.files) - 1, -1, -1):
        units = queue.units_of(number)
        if len(units) and int(units[0]["base_queue_offset"]) <= queue_offset:
            after = np.flatnonzero(units["base_queue_offset"] + units["batch_size"].astype(np.int64) > queue_offset)
            return _batch_units(units[after[0] :]) if len(after) else None
    return None


def _batch_units(units: np.ndarray) -> Iterator[_Unit]:
    for row in units:
        yield _Unit(
            int(row["base_queue_offset"]),
            int(row["physical_offset"]),
            int(row["size"]),
            int(row["tags_code"]),
            int(row["batch_size"]),
        )
