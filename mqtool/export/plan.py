"""The plan of an export: byte ranges of segments, cut at record starts, up to a fixed bound.

Planning reads little, and only once; partitions are plain data that any process can use. What a broker appends after
planning is not part of the plan.

A running broker copies each record into its file without a lock that a reader could see. The last record may
therefore be incomplete, with only its beginning written. After a crash it may remain incomplete, and recovery will
cut it off.
"""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import StoreError, UsageError
from mqtool.export.sources import Source
from mqtool.jobs.pool import cut
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import Store
from mqtool.store.describe import store_time
from mqtool.store.log.commit_log import Segment
from mqtool.store.log.cuts import Cuts
from mqtool.store.log.selection import Selection

_LOOK_BACK = 8 << 20

MAX_TASKS = 100_000
"""Maximum tasks of one store. Each writes separate files, and one process plans and lists them all."""

SMALLEST, LARGEST = 32 << 20, 512 << 20
"""Bounds of the bytes of log in a partition, unless the caller specifies a size."""
PARTITIONS = 16
"""Target number of partitions within those bounds."""
CLOCK_MARGIN = 3_600_000
"""A segment is skipped only if its times are at least this many ms outside the requested range."""


def log_end(store: Store, cuts: Cuts) -> int:
    """Returns the physical offset after the last complete record.

    In a store that was not shut down cleanly, records at the very end with a wrong CRC, or with zeros where their
    properties should end, are treated as incomplete and excluded. After a clean shutdown they are damage, and
    included.
    """
    log = store.commit_log
    end = log.max_offset
    index = log.segment_at(end - 1)
    if store.clean_stop or index is None:
        return end
    segment = log.segments[index]
    near = max(segment.base, end - _LOOK_BACK)
    cut = cuts.first_at(near, end) if near > segment.base else None
    start = 0 if cut is None else cut.start - segment.base
    complete_end = end
    for item in log.walk_segment(index, start=start):
        if isinstance(item, Damage):
            complete_end = min(complete_end, item.start) if item.kind is DamageKind.BAD_CRC else end
            continue
        last = item.base + int(item.positions[-1])
        complete_end = last if last + int(item.sizes[-1]) >= end and _ends_in_zeros(store, last) else end
    return complete_end


def _ends_in_zeros(store: Store, physical_offset: int) -> bool:
    """Whether the end of a record has not been copied yet: brokers write no topic and no properties that end in NUL."""
    try:
        record = store.commit_log.record(physical_offset)
    except StoreError:
        return True
    return record.topic.endswith(b"\0") or record.properties.endswith(b"\0")


class Span(Struct, frozen=True):
    """A byte range of one segment that begins and ends at a record."""

    path: str  # the segment's file
    base: int  # physical offset of its first byte
    start: int  # and end: physical offsets, half-open
    end: int
    entries: bool = False  # each record is the body of a DLedger entry; the span then begins and ends at an entry


def _bytes_of(spans: tuple[Span, ...]) -> int:
    return sum(span.end - span.start for span in spans)


class Partition(Struct, frozen=True):
    """What one task reads: spans of one store, in order."""

    number: int  # from 0, over all stores of the plan
    source: Source  # the store
    spans: tuple[Span, ...]  # at least one

    @property
    def size(self) -> int:
        """Bytes of log."""
        return _bytes_of(self.spans)


class StorePlan(Struct, frozen=True):
    """The plan of one store."""

    source: Source  # the store
    start: int  # and end: physical offsets to read, half-open; `end` is the bound that was fixed
    end: int
    log_end: int  # end of the log, even if less is read
    spans: tuple[Span, ...]  # all existing parts of that range
    damage: tuple[Damage, ...] = ()  # ranges without a file

    @property
    def size(self) -> int:
        """Bytes of log in the spans."""
        return _bytes_of(self.spans)


def plan_store(
    store: Store,
    source: Source,
    selection: Selection,
    *,
    since: int | None = None,
    until: int | None = None,
    target: int | None = None,
) -> StorePlan:
    """Plans one store, which has been exported up to the physical offset `since`, None if nothing has.

    The physical offsets and times of the selection limit what is read. `until` is a bound that was fixed before, by
    default the end of the log; `target` the bytes of a span, by default those of its segment.
    """
    cuts = Cuts(store)
    last = log_end(store, cuts)
    start = max(store.commit_log.min_offset, since or 0, selection.start or 0)
    end = min(bound for bound in (last, until, selection.end) if bound is not None)
    segments = [s for s in store.commit_log.segments if s.base < end and s.end > start]
    segments = _in_time(store, segments, selection)
    spans = [_span(segment, (start, end, last), selection, cuts) for segment in segments]
    plan = StorePlan(source, start, max(start, end), last, tuple(spans), tuple(_gaps(store, start, end)))
    return cut_plan(plan, cuts, target)


