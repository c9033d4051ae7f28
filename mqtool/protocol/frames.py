"""Splits a byte stream into commands, and encodes commands as bytes; no sockets.

The protocol has no answer to an invalid frame: the connection is closed (NettyDecoder, 4.9.7 and 5.5.0). Limits are
checked before bytes are buffered. A stated length never causes an allocation; it only determines when a frame is
complete. The header of a `PreparedAnswer` is encoded once.

A header is in JSON, which every client supports, or in ROCKETMQ serialization. Reading JSON is lenient: some clients
send numbers and booleans instead of text, and everything that fastjson accepts from a real client is accepted. Writing
is strict: every value of extFields is text, because the C++ client reads a number there as 0 and the Go client rejects
the frame. Codes have 16 bits in ROCKETMQ serialization, so the requests of the POP family, whose codes are larger,
cannot be encoded; an empty remark or value is the same as an absent one. Docs page: docs/protocol.md. Source:
NettyDecoder, RemotingCommand, RocketMQSerializable (4.9.7, 5.5.0).
"""

import json
import struct
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import orjson
from msgspec import Struct

from mqtool.errors import FormatError, LocalProtocolError, RemoteProtocolError
from mqtool.formats import java
from mqtool.formats.codec import Unit, i16, i32, u8
from mqtool.protocol.command import FLAG_RESPONSE, LANGUAGES, VERSION, Command, Serialization

_LIMIT = 1 << 31
_JSON = Serialization.JSON

_members = itemgetter("code", "flag", "opaque", "language", "version")

_ROCKETMQ = Serialization.ROCKETMQ

MAX_FRAME = 16 << 20
"""Maximum size of a frame in bytes, including its length field (com.rocketmq.remoting.frameMaxLength)."""
_MAX_HEADER = (1 << 24) - 1
_JOINED_BODY = 16 << 10
"""Bodies of at most this many bytes are copied after their header; longer ones are sent without a copy."""

_HTTP = "an HTTP request: this port speaks RocketMQ's remoting protocol; pages and metrics are on --admin-port"
_FOREIGN = {
    b"PRI ": (
        "an HTTP/2 connection, as gRPC clients of RocketMQ 5 make it: this port speaks the remoting protocol only; "
        "give them the broker's port of mqtool serve, or one of a RocketMQ proxy (mqproxy) with this name server"
    ),
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI"), _HTTP),
}
"""Error texts by the first four bytes of other protocols.

Read as a length these are over 1000 MB, so no frame has them.
"""

_OPAQUE = 0x7FFF_FFFE
"""Placeholder for the request's opaque."""


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


def read_json(header: bytes, body: bytes = b"") -> Command:
    """Parses a JSON header; raises RemoteProtocolError if it is not an object, or a number exceeds 32 bits."""
    try:
        document = orjson.loads(header)
        code, flag, opaque, language, version = _members(document)
        remark, fields = document.get("remark"), document.get("extFields")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return _read_any(header, body)
    # One comparison checks four numbers: their bitwise OR is within the limits exactly if each number is.
    if not (
        type(code) is type(flag) is type(opaque) is type(version) is int
        and type(language) is str
        and 0 <= code | flag | opaque | version < _LIMIT
        and (remark is None or type(remark) is str)
    ):
        return _read_any(header, body)
    if fields:
        if type(fields) is not dict:
            return _read_any(header, body)
        try:
            "".join(fields.values())  # the fastest check that all values are texts
        except TypeError:
            fields = _texts(fields)
    else:
        fields = {}
    return Command(code, flag, opaque, remark, fields, body, language, version, _JSON)


def write_json(command: Command) -> bytes:
    """Returns the JSON header of a command, its members in the order in which RocketMQ writes them.

    Raises LocalProtocolError if a value of the fields is not text, or a text is not valid Unicode.
    """
    document: dict[str, Any] = {"code": command.code}
    if command.fields:
        for value in command.fields.values():
            if type(value) is not str:
                raise LocalProtocolError(f"fields of code {command.code}: expected texts, found {value!r}")
        document["extFields"] = command.fields
    document["flag"] = command.flag
    document["language"] = command.language
    document["opaque"] = command.opaque
    if command.remark is not None:
        document["remark"] = command.remark
    document["serializeTypeCurrentRPC"] = "JSON"
    document["version"] = command.version
    try:
        return orjson.dumps(document)
    except TypeError:
        return _write_replaced(document)


