"""Numbers as records hold them, their highest byte first."""

from typing import Any

import numpy as np

from mqtool.kernels.compiling import inlined


@inlined
def i16_at(data: Any, at: Any) -> Any:
    """Returns the signed number in two bytes."""
    return np.int64(np.int16(np.uint16(data[at]) << 8 | np.uint16(data[at + 1])))


@inlined
def i32_at(data: Any, at: Any) -> Any:
    """Returns the signed number in four bytes."""
    high = np.uint32(data[at]) << 24 | np.uint32(data[at + 1]) << 16
    return np.int64(np.int32(high | np.uint32(data[at + 2]) << 8 | np.uint32(data[at + 3])))


@inlined
def i64_at(data: Any, at: Any) -> Any:
    """Returns the signed number in eight bytes."""
    return i32_at(data, at) << 32 | (i32_at(data, at + 4) & 0xFFFFFFFF)


@inlined
def put_number(data: Any, at: Any, value: Any, size: int) -> None:
    """Writes a number, its highest byte first."""
    for place in range(size):
        data[at + place] = np.uint8((value >> (8 * (size - 1 - place))) & 0xFF)
