"""Headers in ROCKETMQ serialization, the binary form that a client may choose instead of JSON.

Codes have 16 bits in it, so the requests of the POP family, whose codes are larger, cannot be encoded. An empty remark
or value is the same as an absent one. Docs page: docs/protocol.md. Source: RocketMQSerializable (4.9.7, 5.5.0).
"""

import struct

from mqtool.errors import LocalProtocolError, RemoteProtocolError
from mqtool.formats import java
from mqtool.protocol.command import LANGUAGES, Command, Serialization
from mqtool.protocol.layouts import HEADER_START, KEY_LENGTH, TEXT_LENGTH

_ROCKETMQ = Serialization.ROCKETMQ
_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}
_OTHER = _NUMBERS["OTHER"]

_unpack_start = HEADER_START.struct.unpack_from
_unpack_key = KEY_LENGTH.struct.unpack_from
_unpack_text = TEXT_LENGTH.struct.unpack_from


def read_binary(header: bytes, body: bytes = b"") -> Command:
    """Parses a ROCKETMQ header and returns the command with the given body. Bytes after the fields are ignored.

    Raises:
        RemoteProtocolError: a length exceeds the header.
    """
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

    Raises:
        LocalProtocolError: a number does not fit into its field. Codes above 32767 can only be sent in JSON.
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
