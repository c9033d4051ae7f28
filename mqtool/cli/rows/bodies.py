"""Bodies as text, and redaction."""

import base64
import json
import math
import os
from typing import Any

from msgspec import Struct, field

from mqtool.cli.options import Body
from mqtool.values import repr_without

Encoded = tuple[Any, str]
"""A value for JSON and the name of its encoding."""


class BodyView(Struct, frozen=True):
    """How bodies are printed."""

    mode: Body = Body.TEXT  # encoding
    raw: bool = False  # as stored, not decompressed
    max_bytes: int | None = None  # maximum number of bytes of each, None for all

    def encode(self, body: bytes) -> Encoded:
        """Returns a body with its actual encoding: text that is not UTF-8 becomes base64."""
        if self.mode is Body.NONE:
            return None, "none"
        if self.mode is Body.JSON:
            parsed = _parsed(body) if self.max_bytes is None or len(body) <= self.max_bytes else _NOTHING
            if parsed is not _NOTHING:
                return parsed, "json"
        shown = body if self.max_bytes is None else body[: self.max_bytes]
        if self.mode is Body.HEX:
            return shown.hex(), "hex"
        if self.mode is Body.BASE64:
            return base64.b64encode(shown).decode(), "base64"
        return _text(body, shown)


def _text(body: bytes, shown: bytes) -> Encoded:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(shown).decode(), "base64"
    if len(shown) < len(body):
        text = shown.decode("utf-8", "ignore")  # a cut inside a character drops its beginning
    return text, "text"


_NOTHING = object()


def _parsed(body: bytes) -> Any:
    import orjson

    try:
        value = json.loads(body, parse_constant=_refuse, parse_float=_finite)
        orjson.dumps(value)  # integers of more than 64 bits, lone surrogates and deep nesting cannot be written again
    except (ValueError, TypeError, RecursionError):
        return _NOTHING
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(digits)
    return value


class Redaction(Struct, frozen=True):
    """Replaces user data by salted hashes: equal values stay equal within one output.

    Each run creates a new salt and never shows it, so nobody can guess values by trying them.
    """

    salt: bytes = field(default_factory=lambda: os.urandom(16))

    __repr__ = repr_without("salt")

    def text(self, value: str | bytes) -> str:
        """Returns the replacement of a value."""
        import hashlib

        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        return f"redacted:{hashlib.blake2b(data, digest_size=8, key=self.salt).hexdigest()}"

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns a message's row without body, property values, ids and hosts.

        Topics, queues, offsets, sizes, times, flags and the names of properties stay.
        """
        shown = dict(row)
        for name in ("born_host", "store_host", "offset_message_id"):
            shown[name] = self.text(shown[name])
        shown["properties"] = {name: self.text(value) for name, value in shown["properties"].items()}
        if shown["body"] is not None:
            value = shown["body"] if isinstance(shown["body"], str) else json.dumps(shown["body"])
            shown["body"], shown["body_encoding"] = self.text(value), "redacted"
        return shown
