"""What passes that read a log by themselves share: windows, and the fields of a plain record."""

from typing import Any

import numpy as np
from numba import types

from mqtool.kernels.compiling import external, inlined
from mqtool.kernels.frame_scan import AT, BODY_AT, MIN_SIZE, PORTS, V6_HOSTS, places
from mqtool.kernels.numbers import i32_at, i64_at
from mqtool.kernels.tables import SPARE
from mqtool.kernels.trailers import is_equal, topic_entry

_QUEUE_AT, _FLAGS_AT, _OFFSET_AT = AT["queue_id"], AT["sys_flag"], AT["physical_offset"]
_BORN_AT, _STORED_AT, _RETRIES_AT = AT["born_timestamp"], AT["store_timestamp"], AT["reconsume_times"]

FILE = ("int64",) * 5
"""Layout: descriptor; physical offset of the file's first byte; position of the first record; position after which no
record may end; position from which no window is read."""

_pread = external(types.int64, types.int64, types.uint64, types.uint64, types.int64)
"""The C library's: (file, to, bytes, position)."""


@inlined
def refill(pread: Any, descriptor: Any, window: Any, position: Any, end: Any) -> Any:
    """Reads a window from a position, nothing after `end`.

    Returns:
        Bytes in it; 0 if there are fewer than a record has, or an error: who reads on finds it again and reports it.
    """
    filled, count = np.int64(0), min(np.int64(len(window) - SPARE), end - position)
    if count >= MIN_SIZE:
        filled = _pread(pread, descriptor, np.uint64(window.ctypes.data), np.uint64(count), position)
    return filled if filled >= MIN_SIZE else np.int64(0)


@inlined
def record_in(pread: Any, file: Any, window: Any, position: Any, start: Any, filled: Any) -> Any:
    """Finds the record at a position in the window; reads a new window unless this one contains all of the record.

    Args:
        pread: of the C library.
        file: see `FILE`.
        window: the bytes.
        position: of the record.
        start, filled: position of the window's first byte, and how many bytes it holds.

    Returns:
        `start` and `got` afterwards; total_size, 0 without a complete record, -1 if no further window is to be read.
    """
    descriptor, _, _, end, stop = file
    at = position - start
    total = i32_at(window, at) if at + MIN_SIZE <= filled else np.int64(0)
    if at + MIN_SIZE > filled or at + total > filled:
        if position >= stop:
            return start, filled, np.int64(-1)
        is_longer = filled > 0 and at == 0  # than a window, or the file ends
        start, filled = position, np.int64(0) if is_longer else refill(pread, descriptor, window, position, end)
        total = i32_at(window, 0) if filled > 0 else np.int64(0)
        total = total if total <= filled else np.int64(0)
    return start, filled, max(total, np.int64(0))


@inlined
def head(window: Any, at: Any, total: Any, physical: Any, refused: Any) -> Any:
    """Returns whether the fields of a record of version 1 are plain, and those that are needed on.

    Args:
        window: the bytes.
        at, total: where the record begins in them, and total_size.
        physical: its physical offset.
        refused: bits of sys_flag that are not plain; those of IPv6 hosts never are.

    Returns:
        Whether they are; sys_flag, queue id, store timestamp; `frame_scan.places`.
    """
    flags = i32_at(window, at + _FLAGS_AT)
    adds_up, body_length, topic_at, topic_length, properties_at, properties_length = places(
        window, at + BODY_AT, at + total, False
    )
    queue_id, stored = i32_at(window, at + _QUEUE_AT), i64_at(window, at + _STORED_AT)
    ports = i32_at(window, at + _STORED_AT - 4) | i32_at(window, at + _RETRIES_AT - 4)
    is_plain = adds_up and flags & (V6_HOSTS | refused) == 0 and i64_at(window, at + _OFFSET_AT) == physical
    is_plain = is_plain and queue_id >= 0 and stored > 0 and i64_at(window, at + _BORN_AT) >= 0 and 0 <= ports < PORTS
    return is_plain, flags, queue_id, stored, body_length, topic_at, topic_length, properties_at, properties_length


@inlined
def topic_of(window: Any, at: Any, length: Any, topics: Any, before: Any) -> Any:
    """Returns the entry of a topic, mostly that of the record before; -1 if it is not known."""
    if before >= 0 and topics[2][before] == length and is_equal(window, at, topics[0], topics[1][before], length):
        return before
    return np.int64(topic_entry(window, at, length, topics))
