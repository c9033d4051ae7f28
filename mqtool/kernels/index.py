"""Puts a column of entries into an IndexFile, as `engine.index.index_file` does with array operations."""

from typing import Any

import numpy as np

from mqtool.formats import index_file, java
from mqtool.kernels.compiling import compiled, inlined
from mqtool.kernels.machine_code import BYTES, I32, I64
from mqtool.kernels.numbers import i32_at, put_number

_OFFSET_AT, _DIFF_AT, _PREVIOUS_AT = (
    index_file.ENTRY.offset(name) for name in ("physical_offset", "time_diff", "previous")
)
_ENTRY, _SLOTS_AT = index_file.ENTRY.size, index_file.slot_position(0)
_SLOT = index_file.slot_position(1) - _SLOTS_AT


@inlined
def _time_diff(time: Any, begin: Any) -> Any:
    return min(max(time - begin, 0) // 1000, java.INT_MAX) if begin > 0 else 0


@compiled("int64", BYTES, "int64", "int64", "int64", "int64", "int64", I32, I64, I64)
def put_entries(
    data: Any,
    slots: int,
    entries_at: int,
    first: int,
    first_diff: int,
    begin: int,
    key_hashes: Any,
    physical: Any,
    times: Any,
) -> int:
    """Writes entries and makes each the head of its slot.

    Args:
        data: the file.
        slots: of the file.
        entries_at: position of entry 0.
        first: number of the first entry.
        first_diff: its time difference; that of the others follows from `begin`.
        begin: ms since epoch that the others are measured against; without one, 0 or less, they are 0.
        key_hashes, physical, times: of each.

    Returns:
        How many went into slots that were empty.
    """
    fresh = 0
    for row in range(len(key_hashes)):
        number = first + row
        slot_at = _SLOTS_AT + (np.int64(key_hashes[row]) % slots) * _SLOT
        newest = i32_at(data, slot_at)
        if newest <= 0 or newest > number:
            newest = 0
            fresh += 1
        diff = first_diff if row == 0 else _time_diff(times[row], begin)
        at = entries_at + number * _ENTRY
        put_number(data, at, np.int64(key_hashes[row]), 4)
        put_number(data, at + _OFFSET_AT, physical[row], 8)
        put_number(data, at + _DIFF_AT, diff, 4)
        put_number(data, at + _PREVIOUS_AT, newest, 4)
        put_number(data, slot_at, number, _SLOT)
    return fresh
