"""ConsumeQueue units, their extension, and batch units: real files, the broker's answers, hostile sizes."""

import base64
import struct
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec, consume_queue, java
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    PRE_BLANK,
    SPARSE_END_UNIT,
    ConsumeQueueUnit,
    build_ext_unit,
    ext_address,
    ext_offset,
    is_ext_address,
    make_ext_unit,
    parse_ext_unit,
    round_up_file_size,
    tags_code,
)
from tests.support.stores import answered, answers, fixture
from tests.unit.formats.real import default_sizes, files, label

DIGITS = "[0-9]" * 20
QUEUE_FILES = files(f"consumequeue/*/*/{DIGITS}")
EXT_FILES = files(f"consumequeue_ext/*/*/{DIGITS}")
BATCH_FILES = files(f"batchconsumequeue/*/*/{DIGITS}") + files(f"compactionCq/*/*/{DIGITS}")


def queue_bytes(root, topic, queue_id):
    return b"".join(path.read_bytes() for path in sorted((root / topic / str(queue_id)).iterdir()))


def test_every_real_unit_is_written_back_to_its_own_bytes():
    blocks = [path.read_bytes() for path in QUEUE_FILES] + [default_sizes("consumequeue", 2000)]
    assert sum(len(block) for block in blocks) > 20 * 20_000
    for data in blocks:
        units = [CONSUME_QUEUE_UNIT.parse(data, at) for at in range(0, len(data), 20)]
        assert b"".join(CONSUME_QUEUE_UNIT.build(unit) for unit in units) == data
        rows = [(unit.physical_offset, unit.size, unit.tags_code) for unit in units]
        assert np.array(rows, CONSUME_QUEUE_UNIT.dtype).tobytes() == data


@pytest.mark.parametrize("store", [s for s in answered("gets") if s.directory and s.clean_stop], ids=str)
def test_units_are_what_the_broker_answers(store):
    for queue in answers(store.name, "queues"):
        if queue["type"] == "SimpleCQ" and queue["units"]:
            root = store.directory / "consumequeue" / queue["topic"] / str(queue["queueId"])
            first = int(min(path.name for path in root.iterdir()))
            data = queue_bytes(store.directory / "consumequeue", queue["topic"], queue["queueId"])
            for queue_offset, physical_offset, size, code in queue["units"]:
                unit = CONSUME_QUEUE_UNIT.parse(data, queue_offset * 20 - first)
                assert unit == ConsumeQueueUnit(physical_offset, size, code)


@pytest.mark.parametrize("store", answered("gets"), ids=str)
def test_tags_codes_are_those_of_the_broker(store):
    tags = {m["physicalOffset"]: m["properties"].get("TAGS") for m in answers(store.name, "messages")}
    seen = 0
    for queue in answers(store.name, "queues"):
        if queue["topic"] != "SCHEDULE_TOPIC_XXXX" and queue["type"] == "SimpleCQ":
            for _, physical_offset, _, code in queue["units"]:
                assert tags_code(tags[physical_offset]) == code
                seen += 1
    assert seen


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("TAG1", 2567159),
        ("", 0),
        (None, 0),
        ("polygenelubricants", -2147483648),
        ("中文", 646394),
        ("😀", 1772899),
    ],
)
def test_known_tags_codes(tags, code):
    assert tags_code(tags) == code


def test_the_pre_blank_unit_is_the_brokers_filler():
    assert CONSUME_QUEUE_UNIT.build(PRE_BLANK).hex() == "00000000000000007fffffff0000000000000000"


@pytest.mark.parametrize(("configured", "size"), [(2000, 2000), (2001, 2020), (1, 20), (20, 20), (300_001, 300_020)])
def test_file_sizes_are_rounded_up_to_units(configured, size):
    assert round_up_file_size(configured) == size


@pytest.mark.parametrize("path", EXT_FILES, ids=label)
def test_every_real_ext_unit_is_written_back_to_its_own_bytes(path):
    data, position, count = path.read_bytes(), 0, 0
    while (unit := parse_ext_unit(data, position)) is not None:
        raw = data[position : position + unit.size]
        assert build_ext_unit(unit) == raw
        assert codec.parse(consume_queue.EXT_UNIT, raw) == {
            name: getattr(unit, name) for name in unit.__struct_fields__
        }
        position += unit.size
        count += 1
    assert count
    if position + 34 + consume_queue.EXT_END_BLANK_SIZE > len(data):
        assert struct.unpack_from(">h", data, position) == (consume_queue.END_OF_EXT_FILE,)


