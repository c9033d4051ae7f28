"""Frame scan: where the records of a run of CommitLog bytes are, by magic code and total_size alone.

The rule is `formats.commit_log.frame_size`; here it is followed through many records, one by one. `kernels.frame_scan`
does it compiled, together with the proof of each record, for large logs (`frames.frames_at`). Nothing else follows
total_size.
"""

import enum
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from mqtool.formats import commit_log


class Stop(enum.Enum):
    """Why a scan ended."""

    MORE = "the next record reaches beyond the bytes given"
    BLANK = "a BLANK"
    ZEROS = "eight zero bytes"
    BAD = "no frame"
    END = "fewer than eight bytes left"


@dataclass(frozen=True, slots=True)
class FrameScan:
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


def scan_frames(view: memoryview, start: int) -> FrameScan:
    """Follows total_size from record to record, as far as it goes: 90 to 170 ns a record."""
    found, end, stop = scan_some(view, start, room_for(view, start) + 1)
    assert stop is not None
    positions = np.array(found[:-1] if stop is Stop.MORE else found, np.int64)
    return FrameScan(positions, np.diff(positions, append=end), end, stop)


def room_for(view: memoryview, start: int) -> int:
    """Returns how many frames there may be."""
    return max(0, len(view) - start) // commit_log.MIN_RECORD_SIZE + 1


def ended(view: memoryview, start: int, found: np.ndarray) -> FrameScan:
    """Returns a scan from the positions of all its complete frames: adds where and why it ends."""
    at = start
    if len(found):
        last = int(found[-1])
        at = last + commit_log.FRAME.unpack_from(view, last)[0]
    _, onward, stop = scan_some(view, at, 2)
    assert stop is not None
    return FrameScan(found, np.diff(found, append=onward), onward, stop)


def scan_some(view: memoryview, start: int, most: int) -> tuple[list[int], int, Stop | None]:
    """Follows a limited number of frames one by one.

    Returns:
        Their positions; where the next one begins; why the scan ended, None if it did not. After `Stop.MORE` the last
        position is that of the incomplete frame, and the next one begins there.
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
