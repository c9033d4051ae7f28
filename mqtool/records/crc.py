"""CRC-32 of bodies."""

import zlib

import numpy as np

from mqtool import native
from mqtool.formats.codec import CRC_MASK


def body_crc(body: "bytes | memoryview") -> int:
    """Returns the CRC of a body as records store it."""
    return native.logs.crc_of(body) if native.in_use() else zlib.crc32(body) & CRC_MASK


def crc32_of_ranges(view: memoryview, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the CRC-32 of `view[starts[i]:ends[i]]` for every i, masked to 31 bits as the broker stores it.

    Args:
        view: one byte per item.
        starts: int64 positions, n of them.
        ends: int64 positions, exclusive.

    Returns:
        int32 array of length n. (UtilAll.crc32 masks the sign bit away.)
    """
    sums = np.empty(len(starts), np.int32)
    if native.in_use():
        native.logs.crcs_of(view, starts, ends, sums)
    else:
        ranges = zip(starts.tolist(), ends.tolist(), strict=True)
        sums[:] = [zlib.crc32(view[start:end]) & CRC_MASK for start, end in ranges]
    return sums
