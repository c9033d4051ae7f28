"""CRCs of ranges of memory that is filled again and again."""

import random
import zlib

import numpy as np
import pytest

from mqtool import native
from mqtool.formats import commit_log
from mqtool.records import frames
from mqtool.records.frames import crc32_of_ranges
from tests.support.native import form, needs_native
from tests.support.tables import in_parts


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


@needs_native
@in_parts("size", [*range(140), 1000, 4096, 9001], size=200)
def test_both_forms_compute_the_crc_of_zlib(size):
    data = random.Random(size).randbytes(size + 16)
    for start in (0, 1, 7):
        body = memoryview(data)[start : start + size]
        for compiled in (False, True):
            with form(compiled=compiled):
                assert frames.body_crc(body) == zlib.crc32(body) & 0x7FFFFFFF


@needs_native
def test_ranges_outside_the_memory_are_refused():
    logs, crcs = native.logs, np.empty(1, np.int32)
    for start, end in ((-1, 3), (0, 9)):
        with pytest.raises(ValueError, match="not inside"):
            logs.crcs_of(bytes(8), np.array([start]), np.array([end]), crcs)
