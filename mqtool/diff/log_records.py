"""Compares two CommitLogs byte by byte in the ranges that both have, and finds the records that differ.

Each block is first compared as a whole; only differing blocks are searched for the differing bytes, and only segments
with differing bytes are walked.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import commit_log as commit_log_format
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.records.damage import Damage
from mqtool.records.dispatch import is_queued
from mqtool.store.log.commit_log import CommitLog

BLOCK = 8 << 20
"""Number of bytes of each log that are compared at a time."""

CLOSE = 64
"""Differing bytes that are closer together than this many bytes form one run, since records are longer."""

MAX_REGIONS = 1000
"""Maximum number of regions in a result; further regions are only counted."""

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


class Runs(Struct):
    """Runs of differing bytes."""

    # starts, ends: physical offsets of each run, half-open, ascending.
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    ends: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    bytes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # number of differing bytes in each run
    same: int = 0  # number of equal bytes in all compared ranges

    def __len__(self) -> int:
        return len(self.starts)

    def overlapping(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Returns for each of the given ranges whether it overlaps a run."""
        first = np.searchsorted(self.ends, starts, side="right")
        inside = first < len(self.starts)
        overlaps = np.zeros(len(starts), bool)
        overlaps[inside] = self.starts[first[inside]] < ends[inside]
        return overlaps


def coverage(log: CommitLog) -> list[Interval]:
    """Returns the ranges of physical offsets for which there are segments, up to the end of the log."""
    end = log.after_blank(log.max_offset)
    covered: list[Interval] = []
    for segment in log.segments:
        low, high = segment.base, min(segment.end, end)
        if low >= high:
            continue
        if covered and covered[-1][1] == low:
            covered[-1] = (covered[-1][0], high)
        else:
            covered.append((low, high))
    return covered


