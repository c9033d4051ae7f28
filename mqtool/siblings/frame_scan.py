"""Scans a buffer for consecutive frames: follows the length before each record, and checks the length after it.

It creates no object per frame.
"""

import struct

import numpy as np
from msgspec import Struct

from mqtool.formats.equeue import FRAME_OVERHEAD, LENGTH

FIRST_WINDOW, WINDOW = 1 << 16, 8 << 20
"""Sizes of read windows in bytes: the first one after the start or after damage, and the maximum to which they grow."""

_ONE = LENGTH.struct
_TWO = struct.Struct("<" + 2 * _ONE.format.removeprefix("<"))
"""The length after a record, followed by the length before the next one."""


class FrameRun(Struct, frozen=True):
    """Consecutive frames in a buffer.

    Attributes:
        data: uint8 buffer that contains the frames.
        base: data position of the buffer's first byte.
        starts: int64, position in the buffer of each record, after the length before it.
        sizes: int64, size of each record in bytes.
    """

    data: np.ndarray
    base: int
    starts: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def positions(self) -> np.ndarray:
        """Data positions of the frames, int64."""
        return self.starts + (self.base - LENGTH.size)

    @property
    def end(self) -> int:
        """Data position after the last frame; without frames, that of the buffer's first byte."""
        return self.base + (int(self.starts[-1] + self.sizes[-1]) + LENGTH.size if len(self) else 0)

    def first(self, count: int) -> "FrameRun":
        """Returns the first `count` frames."""
        return self if count == len(self) else FrameRun(self.data, self.base, self.starts[:count], self.sizes[:count])

    def record(self, number: int) -> bytes:
        """Returns the bytes of the record with the given index."""
        start = int(self.starts[number])
        return self.data[start : start + int(self.sizes[number])].tobytes()


def scan_frames(data: bytes, base: int, limit: int) -> FrameRun:
    """Returns the frames from the start of a buffer up to the first invalid or incomplete one.

    Args:
        data: the buffer.
        base: data position of its first byte.
        limit: maximum size of a record in bytes.
    """
    view, size = memoryview(data), LENGTH.size
    first_length, two, last = _ONE.unpack_from, _TWO.unpack_from, len(view) - _TWO.size
    starts: list[int] = []
    append = starts.append
    at, length = size, first_length(view)[0] if len(view) >= size else 0
    while 0 < length <= limit:
        end = at + length
        if end > last:
            if end + size <= len(view) and first_length(view, end)[0] == length:
                append(at)
                at = end + FRAME_OVERHEAD
            break
        tail, following = two(view, end)
        if tail != length:
            break
        append(at)
        at, length = end + FRAME_OVERHEAD, following
    positions = np.array(starts, np.int64)
    sizes = np.diff(np.append(positions, at)) - FRAME_OVERHEAD
    return FrameRun(np.frombuffer(data, np.uint8), base, positions, sizes)
