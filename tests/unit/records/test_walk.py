"""A segment's walk finds every sound record, gives damage its exact range and kind, and tells tail from damage."""

import random
import struct
from itertools import pairwise

import pytest

from mqtool.formats.commit_log import MAGIC_V1, build_blank
from mqtool.records import segment_bytes
from mqtool.records.damage import Damage
from mqtool.records.walk import SegmentSpan, SegmentWalk
from tests.support.builder import encode, record_of
from tests.unit.records.walking import Segment, over, reader, walk

pytestmark = pytest.mark.usefixtures("either_way")

BASES = [0, 1 << 30, (1 << 62) + 4096]


@pytest.mark.parametrize("base", BASES)
def test_a_sound_segment_is_its_records(base):
    segment = Segment(base=base).fill(20).blank()
    positions, damage, made = walk(segment.whole(), base)
    assert (positions, damage) == (segment.starts, [])
    assert (made.ended_by_blank, made.end, made.tail) == (True, base + 4096, None)
    assert made.last_record_end == base + segment.ends[19]


def test_what_follows_a_blank_is_not_read():
    segment = Segment().fill(5).blank()
    rest = Segment(data=bytearray(segment.data)).fill(9).data[len(segment.data) :]
    positions, damage, _ = walk(bytes(segment.data + rest).ljust(4096, b"\xff"))
    assert (positions, damage) == (segment.starts, [])


@pytest.mark.parametrize("left", [0, 1, 7])
def test_a_segment_without_room_for_a_blank_is_whole(left):
    segment = Segment().fill(3)
    positions, damage, made = walk(bytes(segment.data) + bytes(left))
    assert (positions, damage) == (segment.starts, [])
    assert made.end == len(segment.data)


@pytest.mark.parametrize("left", [8, 9, 15, 90, 91, 200])
def test_a_blank_may_have_any_size_from_8_bytes(left):
    segment = Segment().fill(3)
    data = bytes(segment.data) + build_blank(left).ljust(left, b"\xaa")
    positions, damage, made = walk(data)
    assert (positions, damage, made.ended_by_blank) == (segment.starts, [], True)


