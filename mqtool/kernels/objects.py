"""Bytes objects in a row: where their bytes are, without joining them."""

from typing import Any

from numba import types

from mqtool.kernels.compiling import compiled, external
from mqtool.kernels.machine_code import I64, U64

_item = external(types.uint64, types.uint64, types.int64)
_is_instance = external(types.int32, types.uint64, types.uint64)
_address = external(types.uint64, types.uint64)
_size = external(types.int64, types.uint64)
_API = ("@PyTuple_GetItem", "@PyObject_IsInstance", "@PyBytes_AsString", "@PyBytes_Size")
"""Functions of the interpreter: it keeps its lock while they may be called."""


@compiled("bool", *_API, "uint64", "uint64", U64, I64)
def find_bytes(
    get_item: Any, is_instance: Any, as_string: Any, size_of: Any, items: Any, kind: Any, addresses: Any, sizes: Any
) -> bool:
    """Finds the bytes of the objects in a tuple; they stay where they are as long as it lives.

    Args:
        get_item, is_instance, as_string, size_of: of the interpreter.
        items, kind: `id` of the tuple and of `bytes`.
        addresses, sizes: get those of each.

    Returns:
        False if one is not a bytes object.
    """
    for row in range(len(sizes)):
        item = _item(get_item, items, row)
        if _is_instance(is_instance, item, kind) != 1:
            return False
        addresses[row], sizes[row] = _address(as_string, item), _size(size_of, item)
    return True
