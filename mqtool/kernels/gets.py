"""Reads of the engine, as builtin functions: the records of a get, and the entries of a key in an index file."""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats import index_file
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.kernels.compiling import array_at, called, compiled, external, prefetch
from mqtool.kernels.machine_code import OBJECT
from mqtool.kernels.numbers import i32_at, i64_at

_SIZE_AT = CONSUME_QUEUE_UNIT.offset("size")
_UNIT = CONSUME_QUEUE_UNIT.size
_AHEAD = 8
"""Records whose first bytes are called for before they are copied."""

_LINE = 64
_HEADER, _SLOT, _ENTRY = index_file.HEADER_SIZE, index_file.SLOT_SIZE, index_file.ENTRY_SIZE
_PHYSICAL_AT, _TIME_AT, _PREVIOUS_AT = (
    index_file.ENTRY.offset(name) for name in ("physical_offset", "time_diff", "previous")
)
_INT_MAX = (1 << 31) - 1

_copy = external(types.uint64, types.uint64, types.uint64, types.uint64)
_number = external(types.int64, types.uint64)
_object = external(types.uint64, types.uint64)
_from_number = external(types.uint64, types.int64)
_from_memory = external(types.uint64, types.uint64, types.int64)
_new = external(types.uint64, types.int64)
_set_item = external(types.int32, types.uint64, types.int64, types.uint64)
_append = external(types.int32, types.uint64, types.uint64)
_text = external(types.uint64, types.uint64, types.uint64)
_drop = external(types.void, types.uint64)
_do = external(types.void)
_ask = external(types.uint64)

_NUMBERS = ("@PyLong_AsLongLong", "@PyLong_FromLongLong")


@compiled(OBJECT, "@PyBytes_AsString", *_NUMBERS, "@PyTuple_New", "@PyTuple_SetItem")
def take_units(data_of: Any, to_number: Any, from_number: Any, new: Any, set_item: Any, arguments: Any) -> Any:
    """Counts the messages that an unfiltered get returns, by the rules of `store.get_message`.

    The arguments of a call:
        units: bytes of the units.
        count: how many there are.
        most, most_bytes: maximum number of messages, and maximum sum of their sizes.
        base, end: physical offsets between which the records must be.
        in_memory_from: physical offset from which records count as being in memory.
        bytes_in_memory, count_in_memory, bytes_on_disk, count_on_disk: `store.get_message.GetLimits`.

    Returns:
        How many, the sum of their sizes, and the physical offset of the last; 0 of them where a unit leads to
        elsewhere.
    """
    count, most = _number(to_number, arguments[1]), _number(to_number, arguments[2])
    most_bytes = _number(to_number, arguments[3])
    base, end = _number(to_number, arguments[4]), _number(to_number, arguments[5])
    in_memory_from = _number(to_number, arguments[6])
    bytes_in_memory, count_in_memory = _number(to_number, arguments[7]), _number(to_number, arguments[8])
    bytes_on_disk, count_on_disk = _number(to_number, arguments[9]), _number(to_number, arguments[10])
    data = array_at(np.int64(_object(data_of, arguments[0])), (count * _UNIT,), np.uint8)
    taken, total, last = np.int64(0), np.int64(0), np.int64(0)
    while taken < count:
        at = taken * _UNIT
        physical, size = i64_at(data, at), i32_at(data, at + _SIZE_AT)
        if taken > 0:
            in_memory = physical >= in_memory_from
            limit = bytes_in_memory if in_memory else bytes_on_disk
            if taken >= min(most, count_in_memory if in_memory else count_on_disk):
                break
            if total + size > min(limit, most_bytes):
                break
        if size <= 0 or physical < base or physical + size > end:
            taken, total, last = np.int64(0), np.int64(0), np.int64(0)
            break
        taken, total, last = taken + 1, total + size, physical
    found = _new(new, 3)
    if found != 0:
        _set_item(set_item, found, 0, _from_number(from_number, taken))
        _set_item(set_item, found, 1, _from_number(from_number, total))
        _set_item(set_item, found, 2, _from_number(from_number, last))
    return found


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


