"""The range and time syntax."""

from datetime import UTC, datetime, timedelta, timezone
from time import tzset

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.cli.cells import DEFAULT_ZONE, choose_zone, moment, parse_zone
from mqtool.cli.ranges import Anchor, Point, Range, parse_range, parse_size, parse_time, parse_times
from mqtool.errors import UsageError
from tests.support.stores import fixture


@pytest.fixture
def chosen_zone():
    yield choose_zone
    choose_zone(DEFAULT_ZONE)


START, END = Point(Anchor.START), Point(Anchor.END)


def at(value: int) -> Point:
    return Point(Anchor.ZERO, value)


def time(value: int) -> Point:
    return Point(Anchor.TIME, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Range(START, None)),
        ("end", Range(END, None)),
        ("0", Range(at(0), None)),
        ("4096", Range(at(4096), None)),
        ("+100", Range(Point(Anchor.START, 100), None)),
        ("-100", Range(Point(Anchor.END, -100), None)),
        ("0:4096", Range(at(0), at(4096))),
        (":4096", Range(None, at(4096))),
        ("4096:", Range(at(4096), None)),
        ("start:end", Range(START, END)),
        ("-200:-100", Range(Point(Anchor.END, -200), Point(Anchor.END, -100))),
        ("+5:+9", Range(Point(Anchor.START, 5), Point(Anchor.START, 9))),
        ("@1700000000000", Range(time(1700000000000), None)),
        ("@1700000000000:@1700000000001", Range(time(1700000000000), time(1700000000001))),
        (":@1700000000001", Range(None, time(1700000000001))),
        ("@1700000000000:4096", Range(time(1700000000000), at(4096))),
        ("@2023-11-14T22:13:20Z", Range(time(1700000000000), None)),
        ("@2023-11-14T22:13:20Z:@2023-11-14T22:13:21.5+00:00", Range(time(1700000000000), time(1700000001500))),
        ("@2023-11-14T22:13:20Z:end", Range(time(1700000000000), END)),
    ],
)
def test_every_form_of_a_range_is_understood(text, expected):
    assert parse_range(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "::",
        "x",
        "1:2:3",
        "1-2",
        "+",
        "-",
        "+-5",
        "--5",
        "0x10",
        "1e3",
        "@",
        "@:",
        "@tomorrow",
        "@2023-13-01",
        "start:middle",
        "99999999999999999999",
        "9223372036854775808",
        " 5",
        "١",
        "9:1",
        "end-5",
    ],
)
def test_anything_else_is_a_usage_error_that_shows_the_text(text):
    with pytest.raises(UsageError, match="range"):
        parse_range(text)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("start", (1000, None)),
        ("end", (5000, None)),
        ("2000", (2000, None)),
        ("0", (1000, None)),
        ("9000", (5000, None)),
        ("+100", (1100, None)),
        ("-100", (4900, None)),
        ("-100000", (1000, None)),
        ("+100000:", (5000, None)),
        ("2000:3000", (2000, 3000)),
        ("@5:@6", (None, None)),
        (":-1", (None, 4999)),
    ],
)
def test_offsets_are_counted_from_what_is_there_and_stay_inside(text, offsets):
    assert parse_range(text).offsets(1000, 5000) == offsets


def test_times_of_a_range_are_its_time_ends_only():
    assert parse_range("@5:4096").times() == (5, None)
    assert parse_range("@5:@6").times() == (5, 6)
    assert parse_range("5:6").times() == (None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-1", -1),
        ("1700000000000", 1700000000000),
        ("2023-11-14T22:13:20Z", 1700000000000),
        ("2023-11-14t22:13:20z", 1700000000000),
        ("2023-11-14 22:13:20Z", 1700000000000),
        ("2023-11-14T23:13:20+01:00", 1700000000000),
        ("2023-11-14T22:13:20.123Z", 1700000000123),
        ("2023-11-14T22:13:20,123Z", 1700000000123),
        ("2023-11-14T22:13:20.1230001Z", 1700000000123),
        ("2023-11-14T22:13:20.123001Z", 1700000000124),
        ("2023-11-14T22:13Z", 1699999980000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_a_moment_with_a_zone_is_exact_to_the_millisecond_rounded_up(text, expected):
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("2023-11-14#22:13:20:123", (2023, 11, 14, 22, 13, 20, 123000)),
        ("2023-11-14T22:13:20.123", (2023, 11, 14, 22, 13, 20, 123000)),
        ("2023-11-14", (2023, 11, 14)),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "local", "America/New_York"])
def test_a_moment_without_a_zone_is_in_the_zone_of_the_run(text, parts, zone, chosen_zone):
    chosen_zone(zone)
    expected = datetime(*parts, tzinfo=parse_zone(zone)).astimezone()
    assert parse_time(text) == round(expected.timestamp() * 1000)


