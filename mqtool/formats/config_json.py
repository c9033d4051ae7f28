"""Reads and writes the JSON dialect of the broker's configuration files, and their Java beans as value classes.

fastjson writes numeric map keys without quotes, which is not JSON. Documents are plain Python values; such keys are
`int`, and order is preserved, so that writing restores the broker's bytes. Docs page: docs/formats/config-files.md.
Source: RemotingSerializable.toJson with fastjson 1.2 (4.9.7) and fastjson2 (5.5.0).

A bean's field `read_queue_nums` is the member `readQueueNums`; None means that the member is absent; members unknown
to the class are kept in its `extra`. The broker writes members in alphabetical order.
"""

import json
import math
import re
from enum import Enum
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.codec import Buffer
from mqtool.formats.release import Release

Document = dict[Any, Any]

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|(?<!\d)(-?\d++)(?=\s*+:)', re.DOTALL | re.ASCII)
"""A string, or a number that is a key; nothing is tried twice, so that any text takes linear time."""
_INT_KEY = "\0int:"
_NAME = "configuration"

_ONE_LINE_ARRAYS = frozenset({"bitPos"})
"""Fields that are primitive arrays in Java; they are written on one line, lists are not."""

_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_ESCAPES |= {code: f"\\u{code:04X}" for code in range(0x20) if code not in _ESCAPES}

T = TypeVar("T")
B = TypeVar("B", bound=Struct)

_DIGITS = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_EXTRA = "extra"

_members_of: dict[Any, tuple[tuple[str, str, Any], ...]] = {}


class JsonStyle(Enum):
    """Formatting style of a file."""

    COMPACT = "compact"
    """Everything on one line: timermetrics, transactionMetrics."""
    PRETTY_1 = "fastjson 1"
    """4.9: tabs; entries of a map with number keys on one line."""
    PRETTY_2 = "fastjson 2"
    """5.5: tabs; every entry on a line of its own."""


