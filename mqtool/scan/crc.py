"""CRC-32 of many ranges of one buffer."""

import zlib
from collections.abc import Callable
from itertools import repeat
from operator import getitem

import numpy as np

try:
    from isal import isal_zlib

    crc32: Callable[..., int] = isal_zlib.crc32
    IMPLEMENTATION = "isal"
except ImportError:  # no wheel for this machine: seven times slower, the same answers
    crc32 = zlib.crc32
    IMPLEMENTATION = "zlib"


def crc32_of_ranges(view: memoryview, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the CRC-32 of `view[starts[i]:ends[i]]` for every i, masked to 31 bits as the broker stores it.

    Args:
        view: one byte per item.
        starts: int64 positions, n of them.
        ends: int64 positions, exclusive.

    Returns:
        int32 array of length n. (UtilAll.crc32 masks the sign bit away.)
    """
    slices = map(slice, starts.tolist(), ends.tolist())
    found = np.fromiter(map(crc32, map(getitem, repeat(view), slices)), np.uint32, len(starts))
    return (found & np.uint32(0x7FFFFFFF)).astype(np.int32)
