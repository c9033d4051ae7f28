"""Frames in one buffer, followed by their first lengths and proved by their second; no object for a frame."""

import struct
from dataclasses import dataclass

import numpy as np

from mqtool.formats.equeue import FRAME_OVERHEAD, LENGTH

FIRST_WINDOW, WINDOW = 1 << 16, 8 << 20
"""Bytes that are read at a time: few at the beginning and after damage, then more and more."""

_ONE = LENGTH.struct
_TWO = struct.Struct("<" + 2 * _ONE.format.removeprefix("<"))
"""The length after a record and the one before the next."""


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Frames that follow one another.

    Attributes:
        data: uint8 buffer that holds them.
        base: data position of its first byte.
        starts: int64, places in the buffer of the records, after their first lengths.
        sizes: int64, bytes of the records.
    """

    data: np.ndarray
    base: int
    starts: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def positions(self) -> np.ndarray:
        """int64, data positions of the frames."""
        return self.starts + (self.base - LENGTH.size)

    @property
    def end(self) -> int:
        """Data position after the last frame; of none, that of the buffer."""
        return self.base + (int(self.starts[-1] + self.sizes[-1]) + LENGTH.size if len(self) else 0)

    def first(self, count: int) -> "FrameRun":
        """Returns the first frames only."""
        return self if count == len(self) else FrameRun(self.data, self.base, self.starts[:count], self.sizes[:count])

    def record(self, number: int) -> bytes:
        """Returns the bytes of one record."""
        start = int(self.starts[number])
        return self.data[start : start + int(self.sizes[number])].tobytes()


def scan_frames(data: bytes, base: int, limit: int) -> FrameRun:
    """Follows frames from the first byte of a buffer to the first that is invalid or incomplete.

    Args:
        data: the buffer.
        base: data position of its first byte.
        limit: largest length of a record.
    """
    view, size = memoryview(data), LENGTH.size
    one, two, last = _ONE.unpack_from, _TWO.unpack_from, len(view) - _TWO.size
    starts: list[int] = []
    append = starts.append
    at, length = size, one(view)[0] if len(view) >= size else 0
    while 0 < length <= limit:
        end = at + length
        if end > last:
            if end + size <= len(view) and one(view, end)[0] == length:
                append(at)
                at = end + FRAME_OVERHEAD
            break
        tail, following = two(view, end)
        if tail != length:
            break
        append(at)
        at, length = end + FRAME_OVERHEAD, following
    found = np.array(starts, np.int64)
    sizes = np.diff(np.append(found, at)) - FRAME_OVERHEAD
    return FrameRun(np.frombuffer(data, np.uint8), base, found, sizes)
