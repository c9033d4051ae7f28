"""Units of many records, appended to their queues in runs."""

from mqtool.engine.queue.consume_queue import UNIT_SIZE, ConsumeQueue
from mqtool.engine.queue.queues import AnyQueue, Queues
from mqtool.records.dispatched import QueueUnits
from mqtool.records.queue_build import batch_units, pack, queue_keys


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
    packed = pack(units, queue_keys(units))
    data, first_rows, last_rows = packed.units.tobytes(), packed.firsts, packed.order[packed.stops - 1]
    runs = zip(
        units.topic[first_rows].tolist(),
        units.queue_id[first_rows].tolist(),
        units.queue_offset[first_rows].tolist(),
        (units.physical_offset[last_rows] + units.size[last_rows]).tolist(),
        packed.stops.tolist(),
        packed.gaps.tolist(),
        strict=True,
    )
    start = 0
    for topic, queue_id, first, end, stop, has_gap in runs:
        queue = queues.find_or_create(topics[topic], queue_id)
        unit_bytes = data[start * UNIT_SIZE : stop * UNIT_SIZE]
        is_run = isinstance(queue, ConsumeQueue) and not has_gap and queue.put_run(first, unit_bytes, end)
        if queue is not None and not is_run:
            _append(queue, units.select(packed.order[start:stop]))
        start = stop
    return int(units.store_timestamp[-1])


def _append(queue: AnyQueue, units: QueueUnits) -> None:
    if not isinstance(queue, ConsumeQueue):
        _append_batches(queue, units)
        return
    for unit in units.tuples("queue_offset", "physical_offset", "size", "tags_code"):
        queue.put(*unit)


def _append_batches(queue: AnyQueue, units: QueueUnits) -> None:
    assert not isinstance(queue, ConsumeQueue)
    for unit in batch_units(units):
        queue.put_batch(unit)
