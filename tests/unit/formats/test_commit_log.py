"""CommitLog records: every real one is read and written back, and agrees with the broker's answers."""

import base64
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mqtool.errors import BadMagicError, FormatError, TruncatedError
from mqtool.formats import codec, commit_log, hosts, java, properties
from mqtool.formats.commit_log import MAGIC_V1, MAGIC_V2, RECORD, Record, build_record, parse_record
from tests.support.stores import STORES, answered, answers, summary
from tests.unit.formats.real import default_sizes, label, log_files, record_bytes, record_places, sample_records

WORKED_RECORD = bytes.fromhex(
    "000000a5daa320a73610a6860000000100000000000000000000000700000000000000000000000000000"
    "18bcfe568647f0000010000d4310000018bcfe5687bc0a8010a00002a9f00000000000000000000000000"
    "00000568656c6c6f09546f70696354657374003c4b455953016b3102544147530154616741"
    "02554e49515f4b455901374630303030303130464138313842344141433236433945374133423030303002"
)
"""A record of 165 bytes spelled out by hand."""

i32 = st.integers(java.INT_MIN, java.INT_MAX)
i64 = st.integers(java.LONG_MIN, java.LONG_MAX)


@st.composite
def records(draw):
    magic = draw(st.sampled_from((MAGIC_V1, MAGIC_V2)))
    sys_flag = draw(i32)
    body, stored_properties = draw(st.binary(max_size=40)), draw(st.binary(max_size=40))
    topic = draw(st.binary(max_size=127 if magic == MAGIC_V1 else 300))
    born, store = (20 if sys_flag & bit else 8 for bit in (0x10, 0x20))
    size = 91 + (magic == MAGIC_V2) + born + store - 16 + len(body) + len(topic) + len(stored_properties)
    return Record(
        size,
        magic,
        draw(i32),
        draw(i32),
        draw(i32),
        draw(i64),
        draw(i64),
        sys_flag,
        draw(i64),
        draw(st.binary(min_size=born, max_size=born)),
        draw(i64),
        draw(st.binary(min_size=store, max_size=store)),
        draw(i32),
        draw(i64),
        len(body),
        body,
        len(topic),
        topic,
        len(stored_properties),
        stored_properties,
    )


def test_every_real_record_is_written_back_to_its_own_bytes():
    count = 0
    for raw in record_bytes():
        count += 1
        assert build_record(parse_record(raw)) == raw
    assert count > 10_000


@pytest.mark.slow
def test_construct_gives_the_same_values_and_bytes_for_every_real_record():
    for raw in record_bytes():
        found = codec.parse(RECORD, raw)
        record = parse_record(raw)
        assert found == {name: getattr(record, name) for name in Record.__struct_fields__}
        assert codec.build(RECORD, found) == raw


@pytest.mark.parametrize("store", [s for s in answered("gets") if s.directory], ids=str)
def test_segments_hold_as_many_records_as_the_broker_reads(store):
    segments = summary(store.name)["before"]["segments"]
    for segment in segments:
        data = (store.directory / "commitlog" / segment["file"]).read_bytes()
        places = list(record_places(data))
        assert len(places) == segment["messages"]
        if places:
            assert segment["base"] + sum(places[-1]) == segment["end"]
            assert parse_record(data, places[-1][0]).physical_offset == segment["base"] + places[-1][0]
        end = segment["end"] - segment["base"]
        if segment["blank"] is not None:
            assert commit_log.FRAME.unpack_from(data, end) == (segment["blank"], commit_log.MAGIC_BLANK)
            assert commit_log.build_blank(segment["blank"]) == data[end : end + commit_log.BLANK_SIZE]
            assert end + segment["blank"] == len(data)


def raw_records(store) -> dict[int, bytes]:
    if store.directory is None:
        data = default_sizes("commitlog", 1 << 16)
        return {at: data[at : at + size] for at, size in record_places(data)}
    found = {}
    for path in sorted((store.directory / "commitlog").iterdir()):
        data = path.read_bytes()
        found |= {int(path.name) + at: data[at : at + size] for at, size in record_places(data)}
    return found


@pytest.mark.parametrize("store", answered("gets"), ids=str)
def test_every_field_is_what_the_broker_answers(store):
    stored = raw_records(store)
    for answer in answers(store.name, "messages"):
        record = parse_record(stored[answer["physicalOffset"]])
        assert record.total_size == answer["storeSize"]
        assert f"{record.magic_code & 0xFFFFFFFF:08x}" == answer["magic"]
        assert java.decode_utf8(record.topic) == answer["topic"]
        assert (record.queue_id, record.queue_offset) == (answer["queueId"], answer["queueOffset"])
        assert (record.flag, record.sys_flag) == (answer["flag"], answer["sysFlag"])
        assert record.born_timestamp == answer["bornTimestamp"]
        assert record.store_timestamp == answer["storeTimestamp"]
        assert record.reconsume_times == answer["reconsumeTimes"]
        assert record.prepared_transaction_offset == answer["preparedTransactionOffset"]
        assert record.body_crc == answer["bodyCRC"] == commit_log.body_crc(record.body)
        assert record.body == base64.b64decode(answer["body"])
        assert properties.decode(record.properties) == answer["properties"]
        assert hosts.format_offset_id(record.store_host, record.physical_offset) == answer["offsetMsgId"]
        for name, answered_host in (("born_host", "bornHost"), ("store_host", "storeHost")):
            address, _, port = answer[answered_host].rpartition("|")
            text = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            assert hosts.parse(getattr(record, name)) == hosts.parse_text(text)


