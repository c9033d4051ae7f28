"""Entries and slots of an index file as they mostly are. Anything else is for array arithmetic."""

from typing import Any

import numpy as np

from mqtool.formats import java
from mqtool.formats.index_file import ENTRY, SLOT_SIZE
from mqtool.kernels.buckets import add_to_bucket, bucket_of
from mqtool.kernels.compiling import compiled, inlined, prefetch
from mqtool.kernels.machine_code import BYTES, I32, I64, U64
from mqtool.kernels.numbers import i32_at, i64_at
from mqtool.kernels.sums import mixed_entry

_PLACE_AT, _TIME_AT, _PREVIOUS_AT = (ENTRY.offset(name) for name in ("physical_offset", "time_diff", "previous"))
_ENTRY, _INT_MAX = ENTRY.size, java.INT_MAX
_AHEAD = 64
"""Entries whose slots are requested before they are looked at."""


@inlined
def _remainder(value: Any, divisor: Any, inverse: Any) -> Any:
    """Returns value % divisor for numbers of 31 bits, from 1 / divisor: a division takes the time of ten additions."""
    rest = value - np.int64(np.float64(value) * inverse) * divisor  # the quotient is one off at most
    rest = rest + divisor if rest < 0 else rest
    return rest - divisor if rest >= divisor else rest


@compiled("int64", BYTES, "int64", I32, "int64", I64, I64, I64, "int64", U64, I64, I64)
def plain_entries(
    data: Any,
    first: int,
    heads: Any,
    end: int,
    bases: Any,
    ends: Any,
    first_buckets: Any,
    shift: int,
    total: Any,
    count: Any,
    seen: Any,
) -> int:
    """Follows chains and adds entries to the sums until one contradicts its slot or refers to no record of the log.

    The heads lie all over some 20 MB. Each is requested 64 entries before it is needed: without that every entry waits
    for memory, and 16 entries before, which takes half as long again, some still do.

    Args:
        data: the entries' bytes.
        first: number of the first.
        heads: number of the newest entry of each slot; updated.
        end: of the log, physical offset.
        bases, ends, first_buckets: of the segments: physical offsets, number of the first bucket.
        shift: bits of a bucket.
        total, count: sums by bucket; updated.
        seen: output: minimum and maximum physical offset of the entries that were taken.

    Returns:
        How many were taken.
    """
    entries, slots = len(data) // _ENTRY, np.int64(len(heads))
    inverse = 1.0 / len(heads)  # infinite without slots, of which then none is looked for
    lowest, highest = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-1)
    heads_at = np.uint64(heads.ctypes.data)
    bucket = low = high = segment = taken = summed = np.int64(0)
    mixed = np.uint64(0)
    while taken < entries and slots > 0:
        ahead = taken + _AHEAD
        if ahead < entries:
            key_hash = i32_at(data, ahead * _ENTRY) & _INT_MAX
            prefetch(heads_at + np.uint64(4) * np.uint64(_remainder(key_hash, slots, inverse)))
        at = taken * _ENTRY
        key_hash, physical = i32_at(data, at), i64_at(data, at + _PLACE_AT)
        if key_hash < 0:
            break
        slot = np.uint64(_remainder(key_hash, slots, inverse))
        if heads[slot] != i32_at(data, at + _PREVIOUS_AT):
            break
        if physical < low or physical >= high:
            add_to_bucket(total, count, bucket, mixed, taken - summed)
            mixed, summed = np.uint64(0), taken
            bucket, low, high, segment = bucket_of(physical, end, bases, ends, first_buckets, shift, segment)
            if low >= high:
                break
        heads[slot] = np.int32(first + taken)
        mixed += mixed_entry(physical, key_hash, i32_at(data, at + _TIME_AT))
        lowest, highest = min(lowest, physical), max(highest, physical)
        taken += 1
    add_to_bucket(total, count, bucket, mixed, taken - summed)
    seen[0], seen[1] = lowest, highest
    return int(taken)


@compiled(("int64", "int64", "int64"), BYTES, I32, "int64")
def compare_slots(data: Any, heads: Any, maximum: int) -> Any:
    """Compares stored slots with the newest entries that they should lead to.

    Args:
        data: the slots' bytes.
        heads: number of the newest entry of each.
        maximum: slots that lead to a later entry than this one are not wrong: a broker has just written them.

    Returns:
        How many are wrong, the first of these or -1, and how many are not zero.
    """
    wrong = used = np.int64(0)
    first: Any = np.int64(-1)
    for slot in range(len(data) // SLOT_SIZE):
        stored = i32_at(data, slot * SLOT_SIZE)
        used += stored != 0
        if stored != heads[slot] and stored <= maximum:
            first = np.int64(slot) if first < 0 else first
            wrong += 1
    return wrong, first, used
