"""Ranges and times as users write them. Ranges are half-open: [start, end).

`-o` takes `start`, `end`, `N`, `+N`, `-N`, `@time`, or two of them as `A:B`, either of which may
be missing. `--time` takes `A..B`. A time is RFC 3339, milliseconds since the epoch, mqadmin's
`yyyy-MM-dd#HH:mm:ss:SSS`, or relative to now: `7d`, `today`, `yesterday`, `last week`. Without a zone it is in the zone
of the run, UTC unless `--tz` names another.
"""

import re
import time
from datetime import date, datetime, timedelta
from enum import Enum

from msgspec import Struct

from mqtool import words
from mqtool.cli import cells
from mqtool.errors import UsageError

_AGO = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Anchor(Enum):
    """What a point is relative to."""

    START = "the first offset"
    END = "the last offset, exclusive"
    ZERO = "offset 0"
    TIME = "the epoch"


class Point(Struct, frozen=True):
    """One end of a range."""

    anchor: Anchor  # what `value` is relative to
    value: int = 0  # offset, or milliseconds for TIME; negative before END

    def offset(self, first: int, end: int) -> int:
        """Returns the offset of an offset point, limited to [first, end]."""
        base = {Anchor.START: first, Anchor.END: end, Anchor.ZERO: 0}[self.anchor]
        return min(max(base + self.value, first), end)


class Range(Struct, frozen=True):
    """A half-open range; a missing end is open."""

    start: Point | None = None
    end: Point | None = None

    def offsets(self, first: int, end: int) -> tuple[int | None, int | None]:
        """Returns those ends that are offsets, inside [first, end]; None for the others."""

        def offset(point: Point | None) -> int | None:
            return None if point is None or point.anchor is Anchor.TIME else point.offset(first, end)

        return offset(self.start), offset(self.end)

    def times(self) -> tuple[int | None, int | None]:
        """Returns the milliseconds of those ends that are times; None for the others."""

        def time(point: Point | None) -> int | None:
            return point.value if point is not None and point.anchor is Anchor.TIME else None

        return time(self.start), time(self.end)


def parse_range(text: str) -> Range:
    """Parses the value of `-o`; raises UsageError if it has none of the forms, or more than one of them."""
    single = _point(text)
    if single is not None:
        return Range(single, None)
    ranges = []
    for cut in (i for i, char in enumerate(text) if char == ":"):
        left, right = text[:cut], text[cut + 1 :]
        start, end = _point(left), _point(right)
        if (start or not left) and (end or not right) and (left or right):
            ranges.append(Range(start, end))
    if len(ranges) != 1:
        raise UsageError(
            f"range {text!r}: expected start, end, N, +N, -N, @time or A:B of them, e.g. 0:4096 or "
            "@2026-11-21T00:00:00Z:@2026-11-22T00:00:00Z"
        )
    _check_order(text, ranges[0])
    return ranges[0]


def _point(text: str) -> Point | None:
    if text in ("start", "end"):
        return Point(Anchor.START if text == "start" else Anchor.END)
    if text.startswith("@"):
        value = _moment(text[1:])
        return None if value is None else Point(Anchor.TIME, value)
    number = words.parse_integer(text)
    if number is None:
        return None
    anchor = {"+": Anchor.START, "-": Anchor.END}.get(text[0], Anchor.ZERO)
    return Point(anchor, number)


def _check_order(text: str, parsed: Range) -> None:
    start, end = parsed.start, parsed.end
    if start and end and start.anchor is end.anchor and start.value > end.value:
        raise UsageError(f"range {text!r}: its start is after its end; give an earlier start")


def parse_times(text: str) -> tuple[int | None, int | None]:
    """Parses the value of `--time`: A..B, A.. or ..B, or a period such as 7d or yesterday; raises UsageError.

    Returns milliseconds of the first moment inside and of the first one after; None for an open end.
    """
    left, dots, right = text.partition("..")
    period = _period(text)
    if period is not None:
        return period
    if not dots or not (left or right):
        raise UsageError(
            f"time range {text!r}: expected A..B, A.. or ..B, e.g. 2026-11-21T00:00:00Z..2026-11-22, or 7d, today, "
            "yesterday, 'last week'"
        )
    begin = parse_time(left) if left else None
    end = parse_time(right) if right else None
    if begin is not None and end is not None and begin > end:
        raise UsageError(f"time range {text!r}: its start is after its end; give an earlier start")
    return begin, end


def parse_time(text: str) -> int:
    """Parses one moment, to milliseconds since the epoch, rounded up; raises UsageError."""
    timestamp = _moment(text)
    if timestamp is None:
        raise UsageError(
            f"time {text!r}: expected RFC 3339 (2026-11-21T00:33:14.018Z), milliseconds since the epoch, "
            "yyyy-MM-dd#HH:mm:ss:SSS, or 7d, today, yesterday, 'last week'"
        )
    return timestamp


def _moment(text: str) -> int | None:
    """Returns a moment in milliseconds since the epoch, the first one of a period; None for other texts."""
    period = _period(text)
    return words.parse_time(text, cells.selected_zone()) if period is None else period[0]


def _period(text: str) -> tuple[int, int | None] | None:
    """Returns a period that is relative to now, as `parse_times` does; None for other texts.

    `7d` are the last seven days until now, also with s, m, h and w. Days begin at midnight in the zone of the run,
    weeks on Monday.
    """
    now = time.time_ns() // 1_000_000
    ago = _AGO.fullmatch(text)
    if ago:
        return now - int(ago[1]) * _SECONDS[ago[2]] * 1_000, None
    today = datetime.fromtimestamp(now / 1_000, cells.selected_zone()).date()
    monday, day, week = today - timedelta(today.weekday()), timedelta(1), timedelta(7)
    days = {
        "today": (today, today + day),
        "yesterday": (today - day, today),
        "last week": (monday - week, monday),
    }.get(text)
    return None if days is None else (_midnight(days[0]), _midnight(days[1]))


def _midnight(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=cells.selected_zone()).timestamp()) * 1_000


def parse_rate(text: str | None) -> int | None:
    """Parses bytes per second, None for no limit; raises UsageError, also for 0, at which nothing is ever read."""
    rate = None if text is None else parse_size(text)
    if rate == 0:
        raise UsageError(f"expected a size above 0 a second, found {text!r}")
    return rate


def parse_size(text: str) -> int:
    """Parses a number of bytes: 4096, 64K, 10MiB, 1g; K, M, G and T are powers of 1024; raises UsageError."""
    size = words.parse_size(text)
    if size is None:
        raise UsageError(f"size {text!r}: expected bytes, or a number with K, M, G or T")
    return size
