"""Results of a comparison of two stores; "a" is the first store, "b" the second."""

from msgspec import Struct

Interval = tuple[int, int]


class RegionContent(Struct, frozen=True):
    """Content of one store in a region of the log."""

    messages: int = 0  # number of valid records in the region that belong into a queue
    damaged_bytes: int = 0  # number of bytes that belong to no valid record
    detail: str = ""  # kind and reason of the first damage; "" if there is none


class Region(Struct, frozen=True):
    """A range of the log that both stores have and that contains differing bytes."""

    start: int  # and end: physical offsets, half-open; extended to whole records where records are valid
    end: int
    bytes: int  # number of differing bytes
    a: RegionContent  # and b: what each store has in the range
    b: RegionContent


class UnsharedRange(Struct, frozen=True):
    """A range of the log that only one store has."""

    side: str  # the store that has it, "a" or "b"
    start: int  # and end: physical offsets, half-open
    end: int
    # "front" (the other store's retention deleted it, or it was never copied), "end" (not copied yet, or cut off),
    # "gap" (a segment between two others is missing).
    kind: str
    messages: int  # number of valid records that start in the range and belong into a queue


class LogTail(Struct, frozen=True):
    """The bytes after the last record of one store. They are not part of the log and do not count as a difference."""

    kind: str  # clean, torn, stale or garbage, as in `mqtool.records.damage.Tail`
    start: int  # physical offset after the last record
    length: int  # number of bytes up to the last one that is not zero
    same: int  # number of leading bytes that the other store has at the same physical offsets
    detail: str  # description in words


class LogDifference(Struct, frozen=True):
    """Differences of two CommitLogs."""

    # a, b: for each log, the physical offset of its first byte and that after its last record; None if the log is
    # empty.
    a: Interval | None
    b: Interval | None
    # The range, from the later of the two starts on, in which both are equal; None if the logs do not overlap.
    common: Interval | None
    # Physical offset of the first record that differs, or at which one log ends; None if both are equal up to their
    # common end.
    diverges_at: int | None
    first_byte: int | None  # physical offset of the first differing byte; None if all common bytes are equal
    same_bytes: int  # and different_bytes: numbers of equal and of differing bytes in the ranges that both have
    different_bytes: int
    # Number of differing bytes after a BLANK. A broker does not clear them, so they do not count as a difference.
    filler_bytes: int
    regions: tuple[Region, ...]  # the differing regions, ascending; at most `MAX_REGIONS`
    region_count: int  # number of all differing regions
    messages_a: int  # and messages_b: number of messages of each log in all regions
    messages_b: int
    alone: tuple[UnsharedRange, ...]  # ranges that only one log has, ascending
    tail_a: LogTail | None  # and tail_b: the bytes after the last record of each log
    tail_b: LogTail | None

    @property
    def equal(self) -> bool:
        """Whether both logs hold the same records and nothing else."""
        return not self.region_count and not self.alone


class QueueDifference(Struct, frozen=True):
    """Differences of one queue."""

    topic: str  # and queue_id: which queue
    queue_id: int
    # bounds_a, bounds_b: min and max offset of the queue in each store; None if the store does not have it.
    bounds_a: Interval | None
    bounds_b: Interval | None
    # only_a, only_b: messages that only one store has, as runs of queue offsets: first and last, both inclusive.
    only_a: tuple[Interval, ...]
    only_b: tuple[Interval, ...]
    messages_a: int  # and messages_b: number of messages that only one store has
    messages_b: int
    different: int  # number of messages whose units differ: other records, sizes or tags codes
    first_different: int | None  # queue offset of the first of them; None if there is none


class OffsetDifference(Struct, frozen=True):
    """A consumer offset that differs between the stores; None in the store that has none."""

    group: str
    topic: str
    queue_id: int
    offset_a: int | None
    offset_b: int | None


class Difference(Struct, frozen=True):
    """Result of a comparison."""

    log: LogDifference | None  # differences of the CommitLogs; None if they were not compared
    queues: tuple[QueueDifference, ...]  # queues that differ, sorted by topic and queue id
    offsets: tuple[OffsetDifference, ...]  # consumer offsets that differ, sorted by group, topic and queue id
    queues_compared: int  # and offsets_compared: numbers of queues and consumer offsets compared
    offsets_compared: int
    not_compared: tuple[str, ...] = ()  # descriptions of what could not be compared

    @property
    def equal(self) -> bool:
        """Whether everything could be compared and is equal."""
        same_log = self.log is None or self.log.equal
        return same_log and not self.queues and not self.offsets and not self.not_compared
