"""The broker's own test of a record, and its columnar form."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import commit_log, properties
from mqtool.records.record_check import BLANK, CheckResult, HeapExhausted, RecordCheck
from mqtool.recovery.log_scan import SegmentScan
from tests.unit.recovery.stores import named, record, settings

ROOT = Path("store")
FAILED = (-1, False)


def reader(data: bytes):
    return lambda position, count: data[position : position + count]


def check(
    data: bytes, release: str = "5.5", *, recovering: bool = True, limit: int | None = None, **keys
) -> CheckResult:
    test = RecordCheck(settings(ROOT, release, **keys), recovering=recovering)
    return test.check(reader(data), 0, len(data) if limit is None else limit)


def answer(data: bytes, release: str, **more) -> tuple[int, bool]:
    found = check(data, release, **more)
    return found.size, found.ok


WHOLE = record(b"hello", stored=named(KEYS="k1", TAGS="a"))
PADDED = WHOLE + bytes(100)


def with_field(name: str, value: bytes, data: bytes = PADDED) -> bytes:
    at = commit_log.field_offset(name)
    return data[:at] + value + data[at + len(value) :]


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


@pytest.mark.parametrize("release", ["4.9", "5.5"])
@pytest.mark.parametrize(
    ("damage", "data", "expected"),
    [
        ("none", PADDED, (len(WHOLE), True)),
        ("wrong physical offset", with_field("physical_offset", struct.pack(">q", 1 << 40)), (len(WHOLE), True)),
        ("zeros", bytes(200), FAILED),
        ("body bit", with_field("body_crc", i32(1)), FAILED),
        ("magic code", with_field("magic_code", i32(5)), FAILED),
        ("size negative", with_field("total_size", i32(-1)), FAILED),
        ("size zero", with_field("total_size", i32(0)), FAILED),
        ("size one less", with_field("total_size", i32(len(WHOLE) - 1)), (len(WHOLE) - 1, False)),
        ("size more", with_field("total_size", i32(len(WHOLE) + 16)), (len(WHOLE) + 16, False)),
        ("born host flag", with_field("sys_flag", i32(0x10)), FAILED),
        ("body length negative", with_field("body_length", i32(-5)), (len(WHOLE), False)),
        ("body length beyond all", with_field("body_length", i32(1 << 20)), FAILED),
        ("cut", WHOLE[:-3], FAILED),
        ("cut in the head", WHOLE[:50], FAILED),
        ("nothing", b"", FAILED),
        ("four bytes", WHOLE[:4], FAILED),
        ("topic length -1", record(topic=b"", topic_length=-1) + bytes(100), FAILED),
        ("properties length -1", record(properties_length=-1) + bytes(100), (len(record()), True)),
        ("delay is not a number", record(topic=b"SCHEDULE_TOPIC_XXXX", stored=named(DELAY="x")), FAILED),
    ],
)
def test_what_passes_and_what_fails_in_both_releases(release, damage, data, expected):
    assert answer(data, release) == expected


def test_a_blank_ends_a_segment_whatever_it_states_in_4_9_but_not_beyond_the_segment_in_5_5():
    huge = commit_log.build_blank(1 << 20) + bytes(100)
    assert check(huge, "4.9") == BLANK
    assert answer(huge, "5.5") == FAILED
    assert check(commit_log.build_blank(8), "5.5") == BLANK


def test_only_5_5_knows_the_second_magic_code():
    data = record(magic_code=commit_log.MAGIC_V2)
    assert answer(data, "4.9") == FAILED
    assert answer(data, "5.5") == (len(data), True)


def test_an_empty_body_has_no_crc():
    assert answer(record(b"", body_crc=77), "5.5") == (len(record(b"")), True)


def test_the_crc_can_be_left_out_on_request():
    data = with_field("body_crc", i32(1))
    assert answer(data, "5.5", check_crc=False) == (len(WHOLE), True)


def test_dispatch_looks_at_no_body():
    data = with_field("body_crc", i32(1))
    assert answer(data, "4.9", recovering=False) == (len(WHOLE), True)


def test_numbers_of_an_inner_batch_must_parse_in_5_5():
    data = record(stored=named(INNER_NUM="70000", INNER_BASE="0"))
    assert answer(data, "4.9") == (len(data), True)
    assert answer(data, "5.5") == FAILED


@pytest.mark.parametrize(
    ("size", "heap", "words"),
    [
        (0x7FFFFFFF, 8 << 30, "exceeds VM limit"),
        (0x7FFFFFFE, 8 << 30, "exceeds VM limit"),
        (0x30000000, 512 << 20, "Java heap space"),
    ],
)
def test_4_9_runs_out_of_memory_over_a_size_that_5_5_compares_first(size, heap, words):
    data = with_field("total_size", i32(size))
    with pytest.raises(HeapExhausted, match=words):
        check(data, "4.9", heap_bytes=heap)
    assert answer(data, "5.5", heap_bytes=heap) == FAILED


def test_a_large_size_that_fits_the_heap_is_a_half_message():
    assert answer(with_field("total_size", i32(0x7FFFFFFD)), "4.9", heap_bytes=8 << 30) == (0x7FFFFFFD, False)


def crc_record(body: bytes = b"hello") -> bytes:
    head = record(body, stored=named(KEYS="k") + properties.crc32_tail(0))
    crc = properties.compute_crc32(head)
    return record(body, stored=named(KEYS="k") + properties.crc32_tail(crc))


def test_the_crc_of_the_whole_record_counts_where_it_is_asked_for():
    good = crc_record()
    bad = bytearray(good)
    bad[commit_log.field_offset("flag")] ^= 1
    assert answer(good, "5.5", force_property_crc=True) == (len(good), True)
    assert answer(bytes(bad), "5.5", force_property_crc=True) == FAILED
    assert answer(bytes(bad), "5.5") == (len(good), True)
    assert answer(WHOLE, "5.5", force_property_crc=True) == FAILED


TEXTS = st.sampled_from([b"", b"a", b"k1 k2", "ü".encode(), b"x" * 40])
RECORDS = st.one_of(
    st.builds(
        lambda body, topic, keys: record(body, topic, named(KEYS=keys.decode())),
        TEXTS,
        st.sampled_from([b"T", b"Orders", b"SCHEDULE_TOPIC_XXXX"]),
        TEXTS,
    ),
    st.builds(
        lambda level: record(topic=b"SCHEDULE_TOPIC_XXXX", stored=named(DELAY=level)), st.sampled_from(["3", "x", "-1"])
    ),
    st.builds(lambda number: record(stored=named(INNER_NUM=number, INNER_BASE="4")), st.sampled_from(["3", "z"])),
    st.builds(lambda body: record(body, magic_code=commit_log.MAGIC_V2), TEXTS),
    st.builds(lambda flag: record(sys_flag=flag, born_host=bytes(20)), st.just(0x10)),
    st.just(commit_log.build_blank(64)),
)
FLIPS = st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 7)), max_size=2)


@given(st.lists(RECORDS, max_size=12), FLIPS, st.sampled_from(["4.9", "5.5"]), st.booleans(), st.booleans())
def test_the_scan_in_columns_stops_where_the_test_one_by_one_does(parts, flips, release, recovering, crc):
    data = bytearray(b"".join(parts).ljust(1600, b"\0"))
    for position, bit in flips:
        data[position] ^= 1 << bit
    test = RecordCheck(settings(ROOT, release, check_crc=crc, heap_bytes=1 << 40), recovering=recovering)
    read = reader(bytes(data))
    expected, position = [], 0
    try:
        while (found := test.check(read, position, len(data))).ok and found.size:
            expected.append(position)
            position += found.size
    except HeapExhausted as end:
        with pytest.raises(HeapExhausted, match=end.refusal.split(":")[-1].strip()):
            list(SegmentScan(test, read, len(data)))
        return
    scan = SegmentScan(test, read, len(data))
    positions = [at + one for frames, at in scan for one in frames.positions.tolist()]
    assert (positions, scan.end, scan.stop) == (expected, position, found)


def test_a_record_longer_than_a_window_is_scanned(monkeypatch):
    monkeypatch.setattr("mqtool.recovery.log_scan.WINDOW", 300)
    data = record(b"a") + record(b"b" * 1000) + record(b"c") + bytes(50)
    scan = SegmentScan(RecordCheck(settings(ROOT), recovering=True), reader(data), len(data))
    assert sum(len(frames) for frames, _ in scan) == 3
    assert scan.end == len(data) - 50


def test_a_crc_property_that_is_no_number_or_lies_before_the_segment_fails():
    text = crc_record()
    at = text.index(properties.CRC32.encode()) + len(properties.CRC32) + 1
    negative = text[:at] + b"9999999992" + text[at + 10 :]  # stored backwards: 2999999999 is below 0 as a Java int
    assert check(negative, force_property_crc=True).reason == "no valid __CRC32# property"
    early = with_field("total_size", i32(len(text) + 200), text) + bytes(200)
    assert check(early, force_property_crc=True).reason.endswith("the record begins before the segment")


def test_a_body_that_is_not_read_and_reaches_beyond_the_segment_fails():
    long = with_field("body_length", i32(1 << 20))
    test = RecordCheck(settings(ROOT, "5.5", check_crc=False), recovering=False)
    assert test.check(reader(long), 0, len(long)) == CheckResult(-1, ok=False, reason="it ends inside its fields")
