"""One pass over the trailers of records (topic and properties): topic number, tags code, index keys.

Records that need more than one pass are returned by number, and `records.dispatch` handles them with array operations:
bytes above 0x7F in a tag or key, and properties that change the queue.
"""

from typing import Any

import numpy as np

from mqtool.formats import properties as names
from mqtool.kernels import fnv
from mqtool.kernels.compiling import compiled, inlined, word_at
from mqtool.kernels.machine_code import BYTES, I32, I64, U32


def _word(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(text.encode()[:8].ljust(8, b"\0"), "little"))


_TAGS, _KEYS, _UNIQUE = (_word(name) for name in (names.TAGS, names.KEYS, names.UNIQUE_KEY))
_LENGTHS = tuple(len(name) for name in (names.TAGS, names.KEYS, names.UNIQUE_KEY))
_TAGS_LENGTH, _KEYS_LENGTH, _UNIQUE_LENGTH = _LENGTHS
_INNER = _word("INNER_")  # INNER_MULTI_DISPATCH, INNER_NUM and their like
_INNER_MASK = np.uint64((1 << 48) - 1)
_DELAY = _word(names.DELAY_LEVEL)
_NAME_END, _VALUE_END, _SPACE = names.NAME_END, names.VALUE_END, ord(names.KEY_SEPARATOR)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIRS, _QUADS, _HALVES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)
_31, _31_2, _31_4, _31_8 = np.uint64(31), np.uint64(31**2), np.uint64(31**4), np.uint32(pow(31, 8, 1 << 32))
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)
_PRIME, _BASIS, _SHIFT = np.uint64(fnv.PRIME), np.uint64(fnv.BASIS), np.uint64(fnv.SHIFT)
assert _UNIQUE_LENGTH == 8


@inlined
def _first_word(data: Any, start: int, length: int) -> Any:
    """Returns the first eight bytes of a string, padded with zeros."""
    if start + 8 <= len(data):
        word = word_at(np.uint64(data.ctypes.data) + np.uint64(start))
        return word if length >= 8 else word & (_ALL >> np.uint64(64 - 8 * length))
    word = np.uint64(0)
    for at in range(length):
        word |= np.uint64(data[start + at]) << np.uint64(8 * at)
    return word


@inlined
def _hash_on(data: Any, start: int, end: int, value: Any) -> Any:
    """Continues Java's String.hashCode over further bytes."""
    at = start
    while at + 8 <= end:  # eight bytes a step by pairs, quads and halves, as in records.words
        word = word_at(np.uint64(data.ctypes.data) + np.uint64(at))
        word = (word & _PAIRS) * _31 + ((word >> _8) & _PAIRS)
        word = (word & _QUADS) * _31_2 + ((word >> _16) & _QUADS)
        word = (word & _HALVES) * _31_4 + (word >> _32)
        value = value * _31_8 + np.uint32(word & _HALVES)
        at += 8
    while at < end:
        value = value * np.uint32(31) + np.uint32(data[at])
        at += 1
    return value


@inlined
def _is_plain(data: Any, start: int, end: int) -> Any:
    seen = np.uint8(0)
    for at in range(start, end):
        seen |= data[at]
    return seen < 0x80


@inlined
def _equal(data: Any, start: int, known: Any, known_start: int, length: int) -> Any:
    differs = np.uint8(0)
    for at in range(length):
        differs |= data[start + at] ^ known[known_start + at]
    return differs == 0


@inlined
def _entry_of(data: Any, start: int, length: int, table: Any) -> int:
    """Returns the entry of a topic, -1 if it is not known."""
    known, starts, lengths, slots = table[0], table[1], table[2], table[3]
    value = _BASIS
    for at in range(start, start + length):
        value = (value ^ np.uint64(data[at])) * _PRIME
    mask = len(slots) - 1
    slot = np.int64(value >> _SHIFT) & mask
    while slots[slot] >= 0:
        entry = slots[slot]
        if lengths[entry] == length and _equal(data, start, known, starts[entry], length):
            return entry
        slot = (slot + 1) & mask
    return -1