def _write_replaced(document: dict[str, Any]) -> bytes:
    """Returns the header with question marks for lone surrogates, as Java's encoder writes them."""
    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(f"header of code {document['code']!r} cannot be written: {error}") from error
    return java.encode_utf8(text)


def _read_any(header: bytes, body: bytes) -> Command:
    """Parses unusual headers: members missing or null, numbers as text, invalid UTF-8, escaped lone surrogates."""
    try:
        document = json.loads(java.decode_utf8(header), strict=False)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"header is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise RemoteProtocolError(f"header is not a JSON object but a {type(document).__name__}")
    fields = document.get("extFields")
    if fields is not None and not isinstance(fields, dict):
        raise RemoteProtocolError(f"extFields is not an object but a {type(fields).__name__}")
    remark = document.get("remark")
    return Command(
        _integer(document, "code"),
        _integer(document, "flag"),
        _integer(document, "opaque"),
        None if remark is None else _text(remark),
        {_text(key): value for key, value in _texts(fields or {}).items()},
        body,
        _language(document.get("language")),
        _integer(document, "version"),
        _JSON,
    )


def _integer(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    if value is None:
        return 0
    try:
        return java.json_int(value)
    except FormatError as error:
        raise RemoteProtocolError(f"{name} in the header: {error}") from error


def _language(value: Any) -> str:
    """Returns the name of a language; clients may send its number instead. An unknown name is accepted."""
    if isinstance(value, int) and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    return _text(value) if isinstance(value, str) else "OTHER"


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    """Converts the values of fields to text; null is the same as absent."""
    return {key: _text(value) for key, value in fields.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value if value.isascii() else java.encode_utf8(value).decode()
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise RemoteProtocolError(f"a value in the header: {error}") from error


_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}

_OTHER = _NUMBERS["OTHER"]


_unpack_start = HEADER_START.struct.unpack_from

_unpack_key = KEY_LENGTH.struct.unpack_from

_unpack_text = TEXT_LENGTH.struct.unpack_from


def read_binary(header: bytes, body: bytes = b"") -> Command:
    """Parses a ROCKETMQ header and ignores bytes after it; raises RemoteProtocolError if a length exceeds it."""
    try:
        code, language, version, opaque, flag, length = _unpack_start(header)
        position = HEADER_START.size
        remark = java.decode_utf8(_piece(header, position, length)) if length else None
        position += length
        (fields_length,) = _unpack_text(header, position)
        position += TEXT_LENGTH.size
        _piece(header, position, fields_length)
        fields = _read_fields(header, position, position + fields_length) if fields_length else {}
    except struct.error as error:
        raise RemoteProtocolError(f"header of {len(header)} bytes ends too early: {error}") from error
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, flag, opaque, remark, fields, body, name, version, _ROCKETMQ)


