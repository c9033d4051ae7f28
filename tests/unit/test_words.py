"""Numbers, times and ranges as people read them."""

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
