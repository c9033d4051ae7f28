"""Headers in JSON, which every client supports.

Reading is lenient: some clients send numbers and booleans instead of text, and everything that fastjson accepts from a
real client is accepted. Writing is strict: every value of extFields is text, because the C++ client reads a number
there as 0 and the Go client rejects the frame. Docs page: docs/protocol.md. Source: RemotingCommand (4.9.7, 5.5.0).
"""

import json
from operator import itemgetter
from typing import Any

import orjson

from mqtool.errors import FormatError, LocalProtocolError, RemoteProtocolError
from mqtool.formats import java
from mqtool.protocol.command import LANGUAGES, Command, Serialization

_LIMIT = 1 << 31
_JSON = Serialization.JSON

_members = itemgetter("code", "flag", "opaque", "language", "version")


def read_json(header: bytes, body: bytes = b"") -> Command:
    """Parses a JSON header and returns the command with the given body.

    Raises:
        RemoteProtocolError: the header is not a JSON object, or a number in it exceeds 32 bits.
    """
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

    Raises:
        LocalProtocolError: a value of the fields is not text, or a text is not valid Unicode.
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
