"""The CRC-32 of a range of a buffer, for other kernels."""

from typing import Any

import numpy as np
from isal import isal_zlib
from llvmlite import binding
from numba import types

from mqtool.formats.checksums import CRC_MASK
from mqtool.kernels.compiling import inlined

_CRC_MASK = np.uint32(CRC_MASK)

_ISAL_CRC32 = "crc32_gzip_refl"
"""ISA-L's own function, which the library inside isal exports: (CRC so far, address, bytes)."""


binding.load_library_permanently(isal_zlib.__file__)
HAS_CRC32 = binding.address_of_symbol(_ISAL_CRC32) is not None
"""Whether isal exports the function: without it there are no kernels."""
_isal_crc32 = types.ExternalFunction(_ISAL_CRC32, types.uint32(types.uint32, types.uint64, types.uint64))


@inlined
def body_crc32(data: Any, start: int, length: int) -> Any:
    """Returns the CRC-32 of a range of a buffer without its highest bit; it may not leave the buffer."""
    address = np.uint64(data.ctypes.data) + np.uint64(start)
    return _isal_crc32(np.uint32(0), address, np.uint64(length)) & _CRC_MASK
