"""Walks over DLedger data files made byte by byte: every cut, every damaged byte, every place to begin."""

import pytest

from mqtool.formats.dledger import BLANK_ENTRY, ENTRY, BlankEntry, EntryHeader
from mqtool.records.damage import Damage
from mqtool.records.entries import walk_kind
from mqtool.records.segment_bytes import WINDOW
from mqtool.records.walk import SegmentSpan
from tests.support.builder import FIRST_TIME, encode

BASE = 8192
SIZE = 4096


def ledger_file(bodies, *, blank=False):
    """The bytes of a data file, and the position of each record."""
    data, places = b"", []
    for index, body in enumerate(bodies):
        at = len(data)
        record = encode(BASE + at + ENTRY.size, body, store_timestamp=FIRST_TIME + index)
        header = EntryHeader(1, ENTRY.size + len(record), index, 0, BASE + at, 0, 0, 0, len(record))
        data += ENTRY.build(header) + record
        places.append(at + ENTRY.size)
    if blank:
        data += BLANK_ENTRY.build(BlankEntry(-1, SIZE - len(data)))
    return data.ljust(SIZE, b"\0"), places


def walk(data, *, start=0, is_last=True, check_crc=True):
    """Positions of the records, ranges of the damage, and the walk."""
    span = SegmentSpan(BASE, len(data), start, is_last=is_last, entries=True)
    made = walk_kind(span)(lambda position, count: data[position : position + count], span, check_crc=check_crc)
    records, damage = [], []
    for item in made:
        if isinstance(item, Damage):
            damage.append((item.start - BASE, item.end - BASE, str(item.kind)))
        else:
            assert item.valid.all()
            records += (item.positions + (item.base - BASE)).tolist()
    return records, damage, made


BODIES = [b"a" * 30, b"", b"c" * 700, b"d" * 5, b"e" * 200]
DATA, PLACES = ledger_file(BODIES)
END = PLACES[-1] + len(encode(0, BODIES[-1]))


def test_every_record_is_found_and_zeros_follow():
    records, damage, made = walk(DATA)
    assert (records, damage, made.end, made.tail.kind) == (PLACES, [], BASE + END, "clean")


def test_a_blank_entry_ends_the_file():
    data, places = ledger_file(BODIES, blank=True)
    records, damage, made = walk(data, is_last=False)
    assert (records, damage, made.ended_by_blank, made.end) == (places, [], True, BASE + SIZE)


def test_a_blank_entry_that_does_not_end_at_the_file_s_end_is_damage():
    data, places = ledger_file(BODIES, blank=True)
    at = data.index(BLANK_ENTRY.build(BlankEntry(-1, SIZE - END)))
    harmed = data[:at] + BLANK_ENTRY.build(BlankEntry(-1, SIZE - END - 4)) + data[at + BLANK_ENTRY.size :]
    records, damage, made = walk(harmed, is_last=False)
    assert (records, made.ended_by_blank) == (places, False)
    assert [(start, kind) for start, _, kind in damage] == [(END, "bad-blank")]


def test_entries_of_an_earlier_life_of_the_last_file_are_its_tail():
    """Whole entries with right offsets after zeros, older than the newest one before them."""
    old = [b"old %d" % number for number in range(9)]
    earlier, before = ledger_file(old)
    new = encode(BASE + ENTRY.size, b"new", store_timestamp=FIRST_TIME + 1000)
    header = ENTRY.build(EntryHeader(1, ENTRY.size + len(new), 0, 1, BASE, 0, 0, 0, len(new)))
    end = ENTRY.size + len(new)
    rest = next(place - ENTRY.size for place in before if place - ENTRY.size >= end + 8)
    records, damage, made = walk(header + new + bytes(rest - end) + earlier[rest:])
    assert (records, damage, made.end) == ([ENTRY.size], [], BASE + end)
    assert (made.tail.kind, made.tail.detail) == ("stale", "old entries left by a truncation")