def common(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Returns the intersection of two ascending lists of ranges."""
    others = list(b)
    both = [(max(low, other[0]), min(high, other[1])) for low, high in a for other in others]
    return sorted((low, high) for low, high in both if low < high)


def without(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Returns the ranges of `a` without what the ranges of `b` cover."""
    remaining, others = [], list(b)
    for low, high in a:
        at = low
        for start, end in others:
            if end <= at or start >= high:
                continue
            if start > at:
                remaining.append((at, start))
            at = max(at, end)
        if at < high:
            remaining.append((at, high))
    return remaining


def compare_bytes(a: CommitLog, b: CommitLog, ranges: Sequence[Interval], on_progress: OnProgress = ignore) -> Runs:
    """Compares two logs in the given ranges, which both must have; raises StoreError, also if a file was cut."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    same = done = 0
    total = sum(high - low for low, high in ranges)
    for low, high in ranges:
        reached = low
        for at, left, right in _blocks(a, b, low, high):
            if left == right:
                same += len(left)
            else:
                runs = _runs(left, right, at)
                same += len(left) - int(runs[2].sum())
                parts.append(runs)
            reached = at + len(left)
            done += len(left)
            on_progress(done, total)
        if reached < high:
            reason = f"ends at physical offset {reached}, before {high}: it was truncated during the comparison"
            raise StoreError(reason, _shorter(a, b, reached))
    if not parts:
        return Runs(same=same)
    starts, ends, counts = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return Runs(starts, ends, counts, same)


def _shorter(a: CommitLog, b: CommitLog, physical_offset: int) -> Path:
    """Returns the segment that has no byte at an offset any more."""
    log = b if a.read(physical_offset, 1) else a
    index = log.segment_at(physical_offset)
    assert index is not None  # the ranges are of bytes for which there were segments
    return log.segments[index].path


def _blocks(a: CommitLog, b: CommitLog, low: int, high: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields (physical offset, bytes of a, bytes of b) with equal lengths; no block crosses a segment of either log."""
    at = low
    while at < high:
        left = a.read(at, min(BLOCK, high - at))
        right = b.read(at, len(left))
        count = min(len(left), len(right))
        if not count:
            return  # one of them ends here
        yield at, left[:count], right[:count]
        at += count


def _runs(left: bytes, right: bytes, at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    differing = np.flatnonzero(np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8))
    breaks = np.flatnonzero(np.diff(differing) >= CLOSE)
    first = np.concatenate([[0], breaks + 1])
    last = np.concatenate([breaks, [len(differing) - 1]])
    return differing[first] + at, differing[last] + 1 + at, last - first + 1


def same_length(a: CommitLog, b: CommitLog, start: int, length: int) -> int:
    """Returns how many bytes from the physical offset `start` are equal in both logs, at most `length`."""
    reached = start
    for at, left, right in _blocks(a, b, start, start + length):
        if left != right:
            return at - start + int(_runs(left, right, 0)[0][0])
        reached = at + len(left)
    return reached - start


class DifferingRecords(Struct):
    """Records, damage and filler of one log where its bytes differ from the other log."""

    # starts, ends: physical offsets of runs of adjacent records, half-open.
    starts: list[np.ndarray] = field(default_factory=list)
    ends: list[np.ndarray] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)  # number of messages in each run
    damages: list[Damage] = field(default_factory=list)  # ranges without a valid record
    # Physical offsets of the bytes between a BLANK and the end of its segment.
    fillers: list[Interval] = field(default_factory=list)

    def add(self, starts: np.ndarray, ends: np.ndarray, queued: np.ndarray) -> None:
        """Adds records in ascending order, of which some are messages of a queue; adjacent records form one run."""
        if not len(starts):
            return
        breaks = np.flatnonzero(starts[1:] != ends[:-1])
        first = np.concatenate([[0], breaks + 1])
        last = np.concatenate([breaks, [len(starts) - 1]])
        self.starts.append(starts[first])
        self.ends.append(ends[last])
        self.counts.append(np.add.reduceat(queued.astype(np.int64), first))

    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the starts, ends and message counts of all runs."""
        empty = [np.empty(0, np.int64)]
        return tuple(np.concatenate(part or empty) for part in (self.starts, self.ends, self.counts))  # type: ignore[return-value]


def differing_records(log: CommitLog, runs: Runs) -> DifferingRecords:
    """Returns the records, damage and filler of one log where bytes differ; raises StoreError."""
    differing = DifferingRecords()
    for number, segment in enumerate(log.segments):
        if not runs.overlapping(np.array([segment.base]), np.array([segment.end]))[0]:
            continue
        walk = log.walk_segment(number)
        for item in walk:
            if isinstance(item, Damage):
                if runs.overlapping(np.array([item.start]), np.array([item.end]))[0]:
                    differing.damages.append(item.at(segment.path, segment.base))
                continue
            starts = item.positions.astype(np.int64) + item.base
            ends = starts + item.sizes
            concerned = runs.overlapping(starts, ends)
            differing.add(starts[concerned], ends[concerned], is_queued(item)[concerned])
        if walk.ended_by_blank:
            differing.fillers.append((walk.last_record_end + commit_log_format.BLANK_SIZE, segment.end))
    return differing


class Regions(Struct, frozen=True):
    """The differing regions of two logs."""

    first: tuple[Region, ...] = ()  # the first `MAX_REGIONS` regions
    count: int = 0  # number of all regions
    different: int = 0  # number of differing bytes in all regions
    filler: int = 0  # number of differing bytes after BLANKs
    messages_a: int = 0  # and messages_b: number of messages of each log in all regions
    messages_b: int = 0


def regions_of(runs: Runs, a: DifferingRecords, b: DifferingRecords) -> Regions:
    """Merges runs of differing bytes with the records that contain them into regions that do not overlap."""
    filler = _inside(runs, a.fillers) & _inside(runs, b.fillers)
    filler_bytes = int(runs.bytes[filler].sum())
    starts, ends, counts = runs.starts[~filler], runs.ends[~filler], runs.bytes[~filler]
    if not len(starts):
        return Regions(filler=filler_bytes)
    of_a, of_b = a.runs(), b.runs()
    low, high = _joined([(starts, ends), of_a[:2], of_b[:2]])
    where = np.searchsorted(low, starts, side="right") - 1
    kept = np.zeros(len(low), bool)
    kept[where] = True  # records that only filler bytes touched are not a region
    total = np.bincount(where, counts, minlength=len(low)).astype(np.int64)
    records = [_counted(low, side) for side in (of_a, of_b)]
    numbers = np.flatnonzero(kept)
    regions = tuple(
        Region(
            int(low[n]),
            int(high[n]),
            int(total[n]),
            _side(a, int(records[0][n]), int(low[n]), int(high[n])),
            _side(b, int(records[1][n]), int(low[n]), int(high[n])),
        )
        for n in numbers[:MAX_REGIONS].tolist()
    )
    sums = [int(totals[numbers].sum()) for totals in records]
    return Regions(regions, len(numbers), int(counts.sum()), filler_bytes, sums[0], sums[1])


def _side(touched_: DifferingRecords, messages: int, low: int, high: int) -> RegionContent:
    damages = [damage for damage in touched_.damages if damage.start < high and damage.end > low]
    size = sum(min(damage.end, high) - max(damage.start, low) for damage in damages)
    return RegionContent(messages, size, f"{damages[0].kind}: {damages[0].detail}" if damages else "")


def _inside(runs: Runs, fillers: list[Interval]) -> np.ndarray:
    inside = np.zeros(len(runs), bool)
    for low, high in fillers:
        inside |= (runs.starts >= low) & (runs.ends <= high)
    return inside


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the union of several lists of ranges; ranges that overlap or touch become one."""
    starts = np.concatenate([part[0] for part in parts])
    ends = np.concatenate([part[1] for part in parts])
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.concatenate([[True], starts[1:] > reach[:-1]])
    first = np.flatnonzero(opens)
    last = np.concatenate([first[1:] - 1, [len(starts) - 1]])
    return starts[first], reach[last]


def _counted(low: np.ndarray, side: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    starts, _, counts = side
    return np.bincount(np.searchsorted(low, starts, side="right") - 1, counts, minlength=len(low)).astype(np.int64)
