"""Two CommitLogs byte by byte: what both have, and where it is not the same.

Blocks are compared as a whole first; only in those that differ is it looked for where.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mqtool.diff.differences import Interval
from mqtool.formats import commit_log as commit_log_format
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.store.commit_log import CommitLog

BLOCK = 8 << 20
"""Bytes of each side that are compared at a time."""
CLOSE = 64
"""Differing bytes nearer to each other than this are one run: records are longer."""


@dataclass
class Runs:
    """Where bytes differ.

    Attributes:
        starts, ends: physical offsets, half-open, ascending.
        bytes: differing bytes of each run.
        same: bytes that do not differ.
    """

    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    ends: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    bytes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    same: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    def overlapping(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Returns which of some ranges hold a differing byte, by the runs' outer bounds."""
        first = np.searchsorted(self.ends, starts, side="right")
        inside = first < len(self.starts)
        found = np.zeros(len(starts), bool)
        found[inside] = self.starts[first[inside]] < ends[inside]
        return found


def end_of(log: CommitLog) -> int:
    """Returns the physical offset after the last record; after the BLANK that follows it if it fills the segment."""
    end = log.max_offset
    number = log.segment_at(end)
    if number is None:
        return end
    head = log.read(end, commit_log_format.BLANK_SIZE)
    if len(head) < commit_log_format.BLANK_SIZE:
        return end
    size, magic = commit_log_format.FRAME.unpack(head)
    segment_end = log.segments[number].end
    return segment_end if (size, magic) == (segment_end - end, commit_log_format.MAGIC_BLANK) else end


def coverage(log: CommitLog) -> list[Interval]:
    """Returns the ranges of physical offsets that the segments hold, up to the end of the log."""
    end = end_of(log)
    found: list[Interval] = []
    for segment in log.segments:
        low, high = segment.base, min(segment.end, end)
        if low >= high:
            continue
        if found and found[-1][1] == low:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found


def common(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Returns what two ascending lists of ranges both cover."""
    others = list(b)
    both = [(max(low, other[0]), min(high, other[1])) for low, high in a for other in others]
    return sorted((low, high) for low, high in both if low < high)


def without(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Returns what the ranges of the first list cover and those of the second do not."""
    found, others = [], list(b)
    for low, high in a:
        at = low
        for start, end in others:
            if end <= at or start >= high:
                continue
            if start > at:
                found.append((at, start))
            at = max(at, end)
        if at < high:
            found.append((at, high))
    return found


def compare_bytes(a: CommitLog, b: CommitLog, ranges: Sequence[Interval], on_progress: OnProgress = ignore) -> Runs:
    """Compares two logs where both have bytes.

    Raises:
        StoreError: a file cannot be read.
    """
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    same = done = 0
    total = sum(high - low for low, high in ranges)
    for low, high in ranges:
        for at, left, right in _blocks(a, b, low, high):
            if left == right:
                same += len(left)
            else:
                runs = _runs(left, right, at)
                same += len(left) - int(runs[2].sum())
                parts.append(runs)
            done += len(left)
            on_progress(done, total)
    if not parts:
        return Runs(same=same)
    starts, ends, counts = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return Runs(starts, ends, counts, same)


def _blocks(a: CommitLog, b: CommitLog, low: int, high: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields (physical offset, bytes of a, bytes of b) of equal lengths; blocks end where a segment of either does."""
    at = low
    while at < high:
        left = a.read(at, min(BLOCK, high - at))
        right = b.read(at, len(left))
        count = min(len(left), len(right))
        if not count:
            return  # a file has been cut since it was opened
        yield at, left[:count], right[:count]
        at += count


def _runs(left: bytes, right: bytes, at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    differing = np.flatnonzero(np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8))
    breaks = np.flatnonzero(np.diff(differing) >= CLOSE)
    first = np.concatenate([[0], breaks + 1])
    last = np.concatenate([breaks, [len(differing) - 1]])
    return differing[first] + at, differing[last] + 1 + at, last - first + 1


def same_length(a: CommitLog, b: CommitLog, start: int, length: int) -> int:
    """Returns how many bytes from a physical offset on are the same on both sides, at most `length`."""
    reached = start
    for at, left, right in _blocks(a, b, start, start + length):
        if left != right:
            return at - start + int(_runs(left, right, 0)[0][0])
        reached = at + len(left)
    return reached - start
