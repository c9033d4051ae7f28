"""Sets of numbers: what numpy's own functions return, whatever the order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.records.number_sets import among, distinct, union

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
