"""Gets of the engine, as builtin functions: the records of a get, and copies of them."""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.kernels import capi, engine_files
from mqtool.kernels.compiling import array_at, called, compiled, external, prefetch
from mqtool.kernels.machine_code import OBJECT
from mqtool.kernels.numbers import i32_at, i64_at

_SIZE_AT = CONSUME_QUEUE_UNIT.offset("size")
_UNIT = CONSUME_QUEUE_UNIT.size
_AHEAD = 8
"""Records whose first bytes are called for before they are copied."""

_LINE = 64

_copy = external(types.uint64, types.uint64, types.uint64, types.uint64)

_MAX = 256
"""Maximum number of units that a plain get examines; more are for the slow path."""

_SINK = ("uint64",) * (len(engine_files.FILES_SINK) + 9)
(
    _QUEUES,  # ConsumeQueue or another kind, by topic and queue id
    _KIND,  # ConsumeQueue
    _READER,  # its `limits` are `store.get_message.GetLimits`
    _FOUND,  # the status
    _RESULT,  # GetResult
    _VIEWS,  # RecordViews
    _RANGE,
    _MIN_OFFSET_NAME,
    _LIMITS_NAME,
) = range(len(engine_files.FILES_SINK), len(_SINK))


@called
def _take(data: Any, count: Any, limit: Any, limit_bytes: Any, base: Any, end: Any, memory: Any, limits: Any) -> Any:
    """Counts the units that an unfiltered get takes, by the rules of `store.get_message`.

    Args:
        data: the units.
        count: how many there are.
        limit, limit_bytes: maximum number of messages, and maximum sum of their sizes.
        base, end: physical offsets between which the records must be.
        memory: physical offset from which records count as being in memory.
        limits: bytes and messages in memory, bytes and messages on disk.

    Returns:
        How many, the sum of their sizes, and the physical offset of the last; 0 of them where a unit leads to
        elsewhere.
    """
    taken, total, last = np.int64(0), np.int64(0), np.int64(0)
    while taken < count:
        at = taken * _UNIT
        physical, size = i64_at(data, at), i32_at(data, at + _SIZE_AT)
        if taken > 0:
            in_memory = physical >= memory
            if taken >= min(limit, limits[1] if in_memory else limits[3]):
                break
            if total + size > min(limits[0] if in_memory else limits[2], limit_bytes):
                break
        if size <= 0 or physical < base or physical + size > end:
            return np.int64(0), np.int64(0), np.int64(0)
        taken, total, last = taken + 1, total + size, physical
    return taken, total, last


@called
def _views(api: Any, sink: Any, pin: Any, base: Any, units: Any, taken: Any, size: Any) -> Any:
    """Returns RecordViews; takes over the references to pin and units."""
    arguments = capi.new_tuple(api, 5)
    if arguments == 0:
        return arguments
    capi.set_tuple_item(api, arguments, 0, pin)
    capi.set_tuple_item(api, arguments, 1, capi.from_number(api, base))
    capi.set_tuple_item(api, arguments, 2, units)
    capi.set_tuple_item(api, arguments, 3, capi.from_number(api, taken))
    capi.set_tuple_item(api, arguments, 4, capi.from_number(api, size))
    return capi.called_with(api, sink[_VIEWS], arguments)


@called
def _get_result(api: Any, sink: Any, bounds: Any, views: Any, size: Any, is_old: Any) -> Any:
    """Returns a GetResult; takes over the reference to the views.

    Args:
        api, sink: of the kernel.
        bounds: queue offsets: the first, the one after the last, minimum and maximum of the queue.
        views: RecordViews.
        size: sum of the records' sizes.
        is_old: whether the last record is older than the part of the log in memory.
    """
    fields = capi.new_tuple(api, 8)
    if fields == 0 or views == 0:
        return np.uint64(0)
    numbers = capi.pair(api, capi.from_number(api, bounds[0]), capi.from_number(api, bounds[1]))
    capi.set_tuple_item(api, fields, 0, capi.kept(api, sink[_FOUND]))
    capi.set_tuple_item(api, fields, 1, capi.from_number(api, bounds[1]))
    capi.set_tuple_item(api, fields, 2, capi.from_number(api, bounds[2]))
    capi.set_tuple_item(api, fields, 3, capi.from_number(api, bounds[3]))
    capi.set_tuple_item(api, fields, 4, views)
    capi.set_tuple_item(api, fields, 5, capi.called_with(api, sink[_RANGE], numbers))
    capi.set_tuple_item(api, fields, 6, capi.from_number(api, size))
    capi.set_tuple_item(api, fields, 7, capi.kept(api, sink[engine_files.TRUE] if is_old else sink[engine_files.FALSE]))
    return capi.named_tuple(api, sink[engine_files.NEW_TUPLE], sink[_RESULT], fields)


