"""Units packed as columns are those packed one by one; where a unit goes is what the broker's own code does."""

import struct
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import java
from mqtool.records.dispatch import QueueUnits
from mqtool.records.queue_build import (
    UnitPlacement,
    accepts_batch,
    batch_min_offset,
    is_dispatched,
    is_file_before_log,
    pack,
    placement_of,
    queue_keys,
    queue_numbers,
    queue_of,
)

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


def units_of(seed: int) -> QueueUnits:
    """Units in a few queues, whose offsets now and then leave some out or begin again."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 80))
    topic, queue_id = random.integers(0, 3, count).astype(np.int32), random.integers(0, 3, count).astype(np.int32)
    offset = np.empty(count, np.int64)
    following: dict[tuple[int, int], int] = {}
    for row, queue in enumerate(zip(topic.tolist(), queue_id.tolist(), strict=True)):
        jump = int(random.choice([0, 0, 0, 0, 0, 0, 5, -3]))
        offset[row] = following.get(queue, int(random.integers(0, 1 << 40))) + jump
        following[queue] = int(offset[row]) + 1
    physical = np.cumsum(random.integers(91, 1 << 33, count))
    sizes = random.integers(91, 1 << 30, count).astype(np.int32)
    tags = random.integers(-(1 << 63), (1 << 63) - 1, count)
    return QueueUnits(
        np.arange(count), topic, queue_id, offset, physical, sizes, tags, physical, np.ones(count, np.int16)
    )


def check(units: QueueUnits) -> None:
    columns = (units.topic, units.queue_id, units.queue_offset, units.physical_offset, units.size, units.tags_code)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    packed = pack(units, queue_keys(units))
    queues: dict[tuple[int, int], list[int]] = {}
    for number, row in enumerate(rows):
        queues.setdefault(row[:2], []).append(number)
    found, start = {}, 0
    for first, stop, gap in zip(packed.firsts.tolist(), packed.stops.tolist(), packed.gaps.tolist(), strict=True):
        numbers = packed.order[start:stop].tolist()
        assert numbers[0] == first
        found[rows[first][:2]] = numbers, packed.units[start:stop].tobytes(), bool(gap)
        start = stop
    assert found == {
        queue: (
            numbers,
            b"".join(struct.pack(">qiq", *rows[number][3:]) for number in numbers),
            any(java.to_int64(rows[a][2] + 1) != rows[b][2] for a, b in pairwise(numbers)),
        )
        for queue, numbers in queues.items()
    }


@given(st.lists(unit, min_size=1, max_size=60))
def test_any_units_are_packed_as_those_of_each_queue_one_by_one(rows):
    check(columns(rows))


@given(st.integers(0, 1 << 30))
def test_units_of_queues_with_gaps_are_packed_as_those_of_each_queue_one_by_one(seed):
    check(units_of(seed))


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
    expected = {None: UnitPlacement.PRESENT, "": UnitPlacement.NEXT, "LOG_ERROR": UnitPlacement.AFTER_GAP}
    assert placement_of(queue_offset, end) is expected[put_message_position_info(queue_offset, end)]


def test_a_record_is_passed_over_up_to_the_end_of_the_newest_one():
    assert [is_dispatched(end, 100) for end in (99, 100, 101)] == [True, True, False]
    assert not is_dispatched(0, -1)


def test_the_number_of_a_queue_yields_topic_and_queue_id_of_any_sign():
    queues = [(0, 0), (0, 7), (1, -1), (2, java.INT_MIN), (1, java.INT_MAX)]
    topics, ids = (np.array(column, np.int32) for column in zip(*queues, strict=True))
    numbers = queue_numbers(topics, ids)
    assert len(set(numbers.tolist())) == len(queues)
    assert [queue_of(number, ["a", "b", "c"]) for number in numbers.tolist()] == [
        ("a", 0),
        ("a", 7),
        ("b", -1),
        ("c", java.INT_MIN),
        ("b", java.INT_MAX),
    ]


def test_a_batch_queue_takes_later_records_without_negative_numbers():
    records = [(101, 0, 0), (101, 5, 3), (100, 0, 1), (101, -1, 1), (101, 0, -1)]
    expected = [True, True, False, False, False]
    assert [accepts_batch(*record, 100) for record in records] == expected
    assert accepts_batch(*np.array(records).T, 100).tolist() == expected


def test_the_minimum_of_a_batch_queue_follows_the_last_expired_unit():
    fields = [("physical_offset", ">i8"), ("base_queue_offset", ">i8"), ("batch_size", ">i2")]
    units = np.array([(0, 10, 2), (100, 12, 1), (200, 20, 5)], fields)  # 13 to 19 are missing
    assert [batch_min_offset(units, at) for at in (0, 1, 100, 101, 200, 201)] == [10, 12, 12, 13, 13, 25]
    assert batch_min_offset(units[:0], 0) == -1


def test_a_queue_offset_whose_position_overflows_is_where_java_puts_it():
    """Java multiplies by 20 in 64 bits: 20 * 2**62 is 0 there."""
    assert placement_of((1 << 62) + 3, 60) is UnitPlacement.NEXT
    assert placement_of((1 << 62) + 3, 80) is UnitPlacement.PRESENT
    assert placement_of((1 << 62) + 3, 40) is UnitPlacement.AFTER_GAP


def test_a_queue_file_expires_by_its_last_unit_if_it_has_one():
    unit = struct.pack(">qiq", 100, 10, 0)
    assert (is_file_before_log(unit, 100), is_file_before_log(unit, 101)) == (False, True)
    assert not is_file_before_log(b"", 101)