# Damage to the third of ten records: where, with what, and of which kind it is.
DAMAGE = {
    "a byte of the body": (88, b"X", "bad-crc"),
    "the stored CRC": (8, b"\x11", "bad-crc"),
    "the physical offset": (28, b"\x01", "bad-physical-offset"),
    "the whole header": (0, b"\xff" * 88, "bad-header"),
    "the magic code": (4, b"\xda\xa3\x20\xa8", "bad-header"),
    "total_size, one smaller": (3, None, "bad-lengths"),
    "total_size, negative": (0, b"\xff\xff\xff\xff", "bad-lengths"),
    "total_size, the largest": (0, b"\x7f\xff\xff\xff", "bad-lengths"),
    "total_size, zero": (0, bytes(4), "bad-lengths"),
    "body_length, negative": (84, b"\xff\xff\xff\xff", "bad-lengths"),
    "body_length, the largest": (84, b"\x7f\xff\xff\xff", "bad-lengths"),
    "sys_flag, a host of another size": (39, b"\x10", "bad-lengths"),
    "zeros over the head": (0, bytes(16), "zeros"),
    "zeros over the record": (0, bytes(120), "zeros"),
    "a BLANK that ends early": (0, build_blank(50), "bad-blank"),
    "random bytes over the record": (0, random.Random(7).randbytes(110), "bad-header"),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_record_is_a_range_of_its_kind_and_the_others_are_found(what, base):
    segment = Segment(base=base).fill(10).blank()
    at, new, kind = DAMAGE[what]
    start, end = segment.starts[2], segment.starts[3]
    new = bytes([segment.data[start + 3] - 1]) if new is None else new[: end - start - at]
    positions, damage, made = walk(over(segment.whole(), start + at, new), base)
    assert damage == [(start, end, kind)]
    assert positions == [at for at in segment.starts if at != start]
    assert made.ended_by_blank


def test_without_crc_a_wrong_body_is_no_damage():
    segment = Segment().fill(10).blank()
    data = over(segment.whole(), segment.starts[2] + 88, b"X")
    assert walk(data, check_crc=False)[:2] == (segment.starts, [])


def test_a_stored_crc_of_zero_is_not_known_and_no_damage():
    segment = Segment().fill(3)
    segment.add(b"body", body_crc=0)
    segment.fill(3)
    assert walk(segment.blank().whole())[:2] == (segment.starts, [])


def test_a_blank_that_ends_with_a_part_of_the_segment_is_damage():
    segment = Segment().fill(3).blank()
    data, end = segment.whole(), len(segment.data)
    positions, damage, made = walk(data, full_size=len(data))
    assert (positions, damage, made.ended_by_blank) == (segment.starts, [], True)
    positions, damage, made = walk(data, full_size=2 * len(data))
    assert (positions, damage, made.ended_by_blank) == (segment.starts, [(made.end, len(data), "bad-blank")], False)
    assert made.end < end


def test_damage_says_what_was_expected_and_found():
    segment = Segment().fill(4).blank()
    data = over(segment.whole(), segment.starts[1] + 88, b"X")
    (damage,) = [item for item in SegmentWalk(reader(data), SegmentSpan(0, 4096)) if isinstance(item, Damage)]
    assert damage.detail.startswith("body CRC stored ")
    place = f"physical offset {damage.start}, {damage.end - damage.start} bytes"
    assert str(damage) == f"bad-crc at {place}: {damage.detail}"


def test_each_of_several_damaged_records_is_a_range_of_its_own():
    segment = Segment().fill(12).blank()
    data = segment.whole()
    for number in (2, 3, 7):
        data = over(data, segment.starts[number] + 88, b"X")
    _, damage, _ = walk(data)
    assert damage == [(segment.starts[n], segment.starts[n + 1], "bad-crc") for n in (2, 3, 7)]


def test_two_records_whose_headers_are_gone_are_one_range():
    segment = Segment().fill(12).blank()
    data = segment.whole()
    for number in (4, 5):
        data = over(data, segment.starts[number], b"\xee" * 88)
    positions, damage, _ = walk(data)
    assert damage == [(segment.starts[4], segment.starts[6], "bad-header")]
    assert positions == segment.starts[:4] + segment.starts[6:]


def test_damage_at_the_very_start_is_a_range_too():
    segment = Segment().fill(3).blank()
    positions, damage, _ = walk(over(segment.whole(), 0, b"\xee" * 40))
    assert (positions, damage) == (segment.starts[1:], [(0, segment.starts[1], "bad-header")])


def test_damage_before_the_blank_leads_to_the_blank():
    segment = Segment().fill(3).blank()
    positions, damage, made = walk(over(segment.whole(), segment.starts[2], b"\xee" * 40))
    assert (positions, damage) == (segment.starts[:2], [(segment.starts[2], segment.ends[2], "bad-header")])
    assert made.ended_by_blank


def test_a_page_of_zeros_costs_the_records_it_touches_only():
    segment = Segment(size=1 << 16).fill(300).blank()
    data = over(segment.whole(), 8192, bytes(4096))
    positions, damage, _ = walk(data)
    touched = [n for n, at in enumerate(segment.starts) if at < 8192 + 4096 and segment.ends[n] > 8192]
    assert positions == segment.starts[: touched[0]] + segment.starts[touched[-1] + 1 :]
    assert (damage[0][0], damage[-1][1]) == (segment.starts[touched[0]], segment.ends[touched[-1]])
    assert all(before[1] == after[0] for before, after in pairwise(damage))


def test_a_segment_without_a_blank_has_lost_its_end():
    segment = Segment().fill(10)
    positions, damage, made = walk(segment.whole())
    assert (positions, damage) == (segment.starts, [(len(segment.data), 4096, "zeros")])
    assert made.tail is None


@pytest.mark.parametrize("size", [0, 8, 100, 1 << 30, -1])
def test_a_blank_of_a_wrong_size_is_damage_up_to_the_end(size):
    segment = Segment().fill(10)
    data = over(segment.whole(), len(segment.data), build_blank(size))
    assert walk(data)[1] == [(len(segment.data), 4096, "bad-blank")]


def test_a_file_that_ends_inside_a_record_lacks_its_rest():
    segment = Segment().fill(10)
    data = bytes(segment.data)[:-3]
    positions, damage, _ = walk(data)
    assert (positions, damage) == (segment.starts[:-1], [(segment.starts[-1], len(data), "missing")])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 20, 90, 1000])
