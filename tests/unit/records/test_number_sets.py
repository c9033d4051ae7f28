"""Sets of numbers: what numpy's own functions return, whatever the order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.records.number_sets import WordTable, among, distinct, run_starts, stable_order, union, within

numbers = st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1), max_size=20).map(
    lambda found: np.array(found, np.int64)
)


@given(numbers, numbers)
def test_as_numpy_does(left, right):
    assert distinct(left).tolist() == sorted(set(left.tolist()))
    assert union(left, right).tolist() == np.union1d(left, right).tolist()
    assert among(left, right).tolist() == np.isin(left, right).tolist()


@pytest.mark.parametrize("kind", [np.int32, np.uint64])
def test_kinds_are_kept(kind):
    found = distinct(np.array([3, 1, 3], kind))
    assert found.dtype == kind
    assert found.tolist() == [1, 3]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
@pytest.mark.parametrize(
    ("least", "most"),
    [(0, 4), (0, 1 << 16), ((1 << 16) - 9, (1 << 16) + 9), (0, (1 << 32) + 9), (-5, 5), (-9, 1 << 40)],
)
def test_equal_numbers_stay_in_the_order_of_their_rows(kind, least, most):
    limits = np.iinfo(kind)
    numbers = np.random.default_rng(7).integers(max(least, limits.min), min(most, limits.max), 3000).astype(kind)
    numbers = np.concatenate([numbers, numbers[::-1], numbers[:7]])
    assert stable_order(numbers).tolist() == sorted(range(len(numbers)), key=numbers.tolist().__getitem__)
    assert stable_order(numbers[:0]).tolist() == []


@given(st.lists(st.integers(0, 3), min_size=1))
def test_runs_begin_where_the_number_changes(numbers):
    expected = [row for row, number in enumerate(numbers) if not row or number != numbers[row - 1]]
    assert run_starts(np.array(numbers)).tolist() == expected


@given(st.lists(st.integers(0, 9)), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))
def test_a_range_has_its_start_and_not_its_end(numbers, start, end):
    kept = within(np.array(numbers, np.int64), start, end)
    assert kept.tolist() == [(start is None or one >= start) and (end is None or one < end) for one in numbers]


def test_values_that_share_a_place_in_the_table_keep_their_numbers():
    values = np.random.default_rng(1).integers(1, 1 << 63, 1000).astype(np.uint64)
    table = WordTable()
    assert len(np.unique(table._slots(values))) < len(values)
    assert table.numbers_of(values).tolist() == list(range(len(values)))
    assert table.numbers_of(values[::-1]).tolist() == list(range(len(values)))[::-1]
    assert table.values == values.tolist()
