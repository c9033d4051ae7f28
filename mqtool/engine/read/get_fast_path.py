"""The fast path of the commonest get: unfiltered messages of a ConsumeQueue, all of them in one segment.

Everything else (a filter, the end of a file, deleted records, records partly on disk) is left to `store.get_message`,
whose rules apply; a test compares the two.
"""

import struct
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from operator import add

from mqtool.engine.options import StoreOptions
from mqtool.engine.queue.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue
from mqtool.engine.statuses import GetResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.store.get_message import Found, GetStatus

_MOST = 256
"""Maximum number of units that are unpacked at once."""

_FOUND = GetStatus.FOUND


@cache
def _units(count: int) -> struct.Struct:
    return struct.Struct(UNIT.format[:1] + UNIT.format[1:] * count)


def fast_get(
    options: StoreOptions, log: CommitLog, queue: ConsumeQueue, offset: int, most: int, most_bytes: int, memory: int
) -> GetResult | None:
    """Returns messages of a queue; None if the get needs the slow path (nothing is changed then).

    Args:
        options: with the limits.
        log: the CommitLog.
        queue: the queue to read.
        offset: of the first message, within the queue's bounds.
        most: maximum number of messages.
        most_bytes: maximum sum of their sizes.
        memory: bytes at the end of the log that count as being in memory.
    """
    highest, count = queue.max_offset, min(most, _MOST)
    data = queue.read(offset, min(count, highest - offset)) if count > 0 else b""
    if not data:
        return None
    found = _units(len(data) // UNIT_SIZE).unpack(data)
    places, sizes = found[0::3], found[1::3]
    low, high, in_memory_from = min(places), max(places), log.queue.max_offset - memory
    if min(sizes) <= 0 or low < in_memory_from <= high:
        return None
    if low >= in_memory_from:
        limit, most_here = options.max_get_bytes_in_memory, options.max_get_count_in_memory
    else:
        limit, most_here = options.max_get_bytes_on_disk, options.max_get_count_on_disk
    sums = list(accumulate(sizes))
    taken = max(1, min(bisect_right(sums, min(limit, most_bytes)), most_here))
    if taken < len(sizes):
        places, sizes = places[:taken], sizes[:taken]
    elif len(sizes) == _MOST < most:
        return None
    file = log.queue.find(low)
    if file is None or not file.available:
        return None
    base, ends = file.file_from_offset, list(map(add, places, sizes))
    if max(ends) > base + file.read_position:
        return None
    view = memoryview(file.file.mapping)
    records = [view[start - base : end - base] for start, end in zip(places, ends, strict=True)]
    return Found(
        _FOUND,
        offset + taken,
        queue.min_offset,
        highest,
        records,
        list(range(offset, offset + taken)),
        sums[taken - 1],
        places[-1] < in_memory_from,
    )
