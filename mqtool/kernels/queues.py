"""Units of many queues, sorted by queue and packed as ConsumeQueues hold them."""

from typing import Any

import numpy as np

from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.kernels.compiling import compiled
from mqtool.kernels.machine_code import BYTES, I32, I64
from mqtool.kernels.numbers import put_number

_SIZE_AT, _TAGS_AT = (CONSUME_QUEUE_UNIT.offset(name) for name in ("size", "tags_code"))
_UNIT = CONSUME_QUEUE_UNIT.size
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@compiled("int64", I64, I32, I32, I64)
def number(keys: Any, slots: Any, numbers: Any, firsts: Any) -> int:
    """Numbers distinct keys in the order in which they come.

    Args:
        keys: any numbers.
        slots: a power of two of them and more than there are keys, all -1.
        numbers: get the number of each row's key.
        firsts: gets the first row of each number.

    Returns:
        How many distinct ones there are.
    """
    mask = np.int64(len(slots) - 1)
    count = 0
    for row in range(len(keys)):
        slot = np.int64((np.uint64(keys[row]) * _MIX) >> _SHIFT) & mask
        while slots[slot] >= 0 and keys[firsts[slots[slot]]] != keys[row]:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = count
            firsts[count] = row
            count += 1
        numbers[row] = slots[slot]
    return count


@compiled("none", I32, I64, I64, I32, I64, BYTES, I64, I64, I32, I64)
def pack_units(
    numbers: Any,
    offsets: Any,
    physical: Any,
    sizes: Any,
    tags: Any,
    packed: Any,
    rows: Any,
    ends: Any,
    gaps: Any,
    last: Any,
) -> None:
    """Packs units queue by queue; the order within a queue is kept.

    Args:
        numbers: of each unit's queue.
        offsets, physical, sizes, tags: of each unit.
        packed: output: the units' bytes.
        rows: output: the row of each packed unit.
        ends: output, by queue, initially 0: the number of units of this queue and all queues before it.
        gaps: output, by queue, initially 0: whether queue offsets are missing between units.
        last: by queue, initially -1: the row of the last unit packed so far.
    """
    for row in range(len(numbers)):
        ends[numbers[row]] += 1
    before = np.int64(0)
    for queue in range(len(ends)):  # begins of the queues' runs, which the next pass moves to their ends
        units = ends[queue]
        ends[queue] = before
        before += units
    for row in range(len(numbers)):
        queue = numbers[row]
        place = ends[queue]
        at = place * _UNIT
        put_number(packed, at, physical[row], 8)
        put_number(packed, at + _SIZE_AT, np.int64(sizes[row]), 4)
        put_number(packed, at + _TAGS_AT, tags[row], 8)
        rows[place] = row
        if last[queue] >= 0 and offsets[row] != offsets[last[queue]] + 1:
            gaps[queue] = 1
        last[queue] = row
        ends[queue] = place + 1
