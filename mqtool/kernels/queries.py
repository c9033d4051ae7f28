"""Queries by key, as a builtin function: hash of the key, entries in the index files, records in the log."""

from typing import Any

import numpy as np

from mqtool.formats import commit_log, index_file
from mqtool.kernels import capi, engine_files
from mqtool.kernels.compiling import array_at, called, compiled
from mqtool.kernels.machine_code import OBJECT
from mqtool.kernels.numbers import i32_at, i64_at

_HEADER, _SLOT, _ENTRY = index_file.HEADER_SIZE, index_file.SLOT_SIZE, index_file.ENTRY_SIZE
_PHYSICAL_AT, _TIME_AT, _PREVIOUS_AT = (
    index_file.ENTRY.offset(name) for name in ("physical_offset", "time_diff", "previous")
)
_V1, _V2, _MIN_RECORD = commit_log.MAGIC_V1, commit_log.MAGIC_V2, commit_log.MIN_RECORD_SIZE
_FRAME = commit_log.FRAME.size
_INT_MAX = (1 << 31) - 1
_BETWEEN = ord(index_file.key_text("", ""))

_SINK = ("uint64",) * (len(engine_files.FILES_SINK) + 9)
(
    _INDEX,  # its `files` are IndexWriters, oldest first
    _RESULT,  # QueryResult
    _HEADER_NAME,
    _SLOTS_NAME,
    _ENTRIES_NAME,
    _BEGIN_TIME_NAME,
    _END_TIME_NAME,
    _END_OFFSET_NAME,
    _COUNT_NAME,
) = range(len(engine_files.FILES_SINK), len(_SINK))


@called
def _text_hash(api: Any, text: Any, value: Any) -> Any:
    """Continues a hash (`formats.java.string_hash`) over a text; returns whether the text is ASCII, and the hash."""
    data = capi.text_address(api, text, np.uint64(0))
    if data == 0:  # no text, or one with a lone surrogate
        capi.clear_error(api)
        return False, value
    length = capi.text_length(api, text)
    characters, seen = array_at(np.int64(data), (length,), np.uint8), np.uint8(0)
    for at in range(length):
        value = value * np.uint32(31) + np.uint32(characters[at])
        seen |= characters[at]
    return seen <= 0x7F, value


@called
def _key_hash(api: Any, topic: Any, key: Any) -> Any:
    """Returns the hash of a key of a topic (`formats.index_file`); -1 if one of them is not ASCII."""
    is_ascii, value = _text_hash(api, topic, np.uint32(0))
    is_key_ascii, value = _text_hash(api, key, value * np.uint32(31) + np.uint32(_BETWEEN))
    if not is_ascii or not is_key_ascii:
        return np.int64(-1)
    result = abs(np.int64(np.int32(value)))
    return result if result <= _INT_MAX else np.int64(0)


@called
def _add_entries(
    api: Any, offsets: Any, address: Any, slots: Any, file_begin: Any, highest: Any, matches: Any, limit: Any
) -> None:
    """Appends the physical offsets of entries of a file, by the rules of `records.index_lookup.offsets_in_chain`.

    Args:
        api: C functions.
        offsets: a list.
        address: of the file's mapping.
        slots: how many slots it has.
        file_begin, highest: begin timestamp of its header, and the largest number of an entry.
        matches: hash of the key, and the range of store timestamps in ms, both inclusive.
        limit: maximum number of entries.
    """
    key_hash, begin, end = matches
    entries = _HEADER + slots * _SLOT
    data = array_at(address, (entries + (highest + 1) * _ENTRY,), np.uint8)
    number, count = i32_at(data, _HEADER + key_hash % slots * _SLOT), np.int64(0)
    while 0 < number <= highest and count < limit:
        at = entries + number * _ENTRY
        diff, previous = i32_at(data, at + _TIME_AT), i32_at(data, at + _PREVIOUS_AT)
        time = file_begin + diff * 1000
        if diff < 0:
            break
        if i32_at(data, at) == key_hash and begin <= time <= end:
            _append_number(api, offsets, i64_at(data, at + _PHYSICAL_AT))
            count += 1
        if time < begin or previous >= number:
            break
        number = previous


@called
def _append_number(api: Any, numbers: Any, number: Any) -> None:
    value = capi.from_number(api, number)
    capi.append(api, numbers, value)
    capi.drop(api, value)


@called
def _add_offsets(api: Any, sink: Any, files: Any, offsets: Any, matches: Any, limit: Any) -> bool:
    """Appends the physical offsets of entries of all files, by the rules of `records.index_lookup.query_offsets`.

    Returns:
        False if a file was never mapped.
    """
    _, begin, end = matches
    for row in range(capi.tuple_size(api, files) - 1, -1, -1):
        file = capi.tuple_item(api, files, row)
        header = capi.attribute(api, file, sink[_HEADER_NAME])
        first = engine_files.number_of(api, header, sink[_BEGIN_TIME_NAME])
        last = engine_files.number_of(api, header, sink[_END_TIME_NAME])
        count = engine_files.number_of(api, header, sink[_COUNT_NAME])
        pin, address = engine_files.pin_of(api, sink, file)
        if pin == 0:
            return False
        is_matched = (begin < first and end > last) or first <= begin <= last or first <= end <= last
        if is_matched and count > 1:
            slots, highest = (
                engine_files.number_of(api, file, sink[_SLOTS_NAME]),
                engine_files.number_of(api, file, sink[_ENTRIES_NAME]) - 1,
            )
            left = limit - capi.list_size(api, offsets)
            _add_entries(api, offsets, address, slots, first, min(count, highest), matches, left)
        if first < begin or capi.list_size(api, offsets) >= limit:
            break
    return True


