"""The run of valid records from a position: it ends at the first byte that belongs to none, and never searches on."""

import pytest

from mqtool.records import segment_bytes
from mqtool.records.walk import intact_run
from tests.unit.records.walking import Segment, reader

pytestmark = pytest.mark.usefixtures("either_way")

BASE = 1 << 20


def offsets(data, start=0, end=None):
    runs = intact_run(reader(data), BASE, start, len(data) if end is None else end)
    return [at + frames.base - BASE for frames in runs for at in frames.positions.tolist()]


def segment():
    return Segment(base=BASE).fill(8)


def test_all_records_are_yielded_up_to_the_zeros():
    log = segment()
    assert offsets(log.whole()) == log.starts
    assert offsets(log.whole(), start=log.starts[3]) == log.starts[3:]


def test_a_record_that_reaches_beyond_the_end_is_none():
    log = segment()
    assert offsets(log.whole(), end=log.ends[5] - 1) == log.starts[:5]
    assert offsets(log.whole(), end=log.ends[5]) == log.starts[:6]


@pytest.mark.parametrize("at", range(8))
def test_nothing_after_damage_is_yielded(at):
    log = segment()
    log.data[log.starts[at] + 28] ^= 0xFF  # its own physical offset
    assert offsets(log.whole()) == log.starts[:at]


@pytest.mark.parametrize("window", [8, 100, 200, 1000])
def test_windows_change_nothing_not_even_shorter_ones_than_a_record(window, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", window)
    log = segment()
    log.add(b"x" * 1500)
    log.fill(2)
    assert offsets(log.whole()) == log.starts


def test_a_length_beyond_the_file_is_not_read():
    log = segment()
    data = bytearray(log.whole())
    data[log.starts[2] : log.starts[2] + 4] = (1 << 30).to_bytes(4, "big")
    assert offsets(bytes(data)) == log.starts[:2]