def _read_fields(header: bytes, position: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    while position < end:
        (key_length,) = _unpack_key(header, position)
        key_start = position + KEY_LENGTH.size
        (length,) = _unpack_text(header, key_start + key_length) if key_length >= 0 else (-1,)
        start = key_start + key_length + TEXT_LENGTH.size
        position = start + length
        if length < 0 or position > end:
            raise RemoteProtocolError(f"a field of {key_length} and {length} bytes leads out of the header")
        if length:
            try:
                fields[header[key_start : key_start + key_length].decode()] = header[start:position].decode()
            except UnicodeDecodeError:
                key = java.decode_utf8(header[key_start : key_start + key_length])
                fields[key] = java.decode_utf8(header[start:position])
    return fields


def _piece(header: bytes, position: int, length: int) -> bytes:
    if length < 0 or position + length > len(header):
        raise RemoteProtocolError(f"{length} bytes at byte {position} of a header of {len(header)} bytes")
    return header[position : position + length]


def write_binary(command: Command) -> bytes:
    """Returns the ROCKETMQ header of a command.

    Raises LocalProtocolError if a number does not fit into its field. Codes above 32767 can only be sent in JSON.
    """
    remark = _encode(command.remark) if command.remark else b""
    pieces = [b"", remark, b""]
    size = 0
    try:
        for key, value in command.fields.items():
            name, text = _encode(key), _encode(value)
            pieces += (KEY_LENGTH.struct.pack(len(name)), name, TEXT_LENGTH.struct.pack(len(text)), text)
            size += KEY_LENGTH.size + len(name) + TEXT_LENGTH.size + len(text)
        pieces[0] = HEADER_START.struct.pack(
            command.code,
            _NUMBERS.get(command.language, _OTHER),
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
        pieces[2] = TEXT_LENGTH.struct.pack(size)
    except (struct.error, TypeError, AttributeError) as error:
        raise LocalProtocolError(f"code {command.code} as a ROCKETMQ header: {error}") from error
    return b"".join(pieces)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return java.encode_utf8(text)


_LENGTH_SIZE = PREFIX.offset("header_word")

HEADER_WORD_SIZE = PREFIX.size - _LENGTH_SIZE


_unpack_prefix = PREFIX.struct.unpack_from

pack_prefix = PREFIX.struct.pack


class ForeignProtocolError(RemoteProtocolError):
    """The peer uses another protocol; the text names it and says what to do."""


class Framer:
    """Splits one direction of a connection into commands.

    `error` is why the rest of the stream cannot be read; None if it can. All commands before it have been returned. The
    caller closes the connection.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.error: RemoteProtocolError | None = None
        self._max_length = max_frame - _LENGTH_SIZE
        self._kept = bytearray()
        self._needed = 0

    @property
    def buffered(self) -> int:
        """Number of buffered bytes of an incomplete frame."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Command]:
        """Adds received bytes; returns the commands that are now complete, in order.

        The result does not depend on how the stream is split into reads. After an `error`, no more commands are
        returned.
        """
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return []
            data = bytes(self._kept)
            self._kept = bytearray()
        commands: list[Command] = []
        if self.error is None:
            try:
                self._cut(data, commands)
            except RemoteProtocolError as error:
                self.error = error
        return commands

    def _cut(self, data: bytes, commands: list[Command]) -> None:
        position, end = 0, len(data)
        while end - position >= PREFIX.size:
            length, word = _unpack_prefix(data, position)
            if not HEADER_WORD_SIZE <= length <= self._max_length:
                advice = _FOREIGN.get(data[position : position + _LENGTH_SIZE])
                if advice is not None:
                    raise ForeignProtocolError(advice)
                raise RemoteProtocolError(f"frame of {length} bytes: expected {HEADER_WORD_SIZE} to {self._max_length}")
            body = position + PREFIX.size + (word & _MAX_HEADER)
            following = position + _LENGTH_SIZE + length
            if body > following:
                raise RemoteProtocolError(f"header of {word & _MAX_HEADER} bytes in a frame of {length}")
            if following > end:
                break
            kind = word >> 24
            if kind == Serialization.JSON:
                commands.append(read_json(data[position + PREFIX.size : body], data[body:following]))
            elif kind == Serialization.ROCKETMQ:
                commands.append(read_binary(data[position + PREFIX.size : body], data[body:following]))
            else:
                raise RemoteProtocolError(f"header written in way {kind & 0xFF}: expected 0 (JSON) or 1 (ROCKETMQ)")
            position = following
        if position < end:
            self._kept += data[position:]
            self._needed = following - position if end - position >= PREFIX.size else PREFIX.size


def encode(command: Command) -> list[bytes | memoryview]:
    """Returns the frame of a command as one buffer, or as two if the body is long.

    Raises LocalProtocolError if the command cannot be encoded: a field is not text, or a number exceeds its size.
    """
    header = write_json(command) if command.serialization == Serialization.JSON else write_binary(command)
    body = command.body
    size = len(body) if isinstance(body, bytes) else body.nbytes
    if len(header) > _MAX_HEADER:
        raise LocalProtocolError(f"header of {len(header)} bytes: the frame has room for {_MAX_HEADER}")
    prefix = pack_prefix(HEADER_WORD_SIZE + len(header) + size, command.serialization << 24 | len(header))
    if size <= _JOINED_BODY:
        return [b"".join((prefix, header, body))]
    return [prefix + header, body]


class PreparedAnswer:
    """A JSON answer without body and remark, whose header is encoded once.

    The value of a field that changes is a placeholder of `bytes.__mod__` (`%d`, `%b`); a percent sign is `%%`.
    """

    __slots__ = ("_template",)

    def __init__(self, code: int, fields: Mapping[str, str], version: int = VERSION) -> None:
        header = write_json(Command(code, FLAG_RESPONSE, _OPAQUE, None, dict(fields), version=version))
        before, opaque, after = header.rpartition(b"%d" % _OPAQUE)
        self._template = before + b"%d" + after if opaque else header

    def frame(self, *values: "int | bytes") -> bytes:
        """Returns the frame in one buffer; it equals `encode` of the same command.

        The values of the placeholders, in the order of the fields, are followed by the request's opaque. Texts must not
        need JSON escapes: digits and letters only.
        """
        header = self._template % values
        size = len(header)
        return pack_prefix(HEADER_WORD_SIZE + size, size) + header
