"""Hops: where the records of a run of CommitLog bytes are, by magic code and total_size alone.

Hopping from one frame to the next is the only loop per record in mqtool's reading; all else is array arithmetic.
"""

import enum
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from mqtool.formats import commit_log
from mqtool.kernels import Kernels, kernels
from mqtool.records.leap import SMALL, even_run, leap

_FEW = 64
"""Frames that are looked at one by one before it is tried whether they are small, or all of one size."""

_MORE = 8
"""How many times as many frames are looked at one by one before the next trial, after one that failed."""


class Stop(enum.Enum):
    """Why hopping ended."""

    MORE = "the next record reaches beyond the bytes given"
    BLANK = "a BLANK"
    ZEROS = "eight zero bytes"
    BAD = "no frame"
    END = "fewer than eight bytes left"


@dataclass(frozen=True, slots=True)
class Hop:
    """A chain of frames by magic and total_size alone.

    Attributes:
        positions: int64, where each frame starts in the view.
        sizes: int64, its total_size.
        end: position after the last frame.
        stop: why the chain ends there.
    """

    positions: np.ndarray
    sizes: np.ndarray
    end: int
    stop: Stop


def hop(view: memoryview, start: int) -> Hop:
    """Follows total_size from record to record."""
    compiled = kernels()
    if compiled is not None:
        return _hop_compiled(compiled, view, start)
    parts: list[np.ndarray] = []
    at, most, may_leap = start, _FEW, True
    while True:
        found, onward, stop = _hop_on(view, at, most)
        parts.append(np.array(found, np.int64))
        if stop is not None:
            break
        is_small = onward - at < len(found) * SMALL
        even = even_run(view, onward)
        parts.append(even)
        at = onward + len(even) * (int(even[1] - even[0]) if len(even) > 1 else 0)
        if len(even) >= _FEW:
            most = _FEW
            continue
        if may_leap and is_small:
            may_leap = False
            leapt, at = leap(view, at)
            parts.append(leapt)
        most *= _MORE
    positions = np.concatenate(parts)
    if stop is Stop.MORE:
        positions = positions[:-1]
    return Hop(positions, np.diff(positions, append=onward), onward, stop)


def _hop_compiled(compiled: Kernels, view: memoryview, start: int) -> Hop:
    found = np.empty(room_for(view, start), np.int64)
    return ended(view, start, found[: compiled.hop(np.frombuffer(view, np.uint8), start, found)])


def room_for(view: memoryview, start: int) -> int:
    """Returns how many frames there may be."""
    return max(0, len(view) - start) // commit_log.MIN_RECORD_SIZE + 1


def ended(view: memoryview, start: int, found: np.ndarray) -> Hop:
    """Returns the chain of whole frames, behind which no other whole one follows."""
    at = start
    if len(found):
        last = int(found[-1])
        at = last + commit_log.FRAME.unpack_from(view, last)[0]
    _, onward, stop = _hop_on(view, at, 2)
    assert stop is not None
    return Hop(found, np.diff(found, append=onward), onward, stop)


def _hop_on(view: memoryview, start: int, most: int) -> tuple[list[int], int, Stop | None]:
    """Follows at most so many frames; returns their positions, where the next begins, and why it ended, if it did.

    After `Stop.MORE` the last position is that of the frame that is not whole, and `at` is the same.
    """
    unpack = commit_log.FRAME.unpack_from
    v1, v2, least = commit_log.MAGIC_V1, commit_log.MAGIC_V2, commit_log.MIN_RECORD_SIZE
    found: list[int] = []
    append = found.append
    at, last_start = start, len(view) - 8
    total = magic = 0
    for _ in repeat(None, most):
        if at > last_start:
            break
        total, magic = unpack(view, at)
        if (magic != v1 and magic != v2) or total < least:  # noqa: PLR1714 - `in` costs a tenth of the loop
            break
        append(at)
        at += total
    else:
        if at <= len(view):
            return found, at, None
    if found and at > len(view):  # the last one is not whole
        return found, found[-1], Stop.MORE
    if at > last_start:
        return found, at, Stop.END
    if magic == commit_log.MAGIC_BLANK:
        return found, at, Stop.BLANK
    return found, at, Stop.ZEROS if total == magic == 0 else Stop.BAD
