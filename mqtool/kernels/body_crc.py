"""The CRC-32 of a range of a buffer, for other kernels."""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats.checksums import CRC_MASK
from mqtool.kernels.compiling import external, inlined

_CRC_MASK = np.uint32(CRC_MASK)

_isal_crc32 = external(types.uint32, types.uint32, types.uint64, types.uint64)


@inlined
def body_crc32(crc32: Any, data: Any, start: int, length: int) -> Any:
    """Returns the CRC-32 of a range of a buffer without its highest bit; it may not leave the buffer.

    Args:
        crc32: address of `machine_code.CRC32`.
        data: the buffer.
        start, length: the range.
    """
    address = np.uint64(data.ctypes.data) + np.uint64(start)
    return _isal_crc32(crc32, np.uint32(0), address, np.uint64(length)) & _CRC_MASK
