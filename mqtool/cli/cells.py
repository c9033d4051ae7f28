"""Values as text for tables, escaped so that no message can control a terminal; times in the zone of this run."""

import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mqtool.errors import UsageError
from mqtool.words import size

if TYPE_CHECKING:
    from mqtool.cli.schema import Column

DEFAULT_ZONE = "UTC"
LOCAL_ZONE = "local"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_LENGTH = len("1970-01-01T00:00:00")


TEXT_WIDTH = 1000
"""Characters of a cell in `--format table`; `wide` cuts nothing."""
WORDS = re.compile(r" *[^ ]+")
PARTS = re.compile(r" *(?:[^ /]+/?|/)")
_CLASSES = re.compile(r" \((?:(?:[A-Z]\w*\.)+\w+|[a-z]+[A-Z]\w+)(?:, [^()]*)?\)")
"""The broker's method, mostly with its class, at the end of a reason."""


def parse_zone(name: str) -> tzinfo | None:
    """Returns a zone by its name in the IANA time zone database, None for this machine's own; raises UsageError."""
    if name == LOCAL_ZONE:
        return None
    if name == DEFAULT_ZONE:
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise UsageError(
            f"--tz {name}: no such time zone; expected {DEFAULT_ZONE}, {LOCAL_ZONE} or a name like Europe/Berlin"
        ) from None


class _SelectedZone:
    """The zone of this run."""

    zone: tzinfo | None = UTC


def choose_zone(name: str) -> str:
    """Sets the zone of this run; returns its name, as callbacks of options do."""
    _SelectedZone.zone = parse_zone(name)
    return name


def selected_zone() -> tzinfo | None:
    """Returns the zone of this run; None for this machine's own zone."""
    return _SelectedZone.zone


def moment(milliseconds: int, *, exact: bool = True) -> str:
    """Returns RFC 3339 in the zone of this run, with milliseconds if exact; the number itself if it is out of range."""
    try:
        second, offset = _second(milliseconds // 1000, _SelectedZone.zone)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return f"{second}.{milliseconds % 1000:03d}{offset}" if exact else f"{second}{offset}"


@lru_cache(maxsize=1024)
def _second(seconds: int, zone: tzinfo | None) -> tuple[str, str]:
    """Returns a second without its offset from UTC, and the offset."""
    instant = _EPOCH + timedelta(seconds=seconds)
    text = (instant if zone is UTC else instant.astimezone(zone)).isoformat()
    offset = text[_SECOND_LENGTH:]
    return text[:_SECOND_LENGTH], "Z" if zone is UTC else offset


def screen_width() -> int | None:
    """Returns the columns that text on stdout has: COLUMNS, or those of the terminal; None if it is not a terminal."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def wrap(text: str, limit: int | None, hang: int = 0, pieces: re.Pattern[str] = WORDS) -> list[str]:
    """Returns text as lines of at most a width, broken at blanks; a longer word is not broken, so it can be copied.

    All lines but the first begin with `hang` blanks. Pieces that are not broken are `WORDS`, or `PARTS` of paths too.
    """
    if limit is None or width(text) <= limit:
        return [text]
    lines = [""]
    for piece in pieces.findall(text):
        if lines[-1].strip() and width(lines[-1]) + width(piece) > limit:
            lines.append(" " * hang + piece.lstrip(" "))
        else:
            lines[-1] += piece
    return lines


def without_classes(text: str) -> str:
    """Returns a reason without the broker's class and method: `--format wide` has them."""
    return _CLASSES.sub("", text)


def escape(text: str) -> str:
    r"""Returns text with every character that is not printable as \n, \t, \r, \xNN, \uNNNN or \UNNNNNNNN."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def width(text: str) -> int:
    """Returns how many terminal columns text takes: wide East Asian characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str) -> str:
    """Returns a cell of `--format table`: of very long text the beginning, and how much is missing."""
    first = clip(text, TEXT_WIDTH)
    more = f" {len(text) - len(first) + 1} more characters: --format wide shows all"
    return first if first == text else first + more


def clip(text: str, limit: int) -> str:
    """Returns text cut to a width, an ellipsis at its end if something is missing."""
    if len(text) * 2 <= limit or width(text) <= limit:
        return text
    while width(text) > limit - 1:
        text = text[: min(limit, len(text)) - 1] if len(text) > limit else text[:-1]
    return text + "…"


def pad(text: str, to: int, right: bool) -> str:
    """Returns text filled with spaces to a width."""
    if text.isascii():
        return text.rjust(to) if right else text.ljust(to)
    gap = " " * max(0, to - width(text))
    return gap + text if right else text + gap


def is_number(column: "Column") -> bool:
    """Whether a column's cells are right-aligned."""
    return column.type in {"integer", "int64", "number"} and not column.time


def cell(value: Any, column: "Column", *, exact: bool = True) -> str:
    """Returns a value as one line of printable text; unless exact, times have no milliseconds."""
    if value is None:
        return "-"
    if type(value) is int:
        return moment(value, exact=exact) if column.time else size(value) if column.is_size else str(value)
    return escape(value if type(value) is str else plain(value))


def plain(value: Any) -> str:
    """Returns a value as text, not escaped: objects as k=v, arrays comma-separated."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={plain(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(inner) for inner in value)
    return str(value)


def counted(number: int, word: str) -> str:
    """Returns "1 message", "2 messages"."""
    return f"{number} {word}{'' if number == 1 else 's'}"