@pytest.mark.parametrize("byte", [b"\0", b"\xff", b"a"])
def test_a_segment_of_nothing_but_other_bytes_has_no_record(byte, count):
    positions, damage, _ = walk(byte * count)
    assert positions == []
    expected_from = 91 if byte == b"\0" else 8
    assert [(start, end) for start, end, _ in damage] == ([(0, count)] if count >= expected_from else [])


def test_a_walk_may_begin_at_any_record():
    segment = Segment().fill(10).blank()
    for number, start in enumerate(segment.starts):
        assert walk(segment.whole(), start=start)[0] == segment.starts[number:]


def test_a_walk_that_begins_inside_a_record_finds_the_next():
    segment = Segment().fill(10).blank()
    for at in range(segment.starts[3] + 1, segment.starts[4], 7):
        positions, damage, _ = walk(segment.whole(), start=at)
        assert positions == segment.starts[4:]
        assert [(start, end) for start, end, _ in damage] == [(at, segment.starts[4])]


# --- the end of the last segment -------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
def test_zeros_behind_the_last_record_are_a_clean_tail(base):
    segment = Segment(base=base).fill(10)
    positions, damage, made = walk(segment.whole(), base, is_last=True)
    assert (positions, damage) == (segment.starts, [])
    assert (made.tail.kind, made.tail.length, made.tail.end, made.end) == ("clean", 0, *[base + len(segment.data)] * 2)


@pytest.mark.parametrize("length", [0, 3, 7])
def test_a_full_last_segment_has_a_clean_tail(length):
    segment = Segment().fill(3)
    _, damage, made = walk(bytes(segment.data) + bytes(length), is_last=True)
    assert damage == []
    assert (made.tail.kind, made.tail.end) == ("clean", len(segment.data))


def test_a_blank_at_the_end_of_the_last_segment_is_no_tail():
    segment = Segment().fill(3).blank()
    _, damage, made = walk(segment.whole(), is_last=True)
    assert (damage, made.tail, made.ended_by_blank) == ([], None, True)


def test_the_last_record_cut_at_every_byte_is_a_torn_tail_and_no_damage():
    segment = Segment().fill(5)
    last = segment.starts[-1]
    properties = segment.data.index(b"TAGS", last)  # with their length, zeros in their place are properties too
    for cut in range(last + 8, properties):
        positions, damage, made = walk(bytes(segment.data[:cut]).ljust(4096, b"\0"), is_last=True)
        assert (positions, damage) == (segment.starts[:-1], [])
        assert (made.tail.kind, made.tail.end) == ("torn", last)
        assert made.tail.length == len(bytes(segment.data[:cut]).rstrip(b"\0")) - last


def test_a_file_cut_inside_the_last_record_has_a_torn_tail():
    segment = Segment().fill(5)
    for cut in range(segment.starts[-1] + 8, len(segment.data)):
        positions, damage, made = walk(bytes(segment.data[:cut]), is_last=True)
        assert (positions, damage) == (segment.starts[:-1], [])
        assert (made.tail.kind, made.tail.end) == ("torn", segment.starts[-1])


def test_the_head_of_the_last_record_cut_inside_its_magic_is_garbage():
    segment = Segment().fill(5)
    cut = segment.starts[-1] + 6
    _, damage, made = walk(bytes(segment.data[:cut]).ljust(4096, b"\0"), is_last=True)
    assert (damage, made.tail.kind, made.tail.length) == ([], "garbage", 6)


def test_other_bytes_behind_the_last_record_are_garbage():
    segment = Segment().fill(5)
    data = (bytes(segment.data) + b"\xab" * 64).ljust(4096, b"\0")
    positions, damage, made = walk(data, is_last=True)
    assert (positions, damage) == (segment.starts, [])
    assert (made.tail.kind, made.tail.length, made.tail.end) == ("garbage", 64, len(segment.data))


def test_a_wrong_body_in_the_last_record_is_damage_even_at_the_end():
    segment = Segment().fill(5)
    data = over(segment.whole(), segment.starts[-1] + 88, b"X")
    positions, damage, made = walk(data, is_last=True)
    assert (positions, damage) == (segment.starts[:-1], [(segment.starts[-1], len(segment.data), "bad-crc")])
    assert made.end == len(segment.data)


