"""Numbers as records hold them, their highest byte first."""

from typing import Any

import numpy as np

from mqtool.kernels.compiling import inlined, number_at, put_number_at

# One load or store and one byte swap each. LLVM does not merge accesses to single bytes here: numba tests each index
# for being negative, and the tests come in between. With them a scan took 38 ns for a record of 100 bytes, not 17.


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
def put_i16(data: Any, at: Any, value: Any) -> None:
    """Writes a number into two bytes."""
    put_number_at(np.uint64(data.ctypes.data) + np.uint64(at), np.int64(value), np.uint16)


@inlined
def put_i32(data: Any, at: Any, value: Any) -> None:
    """Writes a number into four bytes."""
    put_number_at(np.uint64(data.ctypes.data) + np.uint64(at), np.int64(value), np.uint32)


@inlined
def put_i64(data: Any, at: Any, value: Any) -> None:
    """Writes a number into eight bytes."""
    put_number_at(np.uint64(data.ctypes.data) + np.uint64(at), np.int64(value), np.uint64)
