"""CRC-32 of many ranges of one buffer."""

import zlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from mqtool.formats.checksums import CRC_MASK

try:
    from isal import isal_zlib

    crc32: Callable[..., int] = isal_zlib.crc32
except ImportError:  # no wheel for this machine: seven times slower, the same answers
    crc32 = zlib.crc32

_PIECE = 512
"""Ranges that are cut out at a time: their bytes stay in the processor's cache."""

_LARGE = 512
"""Bytes from one range to the next, on average, above which a slice of the view costs no more than a copy."""


def body_crc(body: "bytes | memoryview") -> int:
    """Returns the CRC of a body as records store it, like `formats.checksums.crc32`; seven times faster with isal."""
    return int(crc32(body)) & CRC_MASK


def crc32_of_ranges(view: memoryview, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the CRC-32 of `view[starts[i]:ends[i]]` for every i, masked to 31 bits as the broker stores it.

    Args:
        view: one byte per item.
        starts: int64 positions, n of them.
        ends: int64 positions, exclusive.

    Returns:
        int32 array of length n. (UtilAll.crc32 masks the sign bit away.)
    """
    sums = np.empty(len(starts), np.uint32)
    if len(starts) < _PIECE or int(ends[-1]) - int(starts[0]) > _LARGE * len(starts):
        at = 0
        for pieces in _slices(view, starts, ends):
            sums[at : at + len(pieces)] = np.fromiter(map(crc32, pieces), np.uint32, len(pieces))
            at += len(pieces)
    else:
        from mqtool.records.arrow import binary_view  # noqa: PLC0415 - 100 ms at import, which few ranges do not repay

        # Arrow makes bytes of small ranges in less time than slices of the view take
        ranges = binary_view(np.frombuffer(view, np.uint8), starts, ends - starts)
        for at in range(0, len(starts), _PIECE):
            pieces = ranges[at : at + _PIECE].to_pylist()
            sums[at : at + _PIECE] = np.fromiter(map(crc32, pieces), np.uint32, len(pieces))
    return (sums & np.uint32(CRC_MASK)).astype(np.int32)


_Kept = tuple[object, int, np.ndarray, np.ndarray, list[list[memoryview]] | None]
_kept: list[_Kept] = []
"""The ranges of the last window in memory that is read into again and again, and their slices once they came twice."""


def _slices(view: memoryview, starts: np.ndarray, ends: np.ndarray) -> Iterable[list[memoryview]]:
    """Yields lists of slices of a view.

    If records have one size and reuse one memory, the same slices are returned again.
    """
    if not isinstance(view.obj, bytearray):
        return _cut(view, starts, ends)
    place = int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])
    last = _kept[0] if _kept else None
    if last is None or last[0] is not view.obj or last[1] != place or not _same(last, starts, ends):
        _kept[:] = [(view.obj, place, starts, ends, None)]
        return _cut(view, starts, ends)
    slices = last[4]
    if slices is None:
        slices = list(_cut(view, starts, ends))
        _kept[:] = [(*last[:4], slices)]
    return slices


def _same(last: _Kept, starts: np.ndarray, ends: np.ndarray) -> bool:
    return np.array_equal(last[2], starts) and np.array_equal(last[3], ends)


def _cut(view: memoryview, starts: np.ndarray, ends: np.ndarray) -> Iterator[list[memoryview]]:
    for at in range(0, len(starts), _PIECE):
        cut = slice(at, at + _PIECE)
        yield [view[start:end] for start, end in zip(starts[cut].tolist(), ends[cut].tolist(), strict=True)]
