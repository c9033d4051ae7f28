"""ConsumeQueue: the 20-byte unit, and the pre-blank unit of a queue that does not start at 0.

The extension and the batch variant have their own modules, `consume_queue_ext` and
`batch_consume_queue`; their names are re-exported here. Docs page: docs/formats/consume-queue.md.
Source: ConsumeQueue, MessageExtBrokerInner.tagsString2tagsCode (4.9.7, 5.5.0).
"""

from msgspec import Struct

from mqtool.formats import java
from mqtool.formats.batch_consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    SPARSE_END_UNIT,
    BatchConsumeQueueUnit,
)
from mqtool.formats.codec import Unit
from mqtool.formats.consume_queue_ext import (
    MAX_EXT_ADDRESS,
    ConsumeQueueExtUnit,
    ext_address,
    ext_offset,
    is_ext_address,
    parse_ext_unit,
)
from mqtool.formats.fields import i32, i64

__all__ = [
    "BATCH_CONSUME_QUEUE_UNIT",
    "BATCH_UNIT_SIZE",
    "CONSUME_QUEUE_UNIT",
    "DEFAULT_FILE_SIZE",
    "MAX_EXT_ADDRESS",
    "PRE_BLANK",
    "PRE_BLANK_SIZE_FIELD",
    "SPARSE_END_UNIT",
    "UNIT_SIZE",
    "BatchConsumeQueueUnit",
    "ConsumeQueueExtUnit",
    "ConsumeQueueUnit",
    "ext_address",
    "ext_offset",
    "is_ext_address",
    "parse_ext_unit",
    "round_up_file_size",
    "tags_code",
]


class ConsumeQueueUnit(Struct, frozen=True):
    """One unit; unit n of a queue starts at byte 20 · n, counted over all files of the queue."""

    physical_offset: int
    size: int
    tags_code: int


CONSUME_QUEUE_UNIT = Unit(
    "ConsumeQueue unit",
    ConsumeQueueUnit,
    i64("physical_offset", "where the record starts in the CommitLog"),
    i32("size", "bytes of the complete record"),
    i64("tags_code", "Java hash of TAGS; deliver time in ms for the schedule topic; or an extension address"),
)

UNIT_SIZE = CONSUME_QUEUE_UNIT.size
DEFAULT_FILE_SIZE = 300_000 * UNIT_SIZE
PRE_BLANK_SIZE_FIELD = java.INT_MAX
PRE_BLANK = ConsumeQueueUnit(0, PRE_BLANK_SIZE_FIELD, 0)


def round_up_file_size(configured: int) -> int:
    """Returns the size of a queue's files: the configured one, rounded up to a multiple of the unit size."""
    return -(-configured // UNIT_SIZE) * UNIT_SIZE


def tags_code(tags: str | None) -> int:
    """Returns the Java hash of the whole TAGS value, 0 if it is absent or empty."""
    return java.string_hash(tags) if tags else 0
