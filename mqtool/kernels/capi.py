"""The C API of the interpreter for kernels that are builtin functions: its functions, and short sequences of them.

A kernel takes the addresses of all of them as one tuple, `api`, with the layout `API`. Objects are addresses. Functions
return new references, except `tuple_item`, `list_item`, `dict_item` and `attribute`: what they return belongs to the
container.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from mqtool.kernels.compiling import called, external_at, inlined

_names: list[str] = []


def _function(name: str, result: Any, *takes: Any) -> Callable[..., Any]:
    _names.append(f"@{name}")
    return external_at(len(_names) - 1, result, *takes)


_object, _number = types.uint64, types.int64

call_without_arguments = _function("PyObject_CallNoArgs", _object, _object)
call = _function("PyObject_Call", _object, _object, _object, _object)
is_instance = _function("PyObject_IsInstance", types.int32, _object, _object)
get_attribute = _function("PyObject_GetAttr", _object, _object, _object)
get_item = _function("PyObject_GetItem", _object, _object, _object)
set_attribute = _function("PyObject_SetAttr", types.int32, _object, _object, _object)
dict_item = _function("PyDict_GetItemWithError", _object, _object, _object)
new_tuple = _function("PyTuple_New", _object, _number)
set_tuple_item = _function("PyTuple_SetItem", types.int32, _object, _number, _object)
tuple_item = _function("PyTuple_GetItem", _object, _object, _number)
tuple_size = _function("PyTuple_Size", _number, _object)
new_list = _function("PyList_New", _object, _number)
append = _function("PyList_Append", types.int32, _object, _object)
list_size = _function("PyList_Size", _number, _object)
sort = _function("PyList_Sort", types.int32, _object)
list_item = _function("PyList_GetItem", _object, _object, _number)
new_slice = _function("PySlice_New", _object, _object, _object, _object)
new_bytes = _function("PyBytes_FromStringAndSize", _object, types.uint64, _number)
bytes_address = _function("PyBytes_AsString", types.uint64, _object)
bytes_size = _function("PyBytes_Size", _number, _object)
bytearray_address = _function("PyByteArray_AsString", types.uint64, _object)
text_address = _function("PyUnicode_AsUTF8AndSize", types.uint64, _object, types.uint64)
text_length = _function("PyUnicode_GetLength", _number, _object)
to_number = _function("PyLong_AsLongLong", _number, _object)
from_number = _function("PyLong_FromLongLong", _object, _number)
error = _function("PyErr_Occurred", _object)
clear_error = _function("PyErr_Clear", types.void)
keep = _function("Py_IncRef", types.void, _object)
drop = _function("Py_DecRef", types.void, _object)

API = tuple(_names)
"""Layout of the addresses."""


@inlined
def attribute(api: Any, owner: Any, name: Any) -> Any:
    """Returns an attribute, which its owner keeps alive; 0 with an error if there is none."""
    value = get_attribute(api, owner, name)
    if value != 0:
        drop(api, value)
    return value


@inlined
def has_failed(api: Any) -> bool:
    """Whether a number was none, or not in the range of int64; forgets that."""
    if error(api) == 0:
        return False
    clear_error(api)
    return True


@inlined
def kept(api: Any, value: Any) -> Any:
    """Returns an object with one more reference, for a container or a caller that takes it over."""
    keep(api, value)
    return value


@called
def pair(api: Any, first: Any, second: Any) -> Any:
    """Returns a tuple of two objects, 0 without memory; it takes over one reference to each."""
    result = new_tuple(api, 2)
    if result != 0:
        set_tuple_item(api, result, 0, first)
        set_tuple_item(api, result, 1, second)
    return result


@called
def part_of(api: Any, sequence: Any, start: Any, end: Any) -> Any:
    """Returns the part of a sequence between two positions; 0 with an error if it fails."""
    first, last = from_number(api, start), from_number(api, end)
    places = new_slice(api, first, last, np.uint64(0))
    part = get_item(api, sequence, places) if places != 0 else np.uint64(0)
    for reference in (first, last, places):
        drop(api, reference)
    return part


@called
def item_of(api: Any, table: Any, first: Any, second: Any) -> Any:
    """Returns the value of a dictionary at a key of two objects; 0 if there is none."""
    key = pair(api, kept(api, first), kept(api, second))
    value = dict_item(api, table, key)
    drop(api, key)
    if value == 0:
        clear_error(api)
    return value


@called
def named_tuple(api: Any, new_tuple: Any, kind: Any, fields: Any) -> Any:
    """Returns a named tuple of a class; takes over the reference to its fields. `new_tuple` is `tuple.__new__`."""
    return called_with(api, new_tuple, pair(api, kept(api, kind), fields))


@called
def called_with(api: Any, function: Any, arguments: Any) -> Any:
    """Returns what a function returns for a tuple of arguments, which is given up; 0 with an error if it fails."""
    if arguments == 0:
        return np.uint64(0)
    result = call(api, function, arguments, np.uint64(0))
    drop(api, arguments)
    return result
