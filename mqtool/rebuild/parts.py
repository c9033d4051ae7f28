"""Parts of a CommitLog that can be walked independently, and the walk over one.

A part begins at a record. Inside a segment, a record start is searched for and assumed correct until the walk over
the previous part ends exactly there. If it does not, the two parts are walked as one.
"""

from collections.abc import Iterator

from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.jobs.pool import PART_BYTES
from mqtool.rebuild.dispatch_batch import BatchBuilder, DispatchBatch, RebuildScope
from mqtool.records.damage import Damage
from mqtool.store.files import ReadFile
from mqtool.store.log.commit_log import CommitLog, Segment, gap_between
from mqtool.store.log.cuts import cuts_of
from mqtool.store.log.log_walk import refilling_walk


class Part(Struct, frozen=True):
    """A range of one segment."""

    segment: Segment  # path, base and size of the file
    start: int  # position of a record in it, or 0
    end: int | None  # position of the next part's first record; None for the end of the segment
    is_last: bool  # no segment follows this one
    gap: Damage | None = None  # missing range before the segment


def parts_of(log: CommitLog, scope: RebuildScope, *, cut: bool) -> Iterator[Part]:
    """Yields the parts of a log, in order.

    Args:
        log: open.
        scope: its range of physical offsets restricts the parts.
        cut: whether to divide segments into parts of about `PART_BYTES`; data files of a DLedger log are never
            divided.
    """
    before: Segment | None = None
    for index, segment in enumerate(log.segments[: log.last_used + 1]):
        gap = None if before is None else gap_between(before, segment)
        before = segment
        if (scope.start is not None and segment.end <= scope.start) or (
            scope.end is not None and segment.base >= scope.end
        ):
            continue
        start = _start_in(log, segment, scope.start)
        is_last = index == log.last_used
        for position in cuts_of(segment, start, PART_BYTES) if cut and not segment.entries else ():
            if scope.end is None or segment.base + position < scope.end:
                yield Part(segment, start, position, is_last=False, gap=gap)
                start, gap = position, None
        yield Part(segment, start, None, is_last, gap)


def _start_in(log: CommitLog, segment: Segment, start: int | None) -> int:
    """Returns `start` if a record begins there, else the segment's start; earlier records are filtered out later."""
    if start is None or start <= segment.base:
        return 0
    try:
        log.record(start)
    except StoreError:
        return 0
    return start - segment.base


def walk_part(part: Part, builder: BatchBuilder, scope: RebuildScope) -> Iterator[DispatchBatch]:
    """Walks a part; yields a batch for each window, and for damage.

    The `end` of the last batch is where the walk ended. It differs from the part's end if no record begins there.
    """
    segment = part.segment
    with ReadFile(segment.path) as file:
        is_last = part.is_last and part.end is None
        walk = refilling_walk(file, segment, start=part.start, end=part.end, is_last=is_last)
        if part.gap is not None:
            yield DispatchBatch(segment.base, damage=[part.gap])
        for item in walk:
            if isinstance(item, Damage):
                if item.overlaps(scope.start, scope.end):
                    yield DispatchBatch(item.end, damage=[item.at(segment.path, segment.base)])
                continue
            frames = item.between(scope.start, scope.end)
            if len(frames):
                yield builder.batch(frames)
        yield DispatchBatch(walk.end)
