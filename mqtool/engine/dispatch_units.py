"""Queue units in columns: sorted by queue and appended in runs."""

import numpy as np

from mqtool.engine.consume_queue import ConsumeQueue
from mqtool.engine.queues import AnyQueue, Queues
from mqtool.formats.batch_consume_queue import BatchConsumeQueueUnit
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.scan.dispatched import QueueUnits


def write_units(queues: Queues, topics: list[str], units: QueueUnits) -> int:
    """Appends the units of some records to their queues.

    In the page cache on return.

    Args:
        queues: of the store.
        topics: name of each topic number.
        units: of consecutive records.

    Returns:
        Store timestamp of the last record that got a unit, 0 if none did.

    Raises:
        OSError: some were not written; all of them may be given again.
    """
    if not len(units):
        return 0
    key = (units.topic.astype(np.int64) << 32) | units.queue_id
    order = np.argsort(key, kind="stable")
    units_by_queue = units.select(order)
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ends = [*starts[1:].tolist(), len(ordered)]
    packed = np.empty(len(ordered), CONSUME_QUEUE_UNIT.dtype)
    packed["physical_offset"] = units_by_queue.physical_offset
    packed["size"] = units_by_queue.size
    packed["tags_code"] = units_by_queue.tags_code
    for start, end in zip(starts.tolist(), ends, strict=True):
        topic, queue_id = topics[int(units_by_queue.topic[start])], int(units_by_queue.queue_id[start])
        _append(queues.find_or_create(topic, queue_id), units_by_queue.select(slice(start, end)), packed[start:end])
    return int(units.store_timestamp[-1])


def _append(queue: AnyQueue, units: QueueUnits, packed: np.ndarray) -> None:
    if not isinstance(queue, ConsumeQueue):
        _append_batches(queue, units)
        return
    offsets = units.queue_offset
    first = int(offsets[0])
    consecutive = first + len(offsets) - 1 == int(offsets[-1]) and bool((np.diff(offsets) == 1).all())
    if consecutive and queue.put_run(first, packed.tobytes(), int(units.physical_offset[-1] + units.size[-1])):
        return
    columns = (units.queue_offset, units.physical_offset, units.size, units.tags_code)
    for unit in zip(*(column.tolist() for column in columns), strict=True):
        queue.put(*unit)


def _append_batches(queue: AnyQueue, units: QueueUnits) -> None:
    assert not isinstance(queue, ConsumeQueue)
    for row in range(len(units)):
        queue.put_batch(BatchConsumeQueueUnit(
            int(units.physical_offset[row]), int(units.size[row]), int(units.tags_code[row]),
            int(units.store_timestamp[row]), int(units.queue_offset[row]), int(units.batch_size[row]), -1, 0,
        ))  # fmt: skip