@compiled(OBJECT, "@memcpy", "@PyBytes_AsString", "@PyLong_AsLongLong", "@PyBytes_FromStringAndSize")
def join_records(memcpy: Any, data_of: Any, to_number: Any, from_memory: Any, arguments: Any) -> Any:
    """Returns records as one bytes object.

    The arguments of a call:
        units: bytes of the units that lead to them, as `take_units` counted them.
        count: how many.
        shift: address of the segment's first byte less its physical offset.
        size: sum of their sizes.
    """
    found = _from_memory(from_memory, np.uint64(0), _number(to_number, arguments[3]))
    if found != 0:
        count, shift = _number(to_number, arguments[1]), _number(to_number, arguments[2])
        _copy_records(memcpy, _object(data_of, arguments[0]), count, shift, _object(data_of, found))
    return found


@compiled(OBJECT, "@memcpy", "@PyBytes_AsString", "@PyLong_AsLongLong", "@PyByteArray_AsString", "@PyLong_FromLongLong")
def copy_records(memcpy: Any, data_of: Any, to_number: Any, memory_of: Any, from_number: Any, arguments: Any) -> Any:
    """Copies records into a bytearray; returns the position after them.

    The arguments of a call:
        units, count, shift, size: as `join_records`.
        target, at: a bytearray, and a position with room for them.
    """
    count, shift = _number(to_number, arguments[1]), _number(to_number, arguments[2])
    at = _number(to_number, arguments[5])
    target = _object(memory_of, arguments[4]) + np.uint64(at)
    _copy_records(memcpy, _object(data_of, arguments[0]), count, shift, target)
    return _from_number(from_number, at + _number(to_number, arguments[3]))


@compiled(
    OBJECT,
    "@PyUnicode_AsUTF8AndSize",
    "@PyUnicode_GetLength",
    "@PyLong_FromLongLong",
    "@PyErr_Clear",
    "@Py_IncRef",
    "@_Py_NoneStruct",
)
def hash_key(text_of: Any, length_of: Any, from_number: Any, clear: Any, keep: Any, none: Any, arguments: Any) -> Any:
    """Returns the hash of a key text as `formats.index_file.key_hash`; None if it is not ASCII."""
    data = _text(text_of, arguments[0], np.uint64(0))
    length = _number(length_of, arguments[0]) if data != 0 else np.int64(0)
    text = array_at(np.int64(data), (length,), np.uint8)
    value, seen = np.uint32(0), np.uint8(0)
    for at in range(length):
        value = value * np.uint32(31) + np.uint32(text[at])
        seen |= text[at]
    if data == 0 or seen > 0x7F:
        _do(clear)
        _drop(keep, none)
        return none
    signed = np.int64(np.int32(value))
    found = -signed if signed < 0 else signed
    return _from_number(from_number, found if found <= _INT_MAX else np.int64(0))


@compiled(OBJECT, *_NUMBERS, "@PyList_New", "@PyList_Append", "@PyErr_Occurred", "@Py_DecRef")
def find_entries(
    to_number: Any, from_number: Any, new: Any, append: Any, occurred: Any, drop: Any, arguments: Any
) -> Any:
    """Finds entries in an index file, by the rules of `records.index_lookup.offsets_in_chain`.

    The arguments of a call:
        file: address of the file's mapping.
        slots: how many slots it has.
        file_begin, highest: begin timestamp of its header, and the largest number of an entry.
        key_hash, begin, end: of the key, and store timestamps in ms.
        most: maximum number of entries.

    Returns:
        A list of physical offsets, newest first; OverflowError is raised for a number that is no int64.
    """
    found = _new(new, 0)
    if found == 0:
        return found
    slots, file_begin = _number(to_number, arguments[1]), _number(to_number, arguments[2])
    highest, key_hash = _number(to_number, arguments[3]), _number(to_number, arguments[4])
    begin, end = _number(to_number, arguments[5]), _number(to_number, arguments[6])
    most = _number(to_number, arguments[7])
    if _ask(occurred) != 0:
        _drop(drop, found)
        return np.uint64(0)
    entries = _HEADER + slots * _SLOT
    data = array_at(_number(to_number, arguments[0]), (entries + (highest + 1) * _ENTRY,), np.uint8)
    number, count = i32_at(data, _HEADER + key_hash % slots * _SLOT), np.int64(0)
    while 0 < number <= highest and count < most:
        at = entries + number * _ENTRY
        diff, previous = i32_at(data, at + _TIME_AT), i32_at(data, at + _PREVIOUS_AT)
        time = file_begin + diff * 1000
        if diff < 0:
            break
        if i32_at(data, at) == key_hash and begin <= time <= end:
            offset = _from_number(from_number, i64_at(data, at + _PHYSICAL_AT))
            _append(append, found, offset)
            _drop(drop, offset)
            count += 1
        if time < begin or previous >= number:
            break
        number = previous
    return found
