"""Frames: the frame scan, and the fields of every shape of record as columns."""

import json
import struct

import numpy as np
import pytest

from mqtool.errors import UsageError
from mqtool.formats import commit_log
from mqtool.formats.commit_log import MAGIC_BLANK, MAGIC_V1, build_blank
from mqtool.records.columns import record_batch, schema
from mqtool.records.frame_scan import Stop, scan_frames, scan_some
from mqtool.records.frames import Frames, frames_at
from mqtool.store.log.json_rows import json_lines
from tests.support.builder import encode, record_of

pytestmark = pytest.mark.usefixtures("either_way")

SHAPES = {
    "IPv4": {},
    "born host IPv6": {"sys_flag": 0x10},
    "store host IPv6": {"sys_flag": 0x20},
    "both IPv6": {"sys_flag": 0x30},
    "V2": {"topic": b"L" * 200},
    "V2 and IPv6": {"topic": b"L" * 128, "sys_flag": 0x30},
    "empty body": {"body": b""},
    "no properties": {"properties": b""},
    "empty topic": {"topic": b""},
    "negative properties length": {"properties": b"", "properties_length": -1},
    "negative body length": {"body": b"", "body_length": -5},
}


def chain(*shapes, base=0):
    """Records of these shapes one after the other, and what they are."""
    data, records = b"", []
    for shape in shapes:
        changes = {"body": f"body {len(records)}".encode(), **shape}
        records.append(record_of(base + len(data), **changes))
        data += commit_log.build_record(records[-1])
    return data, records


def frames_of(data, base=0):
    found = scan_frames(memoryview(data), 0)
    return Frames(memoryview(data), base, found.positions, found.sizes)


@pytest.mark.parametrize("field", [field.name for field in commit_log.HEADS[0][:-1] if "host" not in field.name])
def test_a_column_has_the_field_of_every_record_whatever_its_shape(field):
    data, records = chain(*SHAPES.values(), *reversed(SHAPES.values()))
    assert frames_of(data).column(field).tolist() == [getattr(record, field) for record in records]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_variable_fields_are_where_the_record_has_them(shape):
    data, (record, _) = chain(SHAPES[shape], {})
    frames = frames_of(data)
    spans = {
        "body": (frames.body_start, frames.body_length),
        "topic": (frames.topic_start, frames.topic_length),
        "properties": (frames.properties_start, frames.properties_length),
    }
    found = {name: data[start[0] : start[0] + length[0]] for name, (start, length) in spans.items()}
    assert found == {"body": record.body, "topic": record.topic, "properties": record.properties}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_record_as_the_broker_writes_it_is_valid(shape):
    data, records = chain(SHAPES[shape], SHAPES[shape], base=1 << 40)
    frames = frames_of(data, 1 << 40)
    assert len(frames) == len(records) == 2
    assert frames.valid.all()
    assert frames.crc_matches.all()


@pytest.mark.parametrize("base", [-1, 1, 1 << 20])
def test_a_record_elsewhere_than_it_says_is_not_valid(base):
    data, _ = chain({}, {})
    frames = frames_of(data, base)
    assert not frames.true_offset.any()
    assert not frames.valid.any()
    assert frames.adds_up.all()


LENGTHS = {"body_length": (84, 4), "topic_length": (88 + 6, 1), "properties_length": (88 + 6 + 1 + 5, 2)}
HOSTILE = [-(1 << 31), -1, 0, 1, 0x7F, 0x80, 0x7FFF, 0x8000, (1 << 31) - 1]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("field", LENGTHS)
def test_a_wrong_length_is_found_and_reads_nothing_outside(field, value):
    data, records = chain({}, {})
    at, size = LENGTHS[field]
    stored = (value & ((1 << 8 * size) - 1)).to_bytes(size)
    assert data[at : at + size] != stored
    frames = frames_of(data[:at] + stored + data[at + size :])
    assert frames.adds_up.tolist() == [False, True]
    assert frames.computed_crc[1] == records[1].body_crc


def test_an_empty_body_needs_no_crc():
    data, _ = chain({"body": b"", "body_crc": 77})
    assert frames_of(data).crc_matches.tolist() == [True]


def test_a_wrong_body_is_found_by_its_crc():
    data, records = chain({}, {}, {})
    at = records[0].total_size + 88
    broken = data[:at] + b"B" + data[at + 1 :]
    assert frames_of(broken).crc_matches.tolist() == [True, False, True]
    assert frames_of(broken).valid.all()


def test_selecting_keeps_the_columns_of_the_chosen():
    data, _ = chain(*({"queue_id": number} for number in range(10)))
    frames = frames_of(data)
    odd = np.arange(10) % 2 == 1
    assert frames.select(odd).column("queue_id").tolist() == [1, 3, 5, 7, 9]
    assert frames.select(slice(2, 4)).column("queue_id").tolist() == [2, 3]
    assert frames.select(np.array([7, 0])).column("queue_id").tolist() == [7, 0]


