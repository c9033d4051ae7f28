"""Compares two CommitLogs byte by byte in the ranges that both have.

Each block is first compared as a whole; only differing blocks are searched for the differing bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.diff.differences import Interval
from mqtool.errors import StoreError
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.store.log.commit_log import CommitLog

BLOCK = 8 << 20
"""Number of bytes of each log that are compared at a time."""
CLOSE = 64
"""Differing bytes that are closer together than this many bytes form one run, since records are longer."""


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
    """Compares two logs in the given ranges, which both logs must have.

    Raises:
        StoreError: a file cannot be read, or was cut meanwhile.
    """
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
            reason = f"ends at physical offset {reached}, before {high}: it was cut while it was compared"
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
