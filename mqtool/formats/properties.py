"""The properties string of a record: name 0x01 value 0x02 … in UTF-8.

Source: MessageDecoder.messageProperties2String/string2messageProperties, MessageConst,
MessageDecoder.createCrc32 (4.9.7, 5.5.0). Docs page: docs/formats/commit-log.md.
"""

from collections.abc import Iterable, Iterator

from mqtool.formats import codec, java
from mqtool.formats.codec import Buffer

NAME_END = 0x01
VALUE_END = 0x02

KEYS = "KEYS"
TAGS = "TAGS"
UNIQUE_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY_LEVEL = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
FIRST_POP_TIME = "1ST_POP_TIME"
POP_CHECK_POINT = "POP_CK"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CLUSTER = "CLUSTER"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
SHARDING_KEY = "__SHARDINGKEY"
PRIORITY = "_SYS_MSG_PRIORITY_"
LITE_TOPIC = "__LITE_TOPIC"
TRANSACTION_ID = "__transactionId__"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
CRC32 = "__CRC32#"

KEY_SEPARATOR = " "

CRC32_TAIL_SIZE = 20
"""Bytes that `enabledAppendPropCRC` adds at the very end: name 8, 0x01, ten digits, 0x02."""

_CRC32_DIGITS = 10
_CRC32_HEAD = CRC32.encode() + bytes((NAME_END,))


def decode(data: Buffer) -> dict[str, str]:
    """Parses a properties string by the broker's rules.

    Empty names and empty values are dropped. Of equal names the last value applies, at the position of the first. A
    value may contain further 0x01; the last 0x02 may be missing. The broker decodes UTF-8 first; both separators are
    ASCII, so splitting the bytes gives the same result.
    """
    stored = bytes(data)
    try:
        pieces = stored.decode("utf-8").split("\x02")
    except UnicodeDecodeError:
        pieces = [java.decode_utf8(piece) for piece in stored.split(b"\x02")]
    values: dict[str, str] = {}
    for piece in pieces:
        cut = piece.find("\x01")
        if 0 < cut < len(piece) - 1:
            values[piece[:cut]] = piece[cut + 1 :]
    return values


def pairs(data: Buffer) -> list[tuple[bytes, bytes]]:
    """Returns every kept name and value as bytes, in stored order, repeated names included."""
    stored = bytes(data)
    return [(stored[start:split], stored[split + 1 : end]) for start, split, end in places(stored)]


def places(stored: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields where each kept name starts, where it ends, and where its value ends; the value is after one byte."""
    at = 0
    for segment in stored.split(b"\x02"):
        cut = segment.find(b"\x01")
        if 0 < cut < len(segment) - 1:
            yield at, at + cut, at + len(segment)
        at += len(segment) + 1


def encode(properties: Iterable[tuple[str, str]], *, trailing_separator: bool = True) -> bytes:
    """Writes name and value pairs in the given order; nothing is escaped.

    The last value ends in 0x02 in 4.0 to 4.9.0 and since 5.2.0, not in 4.9.1 to 4.9.8 and 5.0.0 to 5.1.4.
    """
    data = java.encode_utf8(encode_text(properties))
    return data if trailing_separator else data[:-1]


def encode_text(properties: Iterable[tuple[str, str]]) -> str:
    """Returns the properties string as text, as requests carry it; every value ends in 0x02."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties])


def terminated(encoded: bytes) -> bytes:
    """Returns a properties string to which another one can be appended: adds a missing final 0x02."""
    return encoded + b"\x02" if encoded and encoded[-1] != VALUE_END else encoded


def without(encoded: bytes, name: str) -> bytes:
    """Returns a properties string without the properties of one name."""
    dropped = name.encode()
    return b"".join(key + b"\x01" + value + b"\x02" for key, value in pairs(encoded) if key != dropped)


def mark(name: str) -> bytes:
    """Returns the bytes before a property's value; a string that does not contain them does not have the property.

    A string that contains them need not have it, because they may be part of another property; `value` and `decode`
    are exact.
    """
    return name.encode() + b"\x01"


def value(encoded: bytes, name_mark: bytes) -> bytes:
    """Returns the value that `decode` finds for the name of a `mark`; b"" if there is none."""
    at = encoded.rfind(name_mark)
    while at >= 0:
        if at == 0 or encoded[at - 1] == VALUE_END:
            start = at + len(name_mark)
            end = encoded.find(b"\x02", start)
            stored = encoded[start:end] if end >= 0 else encoded[start:]
            if stored:
                return stored
        at = encoded.rfind(name_mark, 0, at)
    return b""


_WAIT_MARK = mark(WAIT)


def waits(encoded: bytes) -> bool:
    """Whether a put waits for the flush of a message: true without the property (Message.isWaitStoreMsgOK)."""
    stored = value(encoded, _WAIT_MARK)
    return not stored or java.parse_boolean(java.decode_utf8(stored))


def keys_of(properties: dict[str, str]) -> tuple[str, ...]:
    """Returns the words of KEYS that the broker indexes: split at spaces, empty ones left out."""
    value = properties.get(KEYS)
    return tuple(word for word in value.split(KEY_SEPARATOR) if word) if value else ()


def crc32_tail(crc: int) -> bytes:
    """Returns the 20 bytes of `__CRC32#`: decimal digits from the least significant, padded with '0'.

    The CRC is that of the record without these 20 bytes.
    """
    return _CRC32_HEAD + str(crc)[::-1].ljust(_CRC32_DIGITS, "0").encode() + bytes((VALUE_END,))


def compute_crc32(record: Buffer) -> int:
    """Returns the CRC for the trailer of a complete record, computed without the record's last 20 bytes."""
    return codec.crc32(memoryview(record)[: max(0, len(record) - CRC32_TAIL_SIZE)])


def has_crc32_tail(record: Buffer) -> bool:
    """Whether the last 20 bytes of a complete record are its `__CRC32#`, judged by the name."""
    return bytes(memoryview(record)[-CRC32_TAIL_SIZE:]).startswith(_CRC32_HEAD)


def with_crc32(record: bytes) -> bytes:
    """Returns a complete record with its CRC in its last 20 bytes, whatever they contain now."""
    return record[:-CRC32_TAIL_SIZE] + crc32_tail(compute_crc32(record))


def renew_crc32(record: bytes) -> bytes:
    """Returns a changed record with its CRC computed again, if it has one."""
    return with_crc32(record) if has_crc32_tail(record) else record
