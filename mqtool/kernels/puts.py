"""Appends of single messages and of batches, as builtin functions of the interpreter.

They do for the commonest messages what `engine.write.plain_put` and `engine.write.batch` do, and return None for all
others; nothing is changed then. The interpreter keeps its lock during the call. From the look at the append lock on,
nothing is called that could let another thread run, so the append lock need not be taken: while it is free, nobody
else is appending. What may run other code (the clock, and tuples, whose creation may start the garbage collector)
comes before or after that part.
"""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats import commit_log, message_batch
from mqtool.formats.checksums import CRC_MASK
from mqtool.formats.codec import leading_fields, struct_of
from mqtool.kernels.compiling import array_at, called, compiled, external, inlined, word_at
from mqtool.kernels.machine_code import CRC32, OBJECT
from mqtool.kernels.numbers import i16_at, i32_at, put_number

_API = (
    "@PyObject_CallNoArgs",
    "@PyObject_Call",
    "@PyObject_IsInstance",
    "@PyObject_GetAttr",
    "@PyObject_SetAttr",
    "@PyDict_GetItemWithError",
    "@PyTuple_New",
    "@PyTuple_SetItem",
    "@PyTuple_GetItem",
    "@PyList_Append",
    "@PyList_Size",
    "@PyList_GetItem",
    "@PyBytes_AsString",
    "@PyBytes_Size",
    "@PyLong_AsLongLong",
    "@PyLong_FromLongLong",
    "@PyErr_Occurred",
    "@PyErr_Clear",
    "@Py_IncRef",
    "@Py_DecRef",
)
(
    _CALL_EMPTY,
    _CALL,
    _IS_INSTANCE,
    _GET,
    _SET,
    _FIND,
    _NEW,
    _SET_ITEM,
    _TUPLE_ITEM,
    _APPEND,
    _LIST_SIZE,
    _LIST_ITEM,
    _DATA,
    _BYTES,
    _TO_NUMBER,
    _FROM_NUMBER,
    _OCCURRED,
    _CLEAR,
    _KEEP,
    _DROP,
) = range(len(_API))
_LIBRARY = (CRC32, "@memcpy", "@memmem")

