"""CommitLog: the record in both versions, and the BLANK that ends a segment.

Declared once here; `records` gathers columns by the offsets derived from this declaration.
Docs page: docs/formats/commit-log.md. Source: MessageExtEncoder, MessageDecoder, CommitLog (4.9.7, 5.5.0).
"""

import struct
from collections.abc import Iterable
from enum import IntFlag
from typing import Any, NamedTuple

import construct as cs
from msgspec import Struct

from mqtool.errors import BadMagicError, FormatError, TruncatedError
from mqtool.formats import codec
from mqtool.formats.codec import Buffer, either, i16, i32, i64, sized

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB, since 5.1.0, for topics of more than 127 UTF-16 units
MAGIC_BLANK = -875286124  # 0xCBD43194
RECORD_MAGICS = (MAGIC_V1, MAGIC_V2)

BLANK_SIZE = 8
"""Bytes of a BLANK that are written; the rest of the segment is unspecified."""

MIN_RECORD_SIZE = 91
"""V1, no body, empty topic, no properties, IPv4 hosts."""

FIRST_MILLIS, LAST_MILLIS = -62_135_596_800_000, 253_402_300_799_999
"""Timestamps of the years 1 to 9999, which every calendar can represent. Clients may set any 64-bit value."""


class SysFlag(IntFlag):
    """Bits of a record's sys_flag (MessageSysFlag). Unknown bits are kept."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


TRANSACTION_MASK = 0xC
_PREPARED, _ROLLBACK = int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK)
COMPRESSION_MASK = 0x700

_HOST_V4 = cs.Bytes(8)
_HOST_V6 = cs.Bytes(20)


def _is_v2(context: Any) -> bool:
    return bool(context.magic_code == MAGIC_V2)


RECORD = cs.Struct(
    i32("total_size", "bytes of the complete record, this field included"),
    i32("magic_code", "0xDAA320A7 (V1: 1-byte topic length) or 0xDAA320AB (V2: 2-byte)"),
    i32("body_crc", "CRC-32 of the stored body & 0x7FFFFFFF; 0 for an empty body"),
    i32("queue_id", "queue of the topic"),
    i32("flag", "the application's own integer"),
    i64("queue_offset", "ordinal in the queue; 0 for prepared and rolled-back records; first of an inner batch"),
    i64("physical_offset", "this record's own byte address in the CommitLog"),
    i32("sys_flag", "the broker's bits: compression, transaction, IPv6 hosts, batch (SysFlag)"),
    i64("born_timestamp", "ms since epoch by the producer's clock"),
    either("born_host", lambda c: c.sys_flag & 0x10, _HOST_V6, _HOST_V4, "producer: address (4 or 16 bytes), port i32"),
    i64("store_timestamp", "ms since epoch by the broker's clock, taken inside the append lock"),
    either("store_host", lambda c: c.sys_flag & 0x20, _HOST_V6, _HOST_V4, "broker: address (4 or 16 bytes), port i32"),
    i32("reconsume_times", "how often a consumer has sent it back"),
    i64("prepared_transaction_offset", "of a committed message: physical offset of its half message; else 0"),
    i32("body_length", "bytes of the body; negative counts as none"),
    sized("body", "body_length", "the body as stored: compressed if sys_flag says so"),
    either("topic_length", _is_v2, cs.Int16sb, cs.Int8sb, "bytes of the topic: i8 in V1, i16 in V2"),
    sized("topic", "topic_length", "topic name, UTF-8"),
    i16("properties_length", "bytes of the properties; negative counts as none"),
    sized("properties", "properties_length", "name 0x01 value 0x02 …, UTF-8 (see properties)"),
)

BLANK = cs.Struct(
    i32("total_size", "bytes from here to the end of the segment, these 8 included"),
    i32("magic_code", "0xCBD43194"),
)

HEADS = tuple(codec.leading_fields(RECORD, sys_flag=bits << 4) for bits in range(4))
"""Fields up to body_length, indexed by `host_shape`."""

HEAD_STRUCTS = tuple(codec.struct_of(head) for head in HEADS)
"""Reader and writer of these fields."""

HEAD_NAMES = tuple(field.name for field in HEADS[0])

_SYS_FLAG = [field.name for field in HEADS[0]].index("sys_flag")

FRAME = codec.struct_of(HEADS[0][:2])
"""Reader of total_size and magic_code: all that following records needs."""

BODY_POSITIONS = tuple(head[-1].offset + head[-1].size for head in HEADS)
"""Where the body starts in a record, indexed by `host_shape`: 88, 100, 100, 112."""


def host_shape(sys_flag: int) -> int:
    """Returns which hosts are IPv6: 0 none, 1 the born host, 2 the store host, 3 both. Index of `HEADS`."""
    return (sys_flag >> 4) & 3


def field_offset(name: str, host_shape: int = 0) -> int:
    """Returns the byte offset of a field of RECORD, up to body_length, in a record with hosts of a `host_shape`."""
    return next(field.offset for field in HEADS[host_shape] if field.name == name)


def field_offsets(name: str) -> tuple[int, ...]:
    """Returns the byte offsets of a fixed field in a record, indexed by `host_shape`."""
    return tuple(field_offset(name, shape) for shape in range(len(HEADS)))


def _reader_of(name: str) -> struct.Struct:
    return codec.struct_of(tuple(field for field in HEADS[0] if field.name == name))


_SYS_FLAG_AT, _SYS_FLAG_READER = field_offset("sys_flag"), _reader_of("sys_flag")
_STORE_TIME_AT = field_offsets("store_timestamp")
_TIME_READER = _reader_of("store_timestamp")


class Record(Struct, frozen=True):
    """One record, field by field as stored; bytes are not decoded, so `build` restores them exactly."""

    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    body: bytes
    topic_length: int
    topic: bytes
    properties_length: int
    properties: bytes


class Places(NamedTuple):
    """Where the parts of a record are: positions in it, and bytes."""

    body: int
    body_length: int
    topic: int
    topic_length: int
    properties: int
    properties_length: int


def parse_record(data: Buffer, position: int = 0) -> Record:
    """Parses the record at a position with the derived readers.

    Only the layout is checked: neither the CRC nor whether `physical_offset` is correct. Raises TruncatedError if the
    record does not end inside `data`, BadMagicError if none starts here (also for a BLANK), FormatError if the inner
    lengths do not add up to total_size.
    """
    view = memoryview(data)
    values, places = locate(view, position)
    return _record(view[position : position + values[0]], values, places)


def locate(view: memoryview, position: int = 0) -> tuple[tuple[Any, ...], Places]:
    """Returns the fields of a record up to body_length, and where its parts are, unread. Raises FormatError."""
    total_size, magic_code = _frame(view, position)
    if magic_code not in RECORD_MAGICS:
        raise BadMagicError(
            f"expected magic daa320a7 or daa320ab, found {magic_code & 0xFFFFFFFF:08x}",
            layout="record",
            field="magic_code",
            position=position,
        )
    if total_size < MIN_RECORD_SIZE:
        raise FormatError(f"total_size {total_size} is below {MIN_RECORD_SIZE}", layout="record", position=position)
    if position + total_size > len(view):
        raise TruncatedError(
            f"expected {total_size} bytes, found {len(view) - position}", layout="record", position=position
        )
    try:
        values, places = _fields(view[position : position + total_size], is_v2=magic_code == MAGIC_V2)
    except (struct.error, FormatError) as error:
        raise FormatError(f"lengths do not add up: {error}", layout="record", position=position) from error
    end = places.properties + places.properties_length
    if end != total_size:
        words = f"lengths do not add up: total_size is {total_size}, the fields take {end} bytes"
        raise FormatError(words, layout="record", position=position)
    return values, places


def read_fields(data: Buffer, *, is_v2: bool) -> Record:
    """Parses a record field by field without checking magic code or total_size.

    If the data is truncated, body, topic and properties are shorter than stated; struct.error if it ends before a fixed
    field or a length does. FormatError if the topic length is negative, which Java cannot convert to a string.
    """
    return _record(data, *_fields(data, is_v2=is_v2))


def _fields(data: Buffer, *, is_v2: bool) -> tuple[tuple[Any, ...], Places]:
    """Returns the fields up to body_length, and where a record states its parts. This is the only scalar decoder."""
    values = _head_values(data)
    body, body_length = BODY_POSITIONS[host_shape(values[_SYS_FLAG])], max(0, values[-1])
    length = TOPIC_LENGTH_V2 if is_v2 else TOPIC_LENGTH_V1
    (topic_length,) = length.unpack_from(data, body + body_length)
    if topic_length < 0:
        raise FormatError(f"topic_length is {topic_length}", layout="record")
    topic = body + body_length + length.size
    properties = topic + topic_length + PROPERTIES_LENGTH.size
    properties_length = max(0, PROPERTIES_LENGTH.unpack_from(data, properties - PROPERTIES_LENGTH.size)[0])
    return values, Places(body, body_length, topic, topic_length, properties, properties_length)


def _record(data: Buffer, values: tuple[Any, ...], places: Places) -> Record:
    body, body_length, topic, topic_length, properties, properties_length = places
    parts = (
        bytes(data[body : body + body_length]),
        topic_length,
        bytes(data[topic : topic + topic_length]),
        *PROPERTIES_LENGTH.unpack_from(data, properties - PROPERTIES_LENGTH.size),
        bytes(data[properties : properties + properties_length]),
    )
    return Record(*values, *parts)


def head_fields(data: Buffer) -> dict[str, Any]:
    """Returns the fields up to body_length by name, hosts as bytes; raises struct.error if the bytes end before."""
    return dict(zip(HEAD_NAMES, _head_values(data), strict=True))


def _head_values(data: Buffer) -> tuple[Any, ...]:
    values = HEAD_STRUCTS[0].unpack_from(data)
    shape = host_shape(values[_SYS_FLAG])
    return HEAD_STRUCTS[shape].unpack_from(data) if shape else values


def store_timestamp(record: Buffer) -> int:
    """Returns the store timestamp of a complete record without reading the rest of it."""
    (sys_flag,) = _SYS_FLAG_READER.unpack_from(record, _SYS_FLAG_AT)
    return int(_TIME_READER.unpack_from(record, _STORE_TIME_AT[host_shape(sys_flag)])[0])


_unpack_frame = FRAME.unpack_from


def frame_size(data: Buffer, position: int, left: int) -> int:
    """Returns the number of bytes from a frame (record or BLANK) to the next one; 0 if no frame begins there.

    This is the rule by which a log is walked. A record states its total_size. After a BLANK nothing follows in its
    segment, of which `left` bytes are left from there on, whatever size it states. The data has at least the first 8
    bytes of the frame.
    """
    total_size, magic_code = _unpack_frame(data, position)
    if magic_code in RECORD_MAGICS:
        return total_size if MIN_RECORD_SIZE <= total_size <= left else 0
    return left if magic_code == MAGIC_BLANK and BLANK_SIZE <= total_size <= left else 0


def magic_code(data: Buffer, position: int = 0) -> int:
    """Returns the magic code of a frame of at least 8 bytes."""
    return int(FRAME.unpack_from(data, position)[1])


def is_blank(data: Buffer, position: int = 0) -> bool:
    """Whether a BLANK begins at a position that has at least 8 bytes."""
    return magic_code(data, position) == MAGIC_BLANK


def _frame(view: memoryview, position: int) -> tuple[int, int]:
    try:
        total_size, magic_code = FRAME.unpack_from(view, position)
    except struct.error as error:
        raise TruncatedError(
            f"expected {FRAME.size} bytes, found {max(0, len(view) - position)}", layout="record", position=position
        ) from error
    return total_size, magic_code


def _length_reader(magic_code: int) -> struct.Struct:
    member = next(m for m in RECORD.subcons if m.name == "topic_length").subcon
    chosen = member.subcon if isinstance(member, cs.Renamed) else member
    field = chosen.thensubcon if chosen.condfunc(cs.Container(magic_code=magic_code)) else chosen.elsesubcon
    return struct.Struct(field.fmtstr)


TOPIC_LENGTH_V1 = _length_reader(MAGIC_V1)
TOPIC_LENGTH_V2 = _length_reader(MAGIC_V2)
PROPERTIES_LENGTH = codec.struct_of(codec.leading_fields(cs.Struct(i16("properties_length", ""))))


def build_record(record: Record) -> bytes:
    """Returns the bytes of a record exactly as its fields state; raises FormatError if one does not fit."""
    length = TOPIC_LENGTH_V2 if record.magic_code == MAGIC_V2 else TOPIC_LENGTH_V1
    head = (getattr(record, name) for name in HEAD_NAMES)
    try:
        topic = length.pack(record.topic_length) + record.topic
        properties = PROPERTIES_LENGTH.pack(record.properties_length) + record.properties
        return join_record(host_shape(record.sys_flag), head, record.body, topic, properties)
    except struct.error as error:
        raise FormatError(f"cannot be written: {error}", layout="record") from error


def join_record(shape: int, head: Iterable[Any], body: bytes, topic: bytes, properties: bytes) -> bytes:
    """Returns the bytes of a record. Records are put together only here and in `native.engine`.

    `shape` is the `host_shape` of its system flag, `head` the values of its fields up to body_length, in order. Topic
    and properties have their length in front. Raises struct.error if a value does not fit its field.
    """
    return b"".join((HEAD_STRUCTS[shape].pack(*head), body, topic, properties))


def build_blank(total_size: int) -> bytes:
    """Returns the 8 bytes of a BLANK that covers the remaining `total_size` bytes of its segment."""
    return FRAME.pack(total_size, MAGIC_BLANK)


def body_crc(body: Buffer) -> int:
    """Returns the CRC of a body as records store it (UtilAll.crc32)."""
    return codec.crc32(body)


def transaction_type(sys_flag: int) -> int:
    """Returns 0 (none), 4 (prepared), 8 (commit) or 12 (rollback)."""
    return sys_flag & TRANSACTION_MASK


def is_queued(sys_flag: int) -> bool:
    """Whether a record takes a queue offset and gets a unit in its queue: prepared and rolled-back ones do not."""
    return not sys_flag & _PREPARED


def is_indexed(sys_flag: int) -> bool:
    """Whether the keys of a record are indexed: those of prepared records are, those of rolled-back ones are not."""
    return sys_flag & TRANSACTION_MASK != _ROLLBACK