@pytest.mark.parametrize("name", ["cqext-4.9.7", "cqext-5.5.0"])
def test_ext_units_are_what_the_broker_answers(name):
    lines = [line for line in answers(name, "ext") if line.get("isExtAddr")]
    assert lines
    files_of = defaultdict(bytes)
    for line in lines:
        queue = (line["topic"], line["queueId"])
        files_of[queue] = files_of[queue] or queue_bytes(fixture(f"{name}/store/consumequeue_ext"), *queue)
        assert is_ext_address(line["tagsCode"])
        assert ext_offset(line["tagsCode"]) == line["extRealOffset"]
        assert ext_address(line["extRealOffset"]) == line["tagsCode"]
        unit = parse_ext_unit(files_of[queue], line["extRealOffset"])
        expected = (line["extSize"], line["extTagsCode"], line["extMsgStoreTime"], line["extFilterBitMap"])
        assert (unit.size, unit.tags_code, unit.store_timestamp, base64.b64encode(unit.bit_map).decode()) == expected


def test_filter_bits_are_those_the_consumer_filters_claim():
    data = queue_bytes(fixture("cqext-5.5.0/store/consumequeue_ext"), "Ext", 0)
    unit = parse_ext_unit(data)
    bits = [position for position in range(8 * len(unit.bit_map)) if unit.bit_map[position // 8] >> (position % 8) & 1]
    assert bits == [30, 54, 107], "positions in config/consumerFilter.json"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, False),
        (java.INT_MIN, False),
        (java.INT_MIN - 1, True),
        (java.LONG_MIN, True),
        (java.LONG_MAX, False),
    ],
)
def test_only_codes_below_every_hash_are_addresses(value, expected):
    assert is_ext_address(value) is expected


@given(st.integers(java.LONG_MIN, java.LONG_MAX), st.integers(java.LONG_MIN, java.LONG_MAX), st.binary(max_size=100))
def test_a_built_ext_unit_is_parsed_to_the_same_values(code, timestamp, bit_map):
    unit = make_ext_unit(code, timestamp, bit_map)
    assert parse_ext_unit(build_ext_unit(unit)) == unit


def test_every_truncation_of_an_ext_unit_is_an_error():
    raw = EXT_FILES[0].read_bytes()[:34]
    for size in range(34):
        with pytest.raises(TruncatedError):
            parse_ext_unit(raw[:size])


@pytest.mark.parametrize("size", [1, 19, 20, 33, 35, 32767])
def test_a_hostile_ext_size_is_an_error(size):
    raw = EXT_FILES[0].read_bytes()[:34]
    with pytest.raises(FormatError):
        parse_ext_unit(struct.pack(">h", size) + raw[2:])


@pytest.mark.parametrize("size", [-1, 13, 15, 32767, -32768])
def test_a_hostile_bit_map_size_is_an_error(size):
    raw = EXT_FILES[0].read_bytes()[:34]
    with pytest.raises(FormatError):
        parse_ext_unit(raw[:18] + struct.pack(">h", size) + raw[20:])


@pytest.mark.parametrize("size", [0, -1, -32768])
def test_a_size_of_zero_or_below_ends_the_file(size):
    assert parse_ext_unit(struct.pack(">h", size)) is None


def test_every_real_batch_unit_is_written_back_to_its_own_bytes():
    assert len(BATCH_FILES) >= 8
    for path in BATCH_FILES:
        data = path.read_bytes()
        whole = len(data) - len(data) % 46
        units = [BATCH_CONSUME_QUEUE_UNIT.parse(data, at) for at in range(0, whole, 46)]
        assert b"".join(BATCH_CONSUME_QUEUE_UNIT.build(unit) for unit in units) == data[:whole]


@pytest.mark.parametrize(
    ("name", "kind", "directory"),
    [
        ("bcq-5.5.0", "batchqueue", "batchconsumequeue/BatchTopic"),
        ("compaction-5.5.0", "sparsequeue", "compaction/compactionCq/Compact"),
    ],
)
def test_batch_units_are_what_the_broker_answers(name, kind, directory):
    expected = defaultdict(list)
    for line in answers(name, kind):
        if line["kind"] == "unit":
            expected[line["queueId"]].append(line)
    for queue_id, lines in expected.items():
        units = []
        for path in sorted(fixture(f"{name}/store/{directory}/{queue_id}").glob(DIGITS)):
            data = path.read_bytes()
            units += [BATCH_CONSUME_QUEUE_UNIT.parse(data, at) for at in range(0, len(data) - 45, 46)]
        found = [unit for unit in units if unit.is_valid]
        assert len(found) == len(lines)
        for unit, line in zip(found, lines, strict=True):
            assert unit.physical_offset == line["phyOffset"]
            assert (unit.size, unit.tags_code) == (line["size"], line["tagsCode"])
            assert (unit.base_queue_offset, unit.batch_size) == (line["baseOffset"], line["batchSize"])
            assert (unit.compacted_offset, unit.reserved) == (line["compactedOffset"], 0)


def test_a_closed_file_of_a_compacted_queue_ends_in_the_end_unit():
    end = BATCH_CONSUME_QUEUE_UNIT.build(SPARSE_END_UNIT)
    closed = [path for path in files(f"compactionCq/*/*/{DIGITS}") if end in path.read_bytes()]
    assert closed
    assert not SPARSE_END_UNIT.is_valid
