"""Layouts of the fixed parts of a frame.

Docs page: docs/protocol.md. Source: NettyDecoder, RemotingCommand and RocketMQSerializable (4.9.7, 5.5.0).
"""

from msgspec import Struct

from mqtool.formats.codec import Unit
from mqtool.formats.fields import i16, i32, u8


class Prefix(Struct, frozen=True):
    """The bytes before every header."""

    length: int
    header_word: int


PREFIX = Unit(
    "frame prefix",
    Prefix,
    i32("length", "bytes after this field: 4, header and body"),
    i32("header_word", "top byte: how the header is written, 0 JSON or 1 ROCKETMQ; the other three: its length"),
)


class HeaderStart(Struct, frozen=True):
    """The first bytes of a ROCKETMQ header."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark_length: int


HEADER_START = Unit(
    "ROCKETMQ header",
    HeaderStart,
    i16("code", "request or response code"),
    u8("language", "number of the sender's language"),
    i16("version", "ordinal of the sender's release in MQVersion"),
    i32("opaque", "pairs an answer with its request"),
    i32("flag", "bit 0: answer; bit 1: no answer wanted"),
    i32("remark_length", "bytes of the remark that follows, UTF-8; 0 for none"),
)


class KeyLength(Struct, frozen=True):
    """The bytes before the name of a field."""

    key_length: int


KEY_LENGTH = Unit("ROCKETMQ field name", KeyLength, i16("key_length", "bytes of the name that follows, UTF-8"))


class TextLength(Struct, frozen=True):
    """The bytes before the value of a field, and before the list of all fields."""

    text_length: int


TEXT_LENGTH = Unit("ROCKETMQ field value", TextLength, i32("text_length", "bytes that follow; of a value, UTF-8"))
