"""Builds ConsumeQueues from units: decides where a unit goes, sorts units by queue, packs them as files store them.

Source: ConsumeQueue.putMessagePositionInfo (4.9.7, 5.5.0), BatchConsumeQueue.putMessagePositionInfoWrapper and
putBatchMessagePositionInfo (5.5.0). Docs page: docs/formats/consume-queue.md.
"""

import enum
import struct
from collections.abc import Iterator
from itertools import starmap
from typing import NamedTuple, TypeVar, overload

import numpy as np

from mqtool.formats import java
from mqtool.formats.consume_queue import (
    CONSUME_QUEUE_UNIT,
    UNIT_SIZE,
    BatchConsumeQueueUnit,
    ext_offset,
    is_ext_address,
)
from mqtool.records.dispatch import BATCH_FIELDS, QueueUnits
from mqtool.records.number_sets import run_starts, stable_order

N = TypeVar("N", int, np.ndarray)

_PHYSICAL_OFFSET = struct.Struct(">q")
"""The first field of a unit of either kind."""


class UnitPlacement(enum.Enum):
    """Where the broker puts a record's unit, according to the record's queue offset."""

    PRESENT = enum.auto()
    """The queue has a unit at that offset: the record gets none."""
    NEXT = enum.auto()
    """At the end of the queue, which is that offset."""
    AFTER_GAP = enum.auto()
    """At the end of the queue, though that offset is further on: from there on units and queue offsets differ."""


@overload
def is_dispatched(record_end: int, max_physical_offset: int) -> bool: ...


@overload
def is_dispatched(record_end: np.ndarray, max_physical_offset: int) -> np.ndarray: ...


def is_dispatched(record_end: int | np.ndarray, max_physical_offset: int) -> bool | np.ndarray:
    """Returns whether a queue already has the unit of a record or of a later one; the broker then skips the record.

    Ends of records, a number or a column, are compared with that of the newest record with a unit, -1 without any.
    """
    return record_end <= max_physical_offset


def placement_of(queue_offset: int, end: int) -> UnitPlacement:
    """Returns the place of a unit that the queue does not have yet.

    Offset 0 is not checked: its unit is appended at the end of the queue, wherever that is. `end` is the number of
    bytes written to the queue, including pre-blank units if it is new.
    """
    if queue_offset == 0 or queue_offset * UNIT_SIZE == end:  # nearly always
        return UnitPlacement.NEXT
    expected = java.to_int64(queue_offset * UNIT_SIZE)
    if expected == end:
        return UnitPlacement.NEXT
    return UnitPlacement.PRESENT if expected < end else UnitPlacement.AFTER_GAP


def accepts_batch(physical_offset: N, queue_offset: N, messages: N, max_physical_offset: int) -> N:
    """Returns whether a BatchConsumeQueue gets the unit of a record, or of each of a column of them.

    A record of 0 messages gets one, though recovery cuts the queue before such a unit (BatchConsumeQueue.recover). The
    physical offset of the newest record with a unit is -1 if there is none.
    """
    return (physical_offset > max_physical_offset) & (queue_offset >= 0) & (messages >= 0)


def batch_min_offset(units: np.ndarray, min_physical_offset: int) -> int:
    """Returns the first queue offset of a BatchConsumeQueue whose record is still in the log; -1 if there is no unit.

    After a gap in the queue offsets it is the end of the last unit without a record, which no unit contains
    (BatchConsumeQueue.correctMinOffset). Only the units of the queue's first file are examined.
    """
    if not len(units):
        return -1
    kept = units["physical_offset"] >= min_physical_offset
    expired = int(kept.argmax()) if kept.any() else len(units)
    if not expired:
        return int(units[0]["base_queue_offset"])
    return int(units[expired - 1]["base_queue_offset"]) + int(units[expired - 1]["batch_size"])


def is_file_before_log(last_unit: bytes, min_physical_offset: int) -> bool:
    """Returns whether retention deletes a queue file that is not the last of its queue.

    Only the last unit for which the file has room counts; it is empty if the file ends before it. One of zeros names
    physical offset 0: its file is deleted, even if other units in it name records that the log has
    (MappedFileQueue.deleteExpiredFileByOffset, 4.9.7 and 5.5.0).
    """
    if not last_unit:
        return False
    (physical_offset,) = _PHYSICAL_OFFSET.unpack_from(last_unit)
    return bool(physical_offset < min_physical_offset)


def is_ext_file_before_log(file_end: int, first_tags_code: int) -> bool:
    """Returns whether retention deletes a file of a queue's extension (ConsumeQueueExt.truncateByMinAddress, 5.5.0).

    The file ends at an offset over all files of the extension. The tags code is that of the queue's first unit whose
    record the log has; if it is no address, nothing is deleted.
    """
    return is_ext_address(first_tags_code) and file_end < ext_offset(first_tags_code)


def batch_units(units: QueueUnits) -> Iterator[BatchConsumeQueueUnit]:
    """Yields the BatchConsumeQueue unit of each record."""
    return starmap(BatchConsumeQueueUnit, units.tuples(*BATCH_FIELDS))


class PackedUnits(NamedTuple):
    """Units sorted by queue, in their original order within a queue."""

    order: np.ndarray  # int64, rows of the units, queue by queue
    units: np.ndarray  # of `CONSUME_QUEUE_UNIT.dtype`, in that order
    firsts: np.ndarray  # int64, row of each queue's first unit
    stops: np.ndarray  # int64, number of units of each queue and all queues before it
    gaps: np.ndarray  # whether queue offsets are missing within a queue


def queue_keys(units: QueueUnits) -> np.ndarray:
    """Returns a small int64 number for the topic and queue id of each unit, so that sorting is fast."""
    lowest, highest = int(units.queue_id.min()), int(units.queue_id.max())
    return units.topic.astype(np.int64) * (highest - lowest + 1) + (units.queue_id.astype(np.int64) - lowest)


def queue_numbers(topic: np.ndarray, queue_id: np.ndarray) -> np.ndarray:
    """Returns an int64 number for each pair of topic number and queue id, from which `queue_of` gets both."""
    return (topic.astype(np.int64) << 32) | (queue_id.astype(np.int64) & 0xFFFFFFFF)


def queue_of(number: int, topics: list[str]) -> tuple[str, int]:
    """Returns topic and queue id of a number from `queue_numbers`; `topics` has the name of each topic number."""
    return topics[number >> 32], java.to_int32(number)


def pack(units: QueueUnits, keys: np.ndarray) -> PackedUnits:
    """Sorts units, at least one, by queue and packs them; `keys` are equal for units of a queue (`queue_keys`)."""
    order = stable_order(keys)
    keys = keys[order]
    packed = np.empty(len(order), CONSUME_QUEUE_UNIT.dtype)
    packed["physical_offset"] = units.physical_offset[order]
    packed["size"] = units.size[order]
    packed["tags_code"] = units.tags_code[order]
    offset = units.queue_offset[order]
    starts = run_starts(keys)
    is_gap = np.append((keys[1:] == keys[:-1]) & (offset[1:] != offset[:-1] + 1), False)
    gaps = np.logical_or.reduceat(is_gap, starts)
    return PackedUnits(order, packed, order[starts], np.append(starts[1:], len(order)), gaps)
