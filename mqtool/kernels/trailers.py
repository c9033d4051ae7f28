"""One pass over the trailers of records (topic and properties): topic number, tags code, index keys.

Records that need more than one pass are returned by number, and `records.dispatch` handles them with array operations:
bytes above 0x7F in a tag or key, and properties that change the queue.
"""

from typing import Any

import numpy as np

from mqtool.formats import properties as names
from mqtool.kernels.compiling import byte_at, called, compiled, equal_bytes, high_bytes, inlined, lowest_bit, word_at
from mqtool.kernels.machine_code import BYTES, I32, I64, U32
from mqtool.kernels.topic_hash import FOLD, MIX


def _word(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(text.encode()[:8].ljust(8, b"\0"), "little"))


_TAGS, _KEYS, _UNIQUE = (_word(name) for name in (names.TAGS, names.KEYS, names.UNIQUE_KEY))
_LENGTHS = tuple(len(name) for name in (names.TAGS, names.KEYS, names.UNIQUE_KEY))
_TAGS_LENGTH, _KEYS_LENGTH, _UNIQUE_LENGTH = _LENGTHS
_INNER = _word("INNER_")  # INNER_MULTI_DISPATCH, INNER_NUM and their like
_INNER_MASK = np.uint64((1 << 48) - 1)
_DELAY = _word(names.DELAY_LEVEL)
_NAME_END, _VALUE_END, _SPACE = map(np.uint64, (names.NAME_END, names.VALUE_END, ord(names.KEY_SEPARATOR)))
_BLOCK = np.uint64(64)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIRS, _QUADS, _HALVES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)
_31, _31_2, _31_4, _31_8 = np.uint64(31), np.uint64(31**2), np.uint64(31**4), np.uint32(pow(31, 8, 1 << 32))
_1, _7, _8, _16, _32 = np.uint64(1), np.uint64(7), np.uint64(8), np.uint64(16), np.uint64(32)
assert _UNIQUE_LENGTH == 8


TOPICS = (BYTES, I64, I64, I32, I32, U32, U32)
"""Layout of `records.topics.TopicSlots.columns`."""
WANTED = ("int64", "bool", "bool")
"""Number of the schedule topic; whether to return keys; whether tags are indexed as keys."""


@called
def _word_at_end(address: Any, length: Any) -> Any:
    """Returns what `_word_at` does, without reading a byte after the string."""
    word = np.uint64(0)
    for place in range(min(length, 8)):
        word |= byte_at(address + np.uint64(place)) << np.uint64(8 * place)
    return word


@inlined
def _word_at(address: Any, length: Any, limit: Any) -> Any:
    """Returns the first eight bytes of a string, padded with zeros; no byte from the limit on is read."""
    if address + _8 <= limit:
        word = word_at(address)
        return word if length >= 8 else word & (_ALL >> np.uint64(64 - 8 * length))
    return _word_at_end(address, length)


@inlined
def first_word(data: Any, start: int, length: int) -> Any:
    """Returns the first eight bytes of a string in a buffer, padded with zeros."""
    address = np.uint64(data.ctypes.data)
    return _word_at(address + np.uint64(start), length, address + np.uint64(len(data)))


@inlined
def _word_hash(word: Any) -> Any:
    """Returns what eight bytes add to Java's String.hashCode: by pairs, quads and halves, as in `records.words`."""
    word = (word & _PAIRS) * _31 + ((word >> _8) & _PAIRS)
    word = (word & _QUADS) * _31_2 + ((word >> _16) & _QUADS)
    return np.uint32((word & _HALVES) * _31_4 + (word >> _32))


@called
def _hash_of(address: Any, length: Any, limit: Any, value: Any) -> Any:
    """Returns what `hash_on` does. Only numbers are its arguments: arrays would make a call cost 15 ns."""
    while length >= 8:
        value = value * _31_8 + _word_hash(_word_at(address, 8, limit))
        address += _8
        length -= 8
    if length > 0:
        # zeros in front of the last bytes add nothing to the hash, so one step does for all of them
        word = _word_at(address, length, limit) << np.uint64(64 - 8 * length)
        factor = np.uint32(31) if length & 1 else np.uint32(1)
        factor = factor * np.uint32(31**2) if length & 2 else factor
        factor = factor * np.uint32(31**4) if length & 4 else factor
        value = value * factor + _word_hash(word)
    return value