def test_damage_with_records_behind_it_is_damage_in_the_last_segment_too():
    segment = Segment().fill(8)
    data = over(segment.whole(), segment.starts[3], b"\xee" * 88)
    positions, damage, made = walk(data, is_last=True)
    assert positions == segment.starts[:3] + segment.starts[4:]
    assert damage == [(segment.starts[3], segment.starts[4], "bad-header")]
    assert (made.tail.kind, made.tail.end) == ("clean", len(segment.data))


def earlier_life(segment, age=1000):
    """What was behind the segment's records before it was cut there: a part of a record, and whole older ones."""
    at = len(segment.data) + 40
    time = record_of(0).store_timestamp - age
    rest = bytearray(b"\xcd" * 40)
    for _ in range(3):
        rest += encode(segment.base + at, b"stale", store_timestamp=time)
        at = len(segment.data) + len(rest)
    return bytes(rest)


def test_older_records_behind_the_end_are_stale_and_not_read():
    segment = Segment().fill(5)
    rest = earlier_life(segment)
    positions, damage, made = walk((bytes(segment.data) + rest).ljust(4096, b"\0"), is_last=True)
    assert (positions, damage) == (segment.starts, [])
    assert (made.tail.kind, made.tail.end, made.tail.length) == ("stale", len(segment.data), len(rest))


def test_younger_records_behind_other_bytes_are_read():
    segment = Segment().fill(5)
    rest = earlier_life(segment, age=-1000)
    positions, damage, _ = walk((bytes(segment.data) + rest).ljust(4096, b"\0"), is_last=True)
    assert len(positions) == 8
    assert damage == [(len(segment.data), len(segment.data) + 40, "bad-header")]


def test_older_records_that_a_queue_names_are_read():
    segment = Segment().fill(5)
    rest = earlier_life(segment)
    data = (bytes(segment.data) + rest).ljust(4096, b"\0")
    named = len(segment.data) + 40
    positions, _, _ = walk(data, is_last=True, start_index=lambda offset: True if offset >= named else None)
    assert len(positions) == 8


def test_a_whole_record_from_elsewhere_behind_the_end_is_stale():
    segment = Segment().fill(5)
    data = (bytes(segment.data) + encode(77, b"older")).ljust(4096, b"\0")
    positions, damage, made = walk(data, is_last=True)
    assert (positions, damage, made.tail.kind) == (segment.starts, [], "stale")


# --- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [8, 64, 109, 110, 128, 500, 1000, 4096, 5000])
@pytest.mark.parametrize("is_last", [False, True])
def test_where_windows_end_changes_nothing(window, is_last, monkeypatch):
    segment = Segment().fill(20).blank()
    data = segment.whole()
    for number, (at, new) in ((3, (88, b"X")), (6, (0, b"\xee" * 88)), (9, (84, b"\xff" * 4)), (12, (0, bytes(100)))):
        data = over(data, segment.starts[number] + at, new)
    expected, expected_damage, _ = walk(data, is_last=is_last)
    monkeypatch.setattr(segment_bytes, "WINDOW", window)
    positions, damage, _ = walk(data, is_last=is_last)
    assert (positions, damage) == (expected, expected_damage)
    assert len(damage) == 4


@pytest.mark.parametrize("window", [100, 1000, 10_000])
def test_a_record_longer_than_the_window_is_read_whole(window, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", window)
    segment = Segment(size=1 << 18)
    segment.fill(3).add(b"long" * 30_000)
    segment.fill(3).blank()
    assert walk(segment.whole())[:2] == (segment.starts, [])


def test_no_window_is_read_by_a_length_that_nothing_supports(monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", 1 << 12)
    segment = Segment(size=1 << 24).fill(3)
    data = over(segment.whole(), len(segment.data), struct.pack(">ii", 1 << 23, MAGIC_V1))
    counts = []

    def read(position, count):
        counts.append(count)
        return data[position : position + count]

    list(SegmentWalk(read, SegmentSpan(0, len(data), is_last=True)))
    assert max(counts) <= 1 << 20


def test_a_hole_at_the_end_is_not_read():
    segment = Segment(size=1 << 22).fill(3)
    data, read_to = segment.whole(), []

    def read(position, count):
        read_to.append(position + count)
        return data[position : position + count]

    list(SegmentWalk(read, SegmentSpan(0, 1 << 40, data_end=4096, is_last=True)))
    assert max(read_to) <= segment_bytes.WINDOW
