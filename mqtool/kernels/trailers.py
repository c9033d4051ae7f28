"""One pass over the trailers of records (topic and properties): topic number, tags code, index keys.

Records that need more than one pass are returned by number, and `records.dispatch` handles them with array operations:
bytes above 0x7F in a tag or key, and properties that change the queue.
"""

from typing import Any

import numpy as np

from mqtool.formats import properties as names
from mqtool.kernels import fnv
from mqtool.kernels.compiling import byte_at, called, compiled, inlined, lowest_bit, word_at
from mqtool.kernels.machine_code import BYTES, I32, I64, U32


def _word(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(text.encode()[:8].ljust(8, b"\0"), "little"))


_TAGS, _KEYS, _UNIQUE = (_word(name) for name in (names.TAGS, names.KEYS, names.UNIQUE_KEY))
_LENGTHS = tuple(len(name) for name in (names.TAGS, names.KEYS, names.UNIQUE_KEY))
_TAGS_LENGTH, _KEYS_LENGTH, _UNIQUE_LENGTH = _LENGTHS
_INNER = _word("INNER_")  # INNER_MULTI_DISPATCH, INNER_NUM and their like
_INNER_MASK = np.uint64((1 << 48) - 1)
_DELAY = _word(names.DELAY_LEVEL)
_SPACE = ord(names.KEY_SEPARATOR)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIRS, _QUADS, _HALVES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)
_31, _31_2, _31_4, _31_8 = np.uint64(31), np.uint64(31**2), np.uint64(31**4), np.uint32(pow(31, 8, 1 << 32))
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_ENDS_NAME, _ENDS_VALUE, _SPACES = (_ONES * np.uint64(byte) for byte in (names.NAME_END, names.VALUE_END, _SPACE))
_PRIME, _BASIS, _SHIFT = np.uint64(fnv.PRIME), np.uint64(fnv.BASIS), np.uint64(fnv.SHIFT)
assert _UNIQUE_LENGTH == 8


TOPICS = (BYTES, I64, I64, I32, I32, U32, U32)
"""Layout of `records.topics.TopicSlots.columns`."""
WANTED = ("int64", "bool", "bool")
"""Number of the schedule topic; whether to return keys; whether tags are indexed as keys."""


@inlined
def _word_at(address: Any, length: Any, limit: Any) -> Any:
    """Returns the first eight bytes of a string, padded with zeros; no byte from the limit on is read."""
    if address + _8 <= limit:
        word = word_at(address)
        return word if length >= 8 else word & (_ALL >> np.uint64(64 - 8 * length))
    word = np.uint64(0)
    for place in range(length):
        word |= byte_at(address + np.uint64(place)) << np.uint64(8 * place)
    return word


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


@inlined
def _zero_bytes(word: Any) -> Any:
    """Returns a word whose lowest bit set is the highest one of the lowest zero byte of a word; 0 if it has none.

    Bits above that one may be set where no zero byte is: a borrow sets them.
    """
    return (word - _ONES) & ~word & _HIGH


# Eight bytes a step: one byte a step, each with numba's test for a negative index, made the pass a fifth slower.


@inlined
def _byte_at(data: Any, start: int, end: int, one: Any, other: Any) -> Any:
    """Returns the first position from one on with one of two bytes, `end` if there is none.

    Args:
        data: the buffer.
        start, end: the range.
        one, other: words of eight times the byte.
    """
    at = start
    while at < end:
        # words may reach beyond the range, though not beyond the buffer: what is found there counts as the end
        word = first_word(data, at, 8 if at + 8 <= len(data) else end - at)
        found = _zero_bytes(word ^ one) | _zero_bytes(word ^ other)
        if found != 0:
            at += int(lowest_bit(found) >> np.uint64(3))
            break
        at += 8
    return min(at, end)


@called
def _high_bits(address: Any, length: Any, limit: Any) -> Any:
    """Returns the highest bits of some bytes, or'ed together by eights."""
    seen = np.uint64(0)
    while length > 0:
        seen |= _word_at(address, min(length, 8), limit)
        address += _8
        length -= 8
    return seen & _HIGH


@inlined
def _is_plain(data: Any, start: int, end: int) -> Any:
    """Whether no byte of a range is above 0x7F."""
    address = np.uint64(data.ctypes.data)
    return _high_bits(address + np.uint64(start), end - start, address + np.uint64(len(data))) == 0


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
def topic_entry(data: Any, start: int, length: int, table: Any) -> int:
    """Returns the entry of a topic, -1 if it is not known."""
    known, starts, lengths, slots = table[0], table[1], table[2], table[3]
    value = _BASIS
    for at in range(start, start + length):
        value = (value ^ np.uint64(data[at])) * _PRIME
    mask = len(slots) - 1
    slot = np.int64(value >> _SHIFT) & mask
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
    at = start
    while at < end:
        split = _byte_at(data, at, end, _ENDS_NAME, _ENDS_VALUE)
        close = _byte_at(data, split, end, _ENDS_VALUE, _ENDS_VALUE)
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
        split = _byte_at(data, at, end, _SPACES, _SPACES)
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
