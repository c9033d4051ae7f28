"""The text of a table of config/ as the broker's JSON parser reads it, which accepts more than JSON.

Bytes that are not UTF-8 become replacement characters, control characters are allowed in strings, and form feed and
backspace (with fastjson2, NUL too) count as white space. Other extensions of the parsers, such as a missing comma,
are not
followed: see `is_cut`.
"""

import json
import re
from typing import Any

from mqtool.formats.codec import Buffer
from mqtool.formats.release import Release

_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]++|\\.)*+")|(?<![\d.eE+-])(?P<key>-?\d++)(?=\s*+:)|(?P<blank>[\f\b])|(?P<nul>\0)',
    re.DOTALL | re.ASCII,
)
"""Strings first, so that the rest is found outside of them only."""
_NUMBER = "\0number:"


def read_table(data: Buffer, *, release: Release) -> Any:
    """Returns a table's document; keys without quotes are `int`.

    Raises:
        ValueError: the text is not supported here.
        RecursionError: it is nested too deeply.
    """

    def plain(match: re.Match[str]) -> str:
        if match["key"]:
            return f'"\\u0000number:{match["key"]}"'
        return " " if match["blank"] or (match["nul"] and release >= (5, 5)) else match[0]

    text = bytes(data).decode("utf-8", "replace")
    return json.loads(_TOKEN.sub(plain, text), object_pairs_hook=_object, strict=False)


def is_cut(data: Buffer) -> bool:
    """Whether an unreadable text plainly lacks its end, so that no parser accepts it."""
    text = bytes(data).decode("utf-8", "replace")
    outside = _TOKEN.sub(lambda match: "" if match["text"] else match[0], text)
    return '"' in outside or outside.count("{") != outside.count("}")


def _object(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    return {int(key[len(_NUMBER) :]) if key.startswith(_NUMBER) else key: value for key, value in pairs}