@inlined
def _pieces(data: Any, start: int, end: int, is_schedule: bool) -> Any:
    """Returns where the values of TAGS, KEYS and UNIQ_KEY begin and end; begins at -1 if the record is not for here."""
    tag_start = tag_end = key_start = key_end = unique_start = unique_end = 0
    at = start
    while at < end:
        split = at
        while split < end and data[split] != _NAME_END and data[split] != _VALUE_END:
            split += 1
        close = split
        while close < end and data[close] != _VALUE_END:
            close += 1
        if at < split < close - 1:
            size = split - at
            name = _first_word(data, at, size)
            # as in the broker's map, a later value replaces an earlier one
            if name == _TAGS and size == _TAGS_LENGTH:
                tag_start, tag_end = split + 1, close
            elif name == _KEYS and size == _KEYS_LENGTH:
                key_start, key_end = split + 1, close
            elif name == _UNIQUE and size == _UNIQUE_LENGTH:
                unique_start, unique_end = split + 1, close
            elif (name & _INNER_MASK) == _INNER or (name == _DELAY and is_schedule):
                tag_start = -1
                break
        at = close + 1
    if tag_start >= 0 and not (
        _is_plain(data, tag_start, tag_end)
        and _is_plain(data, key_start, key_end)
        and _is_plain(data, unique_start, unique_end)
    ):
        tag_start = -1
    return tag_start, tag_end, key_start, key_end, unique_start, unique_end


@inlined
def _put_key(data: Any, start: int, end: int, before: Any, row: int, rows: Any, hashes: Any, count: int) -> int:
    """Adds a key's hash, continued from the hash `before`, unless the key is empty; returns the new number of keys."""
    if end > start:
        rows[count] = row
        hashes[count] = _hash_on(data, start, end, before)
        count += 1
    return count


@inlined
def _put_words(data: Any, start: int, end: int, before: Any, row: int, rows: Any, hashes: Any, count: int) -> int:
    """Adds a key for each word of KEYS; returns how many there are now."""
    at = start
    while at < end:
        split = at
        while split < end and data[split] != _SPACE:
            split += 1
        count = _put_key(data, at, split, before, row, rows, hashes, count)
        at = split + 1
    return count


_PLACE = (I64,) * 4
_TABLE = (BYTES, I64, I64, I32, I32, U32, U32)
_WANTED = ("int64", "bool", "bool")
_DONE = ("int64",) * 3
_FOUND = (I32, I64, I64, U32, I64)


@compiled(_DONE, BYTES, _PLACE, _TABLE, _WANTED, _DONE, _FOUND)
def dispatch(data: Any, place: Any, table: Any, wanted: Any, done: Any, found: Any) -> Any:
    """Reads topic and properties of records until one has an unknown topic.

    Args:
        data: the buffer.
        place: topic start and length, properties start and length of each record, inside the buffer.
        table: the topics: see `records.topics.TopicSlots.columns`.
        wanted: number of the schedule topic; whether to return keys; whether tags are indexed as keys.
        done: number of records, keys and records for array operations from an earlier call.
        found: outputs: topic number and tags code of each record; record and hash of each key, in the broker's order,
            with room for one per byte of properties; the records for array operations.

    Returns:
        `done`, including this call.
    """
    topic_start, topic_length, properties_start, properties_length = place
    schedule, with_keys, index_tags = wanted
    first, keys, others = done
    topics, tags_codes, key_rows, hashes, other_rows = found
    entry = -1
    for row in range(first, len(topic_start)):
        start, length = topic_start[row], topic_length[row]
        # fast case: usually the topic of the previous record
        if entry < 0 or table[2][entry] != length or not _equal(data, start, table[0], table[1][entry], length):
            entry = _entry_of(data, start, length, table)
            if entry < 0:
                return row, keys, others
        topic = topics[row] = table[4][entry]
        end = properties_start[row] + properties_length[row]
        found_pieces = _pieces(data, properties_start[row], end, topic == schedule)
        tag_start, tag_end, key_start, key_end, unique_start, unique_end = found_pieces
        if tag_start < 0:
            other_rows[others] = row
            others += 1
            continue
        tags_codes[row] = np.int32(_hash_on(data, tag_start, tag_end, np.uint32(0)))
        if not with_keys:
            continue
        before = table[5][topic]
        keys = _put_key(data, unique_start, unique_end, before, row, key_rows, hashes, keys)
        keys = _put_words(data, key_start, key_end, before, row, key_rows, hashes, keys)
        if index_tags:
            keys = _put_key(data, tag_start, tag_end, table[6][topic], row, key_rows, hashes, keys)
    return len(topic_start), keys, others
