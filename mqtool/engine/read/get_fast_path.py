"""The fast path for the most common get: unfiltered messages of a ConsumeQueue, all of them in one segment.

Everything else (a filter, the end of a file, deleted records) is left to `store.get_message`, whose rules apply; a
test compares the two. If compiled loops are in use, one of them examines the units.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from operator import add

from mqtool import kernels
from mqtool.engine.queue.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue
from mqtool.engine.read.record_views import RecordViews, units_struct
from mqtool.engine.statuses import GetResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.store.get_message import Found, GetLimits, GetStatus

_MOST = 256
"""Maximum number of units that are examined."""

_FOUND = GetStatus.FOUND
_unpack_unit = UNIT.unpack_from
_new_tuple = tuple.__new__


def fast_get(
    limits: GetLimits, log: CommitLog, queue: ConsumeQueue, offset: int, highest: int, most: int, most_bytes: int
) -> GetResult | None:
    """Returns messages of a queue; None, with nothing changed, if the get needs the slow path.

    Args:
        limits: of the store.
        log: the CommitLog.
        queue: the queue to read.
        offset: of the first message, within the queue's bounds.
        highest: offset of the queue's next message.
        most: maximum number of messages.
        most_bytes: maximum sum of their sizes.
    """
    count = min(most, _MOST, highest - offset)
    data = queue.read(offset, count) if count > 0 else b""
    if not data:
        return None
    count = len(data) // UNIT_SIZE
    file = log.queue.find(_unpack_unit(data)[0])
    if file is None or not file.available:
        return None
    base = file.file_from_offset
    in_memory_from = log.queue.max_offset - limits.memory if limits.memory is not None else 0
    compiled = kernels.kernels()
    look: Callable[..., tuple[int, int, int]] = (compiled and compiled.take_units) or _take
    taken, size, last = look(
        data,
        count,
        most,
        most_bytes,
        base,
        base + file.read_position,
        in_memory_from,
        limits.bytes_in_memory,
        limits.count_in_memory,
        limits.bytes_on_disk,
        limits.count_on_disk,
    )
    if not taken or taken == _MOST < most:
        return None
    found: GetResult = _new_tuple(
        Found,
        (
            _FOUND,
            offset + taken,
            queue.min_offset,
            highest,
            RecordViews(file, data, taken, size),
            list(range(offset, offset + taken)),
            size,
            last < in_memory_from,
        ),
    )
    return found


def _take(  # noqa: PLR0917 - the arguments of the kernel
    data: bytes,
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
) -> tuple[int, int, int]:
    """Does the same as `kernels.gets.take_units` for units in the same part of the log; (0, 0, 0) for others."""
    found = units_struct(count).unpack(data)
    places, sizes = found[0::3], found[1::3]
    low, high = min(places), max(places)
    if min(sizes) <= 0 or low < base or low < in_memory_from <= high:
        return 0, 0, 0
    if low >= in_memory_from:
        limit, most_here = bytes_in_memory, count_in_memory
    else:
        limit, most_here = bytes_on_disk, count_on_disk
    sums = list(accumulate(sizes))
    taken = max(1, min(bisect_right(sums, min(limit, most_bytes)), most_here, most))
    if max(map(add, places[:taken], sizes)) > end:
        return 0, 0, 0
    return taken, sums[taken - 1], places[taken - 1]
