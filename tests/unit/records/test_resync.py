"""Behind damage the walk goes on at the next record, and never takes one that lies inside a body for it.

The bodies here are made by somebody who wants to be taken for a record: whole frames, with the physical offset at
which they will be, and right CRCs.
"""

import random

import pytest

from mqtool.formats.commit_log import build_blank
from mqtool.records import segment_bytes
from mqtool.records.record_search import extent, next_record, trailer_start
from mqtool.records.segment_bytes import SegmentBytes
from tests.support.builder import encode
from tests.support.tables import combined, in_parts
from tests.unit.records.walking import Segment, over, reader, walk

pytestmark = pytest.mark.usefixtures("either_way")

HEAD = 88
SIZE = 1 << 14


def forged(at, count, before=0, after=0, blank=False):
    """A body at this position: filler, whole frames, perhaps a BLANK to the segment's end, filler."""
    body = bytearray(b"x" * before)
    for number in range(count):
        body += encode(at + len(body), b"forged %d" % number, store_timestamp=1 << 42)
    if blank:
        body += build_blank(SIZE - at - len(body))
    return bytes(body + b"y" * after)


BODIES = {
    "one frame": (1, 0, 0),
    "frames": (5, 0, 0),
    "frames in the middle": (5, 30, 40),
    "frames at the end": (3, 50, 0),
    "frames, then much": (2, 10, 400),
    "a BLANK": (0, 10, 10, True),
    "frames and a BLANK": (3, 10, 10, True),
}


def trap(body, *, behind=6):
    """Five records, one with a forged body, and some more behind it."""
    segment = Segment(size=SIZE).fill(5)
    segment.add(forged(len(segment.data) + HEAD, *BODIES[body]))
    segment.fill(behind)
    return segment


def named_by_queues(segment):
    """A record-start index that knows where records are, as queues do."""
    places = list(zip(segment.starts, segment.ends, strict=True))

    def start_index(offset):
        inside = [start for start, end in places if start <= offset < end]
        return inside[0] == offset if inside else None

    return start_index


def check(segment, data, *, start_index=None, is_last=False):
    """The sixth record is damaged, all others are found, and nothing else."""
    start, end = segment.starts[5], segment.ends[5]
    positions, damage, made = walk(data, start_index=start_index, is_last=is_last)
    assert positions == [at for at in segment.starts if at != start]
    assert [(low, high) for low, high, _ in damage] == [(start, end)]
    return made


@pytest.mark.parametrize("body", BODIES)
def test_a_forged_body_is_a_body(body):
    segment = trap(body).blank()
    assert walk(segment.whole())[:2] == (segment.starts, [])


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
def test_no_bit_of_the_head_lets_a_forged_frame_out(body):
    segment = trap(body).blank()
    start = segment.starts[5]
    for bit in range(8 * HEAD):
        at = start + bit // 8
        data = over(segment.whole(), at, bytes([segment.data[at] ^ 1 << bit % 8]))
        positions, damage, _ = walk(data)
        if damage:  # flag, queue id, times and so on may be anything
            check(segment, data)
        else:
            assert positions == segment.starts


HEADS = {
    "magic": (4, b"\xff" * 4),
    "size": (0, b"\x00\x00\x01\x00"),
    "size and magic": (0, b"\x11" * 8),
    "first eight bytes zero": (0, bytes(8)),
    "stated offset": (28, b"\xff" * 8),
    "body length": (84, b"\x00\x00\x00\x09"),
    "size and body length": (0, None),
    "sys flag": (36, b"\xff" * 4),
}


@in_parts("head, body, is_last", combined(HEADS, BODIES, [False, True]), size=56)
def test_a_damaged_head_lets_no_forged_frame_out(head, body, is_last):
    segment = trap(body).blank()
    start = segment.starts[5]
    at, new = HEADS[head]
    data = segment.whole()
    if new is None:
        data, at, new = over(data, start, b"\x00\x00\x02\x22"), 84, b"\x00\x00\x00\x40"
    check(segment, over(data, start + at, new), is_last=is_last)


WIPED = {
    "zeros": bytes(HEAD),
    "ones": b"\xff" * HEAD,
    "random": random.Random(3).randbytes(HEAD),
    "zeros over the body too": bytes(HEAD + 9),
}


