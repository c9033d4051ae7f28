"""Numbers as records hold them, their highest byte first."""

from typing import Any

import numpy as np

from mqtool.kernels.compiling import inlined, number_at

# One load and one byte swap each. LLVM does not merge loads of single bytes here: numba tests each index for being
# negative, and the tests come between the loads. With them a scan took 38 ns for a record of 100 bytes instead of 17.


@inlined
def i16_at(data: Any, at: Any) -> Any:
    """Returns the signed number in two bytes."""
    return np.int64(np.int16(number_at(np.uint64(data.ctypes.data) + np.uint64(at), np.uint16)))


@inlined
def i32_at(data: Any, at: Any) -> Any:
    """Returns the signed number in four bytes."""
    return np.int64(np.int32(number_at(np.uint64(data.ctypes.data) + np.uint64(at), np.uint32)))


@inlined
def i64_at(data: Any, at: Any) -> Any:
    """Returns the signed number in eight bytes."""
    return np.int64(number_at(np.uint64(data.ctypes.data) + np.uint64(at), np.uint64))


@inlined
def put_number(data: Any, at: Any, value: Any, size: int) -> None:
    """Writes a number, its highest byte first."""
    for place in range(size):
        data[at + place] = np.uint8((value >> (8 * (size - 1 - place))) & 0xFF)
