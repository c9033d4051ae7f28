"""Records as lines of JSON, in one pass: numbers, hosts, properties and body of one record after the other.

A record that needs more than one pass is left out, and `records.json_rows` makes its line from columns: IPv6 hosts,
compressed bodies, strings that are no UTF-8, repeated names of properties.
"""

from typing import Any

import numpy as np
from numba import types

from mqtool.formats import commit_log
from mqtool.formats import properties as names
from mqtool.formats.commit_log import SysFlag
from mqtool.kernels import json_texts
from mqtool.kernels.compiling import array_at, called, compiled, external, inlined
from mqtool.kernels.frame_scan import V2, places
from mqtool.kernels.machine_code import BYTES, I64
from mqtool.kernels.numbers import i32_at, i64_at

_FIRST = ("total_size", "magic_code", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag")
_SIZE, _MAGIC, _CRC, _QUEUE, _FLAG, _PLACE, _PHYSICAL, _BITS = map(commit_log.field_offset, _FIRST)
_FURTHER = ("born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times")
_BORN, _BORN_HOST, _STORED, _STORE_HOST, _RETRIES = map(commit_log.field_offset, _FURTHER)
_PREPARED = commit_log.field_offset("prepared_transaction_offset")
_BODY = commit_log.BODY_POSITIONS[0]
_V6, _COMPRESSED = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6), int(SysFlag.COMPRESSED)
_NAME_END, _VALUE_END = names.NAME_END, names.VALUE_END
_PORTS = 1 << 16

_LENGTHS = tuple(len(text) for text in json_texts.FRAGMENTS)
_STARTS = tuple(sum(_LENGTHS[:number]) for number in range(len(_LENGTHS)))
(
    _TO_OFFSET,
    _TO_SIZE,
    _TO_TOPIC,
    _TO_QUEUE,
    _TO_PLACE,
    _TO_FLAG,
    _TO_BITS,
    _TO_BORN,
    _TO_STORED,
    _TO_BORN_HOST,
    _TO_STORE_HOST,
    _TO_RETRIES,
    _TO_PREPARED,
    _TO_PROPERTIES,
    _TO_CRC,
    _TO_BODY,
    _TO_ID,
    _TO_ID_ALONE,
    _TO_END,
) = range(len(json_texts.FRAGMENTS))

ESCAPED, FIXED, MAX_NAMES = json_texts.ESCAPED, json_texts.FIXED, json_texts.MAX_NAMES

_PIECE = 64
_10 = np.uint64(10)
_QUOTE, _SLASH, _COLON, _COMMA, _DOT = (ord(letter) for letter in '"\\:,.')

_copy = external(types.uint64, types.uint64, types.uint64, types.uint64)
"""The C library's: (to, from, bytes)."""


@inlined
def _move(memcpy: Any, data: Any, start: int, length: int, target: Any, at: int) -> int:
    """Copies bytes; returns the position after them."""
    to, source = np.uint64(target.ctypes.data) + np.uint64(at), np.uint64(data.ctypes.data) + np.uint64(start)
    _copy(memcpy, to, source, np.uint64(length))
    return at + length


@called
def _put_number(target: Any, at: int, value: int) -> int:
    """Writes a whole number; returns the position after it."""
    number = np.uint64(value)
    if value < 0:
        target[at] = np.uint8(ord("-"))
        at += 1
        number = np.uint64(0) - number
    digits, power = 1, _10
    while digits < 19 and number >= power:
        power *= _10
        digits += 1
    for place in range(digits):
        rest = number // _10
        target[at + digits - 1 - place] = np.uint8(ord("0")) + np.uint8(number - rest * _10)
        number = rest
    return at + digits


@called
def _is_plain(data: Any, start: int, length: int) -> bool:
    """Whether a string of JSON holds these bytes as they are, and all are ASCII."""
    piece = array_at(np.uint64(data.ctypes.data) + np.uint64(start), (length,), np.uint8)
    odd = np.uint8(0)
    for at in range(length):
        byte = piece[at]
        odd |= np.uint8(byte < 0x20) | np.uint8(byte == _QUOTE) | np.uint8(byte == _SLASH) | np.uint8(byte > 0x7F)
    return odd == 0


@inlined
def _sequence(data: Any, start: int, left: int) -> int:
    """Returns the length of the UTF-8 sequence that begins with a byte above 0x7F; 0 if it is invalid."""
    first = data[start]
    length, low, high = 0, 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        length = 2
    elif 0xE0 <= first <= 0xEF:
        length = 3
        low, high = 0xA0 if first == 0xE0 else 0x80, 0x9F if first == 0xED else 0xBF
    elif 0xF0 <= first <= 0xF4:
        length = 4
        low, high = 0x90 if first == 0xF0 else 0x80, 0x8F if first == 0xF4 else 0xBF
    if length > left or length == 0 or not low <= data[start + 1] <= high:
        return 0
    for further in range(2, length):
        if not 0x80 <= data[start + further] <= 0xBF:
            return 0
    return length


