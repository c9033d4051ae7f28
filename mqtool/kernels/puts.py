"""Appends of single messages and of batches, as builtin functions of the interpreter.

They do for plain messages what `engine.write.single` and `engine.write.batch` do, and return None for all others;
nothing is changed then. The interpreter keeps its lock during the call. From the look at the append lock on, nothing is
called that could let another thread run, so the append lock need not be taken: while it is free, nobody else is
appending. What may run other code (the clock, and tuples, whose creation may start the garbage collector) comes before
or after that part.
"""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats import commit_log, message_batch
from mqtool.formats.codec import leading_fields, struct_of
from mqtool.kernels import capi
from mqtool.kernels.compiling import array_at, called, compiled, external, inlined, word_at
from mqtool.kernels.machine_code import OBJECT
from mqtool.kernels.numbers import i16_at, i32_at
from mqtool.kernels.record_bytes import HEAD, LIBRARY, ROOM, put_record

_LIBRARY = (*LIBRARY, "@memmem")

_SINK = ("uint64",) * 18
(
    _NONE,
    _FALSE,
    _BYTES_KIND,
    _CLOCK,  # returns ns since epoch
    _LOCKED,  # of the append lock
    _FLAGS,  # RunningFlags
    _STATES,  # QueueState by topic and queue id
    _PUT_OK,
    _APPEND_OK,
    _EMPTY,  # ()
    _RESULT,  # PutResult
    _NEW_TUPLE,  # tuple.__new__
    _REFUSES_NAME,
    _LEAD_NAME,
    _NEXT_NAME,
    _WROTE_NAME,
    _STORED_NAME,
    _DEFAULT_HOSTS,  # a tuple: born host, store host
) = range(len(_SINK))

_LONGEST_PROPERTIES = (1 << 15) - 1
_HOST = 8
_INNER_LENGTH = len(b"INNER_")
_NOT_IN_BATCHES = int(commit_log.TRANSACTION_MASK | commit_log.SysFlag.INNER_BATCH)
_V6 = int(commit_log.SysFlag.BORN_HOST_V6 | commit_log.SysFlag.STORE_HOST_V6)
_TO_INT32 = 1 << 31
_BATCHED = struct_of(leading_fields(message_batch.BATCHED_MESSAGE)).size
_BATCHED_FLAG, _BATCHED_LENGTH = 12, 16
_LEAD_TOPIC_LENGTH, _LEAD_TOPIC, _LEAD_QUEUE = 16, 24, 8
"""Of `QueueState.lead`: magic code, queue id, bytes of the topic field, the topic field."""

_WINDOW_BASE, _WINDOW_LIMIT, _WINDOW_FILE = 8, 16, 24
"""Of `CommitLog.window`: address of the segment, its physical offset, up to where there is room, its MappedFile."""

_search = external(types.uint64, types.uint64, types.uint64, types.uint64, types.uint64)


@inlined
def _set_number(api: Any, owner: Any, name: Any, value: Any) -> None:
    number = capi.from_number(api, value)
    capi.set_attribute(api, owner, name, number)
    capi.drop(api, number)


@inlined
def _is_int32(value: Any) -> bool:
    return -_TO_INT32 <= value < _TO_INT32


@called
def _now(api: Any, sink: Any) -> Any:
    """Returns the time in ms, -1 if the clock has failed."""
    ticks = capi.call_without_arguments(api, sink[_CLOCK])
    if ticks == 0:
        capi.clear_error(api)
        return np.int64(-1)
    millis = capi.to_number(api, ticks) // 1_000_000
    capi.drop(api, ticks)
    return millis


@called
def _host(api: Any, sink: Any, given: Any, which: int) -> Any:
    """Returns a host as given, or the default; 0 if it is not 8 bytes."""
    host = capi.tuple_item(api, sink[_DEFAULT_HOSTS], which) if given == sink[_NONE] else given
    is_plain = capi.is_instance(api, host, sink[_BYTES_KIND]) == 1 and capi.bytes_size(api, host) == _HOST
    return host if is_plain else np.uint64(0)


@called
def _lead(api: Any, sink: Any, topic: Any, queue_id: Any) -> Any:
    """Returns the QueueState of a topic and queue id and the address of its lead; 0 if there is none or it is empty."""
    state = capi.item_of(api, sink[_STATES], topic, queue_id)
    if state == 0:
        return state, state
    lead = capi.attribute(api, state, sink[_LEAD_NAME])
    if capi.bytes_size(api, lead) == 0:
        return np.uint64(0), np.uint64(0)
    return state, capi.bytes_address(api, lead)


