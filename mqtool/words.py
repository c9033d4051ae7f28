"""Formats values for readers: sizes, times, counts, names without invisible characters."""

import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
LONGEST = 2000
"""Maximum number of characters shown; names in damaged files can have any length."""


def size(count: int) -> str:
    """Returns a number of bytes for readers: `138.0 KiB`."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} {'byte' if count == 1 else 'bytes'}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def number(value: int | None) -> str:
    """Returns a number with thousands separated by spaces; `–` for None."""
    return "–" if value is None else f"{value:,}".replace(",", " ")


def counted(count: int, word: str) -> str:
    """Returns `1 message`, `2 000 messages`."""
    return f"{number(count)} {word}{'' if count == 1 else 's'}"


def moment(milliseconds: int) -> str:
    """Returns a time in UTC to the second; the number itself if it is outside the range of the calendar."""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)


def visible(text: object) -> str:
    """Returns text in which characters that are invisible or change the text direction are replaced by their codes."""
    found = "".join(c if _has_shape(c) else f"\\u{ord(c):04x}" for c in str(text)[:LONGEST])
    return found + "…" if len(str(text)) > LONGEST else found


def _has_shape(character: str) -> bool:
    return character == " " or unicodedata.category(character)[0] not in "CZ"


def runs(offsets: Iterable[tuple[int, int]], most: int = 8) -> str:
    """Returns ranges with inclusive ends as text: `3, 7–9, and 2 more`."""
    every = list(offsets)
    texts = [str(first) if first == last else f"{first}–{last}" for first, last in every[:most]]
    if len(every) > most:
        texts.append(f"and {len(every) - most} more")
    return ", ".join(texts)