def test_a_moment_without_a_zone_is_utc_unless_one_is_chosen(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    tzset()
    try:
        assert parse_time("2023-11-14T22:13:20") == 1700000000000
        assert moment(1700000000000) == "2023-11-14T22:13:20.000Z"
    finally:
        monkeypatch.undo()
        tzset()


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2023-11-14T22:13:20.007Z"),
        ("Europe/Berlin", "2023-11-14T23:13:20.007+01:00"),
        ("America/New_York", "2023-11-14T17:13:20.007-05:00"),
        ("Asia/Kolkata", "2023-11-15T03:43:20.007+05:30"),
    ],
)
def test_a_moment_is_printed_in_the_zone_of_the_run_with_its_offset_and_read_back(zone, text, chosen_zone):
    chosen_zone(zone)
    assert moment(1700000000007) == text
    assert parse_time(text) == 1700000000007


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "local"])
def test_a_moment_that_no_calendar_reaches_is_printed_as_a_number(zone, chosen_zone):
    chosen_zone(zone)
    assert moment((1 << 63) - 1) == str((1 << 63) - 1)


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../etc/passwd", "+01:00"])
def test_a_zone_that_does_not_exist_is_a_usage_error_that_says_what_is_expected(zone):
    with pytest.raises(UsageError, match="expected UTC, local or a name like"):
        parse_zone(zone)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2023-02-30",
        "2023-11-14T25:00:00Z",
        "2023-11-14T22:13:60Z",
        "2023-1-1",
        "14.11.2023",
        "2023-11-14#22:13:20",
        "2023-11-14T22:13:20 Z",
        "2023-11-14T22",
        "99999999999999999999",
        "0001-01-01T00:00+23:59",
    ],
)
def test_no_moment_is_a_usage_error(text):
    with pytest.raises(UsageError, match="time"):
        parse_time(text)


@given(st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1)), st.integers(-14 * 60, 14 * 60))  # noqa: DTZ001
def test_every_rfc_3339_text_means_its_millisecond(moment, minutes):
    aware = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_time(aware.isoformat(timespec="milliseconds")) == expected


@given(st.text(alphabet="0123456789:@+-startendTZ#. ", max_size=30))
def test_no_text_does_more_than_parse_or_be_refused(text):
    try:
        found = parse_range(text)
    except UsageError:
        return
    assert isinstance(found, Range)


@pytest.mark.parametrize(
    ("text", "expected"), [("5..6", (5, 6)), ("5..", (5, None)), ("..6", (None, 6)), ("5..5", (5, 5))]
)
def test_time_ranges_may_be_open(text, expected):
    assert parse_times(text) == expected


@pytest.mark.parametrize("text", ["", "..", "5", "5:6", "6..5", "5..x", "x..", "5...6"])
def test_no_time_range_is_a_usage_error(text):
    with pytest.raises(UsageError, match="time"):
        parse_times(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("4096", 4096), ("1K", 1024), ("1k", 1024), ("10MiB", 10 << 20), ("1 GB", 1 << 30), ("2T", 2 << 40)],
)
def test_sizes_count_in_powers_of_1024(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1X", "0x10", "1KK"])
def test_no_size_is_a_usage_error(text):
    with pytest.raises(UsageError, match="size"):
        parse_size(text)


@pytest.mark.parametrize("option", ["--offset=", "--time=", "--max-bytes="])
def test_an_empty_range_or_size_is_a_usage_error_and_does_not_select_all(mqtool, option):
    assert mqtool("dump", fixture("orders-5.5.0/store"), option, "-n", "1").code == 2


NOW = int(datetime(2026, 3, 31, 1, 30, tzinfo=UTC).timestamp())
"""A Tuesday; two days before, clocks in Berlin were set from 02:00 to 03:00."""


@pytest.mark.parametrize(
    ("zone", "text", "begin", "end"),
    [
        ("UTC", "7d", "2026-03-24T01:30:00+00:00", None),
        ("UTC", "90m", "2026-03-31T00:00:00+00:00", None),
        ("UTC", "today", "2026-03-31T00:00:00+00:00", "2026-04-01T00:00:00+00:00"),
        ("UTC", "yesterday", "2026-03-30T00:00:00+00:00", "2026-03-31T00:00:00+00:00"),
        ("UTC", "last week", "2026-03-23T00:00:00+00:00", "2026-03-30T00:00:00+00:00"),
        ("Europe/Berlin", "last week", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"),
        ("America/New_York", "yesterday", "2026-03-29T00:00:00-04:00", "2026-03-30T00:00:00-04:00"),
        ("UTC", "yesterday..today", "2026-03-30T00:00:00+00:00", "2026-03-31T00:00:00+00:00"),
        ("UTC", "2d..1d", "2026-03-29T01:30:00+00:00", "2026-03-30T01:30:00+00:00"),
        ("UTC", "..1h", None, "2026-03-31T00:30:00+00:00"),
    ],
)
def test_times_relative_to_now_are_periods_alone_and_moments_in_a_range(
    monkeypatch, chosen_zone, zone, text, begin, end
):
    monkeypatch.setattr("time.time_ns", lambda: NOW * 1_000_000_000)
    chosen_zone(zone)
    assert parse_times(text) == tuple(
        each and int(datetime.fromisoformat(each).timestamp()) * 1_000 for each in (begin, end)
    )


def test_an_offset_may_begin_at_a_time_relative_to_now(monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: NOW * 1_000_000_000)
    assert parse_range("@2h:@today").times() == ((NOW - 7_200) * 1_000, (NOW - 5_400) * 1_000)
    assert parse_range("@2d").times() == ((NOW - 172_800) * 1_000, None)


@pytest.mark.parametrize("text", ["7", "d", "7x", "-7d", "tomorrow", "last  week", "1234567d"])
def test_other_words_are_no_period(text):
    with pytest.raises(UsageError, match="expected"):
        parse_times(text)
