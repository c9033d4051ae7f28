"""Queue units in columns: sorted by queue and appended in runs."""

from typing import NamedTuple

import numpy as np

from mqtool.engine.queue.consume_queue import UNIT_SIZE, ConsumeQueue
from mqtool.engine.queue.queues import AnyQueue, Queues
from mqtool.formats.batch_consume_queue import BatchConsumeQueueUnit
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.kernels import Kernels, kernels
from mqtool.kernels.numbering import numbered
from mqtool.records.dispatched import QueueUnits

_PLACE_BITS = 24
"""Bits of a unit's row number in a sort key."""


def write_units(queues: Queues, topics: list[str], units: QueueUnits) -> int:
    """Appends the units of some records to their queues.

    Written to the page cache on return, not flushed.

    Args:
        queues: of the store.
        topics: name of each topic number.
        units: of consecutive records.

    Returns:
        Store timestamp of the last record that got a unit, 0 if none did.

    Raises:
        OSError: some were not written; the call may be repeated with all of them.
    """
    if not len(units):
        return 0
    compiled = kernels()
    order, data, first_rows, stops, gaps = _packed(units) if compiled is None else _packed_by_kernel(compiled, units)
    last_rows = order[stops - 1]
    runs = zip(
        units.topic[first_rows].tolist(),
        units.queue_id[first_rows].tolist(),
        units.queue_offset[first_rows].tolist(),
        (units.physical_offset[last_rows] + units.size[last_rows]).tolist(),
        stops.tolist(),
        gaps.tolist(),
        strict=True,
    )
    start = 0
    for topic, queue_id, first, end, stop, has_gap in runs:
        queue = queues.find_or_create(topics[topic], queue_id)
        unit_bytes = data[start * UNIT_SIZE : stop * UNIT_SIZE]
        is_run = isinstance(queue, ConsumeQueue) and not has_gap and queue.put_run(first, unit_bytes, end)
        if queue is not None and not is_run:
            _append(queue, units.select(order[start:stop]))
        start = stop
    return int(units.store_timestamp[-1])


class _Packed(NamedTuple):
    """Units by queue.

    Attributes:
        order: rows of the units, queue by queue.
        data: their bytes in that order.
        firsts: row of each queue's first unit.
        stops: number of units of each queue and all queues before it.
        gaps: whether queue offsets are missing between those of a queue.
    """

    order: np.ndarray
    data: bytes
    firsts: np.ndarray
    stops: np.ndarray
    gaps: np.ndarray


def _packed(units: QueueUnits) -> _Packed:
    key, order = _by_queue(units)
    offset = units.queue_offset[order]
    packed = np.empty(len(order), CONSUME_QUEUE_UNIT.dtype)
    packed["physical_offset"] = units.physical_offset[order]
    packed["size"] = units.size[order]
    packed["tags_code"] = units.tags_code[order]
    changes = key[1:] != key[:-1]
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])
    is_gap = np.append(~changes & (offset[1:] != offset[:-1] + 1), False)
    gaps = np.logical_or.reduceat(is_gap, starts)
    return _Packed(order, packed.tobytes(), order[starts], np.append(starts[1:], len(order)), gaps)


def _packed_by_kernel(compiled: Kernels, units: QueueUnits) -> _Packed:
    firsts, numbers = numbered(compiled, _keys(units))
    packed = np.empty(len(units) * UNIT_SIZE, np.uint8)
    order, stops = np.empty(len(units), np.int64), np.zeros(len(firsts), np.int64)
    gaps = np.zeros(len(firsts), np.int32)
    columns = (
        (units.queue_offset, np.int64),
        (units.physical_offset, np.int64),
        (units.size, np.int32),
        (units.tags_code, np.int64),
    )
    compiled.pack_units(numbers, *(np.ascontiguousarray(*one) for one in columns), packed, order, stops, gaps)
    return _Packed(order, packed.tobytes(), firsts, stops, gaps)


def _keys(units: QueueUnits) -> np.ndarray:
    """Returns one number for the topic and queue of each unit."""
    return units.topic * (units.queue_id.max().astype(np.int64) + 1) + units.queue_id


def _by_queue(units: QueueUnits) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sorted keys of the units' queues, and the rows in that order; the sort is stable within a queue."""
    key = _keys(units)
    places = np.arange(len(key))
    if int(key.max()) >> (62 - _PLACE_BITS) or int(key.min()) < 0 or len(key) >> _PLACE_BITS:
        order = np.argsort(key, kind="stable")
        return key[order], order
    # Key and row in one number: sorting these is ten times as fast as a stable argsort.
    ordered = np.sort((key << _PLACE_BITS) | places)
    return ordered >> _PLACE_BITS, ordered & ((1 << _PLACE_BITS) - 1)


def _append(queue: AnyQueue, units: QueueUnits) -> None:
    if not isinstance(queue, ConsumeQueue):
        _append_batches(queue, units)
        return
    columns = (units.queue_offset, units.physical_offset, units.size, units.tags_code)
    for unit in zip(*(column.tolist() for column in columns), strict=True):
        queue.put(*unit)


def _append_batches(queue: AnyQueue, units: QueueUnits) -> None:
    assert not isinstance(queue, ConsumeQueue)
    for row in range(len(units)):
        queue.put_batch(
            BatchConsumeQueueUnit(
                int(units.physical_offset[row]),
                int(units.size[row]),
                int(units.tags_code[row]),
                int(units.store_timestamp[row]),
                int(units.queue_offset[row]),
                int(units.batch_size[row]),
                -1,
                0,
            )
        )
