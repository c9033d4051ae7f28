"""Units packed as columns are those packed one by one; where a unit goes is what the broker's own code does."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import java
from mqtool.records.dispatched import QueueUnits
from mqtool.records.queue_build import Place, is_dispatched, pack, place_of, queue_keys

unit = st.tuples(
    st.sampled_from([0, 1, 2, 70, 1 << 30]),
    st.sampled_from([-(1 << 31), -1, 0, 1, 7, (1 << 31) - 1]),
    st.integers(-3, 9) | st.integers(java.LONG_MIN, java.LONG_MAX),
    st.integers(java.LONG_MIN, java.LONG_MAX),
    st.integers(java.INT_MIN, java.INT_MAX),
    st.integers(java.LONG_MIN, java.LONG_MAX),
)


def columns(rows) -> QueueUnits:
    kinds = (np.int32, np.int32, np.int64, np.int64, np.int32, np.int64)
    given_columns = [np.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    return QueueUnits(np.arange(len(rows)), *given_columns, np.zeros(len(rows), np.int64), np.ones(len(rows), np.int16))


@pytest.mark.usefixtures("either_way")
@given(st.lists(unit, min_size=1, max_size=60))
def test_packed_units_are_those_of_each_queue_one_by_one(rows):
    units = columns(rows)
    packed = pack(units, queue_keys(units))
    queues = {}
    for topic, queue_id, *rest in rows:
        queues.setdefault((topic, queue_id), []).append(rest)
    found, start = {}, 0
    for first, stop, gap in zip(packed.firsts.tolist(), packed.stops.tolist(), packed.gaps.tolist(), strict=True):
        assert rows[packed.order[start]] == rows[first]
        found[rows[first][:2]] = packed.units[start:stop].tobytes(), bool(gap)
        assert packed.order[start:stop].tolist() == [n for n, row in enumerate(rows) if row[:2] == rows[first][:2]]
        start = stop
    assert found == {
        queue: (
            b"".join(struct.pack(">qiq", *rest) for _, *rest in mine),
            any(java.to_int64(a[0] + 1) != b[0] for a, b in pairwise(mine)),
        )
        for queue, mine in queues.items()
    }


def put_message_position_info(queue_offset, end):
    """ConsumeQueue.putMessagePositionInfo after its first check: what it appends, or None."""
    expected = java.to_int64(queue_offset * 20)
    if queue_offset != 0:
        if expected < end:
            return None
        if expected != end:
            return "LOG_ERROR"
    return ""


@given(st.integers(-5, 12) | st.integers(java.LONG_MIN, java.LONG_MAX), st.integers(0, 12).map(lambda n: n * 20))
def test_a_unit_goes_where_the_broker_puts_it(queue_offset, end):
    expected = {None: Place.PRESENT, "": Place.NEXT, "LOG_ERROR": Place.AFTER_GAP}
    assert place_of(queue_offset, end) is expected[put_message_position_info(queue_offset, end)]


def test_a_record_is_passed_over_up_to_the_end_of_the_newest_one():
    assert [is_dispatched(end, 100) for end in (99, 100, 101)] == [True, True, False]
    assert not is_dispatched(0, -1)
