"""Ranges cut where they may be cut, into parts of about one size."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.jobs.pool import cut


def places_in(places):
    """Finds the first of some places."""
    return lambda wanted, limit: next((place for place in places if wanted <= place < limit), None)


@pytest.mark.parametrize(
    ("low", "high", "size", "places", "expected"),
    [
        (0, 100, 50, range(100), [50]),
        (0, 100, 30, range(100), [30, 60]),  # three parts of 30, 30 and 40
        (0, 100, 80, range(100), []),  # one part and a quarter is one part
        (0, 100, 60, range(100), [60]),
        (10, 110, 50, range(0, 200, 7), [63]),
        (0, 100, 25, [10, 80], [80]),  # nothing may be cut at 25 or 50
        (0, 100, 25, [], []),
        (0, 100, 1, [99], [99]),
        (0, 0, 10, range(100), []),
        (100, 0, 10, range(100), []),
        (7, 8, 1, range(100), []),
    ],
)
def test_a_range_is_cut_where_it_may_be(low, high, size, places, expected):
    assert list(cut(low, high, size, places_in(places))) == expected


@given(
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(1, 300),
    st.sets(st.integers(0, 2000), max_size=60),
)
def test_places_lie_inside_and_in_order(low, length, size, places):
    found = list(cut(low, low + length, size, places_in(sorted(places))))
    assert set(found) <= places
    assert all(low < place < low + length for place in found)
    assert all(after > before for before, after in pairwise((low, *found)))