@compiled(OBJECT, capi.API, _SINK, "int64", "int64")
def plain_get(api: Any, sink: Any, shortest: Any, longest: Any, arguments: Any) -> Any:
    """Returns messages of a ConsumeQueue that are in one segment, unfiltered, by the rules of `store.get_message`.

    The interpreter keeps its lock and runs no other code from the look at the files until the units are copied and the
    mapping of the records is held.

    Args:
        api: C functions.
        sink: what is read, and what results are made of.
        shortest, longest: bounds of the maximum sum of the sizes.
        arguments: objects: topic, queue id, queue offset, maximum number of messages, maximum sum of their sizes.

    Returns:
        GetResult, or None if the get is not for here.
    """
    # returned where the get is not for here, and given back below where it is
    none = capi.kept(api, sink[engine_files.NONE])
    offset, limit = capi.to_number(api, arguments[2]), capi.to_number(api, arguments[3])
    limit_bytes = capi.to_number(api, arguments[4])
    if (offset == -1 or limit == -1 or limit_bytes == -1) and capi.has_failed(api):
        return none
    limit_bytes = max(shortest, min(limit_bytes, longest))
    queue = capi.item_of(api, sink[_QUEUES], arguments[0], arguments[1])
    if queue == 0 or capi.is_instance(api, queue, sink[_KIND]) != 1:
        return none
    files = capi.attribute(
        api, capi.attribute(api, queue, sink[engine_files.FILES_NAME]), sink[engine_files.FILES_NAME]
    )
    lowest, highest = (
        engine_files.number_of(api, queue, sink[_MIN_OFFSET_NAME]),
        engine_files.end_of(api, sink, files) // _UNIT,
    )
    if offset < lowest or offset >= highest:
        return none
    file = engine_files.file_at(api, sink, files, offset * _UNIT)
    if file == 0:
        return none
    count = min(limit, _MAX, highest - offset, engine_files.read_end(api, sink, file) // _UNIT - offset)
    pin, start = engine_files.pin_of(api, sink, file)
    if pin == 0 or count <= 0:
        return none
    start += offset * _UNIT - engine_files.number_of(api, file, sink[engine_files.BASE_NAME])
    data = array_at(start, (count * _UNIT,), np.uint8)
    log = capi.attribute(api, sink[engine_files.LOG], sink[engine_files.FILES_NAME])
    segment = engine_files.file_at(api, sink, log, i64_at(data, 0))
    if segment == 0 or capi.attribute(api, segment, sink[engine_files.AVAILABLE_NAME]) == sink[engine_files.FALSE]:
        return none
    limits = capi.attribute(api, sink[_READER], sink[_LIMITS_NAME])
    memory = capi.tuple_item(api, limits, 5)
    in_memory_from = (
        engine_files.end_of(api, sink, log) - capi.to_number(api, memory) if memory != none else np.int64(0)
    )
    bounds = (
        capi.to_number(api, capi.tuple_item(api, limits, 0)),
        capi.to_number(api, capi.tuple_item(api, limits, 1)),
        capi.to_number(api, capi.tuple_item(api, limits, 2)),
        capi.to_number(api, capi.tuple_item(api, limits, 3)),
    )
    base = engine_files.number_of(api, segment, sink[engine_files.BASE_NAME])
    end = engine_files.read_end(api, sink, segment)
    taken, size, last = _take(data, count, limit, limit_bytes, base, end, in_memory_from, bounds)
    pin, _ = engine_files.pin_of(api, sink, segment)
    if taken == 0 or taken == _MAX < limit or pin == 0:
        return none
    capi.keep(api, pin)
    units = capi.new_bytes(api, np.uint64(start), taken * _UNIT)
    views = _views(api, sink, pin, base, units, taken, size)
    capi.drop(api, none)
    return _get_result(api, sink, (offset, offset + taken, lowest, highest), views, size, last < in_memory_from)


@called
def _copy_records(memcpy: Any, units: Any, count: Any, shift: Any, target: Any) -> None:
    """Copies records one behind the other; `shift` leads from a physical offset to an address."""
    data = array_at(np.int64(units), (count * _UNIT,), np.uint8)
    done = np.int64(target)
    for row in range(-_AHEAD, count):
        ahead = row + _AHEAD
        if ahead < count:
            first = shift + i64_at(data, ahead * _UNIT)
            for line in range(min(i32_at(data, ahead * _UNIT + _SIZE_AT), 4 * _LINE) // _LINE + 1):
                prefetch(np.uint64(first + line * _LINE))
        if row >= 0:
            at = row * _UNIT
            size = i32_at(data, at + _SIZE_AT)
            _copy(memcpy, np.uint64(done), np.uint64(shift + i64_at(data, at)), np.uint64(size))
            done += size


@compiled(OBJECT, "@memcpy", capi.API)
def join_records(memcpy: Any, api: Any, arguments: Any) -> Any:
    """Returns records as one bytes object.

    The arguments of a call:
        units: bytes of the units that lead to them, as `plain_get` counted them.
        count: how many.
        shift: address of the segment's first byte less its physical offset.
        size: sum of their sizes.
    """
    joined = capi.new_bytes(api, np.uint64(0), capi.to_number(api, arguments[3]))
    if joined != 0:
        count, shift = capi.to_number(api, arguments[1]), capi.to_number(api, arguments[2])
        _copy_records(memcpy, capi.bytes_address(api, arguments[0]), count, shift, capi.bytes_address(api, joined))
    return joined


@compiled(OBJECT, "@memcpy", capi.API)
def copy_records(memcpy: Any, api: Any, arguments: Any) -> Any:
    """Copies records into a bytearray; returns the position after them.

    The arguments of a call:
        units, count, shift, size: as `join_records`.
        target, at: a bytearray, and a position with room for them.
    """
    count, shift = capi.to_number(api, arguments[1]), capi.to_number(api, arguments[2])
    at = capi.to_number(api, arguments[5])
    target = capi.bytearray_address(api, arguments[4]) + np.uint64(at)
    _copy_records(memcpy, capi.bytes_address(api, arguments[0]), count, shift, target)
    return capi.from_number(api, at + capi.to_number(api, arguments[3]))