@inlined
def _put_ascii(target: Any, at: int, byte: Any) -> int:
    """Writes one ASCII character of a string, escaped as orjson does; returns the position after it."""
    short = 0
    if byte in (_QUOTE, _SLASH):  # a tuple, because sets are not compiled
        short = byte
    elif byte == 0x08:
        short = ord("b")
    elif byte == 0x09:
        short = ord("t")
    elif byte == 0x0A:
        short = ord("n")
    elif byte == 0x0C:
        short = ord("f")
    elif byte == 0x0D:
        short = ord("r")
    if short:
        target[at], target[at + 1] = np.uint8(_SLASH), np.uint8(short)
        return at + 2
    if byte >= 0x20:
        target[at] = byte
        return at + 1
    target[at], target[at + 1], target[at + 2], target[at + 3] = _SLASH, ord("u"), ord("0"), ord("0")
    target[at + 4], target[at + 5] = _digit(byte >> 4, ord("a")), _digit(byte & 15, ord("a"))
    return at + 6


@inlined
def _digit(value: Any, ten: int) -> Any:
    """Returns the hexadecimal digit of a number, whose digit of 10 is given."""
    return np.uint8(value + ord("0") if value < 10 else value - 10 + ten)


@called
def _put_string(memcpy: Any, data: Any, start: int, length: int, target: Any, at: int) -> int:
    """Writes the inside of a string of JSON; returns the position after it, -1 if the bytes are no UTF-8."""
    if _is_plain(data, start, length):
        return _move(memcpy, data, start, length, target, at)
    done = 0
    while done < length:
        size = min(_PIECE, length - done)
        if _is_plain(data, start + done, size):
            at = _move(memcpy, data, start + done, size, target, at)
            done += size
            continue
        end = done + size
        while done < end:
            byte = data[start + done]
            if byte < 0x80:
                at = _put_ascii(target, at, byte)
                done += 1
                continue
            size = _sequence(data, start + done, length - done)
            if size == 0:
                return -1
            at = _move(memcpy, data, start + done, size, target, at)
            done += size
    return at


@called
def _put_host(data: Any, start: int, target: Any, at: int) -> int:
    """Writes an IPv4 host; returns the position after it."""
    for part in range(4):
        at = _put_number(target, at, int(data[start + part]))
        target[at] = np.uint8(_DOT if part < 3 else _COLON)
        at += 1
    return _put_number(target, at, i32_at(data, start + 4))


@called
def _put_hexadecimal(data: Any, start: int, length: int, target: Any, at: int) -> int:
    """Writes bytes in upper-case digits; returns the position after them."""
    for place in range(length):
        byte = data[start + place]
        target[at + 2 * place] = _digit(byte >> 4, ord("A"))
        target[at + 2 * place + 1] = _digit(byte & 15, ord("A"))
    return at + 2 * length


@inlined
def _is_known(data: Any, start: int, length: int, known: Any, count: int) -> bool:
    """Whether a name is among the first ones of a table of positions and lengths."""
    for number in range(count):
        if known[2 * number + 1] == length:
            differs = np.uint8(0)
            for at in range(length):
                differs |= data[start + at] ^ data[known[2 * number] + at]
            if differs == 0:
                return True
    return False


@called
def _put_properties(memcpy: Any, data: Any, start: int, end: int, target: Any, at: int, known: Any) -> int:
    """Writes the inside of the object of properties; returns the position after it, -1 if it takes more than that."""
    count = 0
    while start < end:
        split = start
        while split < end and data[split] != _NAME_END and data[split] != _VALUE_END:
            split += 1
        close = split
        while close < end and data[close] != _VALUE_END:
            close += 1
        if start < split < close - 1:  # as in the broker, empty names and values are dropped
            length = split - start
            if count == MAX_NAMES or _is_known(data, start, length, known, count):
                return -1
            known[2 * count], known[2 * count + 1] = start, length
            if count:
                target[at] = np.uint8(_COMMA)
                at += 1
            count += 1
            target[at] = np.uint8(_QUOTE)
            at = _put_string(memcpy, data, start, length, target, at + 1)
            if at < 0:
                return -1
            target[at], target[at + 1], target[at + 2] = np.uint8(_QUOTE), np.uint8(_COLON), np.uint8(_QUOTE)
            at = _put_string(memcpy, data, split + 1, close - split - 1, target, at + 3)
            if at < 0:
                return -1
            target[at] = np.uint8(_QUOTE)
            at += 1
        start = close + 1
    return at


@inlined
def _put_text(memcpy: Any, texts: Any, number: int, target: Any, at: int) -> int:
    """Writes what stands between two values; returns the position after it."""
    return _move(memcpy, texts, _STARTS[number], _LENGTHS[number], target, at)