@inlined
def hash_on(data: Any, start: int, end: int, value: Any) -> Any:
    """Continues Java's String.hashCode over further bytes."""
    address = np.uint64(data.ctypes.data)
    return _hash_of(address + np.uint64(start), end - start, address + np.uint64(len(data)), value)


# 64 bytes a step. With eight, a record of three properties took 7 ns more, and with one, each with numba's test for a
# negative index, `verify` took a fifth longer again.


@called
def _bytes_at_end(address: Any, base: Any, limit: Any, byte: Any) -> Any:
    """Returns `_equal` where fewer than 64 bytes are left in the buffer."""
    if limit - base >= _BLOCK:
        return equal_bytes(limit - _BLOCK, byte) >> (address + _BLOCK - limit)
    bits, place = np.uint64(0), np.uint64(0)
    while address + place < limit:
        bits |= np.uint64(byte_at(address + place) == byte) << place
        place += _1
    return bits


@called
def _high_at_end(address: Any, base: Any, limit: Any) -> Any:
    """Returns `_high` where fewer than 64 bytes are left in the buffer."""
    if limit - base >= _BLOCK:
        return high_bytes(limit - _BLOCK) >> (address + _BLOCK - limit)
    bits, place = np.uint64(0), np.uint64(0)
    while address + place < limit:
        bits |= (byte_at(address + place) >> _7) << place
        place += _1
    return bits


@inlined
def _equal(data: Any, at: int, byte: Any) -> Any:
    """Returns which of the 64 bytes at a position equal one: a bit each, the first lowest, none after the buffer."""
    base = np.uint64(data.ctypes.data)
    address, limit = base + np.uint64(at), base + np.uint64(len(data))
    return equal_bytes(address, byte) if address + _BLOCK <= limit else _bytes_at_end(address, base, limit, byte)


@inlined
def _high(data: Any, at: int, end: int) -> Any:
    """Returns which of the 64 bytes at a position are above 0x7F and before `end`, as `_equal` does."""
    base = np.uint64(data.ctypes.data)
    address, limit = base + np.uint64(at), base + np.uint64(len(data))
    bits = high_bytes(address) if address + _BLOCK <= limit else _high_at_end(address, base, limit)
    return bits if end - at >= 64 else bits & ~(_ALL << np.uint64(end - at))


@inlined
def _byte_at(data: Any, start: int, end: int, byte: Any) -> Any:
    """Returns the first position of a byte from `start` on, `end` if it is not before there."""
    at = start
    while at < end:
        bits = _equal(data, at, byte)
        if bits != 0:
            at += int(lowest_bit(bits))
            break
        at += 64
    return min(at, end)


@inlined
def _is_plain(data: Any, start: int, end: int) -> Any:
    """Whether no byte of a range is above 0x7F."""
    bits, at = np.uint64(0), start
    while at < end:
        bits |= _high(data, at, end)
        at += 64
    return bits == 0


@inlined
def is_equal(data: Any, start: int, known: Any, known_start: int, length: int) -> Any:
    """Whether two ranges of one length hold the same bytes."""
    differs, at = np.uint64(0), 0
    while at < length:
        size = min(length - at, 8)
        differs |= first_word(data, start + at, size) ^ first_word(known, known_start + at, size)
        at += 8
    return differs == 0


@inlined
def hash_of_topic(data: Any, start: int, length: int) -> Any:
    """Returns `topic_hash.topic_hash` of a range of a buffer."""
    value, done = np.uint64(length), 0
    while done < length:
        value = (value ^ first_word(data, start + done, length - done)) * MIX
        value ^= value >> FOLD
        done += 8
    return value


@inlined
def topic_entry(data: Any, start: int, length: int, table: Any) -> int:
    """Returns the entry of a topic, -1 if it is not known."""
    known, starts, lengths, slots = table[0], table[1], table[2], table[3]
    mask = len(slots) - 1
    slot = np.int64(hash_of_topic(data, start, length)) & mask
    while slots[slot] >= 0:
        entry = slots[slot]
        if lengths[entry] == length and is_equal(data, start, known, starts[entry], length):
            return entry
        slot = (slot + 1) & mask
    return -1