def test_an_entry_larger_than_a_window_is_read():
    """RocketMQ limits bodies to 4 MiB by default; maxMessageSize may allow more."""
    large = b"x" * (WINDOW + 1000)
    data, at, places = b"", 0, []
    for index, body in enumerate([b"before", large, b"after"]):
        record = encode(BASE + at + ENTRY.size, body)
        data += (
            ENTRY.build(EntryHeader(1, ENTRY.size + len(record), index, 0, BASE + at, 0, 0, 0, len(record))) + record
        )
        places.append(at + ENTRY.size)
        at = len(data)
    assert walk(data)[0] == places
    harmed = bytearray(data)
    harmed[places[1] + 84 : places[1] + 88] = bytes(4)  # the length of the body
    assert walk(bytes(harmed))[0] == [places[0], places[2]]


@pytest.mark.parametrize("left", [8, 9, 47, 48, 55, 56, 100])
def test_a_blank_entry_may_be_as_short_as_its_own_fields(left):
    fill = SIZE - left - END - ENTRY.size - len(encode(0, b""))
    data, places = ledger_file([*BODIES, b"x" * fill], blank=True)
    records, damage, made = walk(data, is_last=False)
    assert (records, damage, made.ended_by_blank) == (places, [], True)


def test_a_walk_begins_at_an_entry_or_at_its_record():
    for number, place in enumerate(PLACES):
        assert walk(DATA, start=place)[0] == PLACES[number:]
        assert walk(DATA, start=place - ENTRY.size)[0] == PLACES[number:]


def test_a_file_cut_anywhere_keeps_what_is_whole_before_the_cut():
    ends = [after - ENTRY.size for after in PLACES[1:]] + [END]
    for cut in range(END + 1):
        records, _, made = walk(DATA[:cut])
        assert records == [place for place, end in zip(PLACES, ends, strict=True) if end <= cut]
        assert made.end <= BASE + cut


def test_one_damaged_byte_costs_one_record_at_most():
    for position in range(END):
        data = bytearray(DATA)
        data[position] ^= 0x55
        records, _, _ = walk(bytes(data))
        hit = max((place for place in PLACES if place - ENTRY.size <= position), default=0)
        assert [place for place in PLACES if place != hit] == [place for place in records if place != hit], position


def test_a_damaged_header_costs_no_record_and_is_damage_itself():
    for position in range(4):
        data = bytearray(DATA)
        data[PLACES[2] - ENTRY.size + position] ^= 0x55
        records, damage, _ = walk(bytes(data))
        assert records == PLACES
        assert damage == [(PLACES[2] - ENTRY.size, PLACES[2], "bad-header")]


def test_a_wrong_body_is_the_damage_of_its_record():
    data = DATA.replace(b"ccc", b"cXc", 1)
    records, damage, _ = walk(data)
    assert records == [place for place in PLACES if place != PLACES[2]]
    assert damage == [(PLACES[2], PLACES[3] - ENTRY.size, "bad-crc")]
    assert walk(data, check_crc=False)[0] == PLACES


def test_an_entry_inside_a_body_is_no_entry():
    inner = DATA[: PLACES[1] - ENTRY.size]
    data, places = ledger_file([b"first", inner * 3, b"last"])
    assert walk(data)[0] == places
    harmed = bytearray(data)
    harmed[places[1] + 20] ^= 1  # the outer record is damaged, what it holds states other places
    assert walk(bytes(harmed))[0] == [places[0], *places[2:]] or walk(bytes(harmed))[0] == places


@pytest.mark.parametrize("value", [-(1 << 31), -1, 0, 47, 48, 8192, (1 << 31) - 1])
@pytest.mark.parametrize("name", ["size", "body_length", "position"])
def test_hostile_numbers_in_the_header_of_an_entry_cost_no_record(name, value):
    width = 8 if name == "position" else 4
    for place in PLACES:
        at = place - ENTRY.size + ENTRY.offset(name)
        data = bytearray(DATA)
        data[at : at + width] = value.to_bytes(width, "big", signed=True)
        assert walk(bytes(data))[0] == PLACES