@inlined
def _put_line(memcpy: Any, data: Any, texts: Any, record: int, is_text: bool, target: Any, at: int, known: Any) -> int:
    """Writes the line of one record; returns the position after it, -1 if it takes more than that."""
    is_v2 = i32_at(data, record + _MAGIC) == V2
    end = record + i32_at(data, record + _SIZE)
    _, length, topic, topic_length, properties, _ = places(data, record + _BODY, end, is_v2)
    at = _put_number(target, _put_text(memcpy, texts, _TO_OFFSET, target, at), i64_at(data, record + _PHYSICAL))
    at = _put_number(target, _put_text(memcpy, texts, _TO_SIZE, target, at), end - record)
    at = _put_text(memcpy, texts, _TO_TOPIC, target, at)
    at = _put_string(memcpy, data, topic, topic_length, target, at)
    if at < 0:
        return -1
    at = _put_number(target, _put_text(memcpy, texts, _TO_QUEUE, target, at), i32_at(data, record + _QUEUE))
    at = _put_number(target, _put_text(memcpy, texts, _TO_PLACE, target, at), i64_at(data, record + _PLACE))
    at = _put_number(target, _put_text(memcpy, texts, _TO_FLAG, target, at), i32_at(data, record + _FLAG))
    at = _put_number(target, _put_text(memcpy, texts, _TO_BITS, target, at), i32_at(data, record + _BITS))
    at = _put_number(target, _put_text(memcpy, texts, _TO_BORN, target, at), i64_at(data, record + _BORN))
    at = _put_number(target, _put_text(memcpy, texts, _TO_STORED, target, at), i64_at(data, record + _STORED))
    at = _put_host(data, record + _BORN_HOST, target, _put_text(memcpy, texts, _TO_BORN_HOST, target, at))
    at = _put_host(data, record + _STORE_HOST, target, _put_text(memcpy, texts, _TO_STORE_HOST, target, at))
    at = _put_number(target, _put_text(memcpy, texts, _TO_RETRIES, target, at), i32_at(data, record + _RETRIES))
    at = _put_number(target, _put_text(memcpy, texts, _TO_PREPARED, target, at), i64_at(data, record + _PREPARED))
    at = _put_text(memcpy, texts, _TO_PROPERTIES, target, at)
    at = _put_properties(memcpy, data, properties, end, target, at, known)
    if at < 0:
        return -1
    at = _put_number(target, _put_text(memcpy, texts, _TO_CRC, target, at), i32_at(data, record + _CRC))
    if is_text:
        at = _put_text(memcpy, texts, _TO_BODY, target, at)
        at = _put_string(memcpy, data, record + _BODY, length, target, at)
        if at < 0:
            return -1
        at = _put_text(memcpy, texts, _TO_ID, target, at)
    else:
        at = _put_text(memcpy, texts, _TO_ID_ALONE, target, at)
    at = _put_hexadecimal(data, record + _STORE_HOST, 8, target, at)
    at = _put_hexadecimal(data, record + _PHYSICAL, 8, target, at)
    return _put_text(memcpy, texts, _TO_END, target, at)


@compiled("int64", "@memcpy", BYTES, I64, "bool", "bool", BYTES, I64, BYTES, I64)
def json_lines(
    memcpy: Any,
    data: Any,
    positions: Any,
    is_text: bool,
    is_raw: bool,
    texts: Any,
    known: Any,
    target: Any,
    ends: Any,
) -> int:
    """Writes the lines of valid records, as `records.json_rows` does; leaves out those that take more than that.

    Args:
        memcpy: of the C library.
        data: the buffer.
        positions: of the records in it.
        is_text: whether bodies are written, as text.
        is_raw: whether they are written as stored though they are compressed.
        texts: `json_texts.TEXTS`.
        known: room for two numbers for each of `json_texts.MAX_NAMES`.
        target: output. A record is left out if there is less room than `json_texts.FIXED` and
            `json_texts.ESCAPED` times its size.
        ends: output: position in the target after the line of each record, the one before if it has none.

    Returns:
        How many bytes were written.
    """
    at = 0
    for row in range(len(positions)):
        record = positions[row]
        bits = i32_at(data, record + _BITS)
        has_ports = 0 <= (i32_at(data, record + _BORN_HOST + 4) | i32_at(data, record + _STORE_HOST + 4)) < _PORTS
        is_plain = bits & _V6 == 0 and has_ports and (is_raw or not is_text or bits & _COMPRESSED == 0)
        if is_plain and len(target) - at >= FIXED + ESCAPED * i32_at(data, record + _SIZE):
            end = _put_line(memcpy, data, texts, record, is_text, target, at, known)
            if end >= 0:
                at = end
        ends[row] = at
    return at