@called
def _is_free(api: Any, sink: Any) -> bool:
    """Whether puts are accepted and nobody holds the append lock."""
    refuses = capi.attribute(api, sink[_FLAGS], sink[_REFUSES_NAME])
    locked = capi.call_without_arguments(api, sink[_LOCKED])
    capi.drop(api, locked)
    return refuses == sink[_FALSE] and locked == sink[_FALSE]


@inlined
def _queue(lead: Any) -> Any:
    """Returns magic code, queue id, address and length of the topic field from a lead."""
    topic_size = np.int64(word_at(lead + np.uint64(_LEAD_TOPIC_LENGTH)))
    magic_code, queue_id = np.int64(word_at(lead)), np.int64(word_at(lead + np.uint64(_LEAD_QUEUE)))
    return magic_code, queue_id, lead + np.uint64(_LEAD_TOPIC), topic_size


@called
def _result(api: Any, sink: Any, numbers: Any, host: Any, offsets: Any) -> Any:
    """Returns a PutResult, 0 without memory.

    Args:
        api, sink: of the kernel.
        numbers: an object, the physical offset; size, queue offset, store timestamp.
        host: the store host.
        offsets: the physical offsets; the result takes over the reference, and that of the first number.
    """
    fields = capi.new_tuple(api, 8)
    if fields == 0:
        return np.uint64(0)
    capi.set_tuple_item(api, fields, 0, capi.kept(api, sink[_PUT_OK]))
    capi.set_tuple_item(api, fields, 1, capi.kept(api, sink[_APPEND_OK]))
    capi.set_tuple_item(api, fields, 2, numbers[0])
    capi.set_tuple_item(api, fields, 3, capi.from_number(api, numbers[1]))
    capi.set_tuple_item(api, fields, 4, capi.from_number(api, numbers[2]))
    capi.set_tuple_item(api, fields, 5, capi.from_number(api, numbers[3]))
    capi.set_tuple_item(api, fields, 6, capi.kept(api, host))
    capi.set_tuple_item(api, fields, 7, offsets)
    return capi.named_tuple(api, sink[_NEW_TUPLE], sink[_RESULT], fields)


@compiled(OBJECT, _LIBRARY, capi.API, _SINK, "int64", "int64", "int64", "int64", "int64")
def plain_put(
    library: Any,
    api: Any,
    sink: Any,
    window: Any,
    inner: Any,
    slow_bits: Any,
    longest_body: Any,
    longest: Any,
    arguments: Any,
) -> Any:
    """Appends one plain message.

    Args:
        library, api: C functions.
        sink: where records go, and what results are made of.
        window: address of `CommitLog.window`.
        inner: address of `INNER_`, by which a property's name begins that needs the slow path.
        slow_bits: bits of a system flag that need the slow path.
        longest_body, longest: maximum bytes of a body, and of a record.
        arguments: objects, those of `MessageStore.put` without `wait`.

    Returns:
        PutResult, or None if the message is not for here.
    """
    none = sink[_NONE]
    capi.keep(api, none)  # returned where the message is not for here, and given back below where it is
    topic, queue_id, body, properties = arguments[0], arguments[1], arguments[2], arguments[3]
    if capi.is_instance(api, body, sink[_BYTES_KIND]) != 1 or capi.is_instance(api, properties, sink[_BYTES_KIND]) != 1:
        return none
    size, room = capi.bytes_size(api, body), capi.bytes_size(api, properties)
    flag, sys_flag = capi.to_number(api, arguments[4]), capi.to_number(api, arguments[5])
    reconsumed, prepared = capi.to_number(api, arguments[9]), capi.to_number(api, arguments[10])
    now = _now(api, sink)
    born = now if arguments[6] == none else capi.to_number(api, arguments[6])
    if (flag == -1 or sys_flag == -1 or reconsumed == -1 or prepared == -1 or born == -1) and capi.has_failed(api):
        return none
    held_at = capi.bytes_address(api, properties)
    if (
        now < 0
        or size > longest_body
        or room > _LONGEST_PROPERTIES
        or sys_flag & slow_bits != 0
        or not (_is_int32(flag) and _is_int32(sys_flag) and _is_int32(reconsumed))
        or _search(library[2], held_at, np.uint64(room), np.uint64(inner), np.uint64(_INNER_LENGTH)) != 0
    ):
        return none
    born_host, host = _host(api, sink, arguments[7], 0), _host(api, sink, arguments[8], 1)
    if born_host == 0 or host == 0:
        return none
    state, lead = _lead(api, sink, topic, queue_id)
    if state == 0 or not _is_free(api, sink):
        return none
    # From here on no other thread runs until the record is complete.
    file = word_at(np.uint64(window + _WINDOW_FILE))
    limit = np.int64(word_at(np.uint64(window + _WINDOW_LIMIT)))
    total = HEAD + size + np.int64(word_at(lead + np.uint64(_LEAD_TOPIC_LENGTH))) + ROOM + room
    if limit < 0 or total > longest:
        return none
    wrote = capi.to_number(api, capi.attribute(api, file, sink[_WROTE_NAME]))
    if wrote + total > limit:
        return none
    number = capi.to_number(api, capi.attribute(api, state, sink[_NEXT_NAME]))
    physical = np.int64(word_at(np.uint64(window + _WINDOW_BASE))) + wrote
    pieces = capi.bytes_address(api, body), size, held_at, room
    fields = flag, number, physical, sys_flag, born, now, reconsumed, prepared
    hosts = capi.bytes_address(api, born_host), capi.bytes_address(api, host)
    put_record(library, word_at(np.uint64(window)) + np.uint64(wrote), _queue(lead), pieces, fields, hosts)
    _set_number(api, file, sink[_STORED_NAME], now)
    _set_number(api, file, sink[_WROTE_NAME], wrote + total)
    _set_number(api, state, sink[_NEXT_NAME], number + 1)
    start = capi.from_number(api, physical)
    capi.drop(api, none)
    capi.keep(api, sink[_EMPTY])
    return _result(api, sink, (start, total, number, now), host, sink[_EMPTY])