def test_no_frames_have_empty_columns():
    frames = Frames(memoryview(b""), 0, np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(frames.valid) == len(frames.crc_matches) == len(frames.column("flag")) == 0


STOPS = {
    "BLANK": (build_blank(100), Stop.BLANK),
    "zeros": (bytes(100), Stop.ZEROS),
    "garbage": (b"\xff" * 100, Stop.BAD),
    "nothing": (b"", Stop.END),
    "seven bytes": (bytes(7), Stop.END),
    "a size that is too small": (struct.pack(">ii", 90, MAGIC_V1), Stop.BAD),
    "a negative size": (struct.pack(">ii", -1, MAGIC_V1), Stop.BAD),
    "a size and no magic": (struct.pack(">ii", 100, 0), Stop.BAD),
    "a record that is not whole": (struct.pack(">ii", 101, MAGIC_V1) + bytes(92), Stop.MORE),
    "a record of the largest size": (struct.pack(">ii", (1 << 31) - 1, MAGIC_V1), Stop.MORE),
    "a magic that is off by one": (struct.pack(">ii", 100, MAGIC_V1 + 1) + bytes(92), Stop.BAD),
    "a BLANK of no size": (struct.pack(">ii", 0, MAGIC_BLANK), Stop.BLANK),
}


@pytest.mark.parametrize("what", STOPS)
def test_a_chain_ends_before_what_is_no_whole_record(what):
    rest, stop = STOPS[what]
    data, records = chain({}, {"topic": b"L" * 150}, {})
    found = scan_frames(memoryview(data + rest), 0)
    assert (found.end, found.stop) == (len(data), stop)
    assert found.sizes.tolist() == [record.total_size for record in records]
    assert found.positions.tolist() == [record.physical_offset for record in records]


def test_a_chain_that_is_cut_anywhere_has_the_whole_records_only():
    data, (first, second) = chain({}, {})
    for cut in range(second.total_size):
        found = scan_frames(memoryview(data[: first.total_size + cut]), 0)
        assert (found.positions.tolist(), found.end) == ([0], first.total_size)
        assert found.stop is (Stop.END if cut < 8 else Stop.MORE)


def test_hopping_may_begin_anywhere():
    data, records = chain({}, {}, {})
    found = scan_frames(memoryview(data), records[0].total_size)
    assert found.positions.tolist() == [record.physical_offset for record in records[1:]]


def test_the_smallest_record_of_all_is_a_record():
    data = encode(0, b"", topic=b"", properties=b"")
    assert len(data) == commit_log.MIN_RECORD_SIZE
    assert frames_of(data).valid.tolist() == [True]


def test_frames_are_found_by_topic_and_by_a_word():
    data, _ = chain({"topic": b"T1"}, {"body": b"wo"}, {"topic": b"T2", "body": b"a word, a word"}, {"body": b"word"})
    found = scan_frames(memoryview(data), 0)
    frames = Frames(memoryview(data), 0, found.positions, found.sizes)
    assert frames.rows_of(b"T1", b"T2", b"T") == [0, 2]
    assert frames.topics_of([0, 2]) == [b"T1", b"T2"]
    assert frames.rows_with(b"word") == [2, 3]
    assert frames.rows_with(data[frames.positions[1] - 1 : frames.positions[1] + 1]) == []  # in two frames
    assert frames.select(np.array([0, 3])).rows_with(b"word") == [1]
    assert frames.select(slice(0, 2)).rows_with(b"word") == []
    inside = Frames(memoryview(data)[int(frames.positions[1]) :], 0, frames.positions[:1], frames.sizes[1:2])
    assert inside.rows_with(b"wo") == [0]


def test_more_topics_than_a_table_of_compiled_loops_holds_are_numbered():
    names = [f"t{number % 5000}" for number in range(6000)]
    data, _ = chain(*({"topic": name.encode(), "body": b""} for name in names))
    frames = frames_at(memoryview(data), 0, 0)[1]
    codes, topics = frames.coded_topics
    assert [topics[code] for code in codes.tolist()] == names
    assert len(topics) == 5000


def test_a_scan_of_some_frames_ends_before_one_that_is_incomplete():
    data, records = chain({}, {}, {})
    cut = memoryview(data)[:-1]
    last = records[0].total_size + records[1].total_size
    assert scan_some(cut, 0, 2) == ([0, records[0].total_size], last, None)
    assert scan_some(cut, 0, 3) == ([0, records[0].total_size, last], last, Stop.MORE)


def test_no_frames_are_no_lines():
    data, _ = chain({})
    none = frames_at(memoryview(data), 0, 0)[1].select(slice(0, 0))
    assert bytes(json_lines(none)) == b""


def test_an_unknown_column_is_named_with_those_that_exist():
    with pytest.raises(UsageError, match=r"unknown column 'colour'; known: .*queue_offset"):
        schema(["topic", "colour"])


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([b"A\1a\2B\1b\2", b"C\1c\2", b"A\1x"], [{"A": "a", "B": "b"}, {"C": "c"}, {"A": "x"}]),
        ([b"A\1a\2B\1b\2", b"B\1b\2A\1a\2", b""], [{"A": "a", "B": "b"}, {"B": "b", "A": "a"}, {}]),
        ([b"A\1a\2B\1b\2A\1c\2", b"A\1a\2"], [{"A": "c", "B": "b"}, {"A": "a"}]),
        ([b"A\1a\2", b"\xff\1b\2\xfe\1c\2"], [{"A": "a"}, {"\ufffd": "c"}]),
        ([b"\1a\2A\1\2B\1\1\2" + b"C" * 99 + b"\1" + b"c" * 99], [{"B": "\1", "C" * 99: "c" * 99}]),
    ],
    ids=["other names", "other order", "a name twice", "no UTF-8", "empty and long ones"],
)
def test_each_record_has_its_own_properties(stored, expected):
    data, _ = chain(*({"properties": properties} for properties in stored))
    frames = frames_at(memoryview(data), 0, 0)[1]
    found = record_batch(frames, ["properties"])["properties"].to_pylist()
    assert [list(dict(pairs).items()) for pairs in found] == [list(pairs.items()) for pairs in expected]
    assert [json.loads(line)["properties"] for line in bytes(json_lines(frames)).splitlines()] == expected
