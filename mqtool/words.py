"""Formats values for readers: sizes, times, counts, names without invisible characters; parses sizes and times."""

import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
LONGEST = 2000
"""Maximum number of characters shown; names in damaged files can have any length."""

_MQADMIN = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})", re.ASCII)
_CALENDAR = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_SIZE = re.compile(r"(\d{1,19})\s*([kmgt]?)(i?b)?", re.ASCII | re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (1 << 63) - 1


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


def parse_integer(text: str) -> int | None:
    """Parses a whole number of at most 19 digits, as an int64 has. Returns None for other texts and greater numbers."""
    return int(text) if _NUMBER.fullmatch(text) and abs(int(text)) <= _LAST else None


def parse_size(text: str) -> int | None:
    """Parses a number of bytes such as 4096, 64K, 10MiB or 1g (powers of 1024). Returns None for other texts."""
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(match[1]) << (10 * " kmgt".index(match[2].lower() or " "))


def parse_time(text: str, zone: tzinfo | None) -> int | None:
    """Parses ms since the epoch, or a moment as `parse_moment` does. Returns None for other texts.

    A moment is rounded up to the first whole millisecond at which a message can have been stored.
    """
    if _NUMBER.fullmatch(text):
        return parse_integer(text)
    instant = parse_moment(text, zone)
    return None if instant is None else -((_EPOCH - instant) // timedelta(milliseconds=1))


def parse_moment(text: str, zone: tzinfo | None) -> datetime | None:
    """Parses RFC 3339 or mqadmin's `yyyy-MM-dd#HH:mm:ss:SSS`. Returns a time in UTC; None for other texts.

    `zone` is that of a time that does not state one; None for this machine's zone.
    """
    mqadmin = _MQADMIN.fullmatch(text)
    if mqadmin:
        text = "{}T{}.{}".format(*mqadmin.groups())
    elif not _CALENDAR.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text.replace(",", ".").upper())
        return (instant.replace(tzinfo=zone) if instant.tzinfo is None else instant).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def visible(text: object) -> str:
    """Returns text in which characters that are invisible or change the text direction are replaced by their codes."""
    shown = "".join(c if _has_shape(c) else f"\\u{ord(c):04x}" for c in str(text)[:LONGEST])
    return shown + "…" if len(str(text)) > LONGEST else shown


def _has_shape(character: str) -> bool:
    return character == " " or unicodedata.category(character)[0] not in "CZ"


def runs(offsets: Iterable[tuple[int, int]], limit: int = 8) -> str:
    """Returns ranges with inclusive ends as text: `3, 7–9, and 2 more`."""
    every = list(offsets)
    texts = [str(first) if first == last else f"{first}–{last}" for first, last in every[:limit]]
    if len(every) > limit:
        texts.append(f"and {len(every) - limit} more")
    return ", ".join(texts)
