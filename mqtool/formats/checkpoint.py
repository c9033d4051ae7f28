"""The store's checkpoint: times and offsets up to which the files have been flushed.

Docs page: docs/formats/checkpoint.md. Source: StoreCheckpoint (4.9.7, 5.5.0).
"""

from msgspec import Struct

from mqtool.formats.codec import Buffer, Unit, i64

FILE_SIZE = 4096

FARTHEST_AHEAD = 1 << 45
"""Bytes that an offset may lie after the end of the log and still count as one of it."""

MIN_TIMESTAMP_MARGIN = 3000
"""Milliseconds that 4.9 steps back from the earlier of the two times after a crash."""


TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
OFFSETS = ("master_flushed_offset", "confirm_physical_offset", "logics_physical_offset")
"""The fields that are store times, ms, and those that are physical offsets."""


class Checkpoint(Struct, frozen=True):
    """The six fields; a release that does not know a field leaves its bytes zero."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Time in ms from which 4.9 recovers after a crash (StoreCheckpoint.getMinTimestamp); 5.5 uses other fields."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - MIN_TIMESTAMP_MARGIN)


CHECKPOINT = Unit(
    "checkpoint",
    Checkpoint,
    i64("physic_msg_timestamp", "store time up to which the CommitLog is known to be flushed, ms"),
    i64("logics_msg_timestamp", "store time up to which the ConsumeQueues are known to be flushed, ms"),
    i64("index_msg_timestamp", "end time of the last index file that is full, ms"),
    i64("master_flushed_offset", "physical offset that the master had flushed; since 5.0.0"),
    i64("confirm_physical_offset", "physical offset that is confirmed (after recovery the last record's); since 5.1.1"),
    i64("logics_physical_offset", "physical offset up to which the ConsumeQueues had been flushed; since 5.5"),
)


def is_possible_offset(offset: int, end: int) -> bool:
    """Whether a field's value is a possible physical offset: in a log with this end or ahead of it, as on a slave."""
    return 0 <= offset < end + FARTHEST_AHEAD


def parse(data: Buffer) -> Checkpoint:
    """Parses a checkpoint file of any length.

    The broker maps the file at 4096 bytes, which extends a short one with zeros: missing fields are 0. In an empty
    file all fields are 0.
    """
    return CHECKPOINT.parse_start(data)


def build(checkpoint: Checkpoint) -> bytes:
    """Returns the 4096 bytes of the file."""
    return CHECKPOINT.build(checkpoint).ljust(FILE_SIZE, b"\x00")