def parse(data: Buffer) -> Document:
    """Returns the outermost object of a configuration file; unquoted keys are `int`.

    Raises FormatError if it is not UTF-8, not an object, or malformed; its `position` is in the text.
    """
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("expected UTF-8", layout=_NAME, position=error.start) from error
    if not text.strip():
        raise FormatError("expected an object, found nothing", layout=_NAME)
    try:
        document = json.loads(_TOKEN.sub(_quote, text), object_pairs_hook=_object, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise FormatError(f"{error.msg} in line {error.lineno}", layout=_NAME, position=error.pos) from error
    except RecursionError as error:
        raise FormatError("nested too deeply", layout=_NAME) from error
    except ValueError as error:
        raise FormatError(str(error).splitlines()[0], layout=_NAME) from error
    if not isinstance(document, dict):
        raise FormatError(f"expected an object, found {type(document).__name__}", layout=_NAME)
    return document


def build(document: Document, style: JsonStyle) -> bytes:
    """Returns the file that the broker would write for a document."""
    pieces: list[str] = []
    _write(pieces, document, style, 0)
    return java.encode_utf8("".join(pieces))


def json_style(release: Release) -> JsonStyle:
    """Returns the style in which a release writes its configuration files."""
    return JsonStyle.PRETTY_2 if release >= (5, 0) else JsonStyle.PRETTY_1


def style_of(data: Buffer) -> JsonStyle:
    """Returns the style of a file that a broker wrote; the newer one if it fits both pretty styles."""
    text = bytes(data).decode("utf-8", "replace")
    if "\n" not in text:
        return JsonStyle.COMPACT
    on_one_line = any(match[1] and text[match.start() - 1] == "{" for match in _TOKEN.finditer(text))
    return JsonStyle.PRETTY_1 if on_one_line else JsonStyle.PRETTY_2


def _quote(match: re.Match[str]) -> str:
    digits = match[1]
    return match[0] if digits is None else f'"\\u0000int:{digits}"'


def _object(pairs: list[tuple[str, Any]]) -> Document:
    return {int(key[len(_INT_KEY) :]) if key.startswith(_INT_KEY) else key: value for key, value in pairs}


def _refuse(constant: str) -> Any:
    raise ValueError(f"unexpected {constant}")


def _write(pieces: list[str], value: Any, style: JsonStyle, depth: int, field: object = None) -> None:
    if isinstance(value, dict):
        _write_object(pieces, value, style, depth)
    elif isinstance(value, list):
        _write_array(pieces, value, style, depth, one_line=field in _ONE_LINE_ARRAYS)
    elif isinstance(value, str):
        pieces.append(f'"{value.translate(_ESCAPES)}"')
    else:
        pieces.append(json.dumps(value))


def _write_object(pieces: list[str], value: Document, style: JsonStyle, depth: int) -> None:
    pieces.append("{")
    for number, (key, item) in enumerate(value.items()):
        if number:
            pieces.append(",")
        if style is JsonStyle.PRETTY_2 or (style is JsonStyle.PRETTY_1 and not isinstance(key, int)):
            _new_line(pieces, depth + 1)
        pieces.append(f"{key}:" if isinstance(key, int) else f'"{key.translate(_ESCAPES)}":')
        _write(pieces, item, style, depth + 1, key)
    if value and style is not JsonStyle.COMPACT:
        _new_line(pieces, depth)
    pieces.append("}")


def _write_array(pieces: list[str], value: list[Any], style: JsonStyle, depth: int, *, one_line: bool) -> None:
    broken = bool(value) and not one_line and style is not JsonStyle.COMPACT
    pieces.append("[")
    for number, item in enumerate(value):
        if number:
            pieces.append(",")
        if broken:
            _new_line(pieces, depth + 1)
        _write(pieces, item, style, depth + 1)
    if broken:
        _new_line(pieces, depth)
    pieces.append("]")


def _new_line(pieces: list[str], depth: int) -> None:
    pieces.append("\n" + "\t" * depth)


def bean_of(kind: type[B], value: Any, path: str) -> B:
    """Returns a document as a value of a class, with its defaults; raises FormatError if a member has a wrong type."""
    rest = dict(expect(dict, value, path))
    known = {}
    for name, member, accepted in _members(kind):
        stored = rest.pop(member, None)
        if stored is not None:
            known[name] = expect(accepted, stored, f"{path}.{member}")
    if _EXTRA in kind.__struct_fields__:
        known[_EXTRA] = rest
    return kind(**known)


def document_of(bean: Any) -> Document:
    """Returns the members of a bean, including extra ones, in the broker's order."""
    members = dict(getattr(bean, _EXTRA, {}))
    for name, member, _ in _members(type(bean)):
        value = getattr(bean, name)
        if value is not None:
            members[member] = value
    return {member: members[member] for member in sorted(members)}


def table_of(document: Document, member: str, kind: type[B]) -> dict[str, B]:
    """Removes a table of beans from a document and returns it; an absent one is empty."""
    stored = document.pop(member, None)
    table = expect(dict, {} if stored is None else stored, member)
    return {str(name): bean_of(kind, value, f"{member}.{name}") for name, value in table.items()}


def expect(kind: type[T], value: Any, path: str) -> T:
    """Returns a value of the expected type; raises FormatError if it is of another type.

    Numbers and Booleans are converted as fastjson converts them for the broker (1.2.69 in 4.9.7, 2.0.59 in 5.5.0), but
    not where the two differ, such as an empty text. `recovery.configuration` has what each of them refuses.
    """
    if kind is int:
        value = _number_of(value)
    elif kind is bool:
        value = _flag_of(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"expected {kind.__name__}, found {str(value)[:40]!r}", layout=_NAME, field=path)
    return value


def _number_of(value: Any) -> Any:
    """Returns a value as the integer that the broker reads, or unchanged if the broker reads no integer."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], bool):  # by 5.5.0 only
        value = value[0]
    elif isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return int(value) if isinstance(value, float) and math.isfinite(value) else value


def _flag_of(value: Any) -> Any:
    """Returns a value as the Boolean that the broker reads, or unchanged if the broker reads no Boolean."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return bool(value) if type(value) is int and value in (0, 1) else value


def _members(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """Returns (field name, member name, type) of a value class's fields without `extra`."""
    if kind not in _members_of:
        hints = get_type_hints(kind)
        names = [name for name in kind.__struct_fields__ if name != _EXTRA]
        _members_of[kind] = tuple((name, _camel(name), _plain(hints[name])) for name in names)
    return _members_of[kind]


def _plain(hint: Any) -> Any:
    """Returns the class to check for: `int` of `int | None`, `dict` of `dict[Any, Any]`."""
    options = [option for option in get_args(hint) if option is not NoneType] if NoneType in get_args(hint) else [hint]
    return getattr(options[0], "__origin__", options[0])


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
