"""CRCs of ranges of memory that is filled again and again."""

import importlib.util
import random
import sys
import zlib

import numpy as np
import pytest

from mqtool.formats import commit_log
from mqtool.records import crc
from mqtool.records.crc import crc32_of_ranges


@pytest.mark.parametrize("offset", [0, 7])
def test_memory_that_is_filled_anew_has_new_crcs_whether_its_ranges_are_the_same_or_not(offset):
    rnd, memory = random.Random(1), bytearray(300_000)
    view = memoryview(memory)[offset:]
    for width in (700, 700, 700, 650, 650, 700, 700):
        memory[:] = rnd.randbytes(len(memory))
        starts = np.arange(0, len(view) - width, width)
        found = crc32_of_ranges(view, starts, starts + width - 9)
        parts = [bytes(view[at : at + width - 9]) for at in starts.tolist()]
        assert found.tolist() == [commit_log.body_crc(part) for part in parts]


def test_another_memory_with_the_same_ranges_has_its_own_crcs():
    starts = np.arange(0, 100_000, 1000)
    for value in (1, 2, 3, 3):
        memory = bytearray([value]) * 200_000
        for view in (memoryview(memory), memoryview(memory)[5:]):
            for _ in range(3):
                memory[:] = bytes([value]) * 1000 + bytes(len(memory) - 1000)
                found = crc32_of_ranges(view, starts, starts + 990)
                assert found.tolist() == [commit_log.body_crc(bytes(view[at : at + 990])) for at in starts.tolist()]


def test_without_isal_the_crcs_are_the_same(monkeypatch):
    """There is no wheel of it for every machine."""
    monkeypatch.setitem(sys.modules, "isal", None)
    spec = importlib.util.spec_from_file_location("crc_without_isal", crc.__file__)
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    assert plain.crc32 is zlib.crc32
    data, starts = memoryview(random.Random(2).randbytes(50_000)), np.arange(0, 40_000, 700)
    for size in (0, 100, 699, 9000):
        found = plain.crc32_of_ranges(data, starts, starts + size)
        assert found.tolist() == crc32_of_ranges(data, starts, starts + size).tolist()
        assert found.tolist() == [commit_log.body_crc(bytes(data[at : at + size])) for at in starts.tolist()]