@in_parts("wiped, body, is_last", combined(WIPED, BODIES, [False, True]), size=56)
def test_with_the_whole_head_gone_the_queues_deny_forged_frames(wiped, body, is_last):
    segment = trap(body).blank()
    data = over(segment.whole(), segment.starts[5], WIPED[wiped])
    check(segment, data, start_index=named_by_queues(segment), is_last=is_last)


@in_parts("wiped, body, is_last", combined(WIPED, BODIES, [False, True]), size=56)
def test_with_the_whole_head_gone_and_no_queues_the_rest_of_the_record_denies_them(wiped, body, is_last):
    segment = trap(body).blank()
    check(segment, over(segment.whole(), segment.starts[5], WIPED[wiped]), is_last=is_last)


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("body", ["one frame", "frames", "frames in the middle", "frames at the end"])
@pytest.mark.parametrize("wiped", WIPED)
def test_the_last_record_of_a_segment_is_no_exception(wiped, body, behind):
    segment = trap(body, behind=behind).blank()
    check(segment, over(segment.whole(), segment.starts[5], WIPED[wiped]))


def test_a_torn_record_with_forged_frames_in_its_body_is_a_torn_tail_at_every_cut():
    segment = trap("frames in the middle", behind=0)
    start, end = segment.starts[5], segment.ends[5]
    for cut in range(start + 40, end - 12, 5):
        for whole in (bytes(segment.data[:cut]), bytes(segment.data[:cut]).ljust(SIZE, b"\0")):
            positions, damage, made = walk(whole, is_last=True)
            assert positions == segment.starts[:5]
            assert damage == []
            assert (made.tail.kind, made.tail.end) == ("torn", start)


@pytest.mark.parametrize("body", ["one frame", "frames", "frames in the middle"])
def test_the_log_s_last_record_without_a_head_is_no_source_of_records(body):
    segment = trap(body, behind=0)
    data = over(segment.whole(), segment.starts[5], b"\xff" * HEAD)
    positions, damage, made = walk(data, is_last=True)
    assert (positions, damage, made.tail.kind) == (segment.starts[:5], [], "garbage")


@pytest.mark.parametrize("wiped", WIPED)
@pytest.mark.parametrize("second", ["head", "whole"])
def test_a_real_chain_between_two_damaged_records_is_found(wiped, second):
    segment = Segment(size=SIZE).fill(12).blank()
    data = over(segment.whole(), segment.starts[3], WIPED[wiped])
    start, end = segment.starts[7], segment.ends[7]
    data = over(data, start, WIPED[wiped][:HEAD] if second == "head" else b"\xff" * (end - start))
    positions, damage, _ = walk(data)
    assert positions == segment.starts[:3] + segment.starts[4:7] + segment.starts[8:]
    assert [(low, high) for low, high, _ in damage] == [(segment.starts[3], segment.ends[3]), (start, end)]


def test_a_queue_that_names_nonsense_hides_no_record():
    segment = Segment(size=SIZE).fill(12).blank()
    data = over(segment.whole(), segment.starts[3], b"\xff" * HEAD)
    positions, _, _ = walk(data, start_index=lambda offset: offset == 0)  # a record over the whole segment
    assert positions == segment.starts[:3] + segment.starts[4:]


def test_a_size_that_skips_the_next_record_is_not_believed():
    segment = Segment(size=SIZE).fill(12).blank()
    two = segment.ends[4] - segment.starts[3]
    data = over(segment.whole(), segment.starts[3], two.to_bytes(4))
    positions, damage, _ = walk(data)
    assert positions == segment.starts[:3] + segment.starts[4:]
    assert damage == [(segment.starts[3], segment.ends[3], "bad-lengths")]


def test_a_blank_is_believed_where_only_older_records_follow():
    segment = Segment(size=SIZE).fill(6)
    blank_at = len(segment.data)
    segment.data += build_blank(SIZE - blank_at) + b"z" * 40
    old = encode(len(segment.data), b"old", store_timestamp=5)
    segment.data += old
    positions, damage, made = walk(over(segment.whole(), segment.starts[5], b"\xff" * HEAD))
    assert positions == segment.starts[:5]
    assert [(low, high) for low, high, _ in damage] == [(segment.starts[5], blank_at)]
    assert made.ended_by_blank


