"""Bytes objects in a row: where their bytes are, without joining them."""

from collections.abc import Callable
from typing import Any

from numba import njit, types

from mqtool.kernels.compiling import I64, U64

_item = types.ExternalFunction("PyTuple_GetItem", types.uint64(types.uint64, types.int64))
_is_instance = types.ExternalFunction("PyObject_IsInstance", types.int32(types.uint64, types.uint64))
_address = types.ExternalFunction("PyBytes_AsString", types.uint64(types.uint64))
_size = types.ExternalFunction("PyBytes_Size", types.int64(types.uint64))


def _find_bytes(items: Any, kind: Any, addresses: Any, sizes: Any) -> bool:
    """Finds the bytes of the objects in a tuple; they stay where they are as long as it lives.

    Args:
        items, kind: `id` of the tuple and of `bytes`.
        addresses, sizes: get those of each.

    Returns:
        False if one is no bytes object.
    """
    for row in range(len(sizes)):
        item = _item(items, row)
        if _is_instance(item, kind) != 1:
            return False
        addresses[row], sizes[row] = _address(item), _size(item)
    return True


find_bytes: Callable[..., bool] = njit(types.boolean(types.uint64, types.uint64, U64, I64), cache=True)(_find_bytes)
"""Compiled; it calls the interpreter's C API, so it keeps the interpreter lock, unlike the other kernels."""
