"""The records that some units lead to: how many of them one get returns, and their bytes one behind the other.

These kernels take nothing but numbers, so that a call costs less than a microsecond.
"""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.kernels.compiling import array_at, compiled, external, prefetch
from mqtool.kernels.numbers import i32_at, i64_at

_SIZE_AT = CONSUME_QUEUE_UNIT.offset("size")
_UNIT = CONSUME_QUEUE_UNIT.size
_AHEAD = 8
"""Records whose first bytes are called for before they are copied."""

_LINE = 64

_copy = external(types.uint64, types.uint64, types.uint64, types.uint64)
"""The C library's: (to, from, bytes)."""


@compiled(("int64", "int64", "int64"), *("int64",) * 11)
def take_units(
    units: int,
    count: int,
    most: int,
    most_bytes: int,
    base: int,
    end: int,
    in_memory_from: int,
    bytes_in_memory: int,
    count_in_memory: int,
    bytes_on_disk: int,
    count_on_disk: int,
) -> Any:
    """Counts the messages that an unfiltered get returns, by the rules of `store.get_message`.

    Args:
        units: address of the units.
        count: how many there are.
        most, most_bytes: maximum number of messages, and maximum sum of their sizes.
        base, end: physical offsets between which the records must be.
        in_memory_from: physical offset from which records count as being in memory.
        bytes_in_memory, count_in_memory, bytes_on_disk, count_on_disk: `store.get_message.GetLimits`.

    Returns:
        How many, the sum of their sizes, and the physical offset of the last; 0 of them where a unit leads to
        elsewhere.
    """
    data = array_at(units, (count * _UNIT,), np.uint8)
    taken, total, last = np.int64(0), np.int64(0), np.int64(0)
    while taken < count:
        at = taken * _UNIT
        physical, size = i64_at(data, at), i32_at(data, at + _SIZE_AT)
        if taken > 0:
            in_memory = physical >= in_memory_from
            limit = bytes_in_memory if in_memory else bytes_on_disk
            if taken >= min(most, count_in_memory if in_memory else count_on_disk):
                break
            if total + size > min(limit, most_bytes):
                break
        if size <= 0 or physical < base or physical + size > end:
            return np.int64(0), np.int64(0), np.int64(0)
        taken, total, last = taken + 1, total + size, physical
    return taken, total, last


@compiled("int64", "@memcpy", *("int64",) * 5)
def copy_records(memcpy: Any, units: int, count: int, base: int, log: int, target: int) -> Any:
    """Copies records one behind the other.

    Args:
        memcpy: of the C library.
        units: address of the units that lead to them, as `take_units` counted them.
        count: how many.
        base: physical offset of the segment's first byte.
        log: its address.
        target: where to; there must be room.

    Returns:
        How many bytes.
    """
    data = array_at(units, (count * _UNIT,), np.uint8)
    done = np.int64(0)
    for row in range(-_AHEAD, count):
        ahead = row + _AHEAD
        if ahead < count:
            first = log + i64_at(data, ahead * _UNIT) - base
            for line in range(min(i32_at(data, ahead * _UNIT + _SIZE_AT), 4 * _LINE) // _LINE + 1):
                prefetch(np.uint64(first + line * _LINE))
        if row >= 0:
            at = row * _UNIT
            size = i32_at(data, at + _SIZE_AT)
            _copy(memcpy, np.uint64(target + done), np.uint64(log + i64_at(data, at) - base), np.uint64(size))
            done += size
    return done
