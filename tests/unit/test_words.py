"""Numbers, times and ranges as people read them."""

from datetime import UTC

import pytest

from mqtool import words


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "1970-01-01 00:00:00"), (1_700_000_000_999, "2023-11-14 22:13:20"), (1 << 62, str(1 << 62))],
)
def test_a_moment_outside_of_the_calendar_is_its_number(milliseconds, text):
    assert words.moment(milliseconds) == text


def test_of_many_ranges_the_rest_is_counted():
    ranges = [(number * 10, number * 10 + number % 2) for number in range(5)]
    assert words.runs(ranges) == "0, 10–11, 20, 30–31, 40"
    assert words.runs(ranges, 2) == "0, 10–11, and 3 more"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64m", 64 << 20), ("64MiB", 64 << 20), ("64 M", 64 << 20), ("1t", 1 << 40), ("0", 0), ("64kk", None), ("", None)],
)
def test_sizes_are_powers_of_1024(text, expected):
    assert words.parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14 23:13:20+01", 1_700_000_000_000),
        ("2023-11-14#22:13:20:123", 1_700_000_000_123),
        ("2026-W47-6", None),
        ("--5", None),
        ("9223372036854775808", None),
    ],
)
def test_times_are_rfc_3339_or_milliseconds(text, expected):
    assert words.parse_time(text, UTC) == expected
