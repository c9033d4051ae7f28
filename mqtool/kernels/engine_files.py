"""The mapped files of the engine as kernels see them: Python objects whose attributes are read by the C API.

A kernel that reads files takes a tuple of addresses of objects, its sink, which begins with `FILES_SINK`.
"""

from typing import Any

import numpy as np

from mqtool.kernels import capi
from mqtool.kernels.compiling import called, inlined

FILES_SINK = ("uint64",) * 14
(
    NONE,
    FALSE,
    TRUE,
    NEW_TUPLE,  # tuple.__new__
    LOG,  # MappedFileQueue of the log
    FILES_NAME,
    BASE_NAME,
    SIZE_NAME,
    WROTE_NAME,
    COMMITTED_NAME,
    BUFFER_NAME,
    AVAILABLE_NAME,
    FILE_NAME,
    PIN_NAME,
) = range(len(FILES_SINK))


@inlined
def number_of(api: Any, owner: Any, name: Any) -> Any:
    """Returns a number that is an attribute; -1 with an error if it is not a number."""
    return capi.to_number(api, capi.attribute(api, owner, name))


@called
def read_end(api: Any, sink: Any, file: Any) -> Any:
    """Returns the offset up to which a MappedFile may be read."""
    is_direct = capi.attribute(api, file, sink[BUFFER_NAME]) == sink[NONE]
    position = number_of(api, file, sink[WROTE_NAME] if is_direct else sink[COMMITTED_NAME])
    return number_of(api, file, sink[BASE_NAME]) + position


@called
def file_at(api: Any, sink: Any, files: Any, offset: Any) -> Any:
    """Returns the MappedFile that contains an offset; 0 if none does, or if one in between is missing."""
    count = capi.tuple_size(api, files)
    if count == 0 or offset < 0:
        return np.uint64(0)
    first = capi.tuple_item(api, files, 0)
    size = number_of(api, first, sink[SIZE_NAME])
    index = offset // size - number_of(api, first, sink[BASE_NAME]) // size
    if index < 0 or index >= count:
        return np.uint64(0)
    file = capi.tuple_item(api, files, index)
    base = number_of(api, file, sink[BASE_NAME])
    return file if base <= offset < base + size else np.uint64(0)


@called
def end_of(api: Any, sink: Any, files: Any) -> Any:
    """Returns the offset up to which a MappedFileQueue may be read, 0 if it is empty."""
    count = capi.tuple_size(api, files)
    return read_end(api, sink, capi.tuple_item(api, files, count - 1)) if count > 0 else np.int64(0)


@called
def pin_of(api: Any, sink: Any, file: Any) -> Any:
    """Returns the pin of a MappedFile's mapping and the address of its first byte; 0 if it was never mapped."""
    pin = capi.attribute(api, capi.attribute(api, file, sink[FILE_NAME]), sink[PIN_NAME])
    if pin == sink[NONE]:
        return np.uint64(0), np.int64(0)
    return pin, capi.to_number(api, capi.tuple_item(api, pin, 1))
