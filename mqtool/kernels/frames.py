"""Frames, one by one: where they are, and the CRC-32 of their bodies."""

from typing import Any

import numpy as np
from isal import isal_zlib
from llvmlite import binding
from numba import types

from mqtool.formats import commit_log
from mqtool.formats.checksums import CRC_MASK
from mqtool.kernels.compiling import BYTES, I32, I64, compiled, inlined
from mqtool.kernels.numbers import i32_at

V1, V2 = commit_log.MAGIC_V1, commit_log.MAGIC_V2
_CRC_MASK = np.uint32(CRC_MASK)
_FRAME, _LEAST = commit_log.FRAME.size, commit_log.MIN_RECORD_SIZE

_ISAL_CRC32 = "crc32_gzip_refl"
"""ISA-L's own function, which the library inside isal exports: (CRC so far, address, bytes)."""


@compiled(types.int64, BYTES, types.int64, I64)
def hop(data: Any, start: int, found: Any) -> int:
    """Follows total_size from record to record until a frame is incomplete or `found` is full.

    Args:
        data: uint8.
        start: position of the first frame.
        found: int64, output: their positions.

    Returns:
        The number of frames.
    """
    count = 0
    at = start
    size = len(data)
    while at + _FRAME <= size and count < len(found):
        total, magic = i32_at(data, at), i32_at(data, at + 4)
        if (magic != V1 and magic != V2) or total < _LEAST or total > size - at:
            break
        found[count] = at
        count += 1
        at += total
    return count


binding.load_library_permanently(isal_zlib.__file__)
HAS_CRC32 = binding.address_of_symbol(_ISAL_CRC32) is not None
"""Whether isal exports the function: without it there are no kernels."""
_isal_crc32 = types.ExternalFunction(_ISAL_CRC32, types.uint32(types.uint32, types.uint64, types.uint64))


@inlined
def body_crc32(data: Any, start: int, length: int) -> Any:
    """Returns the CRC-32 of a range of a buffer without its highest bit; it may not leave the buffer."""
    address = np.uint64(data.ctypes.data) + np.uint64(start)
    return _isal_crc32(np.uint32(0), address, np.uint64(length)) & _CRC_MASK


if HAS_CRC32:

    @compiled(I32, BYTES, I64, I64)
    def crc32(data: Any, starts: Any, ends: Any) -> Any:
        """Returns the CRC-32 of each range of a buffer without its highest bit, int32; no range may leave it."""
        found = np.empty(len(starts), np.int32)
        for row in range(len(starts)):
            found[row] = body_crc32(data, starts[row], ends[row] - starts[row])
        return found
