"""The end of a compacted queue: the last message that a broker serves of it."""

from pathlib import Path

import numpy as np

from mqtool.formats import file_names
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, BATCH_UNIT_SIZE
from mqtool.store.files import ReadFile, list_mapped_files


def last_queue_offset(root: Path, topic: str, queue_id: int) -> int:
    """Returns the queue offset of the last message of a compacted queue, -1 if it has none.

    The broker reads it from the last valid unit, and appends only messages after it (CompactionLog.asyncPutMessage,
    5.5.0).

    Args:
        root: of the store.
        topic, queue_id: of the queue.

    Raises:
        StoreError: a file cannot be read.
    """
    for file in reversed(list_mapped_files(root / file_names.COMPACTION_CONSUME_QUEUE / topic / str(queue_id)).files):
        with ReadFile(file.path) as opened:
            valid = valid_units(opened.read(0, file.size))
        if len(valid):
            return int(valid["base_queue_offset"][-1])
    return -1


def valid_units(data: bytes) -> np.ndarray:
    """Returns the units of a compacted queue's file that a broker uses, as a structured array."""
    units = BATCH_CONSUME_QUEUE_UNIT.rows(data[: len(data) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE])
    named = (units["physical_offset"] >= 0) & (units["base_queue_offset"] >= 0)
    return units[named & (units["size"] > 0) & (units["batch_size"] > 0)]