_SINK = ("uint64",) * 19
(
    _NONE,
    _FALSE,
    _BYTES_KIND,
    _CLOCK,  # returns ns since epoch
    _LOCKED,  # of the append lock
    _FLAGS,  # RunningFlags
    _STATES,  # QueueState by topic and queue id
    _STARTS,  # the list of `RecordBoundaries`
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

_HEAD = commit_log.BODY_POSITIONS[0]
(
    _SIZE,
    _MAGIC,
    _CRC,
    _QUEUE,
    _FLAG,
    _OFFSET,
    _PHYSICAL,
    _SYS_FLAG,
    _BORN,
    _BORN_HOST,
    _STORED,
    _STORE_HOST,
    _RECONSUMED,
    _PREPARED,
    _LENGTH,
) = (field.offset for field in commit_log.HEADS[0])
_ROOM = commit_log.PROPERTIES_LENGTH.size
_LONGEST_PROPERTIES = (1 << 15) - 1
_HOST = 8
_INNER_LENGTH = len(b"INNER_")
_TRANSACTION = int(commit_log.TRANSACTION_MASK)
_V6 = int(commit_log.SysFlag.BORN_HOST_V6 | commit_log.SysFlag.STORE_HOST_V6)
_CRC_BITS = np.uint32(CRC_MASK)
_TO_INT32 = 1 << 31
_BATCHED = struct_of(leading_fields(message_batch.BATCHED_MESSAGE)).size
_BATCHED_FLAG, _BATCHED_LENGTH = 12, 16
_LEAD_TOPIC_LENGTH, _LEAD_TOPIC, _LEAD_QUEUE = 16, 24, 8
"""Of `QueueState.lead`: magic code, queue id, bytes of the topic field, the topic field."""

_WINDOW_BASE, _WINDOW_LIMIT, _WINDOW_FILE = 8, 16, 24
"""Of `CommitLog.window`: address of the segment, its physical offset, up to where there is room, its MappedFile."""

_copy = external(types.uint64, types.uint64, types.uint64, types.uint64)
_crc32 = external(types.uint32, types.uint32, types.uint64, types.uint64)
_search = external(types.uint64, types.uint64, types.uint64, types.uint64, types.uint64)
_object_of = external(types.uint64, types.uint64)
_object_of_two = external(types.uint64, types.uint64, types.uint64)
_object_of_three = external(types.uint64, types.uint64, types.uint64, types.uint64)
_item = external(types.uint64, types.uint64, types.int64)
_set_item = external(types.int32, types.uint64, types.int64, types.uint64)
_set_attribute = external(types.int32, types.uint64, types.uint64, types.uint64)
_test = external(types.int32, types.uint64, types.uint64)
_number_of = external(types.int64, types.uint64)
_count = external(types.void, types.uint64)
_from_number = _new = external(types.uint64, types.int64)
_ask = external(types.uint64)
_do = external(types.void)


@inlined
def _attribute(api: Any, owner: Any, name: Any) -> Any:
    """Returns an attribute, which its owner keeps alive; 0 with an error if there is none."""
    found = _object_of_two(api[_GET], owner, name)
    if found != 0:
        _count(api[_DROP], found)
    return found


@inlined
def _set_number(api: Any, owner: Any, name: Any, value: Any) -> None:
    number = _from_number(api[_FROM_NUMBER], value)
    _set_attribute(api[_SET], owner, name, number)
    _count(api[_DROP], number)


@inlined
def _has_failed(api: Any) -> bool:
    """Whether a number was none, or not in the range of int64; forgets that."""
    if _ask(api[_OCCURRED]) == 0:
        return False
    _do(api[_CLEAR])
    return True


@inlined
def _is_int32(value: Any) -> bool:
    return -_TO_INT32 <= value < _TO_INT32


@called
def _now(api: Any, sink: Any) -> Any:
    """Returns the time in ms, -1 if the clock has failed."""
    ticks = _object_of(api[_CALL_EMPTY], sink[_CLOCK])
    if ticks == 0:
        _do(api[_CLEAR])
        return np.int64(-1)
    found = _number_of(api[_TO_NUMBER], ticks) // 1_000_000
    _count(api[_DROP], ticks)
    return found


@called
def _host(api: Any, sink: Any, given: Any, which: int) -> Any:
    """Returns a host as given, or the default; 0 if it is not 8 bytes."""
    host = _item(api[_TUPLE_ITEM], sink[_DEFAULT_HOSTS], which) if given == sink[_NONE] else given
    is_plain = _test(api[_IS_INSTANCE], host, sink[_BYTES_KIND]) == 1 and _number_of(api[_BYTES], host) == _HOST
    return host if is_plain else np.uint64(0)


@called
def _lead(api: Any, sink: Any, topic: Any, queue_id: Any) -> Any:
    """Returns the QueueState of a topic and queue id and the address of its lead; 0 if there is none or it is empty."""
    key = _new(api[_NEW], 2)
    _count(api[_KEEP], topic)
    _count(api[_KEEP], queue_id)
    _set_item(api[_SET_ITEM], key, 0, topic)
    _set_item(api[_SET_ITEM], key, 1, queue_id)
    state = _object_of_two(api[_FIND], sink[_STATES], key)
    _count(api[_DROP], key)
    if state == 0:
        _do(api[_CLEAR])
        return state, state
    lead = _attribute(api, state, sink[_LEAD_NAME])
    if _number_of(api[_BYTES], lead) == 0:
        return np.uint64(0), np.uint64(0)
    return state, _object_of(api[_DATA], lead)


@called
def _is_free(api: Any, sink: Any) -> bool:
    """Whether puts are accepted and nobody holds the append lock."""
    refuses = _attribute(api, sink[_FLAGS], sink[_REFUSES_NAME])
    locked = _object_of(api[_CALL_EMPTY], sink[_LOCKED])
    _count(api[_DROP], locked)
    return refuses == sink[_FALSE] and locked == sink[_FALSE]


@called
def _put_record(library: Any, to: Any, lead: Any, pieces: Any, fields: Any, hosts: Any) -> Any:
    """Writes one record and returns its size: variable parts first, then the fixed fields.

    So a record cut short by a kill has no magic code, or fails its other checks, and is not read as a record.
    """
    body, size, held, room = pieces
    flag, number, physical, sys_flag, born, now, reconsumed, prepared = fields
    topic_size = np.int64(word_at(lead + np.uint64(_LEAD_TOPIC_LENGTH)))
    topic_at = _HEAD + size
    room_at = topic_at + topic_size
    total = room_at + _ROOM + room
    target = array_at(to, (total,), np.uint8)
    _copy(library[1], to + np.uint64(_HEAD), body, np.uint64(size))
    _copy(library[1], to + np.uint64(topic_at), lead + np.uint64(_LEAD_TOPIC), np.uint64(topic_size))
    _copy(library[1], to + np.uint64(room_at + _ROOM), held, np.uint64(room))
    put_number(target, room_at, room, _ROOM)
    _copy(library[1], to + np.uint64(_BORN_HOST), hosts[0], np.uint64(_HOST))
    _copy(library[1], to + np.uint64(_STORE_HOST), hosts[1], np.uint64(_HOST))
    crc = _crc32(library[0], np.uint32(0), body, np.uint64(size)) & _CRC_BITS
    put_number(target, _LENGTH, size, 4)
    put_number(target, _PREPARED, prepared, 8)
    put_number(target, _RECONSUMED, reconsumed, 4)
    put_number(target, _STORED, now, 8)
    put_number(target, _BORN, born, 8)
    put_number(target, _SYS_FLAG, sys_flag, 4)
    put_number(target, _PHYSICAL, physical, 8)
    put_number(target, _OFFSET, number, 8)
    put_number(target, _FLAG, flag, 4)
    put_number(target, _QUEUE, np.int64(word_at(lead + np.uint64(_LEAD_QUEUE))), 4)
    put_number(target, _CRC, np.int64(crc), 4)
    put_number(target, _MAGIC, np.int64(word_at(lead)), 4)
    put_number(target, _SIZE, total, 4)
    return total


@inlined
def _note(api: Any, sink: Any, physical: Any) -> Any:
    """Adds the start of a record to the record boundaries; returns its physical offset as an object."""
    start = _from_number(api[_FROM_NUMBER], physical)
    _test(api[_APPEND], sink[_STARTS], start)
    return start


@called
def _result(api: Any, sink: Any, numbers: Any, host: Any, offsets: Any) -> Any:
    """Returns a PutResult, 0 without memory.

    Args:
        api, sink: of the kernel.
        numbers: an object, the physical offset; size, queue offset, store timestamp.
        host: the store host.
        offsets: the physical offsets; the result takes over the reference, and that of the first number.
    """
    fields = _new(api[_NEW], 8)
    arguments = _new(api[_NEW], 2)
    if fields == 0 or arguments == 0:
        return np.uint64(0)
    _count(api[_KEEP], sink[_PUT_OK])
    _count(api[_KEEP], sink[_APPEND_OK])
    _count(api[_KEEP], sink[_RESULT])
    _count(api[_KEEP], host)
    _set_item(api[_SET_ITEM], fields, 0, sink[_PUT_OK])
    _set_item(api[_SET_ITEM], fields, 1, sink[_APPEND_OK])
    _set_item(api[_SET_ITEM], fields, 2, numbers[0])
    _set_item(api[_SET_ITEM], fields, 3, _from_number(api[_FROM_NUMBER], numbers[1]))
    _set_item(api[_SET_ITEM], fields, 4, _from_number(api[_FROM_NUMBER], numbers[2]))
    _set_item(api[_SET_ITEM], fields, 5, _from_number(api[_FROM_NUMBER], numbers[3]))
    _set_item(api[_SET_ITEM], fields, 6, host)
    _set_item(api[_SET_ITEM], fields, 7, offsets)
    _set_item(api[_SET_ITEM], arguments, 0, sink[_RESULT])
    _set_item(api[_SET_ITEM], arguments, 1, fields)
    found = _object_of_three(api[_CALL], sink[_NEW_TUPLE], arguments, np.uint64(0))
    _count(api[_DROP], arguments)
    return found


@compiled(OBJECT, _LIBRARY, _API, _SINK, "int64", "int64", "int64", "int64", "int64")
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
    _count(api[_KEEP], none)  # returned where the message is not for here, and given back below where it is
    topic, queue_id, body, held = arguments[0], arguments[1], arguments[2], arguments[3]
    if _test(api[_IS_INSTANCE], body, sink[_BYTES_KIND]) != 1 or _test(api[_IS_INSTANCE], held, sink[_BYTES_KIND]) != 1:
        return none
    size, room = _number_of(api[_BYTES], body), _number_of(api[_BYTES], held)
    flag, sys_flag = _number_of(api[_TO_NUMBER], arguments[4]), _number_of(api[_TO_NUMBER], arguments[5])
    reconsumed, prepared = _number_of(api[_TO_NUMBER], arguments[9]), _number_of(api[_TO_NUMBER], arguments[10])
    now = _now(api, sink)
    born = now if arguments[6] == none else _number_of(api[_TO_NUMBER], arguments[6])
    if (flag == -1 or sys_flag == -1 or reconsumed == -1 or prepared == -1 or born == -1) and _has_failed(api):
        return none
    held_at = _object_of(api[_DATA], held)
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
    total = _HEAD + size + np.int64(word_at(lead + np.uint64(_LEAD_TOPIC_LENGTH))) + _ROOM + room
    if limit < 0 or total > longest:
        return none
    wrote = _number_of(api[_TO_NUMBER], _attribute(api, file, sink[_WROTE_NAME]))
    if wrote + total > limit:
        return none
    number = _number_of(api[_TO_NUMBER], _attribute(api, state, sink[_NEXT_NAME]))
    physical = np.int64(word_at(np.uint64(window + _WINDOW_BASE))) + wrote
    pieces = _object_of(api[_DATA], body), size, held_at, room
    fields = flag, number, physical, sys_flag, born, now, reconsumed, prepared
    hosts = _object_of(api[_DATA], born_host), _object_of(api[_DATA], host)
    _put_record(library, word_at(np.uint64(window)) + np.uint64(wrote), lead, pieces, fields, hosts)
    _set_number(api, file, sink[_STORED_NAME], now)
    _set_number(api, file, sink[_WROTE_NAME], wrote + total)
    _set_number(api, state, sink[_NEXT_NAME], number + 1)
    start = _note(api, sink, physical)
    _count(api[_DROP], none)
    _count(api[_KEEP], sink[_EMPTY])
    return _result(api, sink, (start, total, number, now), host, sink[_EMPTY])


@inlined
def _piece(api: Any, sink: Any, item: Any) -> Any:
    """Returns address and length of a bytes object; length -1 if it is none."""
    if item == 0 or _test(api[_IS_INSTANCE], item, sink[_BYTES_KIND]) != 1:
        return np.uint64(0), np.int64(-1)
    return _object_of(api[_DATA], item), _number_of(api[_BYTES], item)


@called
def _batched(api: Any, sink: Any, messages: Any, kind: Any, row: int) -> Any:
    """Returns body, properties, each with its length (-1: not bytes), and the flag of a message in a list."""
    item = _item(api[_LIST_ITEM], messages, row)
    if item == 0 or _test(api[_IS_INSTANCE], item, kind) != 1:
        return np.uint64(0), np.int64(-1), np.uint64(0), np.int64(-1), np.int64(0)
    body, size = _piece(api, sink, _item(api[_TUPLE_ITEM], item, 0))
    held, room = _piece(api, sink, _item(api[_TUPLE_ITEM], item, 1))
    return body, size, held, room, _number_of(api[_TO_NUMBER], _item(api[_TUPLE_ITEM], item, 2))


@called
def _encoded(data: Any, start: Any, at: Any, end: Any) -> Any:
    """Returns the same of the message at a position of a client's batch, and the position of the next one."""
    wrong = np.uint64(0), np.int64(-1), np.uint64(0), np.int64(-1), np.int64(0), np.int64(end)
    if at + _BATCHED + _ROOM > end:
        return wrong
    size = i32_at(data, at + _BATCHED_LENGTH)
    body = at + _BATCHED
    if size < 0 or body + size + _ROOM > end:
        return wrong
    room = i16_at(data, body + size)
    held = body + size + _ROOM
    if room < 0 or held + room > end or i32_at(data, at) != held + room - at:
        return wrong
    flag = i32_at(data, at + _BATCHED_FLAG)
    return start + np.uint64(body), size, start + np.uint64(held), room, flag, np.int64(held + room)


@called
def _rows(api: Any, messages: Any, list_kind: Any, data: Any, start: Any, end: Any) -> Any:
    """Returns how many messages a list or a client's batch has; 0 if it is neither."""
    if end < 0:
        return _number_of(api[_LIST_SIZE], messages) if _test(api[_IS_INSTANCE], messages, list_kind) == 1 else 0
    found, at = np.int64(0), np.int64(0)
    while at < end:
        _, size, _, room, _, at = _encoded(data, start, at, end)
        if size < 0 or room < 0:
            return np.int64(0)
        found += 1
    return found


@called
def _batch_size(
    api: Any, sink: Any, messages: Any, kind: Any, data: Any, place: Any, rows: int, longest_body: Any
) -> Any:
    """Returns the bytes of all bodies and properties; -1 if a message is not plain or too long."""
    start, end = place
    total, at = np.int64(0), np.int64(0)
    for row in range(rows):
        if end < 0:
            _, size, _, room, flag = _batched(api, sink, messages, kind, row)
        else:
            _, size, _, room, flag, at = _encoded(data, start, at, end)
        if size < 0 or room < 0 or size > longest_body or room > _LONGEST_PROPERTIES or not _is_int32(flag):
            total = np.int64(-1)
            break
        if flag == -1 and _has_failed(api):
            total = np.int64(-1)
            break
        total += size + room
    if _has_failed(api):
        total = np.int64(-1)
    return total


@compiled(OBJECT, _LIBRARY, _API, _SINK, "int64", "uint64", "uint64", "int64", "int64")
def plain_batch(
    library: Any,
    api: Any,
    sink: Any,
    window: Any,
    list_kind: Any,
    message_kind: Any,
    longest_body: Any,
    longest: Any,
    arguments: Any,
) -> Any:
    """Appends a batch of plain messages for one queue.

    Args:
        library, api, sink, window: as `plain_put`.
        list_kind, message_kind: `list` and `BatchMessage`.
        longest_body, longest: maximum bytes of a body, and of all records.
        arguments: objects: topic, queue id, a list of messages or a client's batch as bytes, system flag, born
            timestamp, born host, store host, reconsume times.

    Returns:
        PutResult, or None if the batch is not for here.
    """
    none = sink[_NONE]
    _count(api[_KEEP], none)
    topic, queue_id, messages = arguments[0], arguments[1], arguments[2]
    sys_flag, reconsumed = _number_of(api[_TO_NUMBER], arguments[3]), _number_of(api[_TO_NUMBER], arguments[7])
    now = _now(api, sink)
    born = now if arguments[4] == none else _number_of(api[_TO_NUMBER], arguments[4])
    if (sys_flag == -1 or reconsumed == -1 or born == -1) and _has_failed(api):
        return none
    if now < 0 or sys_flag & _TRANSACTION != 0 or not (_is_int32(sys_flag) and _is_int32(reconsumed)):
        return none
    born_host, host = _host(api, sink, arguments[5], 0), _host(api, sink, arguments[6], 1)
    if born_host == 0 or host == 0:
        return none
    start, end = _piece(api, sink, messages)
    data = array_at(np.int64(start), (max(end, 0),), np.uint8)
    rows = _rows(api, messages, list_kind, data, start, end)
    offsets = _new(api[_NEW], rows)
    if rows == 0 or offsets == 0:
        _count(api[_DROP], offsets)
        return none
    state, lead = _lead(api, sink, topic, queue_id)
    # From here on no other thread runs until the records are complete.
    total = _batch_size(api, sink, messages, message_kind, data, (start, end), rows, longest_body)
    limit = np.int64(word_at(np.uint64(window + _WINDOW_LIMIT)))
    if total < 0 or state == 0 or limit < 0 or not _is_free(api, sink):
        _count(api[_DROP], offsets)
        return none
    total += rows * (_HEAD + np.int64(word_at(lead + np.uint64(_LEAD_TOPIC_LENGTH))) + _ROOM)
    file = word_at(np.uint64(window + _WINDOW_FILE))
    wrote = _number_of(api[_TO_NUMBER], _attribute(api, file, sink[_WROTE_NAME]))
    if total > longest or wrote + total > limit:
        _count(api[_DROP], offsets)
        return none
    number = _number_of(api[_TO_NUMBER], _attribute(api, state, sink[_NEXT_NAME]))
    base, segment = np.int64(word_at(np.uint64(window + _WINDOW_BASE))), word_at(np.uint64(window))
    hosts = _object_of(api[_DATA], born_host), _object_of(api[_DATA], host)
    position, at = wrote, np.int64(0)
    for row in range(rows):
        if end < 0:
            body, size, held, room, flag = _batched(api, sink, messages, message_kind, row)
        else:
            body, size, held, room, flag, at = _encoded(data, start, at, end)
        fields = flag, number + row, base + position, sys_flag & ~_V6, born, now, reconsumed, np.int64(0)
        _set_item(api[_SET_ITEM], offsets, row, _note(api, sink, base + position))
        position += _put_record(library, segment + np.uint64(position), lead, (body, size, held, room), fields, hosts)
    _set_number(api, file, sink[_STORED_NAME], now)
    _set_number(api, file, sink[_WROTE_NAME], position)
    _set_number(api, state, sink[_NEXT_NAME], number + rows)
    _count(api[_DROP], none)
    first = _from_number(api[_FROM_NUMBER], base + wrote)
    return _result(api, sink, (first, total, number, now), host, offsets)
