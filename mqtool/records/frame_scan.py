"""Frame scan: where the records of a run of CommitLog bytes are, by magic code and total_size alone.

The rule is `formats.commit_log.frame_size`; here it is followed through many records, one by one (`scan_some`) and
with array operations (`scan_frames`). `kernels.frame_scan` does it compiled, together with the proof of each record,
for large logs (`frames.frames_at`). Nothing else follows total_size.
"""

import enum
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from mqtool.formats import commit_log

_FEW = 64
"""Frames that are looked at one by one before it is tried whether the next ones are all of one size."""

_MORE = 8
"""How many times as many frames are looked at one by one before the next trial, after one that failed."""

_FIRST_STEP = 64
"""Frames that are compared with the first of a run before it is gone on in longer steps."""

_SMALL = 600
"""Bytes per record below which the vectorised scan is faster than the loop."""

_BLOCK = 1 << 20
_DETOURS = 64
"""False magic codes in a block after which it is left to the loop."""

_MAGIC_AT = commit_log.FRAME.size - 4
_MAGIC_SHIFT = np.uint64(8 * _MAGIC_AT)
_CODES = [code.to_bytes(4, "big", signed=True) for code in (commit_log.MAGIC_V1, commit_log.MAGIC_V2)]
_V1, _V2 = (np.uint64(int.from_bytes(code, "little")) for code in _CODES)
_FIRST_BYTE = _CODES[0][0]


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
    """Follows total_size from record to record, as far as it goes.

    `scan_some` in a loop is the scalar form. Where records are of one size, as programs write them, or small, array
    operations find them: 4 and 80 ns a record where the loop takes 90 to 170.
    """
    parts: list[np.ndarray] = []
    at, most, may_vectorise = start, _FEW, True
    while True:
        found, onward, stop = scan_some(view, at, most)
        parts.append(np.array(found, np.int64))
        if stop is not None:
            break
        is_small = onward - at < len(found) * _SMALL
        even = _even_run(view, onward)
        parts.append(even)
        at = onward + len(even) * (int(even[1] - even[0]) if len(even) > 1 else 0)
        if len(even) >= _FEW:
            most = _FEW
            continue
        if may_vectorise and is_small:
            may_vectorise = False
            run, at = vectorised_run(view, at)
            parts.append(run)
        most *= _MORE
    positions = np.concatenate(parts)
    if stop is Stop.MORE:
        positions = positions[:-1]
    return FrameScan(positions, np.diff(positions, append=onward), onward, stop)


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


def _even_run(view: memoryview, start: int) -> np.ndarray:
    """Returns the positions of complete frames of one size and version that follow each other from a position.

    Each leads to the next, since each states that size. A run has two frames at least, otherwise there is none.
    """
    none = np.empty(0, np.int64)
    if start + commit_log.FRAME.size > len(view):
        return none
    size = commit_log.frame_size(view, start, len(view) - start)
    most = (len(view) - start) // size if size else 0
    if most < 2 or commit_log.is_blank(view, start):
        return none
    heads = np.ndarray((most,), "<u8", view, start, (size,))
    count, step = 0, _FIRST_STEP
    while count < most:
        same = heads[count : count + step] == heads[0]
        alike = len(same) if same.all() else int(np.argmin(same))
        count += alike
        if alike < step:
            break
        step *= 4
    return np.arange(start, start + count * size, size, dtype=np.int64) if count > 1 else none


def vectorised_run(view: memoryview, start: int) -> tuple[np.ndarray, int]:
    """Follows complete frames from a position, as far as array operations easily find them.

    Every frame has a magic code, and few other places look like one. So the places that do are found first, and then
    it is checked that each record ends where the next such place begins. Where one does not, because a body holds a
    magic code, the chain is resumed after it.

    Returns:
        int64 positions of frames, each of which the one before leads to; and where the next one would begin. The
        caller goes on from there: it has not been shown that no frame begins there.
    """
    data = np.frombuffer(view, np.uint8)
    parts: list[np.ndarray] = []
    at = start
    while at + commit_log.MIN_RECORD_SIZE <= len(data):
        block = data[at : at + _BLOCK]
        taken, onward = _run_in_block(block)
        if not len(taken):
            break
        parts.append(taken + at)
        at += onward
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), at


def _run_in_block(block: np.ndarray) -> tuple[np.ndarray, int]:
    places, ends = _candidates(block)
    chain: list[np.ndarray] = []
    index, at = 0, 0
    for _ in range(_DETOURS):
        if index >= len(places) or places[index] != at:
            break
        broken = np.flatnonzero(ends[index:-1] != places[index + 1 :])
        last = index + int(broken[0]) if len(broken) else len(places) - 1
        chain.append(places[index : last + 1])
        at = int(ends[last])
        index = int(np.searchsorted(places, at))
    return (np.concatenate(chain) if chain else np.empty(0, np.int64)), at


def _candidates(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where frames could start that end inside the block, and where they end."""
    heads = np.ndarray((max(0, len(block) - 7),), "<u8", block, strides=(1,))
    places = np.flatnonzero(block[_MAGIC_AT : len(block) - 3] == _FIRST_BYTE)
    head = heads[places]  # total_size and magic_code, each with its first byte lowest
    magic = head >> _MAGIC_SHIFT
    places, head = (column.compress((magic == _V1) | (magic == _V2)) for column in (places, head))
    sizes = head.astype(np.uint32).byteswap().view(np.int32).astype(np.int64)
    ends = places + sizes
    fits = (sizes >= commit_log.MIN_RECORD_SIZE) & (ends <= len(block))
    return places.compress(fits), ends.compress(fits)
