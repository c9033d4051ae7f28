"""BatchConsumeQueue: the 46-byte unit of queues whose records contain whole batches, and of compacted queues.

Docs page: docs/formats/batch-consume-queue.md. Source: BatchConsumeQueue, SparseConsumeQueue (5.5.0).
"""

from msgspec import Struct

from mqtool.formats.codec import Unit
from mqtool.formats.fields import i16, i32, i64


class BatchConsumeQueueUnit(Struct, frozen=True):
    """One unit: refers to a record that contains `batch_size` messages."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_queue_offset: int
    batch_size: int
    compacted_offset: int = -1
    reserved: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether the broker's recovery accepts the unit (BatchConsumeQueue.recover)."""
        return self.physical_offset >= 0 and self.size > 0 and self.base_queue_offset >= 0 and self.batch_size > 0


BATCH_CONSUME_QUEUE_UNIT = Unit(
    "BatchConsumeQueue unit",
    BatchConsumeQueueUnit,
    i64("physical_offset", "where the record starts in the CommitLog (in the compaction log, if compacted)"),
    i32("size", "bytes of the complete record"),
    i64("tags_code", "Java hash of the record's TAGS; 0 for an inner batch"),
    i64("store_timestamp", "ms since epoch, the record's"),
    i64("base_queue_offset", "queue offset of the record's first message"),
    i16("batch_size", "messages in the record, 1 for a plain one"),
    i32("compacted_offset", "-1"),
    i32("reserved", "0"),
)

BATCH_UNIT_SIZE = BATCH_CONSUME_QUEUE_UNIT.size
DEFAULT_FILE_SIZE = 300_000 * BATCH_UNIT_SIZE

SPARSE_END_UNIT = BatchConsumeQueueUnit(-1, 0, 0, 0, 0, 0, -1, 0)
"""Closes a file of a compacted queue (SparseConsumeQueue.putEndPositionInfo)."""