@inlined
def _piece(api: Any, sink: Any, item: Any) -> Any:
    """Returns address and length of a bytes object; length -1 if it is none."""
    if item == 0 or capi.is_instance(api, item, sink[_BYTES_KIND]) != 1:
        return np.uint64(0), np.int64(-1)
    return capi.bytes_address(api, item), capi.bytes_size(api, item)


@called
def _batched(api: Any, sink: Any, messages: Any, kind: Any, row: int) -> Any:
    """Returns body, properties, each with its length (-1: not bytes), and the flag of a message in a list."""
    item = capi.list_item(api, messages, row)
    if item == 0 or capi.is_instance(api, item, kind) != 1:
        return np.uint64(0), np.int64(-1), np.uint64(0), np.int64(-1), np.int64(0)
    body, size = _piece(api, sink, capi.tuple_item(api, item, 0))
    properties, room = _piece(api, sink, capi.tuple_item(api, item, 1))
    return body, size, properties, room, capi.to_number(api, capi.tuple_item(api, item, 2))


@called
def _encoded(data: Any, start: Any, at: Any, end: Any) -> Any:
    """Returns the same of the message at a position of a client's batch, and the position of the next one."""
    wrong = np.uint64(0), np.int64(-1), np.uint64(0), np.int64(-1), np.int64(0), np.int64(end)
    if at + _BATCHED + ROOM > end:
        return wrong
    size = i32_at(data, at + _BATCHED_LENGTH)
    body = at + _BATCHED
    if size < 0 or body + size + ROOM > end:
        return wrong
    room = i16_at(data, body + size)
    properties = body + size + ROOM
    if room < 0 or properties + room > end or i32_at(data, at) != properties + room - at:
        return wrong
    flag = i32_at(data, at + _BATCHED_FLAG)
    return start + np.uint64(body), size, start + np.uint64(properties), room, flag, np.int64(properties + room)


@called
def _rows(api: Any, messages: Any, list_kind: Any, data: Any, start: Any, end: Any) -> Any:
    """Returns how many messages a list or a client's batch has; 0 if it is neither."""
    if end < 0:
        return capi.list_size(api, messages) if capi.is_instance(api, messages, list_kind) == 1 else 0
    count, at = np.int64(0), np.int64(0)
    while at < end:
        _, size, _, room, _, at = _encoded(data, start, at, end)
        if size < 0 or room < 0:
            return np.int64(0)
        count += 1
    return count


@called
def _batch_size(
    library: Any, api: Any, sink: Any, messages: Any, kinds: Any, data: Any, place: Any, rows: int, longest_body: Any
) -> Any:
    """Returns the bytes of all bodies and properties; -1 if a message is not plain or too long."""
    kind, inner = kinds
    start, end = place
    total, at = np.int64(0), np.int64(0)
    for row in range(rows):
        if end < 0:
            _, size, properties, room, flag = _batched(api, sink, messages, kind, row)
        else:
            _, size, properties, room, flag, at = _encoded(data, start, at, end)
        if size < 0 or room < 0 or size > longest_body or room > _LONGEST_PROPERTIES or not _is_int32(flag):
            total = np.int64(-1)
            break
        if _search(library[2], properties, np.uint64(room), np.uint64(inner), np.uint64(_INNER_LENGTH)) != 0:
            total = np.int64(-1)
            break
        if flag == -1 and capi.has_failed(api):
            total = np.int64(-1)
            break
        total += size + room
    if capi.has_failed(api):
        total = np.int64(-1)
    return total