@inlined
def property_slices(data: Any, start: int, end: int, is_schedule: bool) -> Any:
    """Returns where the values of TAGS, KEYS and UNIQ_KEY begin and end; begins at -1 if the record is not for here."""
    tag_start = tag_end = key_start = key_end = unique_start = unique_end = 0
    at = block = start
    names, values = _equal(data, at, _NAME_END), _equal(data, at, _VALUE_END)
    while at < end:
        passed = np.uint64(at - block)
        if passed > 0 and (passed >= _BLOCK or values >> passed == 0):  # the property does not end in this block
            block, passed = at, np.uint64(0)
            names, values = _equal(data, at, _NAME_END), _equal(data, at, _VALUE_END)
        close = at + int(lowest_bit(values >> passed))
        split = min(at + int(lowest_bit(names >> passed)), close)
        if values == 0:  # longer than a block
            close = _byte_at(data, at, end, _VALUE_END)
            split = _byte_at(data, at, close, _NAME_END)
        split, close = min(split, end), min(close, end)
        if at < split < close - 1:
            size = split - at
            name = first_word(data, at, size)
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
    if (
        tag_start >= 0
        and not _is_plain(data, start, end)  # all of them at once, as mostly none of them has any
        and not (
            _is_plain(data, tag_start, tag_end)
            and _is_plain(data, key_start, key_end)
            and _is_plain(data, unique_start, unique_end)
        )
    ):
        tag_start = -1
    return tag_start, tag_end, key_start, key_end, unique_start, unique_end


@inlined
def _put_key(data: Any, start: int, end: int, before: Any, row: int, rows: Any, hashes: Any, count: int) -> int:
    """Adds a key's hash, continued from the hash `before`, unless the key is empty; returns the new number of keys."""
    if end > start:
        rows[count] = row
        hashes[count] = hash_on(data, start, end, before)
        count += 1
    return count


@inlined
def _put_words(data: Any, start: int, end: int, before: Any, row: int, rows: Any, hashes: Any, count: int) -> int:
    """Adds a key for each word of KEYS; returns how many there are now."""
    at = start
    while at < end:
        split = _byte_at(data, at, end, _SPACE)
        count = _put_key(data, at, split, before, row, rows, hashes, count)
        at = split + 1
    return count


@inlined
def put_keys(
    data: Any, slices: Any, table: Any, topic: int, index_tags: bool, row: int, rows: Any, hashes: Any, count: int
) -> int:
    """Adds the index keys of a record in the broker's order; returns the new number of keys."""
    tag_start, tag_end, key_start, key_end, unique_start, unique_end = slices
    before = table[5][topic]
    count = _put_key(data, unique_start, unique_end, before, row, rows, hashes, count)
    count = _put_words(data, key_start, key_end, before, row, rows, hashes, count)
    if index_tags:
        count = _put_key(data, tag_start, tag_end, table[6][topic], row, rows, hashes, count)
    return count


_PLACE = (I64,) * 4
_DONE = ("int64",) * 3
_FOUND = (I32, I64, I64, U32, I64)


@compiled(_DONE, BYTES, _PLACE, TOPICS, WANTED, _DONE, _FOUND)
def dispatch(data: Any, place: Any, table: Any, options: Any, done: Any, results: Any) -> Any:
    """Reads topic and properties of records until one has an unknown topic.

    Args:
        data: the buffer.
        place: topic start and length, properties start and length of each record, inside the buffer.
        table: the topics: see `records.topics.TopicSlots.columns`.
        options: number of the schedule topic; whether to return keys; whether tags are indexed as keys.
        done: number of records, keys and records for array operations from an earlier call.
        results: outputs: topic number and tags code of each record; record and hash of each key, in the broker's order,
            with room for one per byte of properties; the records for array operations.

    Returns:
        `done`, including this call.
    """
    topic_start, topic_length, properties_start, properties_length = place
    schedule, with_keys, index_tags = options
    first, keys, others = done
    topics, tags_codes, key_rows, hashes, other_rows = results
    entry = -1
    for row in range(first, len(topic_start)):
        start, length = topic_start[row], topic_length[row]
        # fast case: usually the topic of the previous record
        if entry < 0 or table[2][entry] != length or not is_equal(data, start, table[0], table[1][entry], length):
            entry = topic_entry(data, start, length, table)
            if entry < 0:
                return row, keys, others
        topic = topics[row] = table[4][entry]
        end = properties_start[row] + properties_length[row]
        slices = property_slices(data, properties_start[row], end, topic == schedule)
        tag_start, tag_end = slices[0], slices[1]
        if tag_start < 0:
            other_rows[others] = row
            others += 1
            continue
        tags_codes[row] = np.int32(hash_on(data, tag_start, tag_end, np.uint32(0)))
        if not with_keys:
            continue
        keys = put_keys(data, slices, table, topic, index_tags, row, key_rows, hashes, keys)
    return len(topic_start), keys, others