def test_the_stores_cover_every_shape_of_a_record():
    hosts_of = [f"born{born}-store{store}" for born in (4, 6) for store in (4, 6)]
    assert set(sample_records()) >= {f"V1-{shape}" for shape in hosts_of} | {"V2-born4-store4"}
    stores = {store.name.split("/")[0] for store in STORES}
    assert {label(path).split("/")[0] for path in log_files()} >= stores - {"default-sizes"}


def test_the_worked_record_has_the_fields_it_was_spelled_from():
    record = parse_record(WORKED_RECORD)
    assert len(WORKED_RECORD) == record.total_size == 165
    assert (record.queue_id, record.queue_offset, record.physical_offset) == (1, 7, 0)
    assert (record.body, record.topic) == (b"hello", b"TopicTest")
    assert record.body_crc == commit_log.body_crc(b"hello") == 907060870
    assert hosts.text_of(record.born_host) == "127.0.0.1:54321"
    assert hosts.text_of(record.store_host) == "192.168.1.10:10911"
    assert (record.born_timestamp, record.store_timestamp) == (1700000000100, 1700000000123)
    assert properties.decode(record.properties) == {
        "KEYS": "k1",
        "TAGS": "TagA",
        "UNIQ_KEY": "7F0000010FA818B4AAC26C9E7A3B0000",
    }


@given(records())
def test_a_built_record_is_parsed_to_the_same_values(record):
    raw = build_record(record)
    assert len(raw) == record.total_size
    assert parse_record(raw) == record
    assert codec.build(RECORD, {name: getattr(record, name) for name in Record.__struct_fields__}) == raw


@pytest.mark.parametrize("shape", ["V1-born4-store4", "V1-born6-store6", "V2-born4-store4"])
def test_every_truncation_of_a_record_is_an_error(shape):
    raw = sample_records()[shape]
    for size in range(len(raw)):
        with pytest.raises(TruncatedError):
            parse_record(raw[:size])
        with pytest.raises(FormatError):
            codec.parse(RECORD, raw[:size])


@pytest.mark.parametrize("size", [-1, 0, 1, 8, 90, 164, 166, java.INT_MAX, java.INT_MIN])
def test_a_hostile_total_size_is_an_error(size):
    with pytest.raises(FormatError):
        parse_record(struct.pack(">i", size) + WORKED_RECORD[4:] + b"\x00")


@pytest.mark.parametrize("length", [1, 4, 6, 1000, java.INT_MAX, java.INT_MIN, -1])
def test_a_hostile_body_length_is_an_error(length):
    with pytest.raises(FormatError):
        parse_record(WORKED_RECORD[:84] + struct.pack(">i", length) + WORKED_RECORD[88:])


@pytest.mark.parametrize("length", [0, 8, 10, 127, 128, 255])
def test_a_hostile_topic_length_is_an_error(length):
    with pytest.raises(FormatError):
        parse_record(WORKED_RECORD[:93] + bytes((length,)) + WORKED_RECORD[94:])


@pytest.mark.parametrize("length", [0, 1, 0x3B, 0x3D, 0x7FFF, 0x8000, 0xFFFF])
def test_a_hostile_properties_length_is_an_error(length):
    with pytest.raises(FormatError):
        parse_record(WORKED_RECORD[:103] + struct.pack(">H", length) + WORKED_RECORD[105:])


def test_negative_lengths_count_as_none_as_in_the_broker():
    record = parse_record(WORKED_RECORD)
    without = WORKED_RECORD[: -len(record.properties)]
    size = struct.pack(">i", len(without))
    parsed = parse_record(size + without[4:-2] + b"\xff\xff")
    assert (parsed.properties_length, parsed.properties) == (-1, b"")
    assert build_record(parsed) == size + without[4:-2] + b"\xff\xff"


@pytest.mark.parametrize("magic", [0, 0xCBD43194, 0xDAA320A8, 0xFFFFFFFF])
def test_another_magic_is_refused_by_name(magic):
    with pytest.raises(BadMagicError, match=f"found {magic:08x}"):
        parse_record(WORKED_RECORD[:4] + struct.pack(">I", magic) + WORKED_RECORD[8:])


def test_positions_of_fixed_fields_follow_the_hosts():
    assert [commit_log.field_offset("store_timestamp", shape) for shape in range(4)] == [56, 68, 56, 68]
    assert commit_log.BODY_POSITIONS == (88, 100, 100, 112)
    assert commit_log.field_offset("sys_flag") == 36


@given(st.integers(0, 3), st.binary(max_size=400))
def test_random_bytes_behind_a_good_head_never_raise_anything_else(shape, tail):
    raw = struct.pack(">iI", 8 + len(tail), 0xDAA320A7) + tail
    with suppress(FormatError):
        assert build_record(parse_record(raw)) == raw


@pytest.mark.parametrize("changes", [{"flag": 1 << 31}, {"queue_offset": 1 << 63}, {"topic_length": 200}])
def test_a_value_that_does_not_fit_its_field_is_refused(changes):
    with pytest.raises(FormatError, match="cannot be written"):
        build_record(replace(parse_record(WORKED_RECORD), **changes))
