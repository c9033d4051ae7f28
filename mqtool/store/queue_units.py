"""The units of one queue across its files, as columns."""

import numpy as np

from mqtool.store.consume_queue import Queue


def units_from(queue: Queue, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns queue offset and physical offset of each unit from a queue offset on, in order."""
    offsets, physical = [], []
    for number, file in enumerate(queue.files):
        if file.end // queue.unit_size <= start and not queue.is_batch:
            continue
        units = queue.units_of(number)
        if queue.is_batch:
            numbers = units["base_queue_offset"].astype(np.int64)
        else:
            numbers = np.arange(len(units), dtype=np.int64) + file.base // queue.unit_size
        wanted = (numbers >= start) & (numbers < queue.max_offset) & (units["size"] > 0)
        offsets.append(numbers[wanted])
        physical.append(units["physical_offset"][wanted].astype(np.int64))
    empty = np.empty(0, np.int64)
    return np.concatenate(offsets or [empty]), np.concatenate(physical or [empty])