@compiled(OBJECT, _LIBRARY, capi.API, _SINK, "int64", "int64", "uint64", "uint64", "int64", "int64")
def plain_batch(
    library: Any,
    api: Any,
    sink: Any,
    window: Any,
    inner: Any,
    list_kind: Any,
    message_kind: Any,
    longest_body: Any,
    longest: Any,
    arguments: Any,
) -> Any:
    """Appends a batch of plain messages for one queue.

    Args:
        library, api, sink, window, inner: as `plain_put`.
        list_kind, message_kind: `list` and `BatchMessage`.
        longest_body, longest: maximum bytes of a body, and of all records.
        arguments: objects: topic, queue id, a list of messages or a client's batch as bytes, system flag, born
            timestamp, born host, store host, reconsume times.

    Returns:
        PutResult, or None if the batch is not for here.
    """
    none = sink[_NONE]
    capi.keep(api, none)
    topic, queue_id, messages = arguments[0], arguments[1], arguments[2]
    sys_flag, reconsumed = capi.to_number(api, arguments[3]), capi.to_number(api, arguments[7])
    now = _now(api, sink)
    born = now if arguments[4] == none else capi.to_number(api, arguments[4])
    if (sys_flag == -1 or reconsumed == -1 or born == -1) and capi.has_failed(api):
        return none
    if now < 0 or sys_flag & _NOT_IN_BATCHES != 0 or not (_is_int32(sys_flag) and _is_int32(reconsumed)):
        return none
    born_host, host = _host(api, sink, arguments[5], 0), _host(api, sink, arguments[6], 1)
    if born_host == 0 or host == 0:
        return none
    start, end = _piece(api, sink, messages)
    data = array_at(np.int64(start), (max(end, 0),), np.uint8)
    rows = _rows(api, messages, list_kind, data, start, end)
    offsets = capi.new_tuple(api, rows)
    if rows == 0 or offsets == 0:
        capi.drop(api, offsets)
        return none
    state, lead = _lead(api, sink, topic, queue_id)
    # From here on no other thread runs until the records are complete.
    kinds = message_kind, inner
    total = _batch_size(library, api, sink, messages, kinds, data, (start, end), rows, longest_body)
    limit = np.int64(word_at(np.uint64(window + _WINDOW_LIMIT)))
    if total < 0 or state == 0 or limit < 0 or not _is_free(api, sink):
        capi.drop(api, offsets)
        return none
    total += rows * (HEAD + np.int64(word_at(lead + np.uint64(_LEAD_TOPIC_LENGTH))) + ROOM)
    file = word_at(np.uint64(window + _WINDOW_FILE))
    wrote = capi.to_number(api, capi.attribute(api, file, sink[_WROTE_NAME]))
    if total > longest or wrote + total > limit:
        capi.drop(api, offsets)
        return none
    number = capi.to_number(api, capi.attribute(api, state, sink[_NEXT_NAME]))
    base, segment = np.int64(word_at(np.uint64(window + _WINDOW_BASE))), word_at(np.uint64(window))
    hosts = capi.bytes_address(api, born_host), capi.bytes_address(api, host)
    queue, position, at = _queue(lead), wrote, np.int64(0)
    for row in range(rows):
        if end < 0:
            body, size, properties, room, flag = _batched(api, sink, messages, message_kind, row)
        else:
            body, size, properties, room, flag, at = _encoded(data, start, at, end)
        fields = flag, number + row, base + position, sys_flag & ~_V6, born, now, reconsumed, np.int64(0)
        capi.set_tuple_item(api, offsets, row, capi.from_number(api, base + position))
        position += put_record(
            library, segment + np.uint64(position), queue, (body, size, properties, room), fields, hosts
        )
    _set_number(api, file, sink[_STORED_NAME], now)
    _set_number(api, file, sink[_WROTE_NAME], position)
    _set_number(api, state, sink[_NEXT_NAME], number + rows)
    capi.drop(api, none)
    first = capi.from_number(api, base + wrote)
    return _result(api, sink, (first, total, number, now), host, offsets)
