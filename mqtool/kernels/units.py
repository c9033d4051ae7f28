"""ConsumeQueue units as they mostly are: each names a record of the log. Anything else is for array arithmetic."""

from typing import Any

import numpy as np

from mqtool.formats import commit_log
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, MAX_EXT_ADDRESS
from mqtool.kernels.compiling import compiled
from mqtool.kernels.machine_code import BYTES, I64, U64
from mqtool.kernels.numbers import i32_at, i64_at
from mqtool.kernels.sums import mixed_unit

_SIZE_AT, _TAGS_AT = (CONSUME_QUEUE_UNIT.offset(name) for name in ("size", "tags_code"))
_UNIT = CONSUME_QUEUE_UNIT.size
_LEAST, _MOST = commit_log.MIN_RECORD_SIZE, 1 << 28


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
    """Adds units to the sums if each refers to a record inside one segment, in log order; otherwise does nothing.

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
    units = len(data) // _UNIT
    least, most, last_end = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-1), np.int64(-1)
    segment = 0
    for unit in range(units):
        at = unit * _UNIT
        physical, size = i64_at(data, at), i32_at(data, at + _SIZE_AT)
        if physical >= end or size < _LEAST or size >= _MOST or i64_at(data, at + _TAGS_AT) <= MAX_EXT_ADDRESS:
            return False
        while segment < len(ends) and physical >= ends[segment]:
            segment += 1
        if segment == len(ends) or physical < bases[segment]:
            return False
        least, most, last_end = min(least, physical), max(most, physical), max(last_end, physical + size)
    segment = 0
    for unit in range(units):
        at = unit * _UNIT
        physical, size = i64_at(data, at), i32_at(data, at + _SIZE_AT)
        while physical >= ends[segment]:
            segment += 1
        bucket = first_buckets[segment] + ((physical - bases[segment]) >> shift)
        total[bucket] += mixed_unit(physical, start + unit, size, i64_at(data, at + _TAGS_AT), key)
        count[bucket] += 1
    seen[0], seen[1], seen[2] = least, most, last_end
    return True
