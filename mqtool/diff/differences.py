"""Result values of a comparison of two stores; "a" and "b" are the first and the second store."""

from dataclasses import dataclass, field

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Side:
    """What one store has in a region of the log.

    Attributes:
        messages: valid records there.
        damaged_bytes: bytes that hold no valid record.
        detail: why not, of the first of them; "" if there are none.
    """

    messages: int = 0
    damaged_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Region:
    """A range of the log that both have, but not with the same bytes.

    Attributes:
        start, end: physical offsets, half-open, of whole records where there are any.
        bytes: how many differ.
        a, b: what each side has there.
    """

    start: int
    end: int
    bytes: int
    a: Side
    b: Side


@dataclass(frozen=True, slots=True)
class Alone:
    """A range of the log that one side has and the other has not.

    Attributes:
        side: "a" or "b".
        start, end: physical offsets, half-open.
        kind: "front" (deleted by the other's retention, or never copied), "end" (not there yet, or cut off),
            "gap" (a segment is missing between two others).
        messages: valid records that start in it.
    """

    side: str
    start: int
    end: int
    kind: str
    messages: int


@dataclass(frozen=True, slots=True)
class TailSide:
    """What follows the last record of one side; it is not part of the log and makes no difference.

    Attributes:
        kind: clean, torn, stale or garbage, as in `mqtool.records.damage.Tail`.
        start: physical offset after the last record.
        length: bytes up to the last one that is not zero.
        same: how many of these, from the first, the other side has at the same offsets.
        detail: in words.
    """

    kind: str
    start: int
    length: int
    same: int
    detail: str


@dataclass(frozen=True, slots=True)
class LogDifference:
    """The CommitLogs.

    Attributes:
        a, b: physical offsets of the first byte and after the last record of each, None if there is no segment.
        common: the range in which both agree from the later of the two beginnings on; None if they do not overlap.
        diverges_at: physical offset of the first record that is not the same on both sides, or at which one side
            ends; None if they agree to the end.
        first_byte: the first byte that differs, None if none does where both have any.
        same_bytes, different_bytes: within what both have.
        filler_bytes: bytes that differ after a BLANK, where a broker leaves what was in memory; no difference.
        regions: what differs, in order; see `MOST_REGIONS`.
        region_count: how many there are in all.
        messages_a, messages_b: valid records in all regions.
        alone: what one side has alone, in order.
        tail_a, tail_b: what follows the last records.
    """

    a: Interval | None
    b: Interval | None
    common: Interval | None
    diverges_at: int | None
    first_byte: int | None
    same_bytes: int
    different_bytes: int
    filler_bytes: int
    regions: tuple[Region, ...]
    region_count: int
    messages_a: int
    messages_b: int
    alone: tuple[Alone, ...]
    tail_a: TailSide | None
    tail_b: TailSide | None

    @property
    def equal(self) -> bool:
        """Whether both hold the same records and nothing else."""
        return not self.region_count and not self.alone


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """One queue that is not the same on both sides.

    Attributes:
        topic, queue_id: which queue.
        bounds_a, bounds_b: min and max offset, None where the queue is not there.
        only_a, only_b: queue offsets, first and last of each run, of messages that one side has alone.
        messages_a, messages_b: how many these are.
        different: units that both have and that are not the same: other records, sizes or tags codes.
        first_different: queue offset of the first of them, None if there is none.
    """

    topic: str
    queue_id: int
    bounds_a: Interval | None
    bounds_b: Interval | None
    only_a: tuple[Interval, ...]
    only_b: tuple[Interval, ...]
    messages_a: int
    messages_b: int
    different: int
    first_different: int | None


@dataclass(frozen=True, slots=True)
class OffsetDifference:
    """A consumer offset that is not the same on both sides; None where there is none."""

    group: str
    topic: str
    queue_id: int
    offset_a: int | None
    offset_b: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The whole answer.

    Attributes:
        log: None if it was not asked for.
        queues: those that differ, by topic and queue id.
        offsets: those that differ, by group, topic and queue id.
        queues_compared, offsets_compared: how many were looked at.
        not_compared: in words, what could not be looked at.
    """

    log: LogDifference | None
    queues: tuple[QueueDifference, ...]
    offsets: tuple[OffsetDifference, ...]
    queues_compared: int
    offsets_compared: int
    not_compared: tuple[str, ...] = field(default=())

    @property
    def equal(self) -> bool:
        """Whether nothing differs and all could be looked at."""
        same_log = self.log is None or self.log.equal
        return same_log and not self.queues and not self.offsets and not self.not_compared