def cut_plan(plan: StorePlan, cuts: Cuts, size: int | None, end: int | None = None) -> StorePlan:
    """Cuts the spans of a plan into parts of about `size` bytes, or leaves them whole if it is None.

    The plan then ends at a physical offset at which a record begins or a file ends; None for its own end.
    """
    spans: list[Span] = []
    for span in plan.spans:
        limit = span.end if end is None else min(span.end, end)
        if span.start < limit:
            inside = () if size is None else cut(span.start, limit, size, cuts.next_at)
            edges = [span.start, *inside, limit]
            spans.extend(replace(span, start=low, end=high) for low, high in pairwise(edges))
    if end is None:
        return replace(plan, spans=tuple(spans))
    damage = tuple(item for item in plan.damage if item.start < end)
    return replace(plan, end=end, spans=tuple(spans), damage=damage)


def partition_size(total: int) -> int:
    """Returns the bytes of a partition for a log of a given size; the same on every machine."""
    return min(max(total // PARTITIONS, SMALLEST), LARGEST)


def partitions(plans: list[StorePlan], target: int | None = None) -> list[Partition]:
    """Returns the tasks of a plan: adjacent spans of a store, joined up to `target` bytes, by default by total size."""
    size = target or partition_size(sum(plan.size for plan in plans))
    tasks: list[Partition] = []
    for plan in plans:
        group: list[Span] = []
        taken = 0
        for span in plan.spans:
            if group and taken + span.end - span.start > size:
                tasks.append(Partition(len(tasks), plan.source, tuple(group)))
                group, taken = [], 0
            group.append(span)
            taken += span.end - span.start
        if group:
            tasks.append(Partition(len(tasks), plan.source, tuple(group)))
    return tasks


def _span(segment: Segment, bounds: tuple[int, int, int], selection: Selection, cuts: Cuts) -> Span:
    """Returns the part of a segment to read.

    Offsets that a user gave need not be record starts; the span extends beyond them, and the reader filters. `bounds`
    are the first physical offset, the one after the last, and the end of the log, which no span may exceed.
    """
    low, high = max(segment.base, bounds[0]), min(segment.end, bounds[1])
    if low > segment.base and low == selection.start:
        exact = cuts.at(low)
        low = cuts.last_at(low, segment.base) if exact is None else exact.start
    limit = min(segment.end, bounds[2])
    if high < limit and high == selection.end:
        following = cuts.at(high) or cuts.first_at(high, limit)
        high = limit if following is None else following.start
    return Span(str(segment.path), segment.base, low, high, segment.entries)


def _in_time(store: Store, segments: list[Segment], selection: Selection) -> list[Segment]:
    """Omits segments outside the requested times, judged by the first record of each segment.

    The broker takes store timestamps under the append lock from one clock, so they increase with the offset, except
    when the clock jumps; a margin allows for that. If the first records show that the clock was set back, or one of
    them is damaged, nothing is omitted. Nor is the last segment, whose time no later one confirms.
    """
    if selection.begin_time is None and selection.end_time is None:
        return segments
    times = [store_time(store, segment.first_record) for segment in segments]
    known = [time for time in times if time is not None]
    if any(after < before for before, after in pairwise(known)):
        return segments
    begin = None if selection.begin_time is None else selection.begin_time - CLOCK_MARGIN
    until = None if selection.end_time is None else selection.end_time + CLOCK_MARGIN
    matching = []
    for segment, first, following in zip(segments, times, [*times[1:], None], strict=False):
        too_old = begin is not None and following is not None and following < begin
        too_young = until is not None and following is not None and first is not None and first >= until
        if not too_old and not too_young:
            matching.append(segment)
    return matching


def _gaps(store: Store, start: int, end: int) -> Iterator[Damage]:
    """Yields the ranges between segments that no file covers."""
    segments = store.commit_log.segments
    for before, after in pairwise(segments):
        low, high = max(before.end, start), min(after.base, end)
        if low < high:
            detail = f"no file between {before.path.name} and {after.path.name}"
            yield Damage(low, high, DamageKind.MISSING, detail, before.path, before.size)


def check_split(split_bytes: int | None, log_bytes: int) -> None:
    """Raises UsageError if tasks of this size are too many for a log."""
    if split_bytes is not None and log_bytes // max(1, split_bytes) >= MAX_TASKS:
        minimum = -(-log_bytes // MAX_TASKS)
        raise UsageError(
            f"tasks of {split_bytes} bytes are more than {MAX_TASKS}; give a size of at least {minimum} bytes"
        )
