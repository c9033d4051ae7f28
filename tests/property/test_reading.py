"""Reading as a whole against plain models: selections, windows, damage, cut files."""

import os
import re
import tempfile
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mqtool
from mqtool.records import segment_bytes
from mqtool.records.damage import Damage
from mqtool.records.walk import SegmentSpan, SegmentWalk
from mqtool.store import Message
from mqtool.store.log.json_lines import json_lines
from tests.property.records import log_of, records
from tests.support.builder import FIRST_TIME, StoreBuilder

TOPICS = ["Orders", "Orders2", "Audit", "%RETRY%group"]
COUNT = 150


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A store and all its messages, read one by one without any selection."""
    builder = StoreBuilder(segment_size=1 << 12)
    for number in range(COUNT):
        keys = " ".join(f"k{key}" for key in range(number % 4))
        body = f"message {number} {'käse' if number % 7 == 0 else ''}\n".encode()
        builder.put(
            body,
            topic=TOPICS[number % 4 * (number % 3 > 0)],
            queue_id=number % 3,
            keys=keys,
            tags=["", "a", "b", "ab"][number % 4],
            unique_key=f"U{number % 50}" if number % 5 else "",
            step=number % 3,
        )
    root = builder.write(tmp_path_factory.mktemp("selection") / "store")
    with mqtool.open(root) as store:
        yield store, list(store.messages())


offsets = st.none() | st.integers(-10, 25_000)
times = st.none() | st.integers(FIRST_TIME - 5, FIRST_TIME + COUNT + 5)


def few(values):
    return st.lists(st.sampled_from(values), max_size=2)


selections = st.fixed_dictionaries(
    {},
    optional={
        "start": offsets,
        "end": offsets,
        "begin_time": times,
        "end_time": times,
        "topics": few([*TOPICS, "Orders*", "*", "?udit", "[AO]*", "nothing", "%RETRY%*"]),
        "queue_id": st.none() | st.integers(-1, 3),
        "tags": few(["a", "b", "ab", "c", ""]),
        "keys": few(["k0", "k1", "k2", "k", "U7", "absent"]),
        "unique_keys": few(["U1", "U7", "U49", "k0"]),
        "properties": st.dictionaries(
            st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "x"]), st.sampled_from(["a", "k0", "U7", "k0 k1"]), max_size=2
        ),
        "grep": st.none() | st.sampled_from([b"7", "käse".encode(), b"^message 1", rb"\d\d\n", b"absent", b"."]),
        "limit": st.none() | st.integers(0, 20),
    },
)


def wants(message, wanted):
    """Whether a message is selected, condition by condition."""
    low, high = wanted.get("start"), wanted.get("end")
    begin, end = wanted.get("begin_time"), wanted.get("end_time")
    found, words = message.properties, {*message.keys, message.unique_key}
    return all(
        (
            low is None or message.physical_offset >= low,
            high is None or message.physical_offset < high,
            begin is None or message.store_timestamp >= begin,
            end is None or message.store_timestamp < end,
            not wanted.get("topics") or any(fnmatchcase(message.topic, glob) for glob in wanted["topics"]),
            wanted.get("queue_id") is None or message.queue_id == wanted["queue_id"],
            not wanted.get("tags") or message.tags in wanted["tags"],
            not wanted.get("keys") or any(key in words for key in wanted["keys"]),
            not wanted.get("unique_keys") or message.unique_key in wanted["unique_keys"],
            all(found.get(name) == value for name, value in wanted.get("properties", {}).items()),
            wanted.get("grep") is None or re.search(wanted["grep"], message.body, re.DOTALL) is not None,
        )
    )


@pytest.mark.slow
@given(wanted=selections)
@settings(max_examples=300)
def test_a_selection_is_a_plain_filter_over_all_messages(built, wanted):
    store, messages = built
    for low, high in (("start", "end"), ("begin_time", "end_time")):
        if None not in (wanted.get(low), wanted.get(high)) and wanted[low] > wanted[high]:
            wanted[low], wanted[high] = wanted[high], wanted[low]
    expected = [message for message in messages if wants(message, wanted)][: wanted.get("limit")]
    assert list(store.messages(**wanted)) == expected
    assert store.to_arrow(["physical_offset"], **wanted)["physical_offset"].to_pylist() == [
        message.physical_offset for message in expected
    ]
    assert sum(item.count for item in json_lines(store, "none", **wanted)) == len(expected)


# --- windows and damage ----------------------------------------------------------------------------------------------


@contextmanager
def window(size):
    """Reads so many bytes at a time."""
    before, segment_bytes.WINDOW = segment_bytes.WINDOW, size
    try:
        yield
    finally:
        segment_bytes.WINDOW = before


def walked(data, **span):
    """Positions of records, damage, tail."""
    walk = SegmentWalk(lambda at, count: data[at : at + count], SegmentSpan(0, len(data), **span))
    positions, damage = [], []
    for item in walk:
        if isinstance(item, Damage):
            damage.append((item.start, item.end, str(item.kind), item.detail))
        else:
            positions += (item.positions + item.base).tolist()
    return positions, damage, walk.tail, walk.end


new_bytes = st.sampled_from([b"\0" * 8, b"\xff" * 3, b"X", b"\0" * 100, b"\x7f\xff\xff\xff"])
harm = st.lists(st.tuples(st.integers(0, 1 << 30), new_bytes), max_size=4)


def harmed(data, edits):
    changed = bytearray(data)
    for place, new in edits:
        at = place % max(1, len(data))
        changed[at : at + len(new)] = new
    return bytes(changed[: len(data)])


@pytest.mark.slow
@given(
    made=records,
    edits=harm,
    size=st.sampled_from([8, 50, 91, 100, 128, 333, 1000]),
    is_last=st.booleans(),
    behind=st.sampled_from([0, 5, 300]),
)
def test_the_window_changes_nothing_whatever_is_damaged(made, edits, size, is_last, behind):
    data, _ = log_of(made)
    data = harmed(data + bytes(behind), edits)
    whole = walked(data, is_last=is_last)
    with window(size):
        assert walked(data, is_last=is_last) == whole


@given(made=records, edits=harm, is_last=st.booleans())
def test_records_and_damage_cover_the_data_without_overlap(made, edits, is_last):
    data, starts = log_of(made)
    data = harmed(data, edits)
    positions, damage, tail, end = walked(data, is_last=is_last)
    sizes = dict(zip(starts, [*starts[1:], len(data)], strict=True))
    ranges = sorted([(at, sizes.get(at, at)) for at in positions] + [(start, stop) for start, stop, _, _ in damage])
    for (_, before), (after, _) in pairwise(ranges):
        assert before <= after
    if not is_last and ranges:
        assert ranges[0][0] == 0
        assert ranges[-1][1] >= len(data) - 90
    if is_last:
        assert tail is None or tail.end == end


@given(made=records, edits=harm)
def test_a_record_that_nothing_touched_is_found_if_its_neighbour_is_whole(made, edits):
    data, starts = log_of(made)
    changed = harmed(data, edits)
    positions, _, _, _ = walked(changed)
    ends = [*starts[1:], len(data)]
    whole = [changed[start:end] == data[start:end] for start, end in zip(starts, ends, strict=True)]
    for number, start in enumerate(starts):
        if whole[number] and (number == 0 or whole[number - 1]):
            before_is_fine = all(whole[:number])
            assert start in positions or not before_is_fine


CUT_BEFORE_A_CHANCE_BOUNDARY = {
    "body": b"x\x9c\x03\x00\x00\x00\x00\x01",
    "topic": b"L" * 128,
    "properties": b"",
    "sys_flag": 1,
    "queue_id": 0,
    "flag": 0,
    "queue_offset": 0,
    "born_timestamp": 0,
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "born_host": bytes(8),
    "store_host": bytes(8),
}


@given(made=records, cut=st.integers(0, 1 << 20))
@example(made=[CUT_BEFORE_A_CHANCE_BOUNDARY], cut=100)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_log_cut_anywhere_has_the_records_before_the_cut(made, cut):
    data, starts = log_of(made)
    cut %= len(data) + 1
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "commitlog"
        log.mkdir()
        path = log / f"{0:020}"
        path.write_bytes(data)
        os.truncate(path, cut)
        with mqtool.open(directory) as store:
            items = list(store.messages())
    found = [item.physical_offset for item in items if isinstance(item, Message)]
    ends = [*starts[1:], len(data)]
    whole = [start for start, end in zip(starts, ends, strict=True) if end <= cut]
    assert found[: len(whole)] == whole
    assert len(found) <= len(whole)
    assert [item for item in items if isinstance(item, Damage)] == []
