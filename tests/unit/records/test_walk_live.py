"""A walk beside a writer: what is not written to the end is not there yet, and nothing of it is damage."""

import pytest

from mqtool.records import segment_bytes
from mqtool.records.damage import Damage
from mqtool.records.walk import SegmentSpan, SegmentWalk
from tests.unit.records.walking import Segment

SIZE = 1 << 14


class Writer:
    """A file that another process writes to: `at_read[n]` is what lies there from the nth read on."""

    def __init__(self, *states):
        self.states = list(states)
        self.reads = 0

    def read(self, position, count):
        state = self.states[min(self.reads, len(self.states) - 1)]
        self.reads += 1
        return state[position : position + count]


def walked(read, size=SIZE, **span):
    walk = SegmentWalk(read, SegmentSpan(0, size, **{"is_last": True, **span}))
    positions, damage = [], []
    for item in walk:
        if isinstance(item, Damage):
            damage.append((item.start, item.end, str(item.kind)))
        else:
            positions += item.positions.tolist() if not item.base else (item.positions + item.base).tolist()
    return positions, damage, walk


def padded(segment, end=None):
    return bytes(segment.data[:end]).ljust(SIZE, b"\0")


@pytest.mark.parametrize("window", [128, 1000, SIZE])
def test_records_that_arrive_at_any_read_are_found_or_not_there_yet(window, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", window)
    segment = Segment(size=SIZE).fill(40)
    before, after = padded(segment, segment.ends[4]), padded(segment)
    for number in range(40):
        positions, damage, walk = walked(Writer(*[before] * number, after).read)
        assert damage == []
        assert positions == segment.starts[: len(positions)]
        assert len(positions) >= 5
        assert walk.end == segment.ends[len(positions) - 1]


@pytest.mark.slow
@pytest.mark.parametrize("window", [128, SIZE])
def test_a_record_seen_at_every_stage_of_its_writing_is_found_or_not_there_yet(window, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", window)
    segment = Segment(size=SIZE).fill(12)
    after = padded(segment)
    for cut in range(segment.starts[5] + 1, segment.ends[5]):
        for number in (1, 2, 3):
            positions, damage, _ = walked(Writer(*[padded(segment, cut)] * number, after).read)
            assert damage == []
            assert positions == segment.starts[: len(positions)]
            assert len(positions) >= 5


def test_a_body_that_is_not_written_yet_is_read_once_more():
    segment = Segment(size=SIZE).fill(6)
    hole = bytearray(padded(segment))
    start = segment.starts[5]
    hole[start + 90 : start + 95] = bytes(5)
    assert walked(Writer(bytes(hole), padded(segment)).read)[:2] == (segment.starts, [])
    positions, damage, _ = walked(Writer(bytes(hole)).read)
    assert (positions, damage) == (segment.starts[:5], [(start, segment.ends[5], "bad-crc")])


@pytest.mark.slow
@pytest.mark.parametrize("window", [128, 1000, SIZE])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_file_that_is_cut_at_any_read_ends_there(window, is_last, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", window)
    segment = Segment(size=SIZE).fill(40)
    whole = padded(segment)
    for cut in range(0, segment.ends[39], 211):
        for number in range(12):
            positions, damage, walk = walked(Writer(*[whole] * number, whole[:cut]).read, is_last=is_last)
            assert positions == segment.starts[: len(positions)]
            assert len(positions) >= sum(end <= cut for end in segment.ends) or not is_last
            if is_last:
                assert damage == []
                assert walk.tail.kind in {"torn", "clean", "garbage"}
            else:
                assert damage[-1][1] == SIZE


def test_a_file_that_changes_with_every_read_is_walked_to_an_end():
    segment = Segment(size=SIZE).fill(20)
    one, other = padded(segment), bytearray(padded(segment))
    other[segment.starts[3] : segment.starts[3] + 90] = bytes(90)
    for states in ([one, bytes(other)] * 500, [bytes(other), one] * 500):
        positions, _, _ = walked(Writer(*states).read)
        assert positions == [at for at in segment.starts if at in positions]
        assert len(positions) >= 3
