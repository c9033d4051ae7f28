"""Deliveries of delayed messages: examples by hand, and columns of a log against single messages of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtool.formats import commit_log
from mqtool.formats.properties import encode
from mqtool.records.frames import frames_at
from mqtool.records.trailers import trailers_of
from mqtool.store.deliveries import are_delivered, delivered_offsets, identity_marks, identity_of
from mqtool.store.message import Message, from_record
from tests.property.records import log_of

PARKED, TIMER = b"SCHEDULE_TOPIC_XXXX", b"rmq_sys_wheel_timer"


def messages_of(data: bytes, starts: list[int]) -> list[Message]:
    return [from_record(commit_log.parse_record(memoryview(data), start)) for start in starts]


def fields(topic: bytes, key: str = "K", born: int = 7, tries: int = 0, **more: str) -> dict[str, object]:
    pairs = {"REAL_TOPIC": "T", "UNIQ_KEY": key, "DELAY": "2"} | more
    properties = encode([(name, value) for name, value in pairs.items() if value])
    return {"topic": topic, "properties": properties, "born_timestamp": born, "reconsume_times": tries}


def delivered_numbers(*records: dict[str, object]) -> list[int]:
    """Which of some records, by number, are parked and delivered."""
    data, starts = log_of(records)
    return [starts.index(offset) for offset in sorted(delivered_offsets(messages_of(data, starts)))]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([fields(PARKED), fields(b"T")], [0]),
        ([fields(b"T"), fields(PARKED)], []),
        ([fields(PARKED), fields(b"U")], []),
        ([fields(PARKED), fields(b"T", key="L")], []),
        ([fields(PARKED), fields(b"T", born=8)], []),
        ([fields(PARKED), fields(b"T", tries=1)], []),
        ([fields(PARKED, UNIQ_KEY=""), fields(b"T", UNIQ_KEY="")], []),
        ([fields(PARKED), fields(PARKED), fields(b"T")], []),
        ([fields(PARKED), fields(PARKED), fields(b"T"), fields(b"T")], [0, 1]),
        ([fields(PARKED), fields(b"T"), fields(PARKED)], [0]),
        ([fields(TIMER), fields(TIMER, TIMER_ROLL_TIMES="1")], [0]),
        ([fields(TIMER), fields(TIMER, TIMER_ROLL_TIMES="1"), fields(b"T", TIMER_ROLL_TIMES="1")], [0, 1]),
        ([fields(TIMER), fields(TIMER)], []),
        ([fields(TIMER), fields(TIMER, TIMER_DEL_UNIQKEY="K", TIMER_ROLL_TIMES="1")], []),
        ([fields(PARKED, TIMER_ROLL_TIMES="1"), fields(PARKED, TIMER_ROLL_TIMES="1")], []),
    ],
)
def test_parked_records_are_delivered_when_as_many_deliveries_have_followed(records, expected):
    assert delivered_numbers(*records) == expected


RECORDS = st.builds(
    fields,
    st.sampled_from([PARKED, PARKED, b"T", b"T", b"U", "名".encode()]),
    key=st.sampled_from(["K", "L", "", "x" * 300]),
    born=st.sampled_from([7, 8, -1]),
    tries=st.sampled_from([0, 0, 0, 1, -1]),
    REAL_TOPIC=st.sampled_from(["T", "T", "U", "名", ""]),
    DELAY=st.sampled_from(["2", "2", "2", ""]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=40))
def test_columns_show_the_deliveries_that_single_messages_show(records):
    data, starts = log_of(records)
    messages = messages_of(data, starts)
    _, frames = frames_at(memoryview(data), 0, 0)
    parked = np.array([record["topic"] == PARKED for record in records])
    marks: dict[int, int] = {}
    for trailers in trailers_of(frames):
        found, values = identity_marks(frames, trailers, parked)
        marks |= zip(found.tolist(), values.tolist(), strict=True)
    delayed = {row: one for row, one in enumerate(messages) if "DELAY" in one.properties}
    identities = {row: identity for row, one in delayed.items() if (identity := identity_of(one)) is not None}
    assert marks.keys() == identities.keys()
    pairs = {(identities[row], marks[row]) for row in marks}
    assert len(pairs) == len(set(identities.values())) == len(set(marks.values()))
    rows = np.array(sorted(marks), np.int64)
    delivered = are_delivered(np.array([marks[row] for row in rows.tolist()], np.uint64), parked[rows])
    assert {starts[row] for row in rows[delivered].tolist()} == delivered_offsets(delayed.values())