@called
def _record_at(api: Any, sink: Any, offset: Any) -> Any:
    """Finds the record at a physical offset (`Searcher.record_at`).

    Returns:
        False if this is not for here, otherwise True; and a view of the record, 0 if there is none.
    """
    segment = engine_files.file_at(
        api, sink, capi.attribute(api, sink[engine_files.LOG], sink[engine_files.FILES_NAME]), offset
    )
    if segment == 0:
        return False, segment
    if capi.attribute(api, segment, sink[engine_files.AVAILABLE_NAME]) == sink[engine_files.FALSE]:
        return True, np.uint64(0)
    base = engine_files.number_of(api, segment, sink[engine_files.BASE_NAME])
    at, end = offset - base, engine_files.read_end(api, sink, segment) - base
    if at + _FRAME > end:
        return True, np.uint64(0)
    pin, address = engine_files.pin_of(api, sink, segment)
    if pin == 0:
        return False, pin
    data = array_at(address, (end,), np.uint8)
    size, magic = i32_at(data, at), i32_at(data, at + 4)
    if (magic != _V1 and magic != _V2) or size < _MIN_RECORD or size > end - at:
        return True, np.uint64(0)
    record = capi.part_of(api, capi.tuple_item(api, pin, 0), at, at + size)
    return record != 0, record


@called
def _add_records(api: Any, sink: Any, offsets: Any, records: Any, matches: Any) -> bool:
    """Appends the records at some physical offsets to a list, and the offsets of these to another.

    Returns:
        False if one of them is not for here.
    """
    for row in range(capi.list_size(api, offsets)):
        offset = capi.list_item(api, offsets, row)
        is_known, record = _record_at(api, sink, capi.to_number(api, offset))
        if not is_known:
            return False
        if record != 0:
            capi.append(api, records, record)
            capi.append(api, matches, offset)
            capi.drop(api, record)
    return True


@called
def _result(api: Any, sink: Any, newest: Any, records: Any, matches: Any) -> Any:
    """Returns a QueryResult; takes over the references to both lists. `newest` is a header, 0 if no entry was found."""
    end_time = engine_files.number_of(api, newest, sink[_END_TIME_NAME]) if newest != 0 else np.int64(0)
    end_offset = engine_files.number_of(api, newest, sink[_END_OFFSET_NAME]) if newest != 0 else np.int64(0)
    fields = capi.new_tuple(api, 4)
    if fields == 0:
        return fields
    capi.set_tuple_item(api, fields, 0, records)
    capi.set_tuple_item(api, fields, 1, matches)
    capi.set_tuple_item(api, fields, 2, capi.from_number(api, end_time))
    capi.set_tuple_item(api, fields, 3, capi.from_number(api, end_offset))
    return capi.named_tuple(api, sink[engine_files.NEW_TUPLE], sink[_RESULT], fields)


@compiled(OBJECT, capi.API, _SINK)
def plain_query(api: Any, sink: Any, arguments: Any) -> Any:
    """Returns messages by key, by the rules of `Searcher.query`.

    The interpreter keeps its lock and runs no other code from the look at the files until the records are held.

    Args:
        api: C functions.
        sink: what is read, and what results are made of.
        arguments: objects: topic, key, maximum number of messages, first and last store timestamp in ms.

    Returns:
        QueryResult, or None if the query is not for here.
    """
    # returned where the query is not for here, and given back below where it is
    none = capi.kept(api, sink[engine_files.NONE])
    limit, begin = capi.to_number(api, arguments[2]), capi.to_number(api, arguments[3])
    end = capi.to_number(api, arguments[4])
    if (limit == -1 or begin == -1 or end == -1) and capi.has_failed(api):
        return none
    key_hash = _key_hash(api, arguments[0], arguments[1])
    files = capi.attribute(api, sink[_INDEX], sink[engine_files.FILES_NAME])
    count = capi.tuple_size(api, files)
    offsets, records, matches = capi.new_list(api, 0), capi.new_list(api, 0), capi.new_list(api, 0)
    is_done = offsets != 0 and records != 0 and matches != 0 and key_hash >= 0 and count > 0
    is_done = is_done and _add_offsets(api, sink, files, offsets, (key_hash, begin, end), limit)
    if is_done:
        capi.sort(api, offsets)
        is_done = _add_records(api, sink, offsets, records, matches)
    if not is_done:
        capi.clear_error(api)
        for part in (offsets, records, matches):
            capi.drop(api, part)
        return none
    newest = np.uint64(0)
    if capi.list_size(api, offsets) > 0:
        newest = capi.attribute(api, capi.tuple_item(api, files, count - 1), sink[_HEADER_NAME])
    capi.drop(api, offsets)
    capi.drop(api, none)
    return _result(api, sink, newest, records, matches)
