"""ConsumeQueue units as they mostly are: each names a record of the log. Anything else is for array arithmetic."""

from typing import Any

import numpy as np

from mqtool.formats import commit_log
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, MAX_EXT_ADDRESS
from mqtool.kernels.buckets import add_to_bucket, bucket_of
from mqtool.kernels.compiling import called, compiled
from mqtool.kernels.machine_code import BYTES, I64, U64
from mqtool.kernels.numbers import i32_at, i64_at
from mqtool.kernels.sums import mixed_unit

_SIZE_AT, _TAGS_AT = (CONSUME_QUEUE_UNIT.offset(name) for name in ("size", "tags_code"))
_UNIT = CONSUME_QUEUE_UNIT.size
_MIN, _MAX = commit_log.MIN_RECORD_SIZE, 1 << 28


@called
def _add(data: Any, units: Any, start: Any, key: Any, log: Any, total: Any, count: Any, seen: Any, is_undo: Any) -> Any:
    """Adds units to the sums until one is not plain, or takes them away again; returns how many."""
    end, bases, ends, first_buckets, shift = log
    lowest, highest, last_end = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-1), np.int64(-1)
    bucket = low = high = segment = taken = summed = np.int64(0)
    mixed, sign = np.uint64(0), np.int64(-1 if is_undo else 1)
    while taken < units:
        at = taken * _UNIT
        physical, size, tags = i64_at(data, at), i32_at(data, at + _SIZE_AT), i64_at(data, at + _TAGS_AT)
        if size < _MIN or size >= _MAX or tags <= MAX_EXT_ADDRESS:
            break
        if physical < low or physical >= high:
            add_to_bucket(total, count, bucket, mixed * np.uint64(sign), (taken - summed) * sign)
            mixed, summed = np.uint64(0), taken
            bucket, low, high, segment = bucket_of(physical, end, bases, ends, first_buckets, shift, segment)
            if low >= high:
                break
        mixed += mixed_unit(physical, start + taken, size, tags, key)
        lowest, highest, last_end = min(lowest, physical), max(highest, physical), max(last_end, physical + size)
        taken += 1
    add_to_bucket(total, count, bucket, mixed * np.uint64(sign), (taken - summed) * sign)
    seen[0], seen[1], seen[2] = lowest, highest, last_end
    return taken


@compiled("bool", BYTES, "int64", "uint64", "int64", I64, I64, I64, "int64", U64, I64, I64)
def plain_units(
    data: Any,
    start: int,
    key: Any,
    end: int,
    bases: Any,
    ends: Any,
    first_buckets: Any,
    shift: int,
    total: Any,
    count: Any,
    seen: Any,
) -> bool:
    """Adds units to the sums if each refers to a record of the log; otherwise the sums are as before.

    Args:
        data: the units' bytes.
        start: queue offset of the first.
        key: `verify.checksums.queue_key` of the queue.
        end: of the log, physical offset.
        bases, ends, first_buckets: of the segments: physical offsets, number of the first bucket.
        shift: bits of a bucket.
        total, count: sums by bucket.
        seen: output: minimum and maximum physical offset, and the maximum end of a record.

    Returns:
        Whether the units were added.
    """
    units, log = np.int64(len(data) // _UNIT), (end, bases, ends, first_buckets, np.int64(shift))
    taken = _add(data, units, np.int64(start), key, log, total, count, seen, False)
    if taken < units:
        _add(data, taken, np.int64(start), key, log, total, count, seen, True)
    return bool(taken == units)
