"""Deliveries of delayed messages: examples by hand."""

import pytest

from mqtool.formats import commit_log
from mqtool.formats.properties import encode
from mqtool.store.log.message import from_record
from mqtool.store.waiting.held_back import ParkingEvent, delivered_offsets, event_of
from tests.property.records import log_of

PARKED, TIMER = b"SCHEDULE_TOPIC_XXXX", b"rmq_sys_wheel_timer"


def events_of(data: bytes, starts: list[int]) -> list[ParkingEvent | None]:
    return [event_of(from_record(commit_log.parse_record(memoryview(data), start))) for start in starts]


def fields(topic: bytes, key: str = "K", born: int = 7, tries: int = 0, **more: str) -> dict[str, object]:
    pairs = {"REAL_TOPIC": "T", "UNIQ_KEY": key, "DELAY": "2"} | more
    properties = encode([(name, value) for name, value in pairs.items() if value])
    return {"topic": topic, "properties": properties, "born_timestamp": born, "reconsume_times": tries}


def delivered_numbers(*records: dict[str, object]) -> list[int]:
    """Which of some records, by number, are parked and delivered."""
    data, starts = log_of(records)
    return [starts.index(offset) for offset in sorted(delivered_offsets(events_of(data, starts)))]


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