def test_an_extent_needs_a_following_record_or_lengths_that_agree():
    segment = Segment(size=SIZE).fill(6).blank()
    whole = segment.whole()

    def extent_of(data):
        return extent(SegmentBytes(reader(data), 0, SIZE), segment.starts[2], SIZE)

    at = segment.starts[2]
    end = segment.ends[2]
    assert extent_of(over(whole, at + 4, b"\0" * 4)) == end  # the next record proves it
    alone = over(whole, end, b"\xff" * HEAD)
    assert extent_of(over(alone, at + 4, b"\0" * 4)) == end  # all lengths agree
    assert extent_of(over(alone, at + 100, b"\0" * 4)) == end  # magic, offset and body length agree
    assert extent_of(over(over(alone, at + 4, b"\0" * 4), at + 84, b"\0\0\0\1")) is None


def test_a_million_headers_in_a_body_do_not_take_forever():
    # each claims the whole rest of the body, and its arithmetic is right: a CRC over all of it is what it asks for
    segment = Segment(size=1 << 22)
    segment.fill(2)
    at = len(segment.data) + HEAD
    room = 1 << 21
    body = bytearray(room)
    for position in range(0, room - 200, 96):
        length = room - position - HEAD - 8
        head = encode(
            at + position,
            b"",
            body_length=length,
            body_crc=1,
            total_size=room - position,
            topic=b"",
            properties=b"",
            properties_length=0,
            topic_length=0,
        )
        body[position : position + HEAD] = head[:HEAD]
    body[-8:] = bytes([5, *b"Topic"]) + bytes(2)
    segment.add(bytes(body))
    segment.fill(3).blank()
    data = over(segment.whole(), segment.starts[2], b"\xff" * HEAD)
    hashed = []
    crc = segment_bytes.Frames.computed_crc

    class Counting:
        def __get__(self, frames, owner):
            hashed.append(int(frames.body_length.sum()))
            return crc.fget(frames)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_bytes.Frames, "computed_crc", Counting())
        positions, damage, _ = walk(data)
    assert positions == segment.starts[:2] + segment.starts[3:]
    assert [(low, high) for low, high, _ in damage] == [(segment.starts[2], segment.ends[2])]
    assert sum(hashed) < 400 << 20


@pytest.mark.parametrize("window", [8, 100, 1000, 1 << 23])
def test_a_record_behind_long_damage_is_found_whatever_the_window(window, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", window)
    data = random.Random(1).randbytes(5000) + bytes(300_000)
    start = len(data)
    data += encode(start, b"found" * 5000)
    segment = SegmentBytes(reader(data), 0, len(data))
    assert next_record(segment, 0) == start
    assert next_record(segment, 0, end=start) is None


@pytest.mark.parametrize("step", [60, 100, 150])
def test_a_chain_of_records_is_followed_though_some_are_longer_than_what_is_read_at_once(step, monkeypatch):
    monkeypatch.setattr(segment_bytes, "CHAIN_STEP", step)
    segment = Segment(size=SIZE)
    for length in (10, 400, 3, 1000):
        segment.add(b"b" * length)
    data = bytes(segment.data)
    assert SegmentBytes(reader(data), 0, len(data)).chain_end(0, SIZE) == len(data)
    cut = data[:-1]
    assert SegmentBytes(reader(cut), 0, len(cut)).chain_end(0, SIZE) == segment.starts[-1]


def test_a_record_whose_file_is_cut_while_it_is_read_is_none():
    """Its lengths were read before, in a few bytes at a time."""
    data = encode(0, b"b" * 5000)
    segment = SegmentBytes(reader(data), 0, len(data))
    assert segment.record(0) is not None

    def cut(position, count):
        return data[position : position + count if count <= segment_bytes.NEAR else len(data) - 10]

    assert SegmentBytes(cut, 0, len(data)).record(0) is None


@pytest.mark.parametrize("length", [1, 50, 121])
def test_the_trailer_of_a_record_is_found_after_bytes_that_only_look_like_the_end_of_one(length):
    """Every byte of "z" may be one of a topic, but fewer than 122 of them have no length in front."""
    trailer = b"\5Topic\0\7TAGS\1a\2"
    lookalike = b"z" * length + len(trailer).to_bytes(2, "big")
    data = lookalike + trailer
    segment = SegmentBytes(reader(data), 0, len(data))
    assert trailer_start(segment, 0, len(data)) == len(lookalike)
    alone = b"z" * length + b"\0\3abc"
    assert trailer_start(SegmentBytes(reader(alone), 0, len(alone)), 0, len(alone)) is None
