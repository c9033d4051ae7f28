"""Following total_size through many records at once, where they are of one size or small.

Every frame has a magic code, and few other places look like one. So the places that do are found by array
arithmetic, and it is checked that each record ends where the next such place begins. Where one does not, because a
body holds a magic code, the chain is taken up again behind it.
"""

import numpy as np

from mqtool.formats import commit_log

SMALL = 600
"""Bytes per record below which leaping is faster than hopping."""

_BLOCK = 1 << 20
_FIRST_STEP = 64
"""Frames that are compared with the first of a run before it is gone on in longer steps."""
_MAGIC_AT = commit_log.FRAME.size - 4
_MAGIC_SHIFT = np.uint64(8 * _MAGIC_AT)
_CODES = [code.to_bytes(4, "big", signed=True) for code in (commit_log.MAGIC_V1, commit_log.MAGIC_V2)]
_V1, _V2 = (np.uint64(int.from_bytes(code, "little")) for code in _CODES)
_FIRST = _CODES[0][0]
_DETOURS = 64
"""False magics in a block after which it is left to hopping."""


def even_run(view: memoryview, start: int) -> np.ndarray:
    """Returns the positions of frames of one size and version that follow each other from a position; all are whole.

    Each leads to the next, since each states that size. Fewer than two are not worth while: then there are none.
    """
    none = np.empty(0, np.int64)
    if start + commit_log.FRAME.size > len(view):
        return none
    size, magic = commit_log.FRAME.unpack_from(view, start)
    if magic not in (commit_log.MAGIC_V1, commit_log.MAGIC_V2) or size < commit_log.MIN_RECORD_SIZE:
        return none
    most, count, step = (len(view) - start) // size, 0, _FIRST_STEP
    if most < 2:
        return none
    heads = np.ndarray((most,), "<u8", view, start, (size,))
    while count < most:
        same = heads[count : count + step] == heads[0]
        alike = len(same) if same.all() else int(np.argmin(same))
        count += alike
        if alike < step:
            break
        step *= 4
    return np.arange(start, start + count * size, size, dtype=np.int64) if count > 1 else none


def leap(view: memoryview, start: int) -> tuple[np.ndarray, int]:
    """Follows whole frames from a position, as far as is easily seen.

    Returns:
        int64 positions of frames, each of which the one before leads to; and where the next one would begin. The
        caller hops on from there: that it is no frame has not been shown.
    """
    data = np.frombuffer(view, np.uint8)
    parts: list[np.ndarray] = []
    at = start
    while at + commit_log.MIN_RECORD_SIZE <= len(data):
        block = data[at : at + _BLOCK]
        taken, onward = _leap_block(block)
        if not len(taken):
            break
        parts.append(taken + at)
        at += onward
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), at


def _leap_block(block: np.ndarray) -> tuple[np.ndarray, int]:
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
    places = np.flatnonzero(block[_MAGIC_AT : len(block) - 3] == _FIRST)
    head = heads[places]  # total_size and magic_code, each with its first byte lowest
    magic = head >> _MAGIC_SHIFT
    places, head = (column.compress((magic == _V1) | (magic == _V2)) for column in (places, head))
    sizes = head.astype(np.uint32).byteswap().view(np.int32).astype(np.int64)
    ends = places + sizes
    fits = (sizes >= commit_log.MIN_RECORD_SIZE) & (ends <= len(block))
    return places.compress(fits), ends.compress(fits)
