"""Units packed and entries chained by kernels, beside array arithmetic, for columns that no orderly log makes."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool import kernels
from mqtool.engine.disk.files import Files
from mqtool.engine.dispatch import units as dispatch_units
from mqtool.engine.index.index_file import IndexWriter
from mqtool.formats import index_file
from mqtool.formats.index_file import IndexHeader
from mqtool.records.dispatched import QueueUnits
from tests.support.engine_faults import fast_directory, remove

compiled = kernels.load()
pytestmark = pytest.mark.skipif(compiled is None, reason="needs numba")

SLOTS, ENTRIES = 7, 60
SEEDS = st.integers(0, 1 << 30)


def units_of(seed: int) -> QueueUnits:
    """Units in a few queues, whose offsets now and then leave some out or begin again."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 80))
    topic, queue_id = random.integers(0, 3, count).astype(np.int32), random.integers(0, 3, count).astype(np.int32)
    offset = np.empty(count, np.int64)
    following: dict[tuple[int, int], int] = {}
    for row, queue in enumerate(zip(topic.tolist(), queue_id.tolist(), strict=True)):
        jump = int(random.choice([0, 0, 0, 0, 0, 0, 5, -3]))
        offset[row] = following.get(queue, int(random.integers(0, 1 << 40))) + jump
        following[queue] = int(offset[row]) + 1
    physical = np.cumsum(random.integers(91, 1 << 33, count))
    sizes = random.integers(91, 1 << 30, count).astype(np.int32)
    tags = random.integers(-(1 << 63), (1 << 63) - 1, count)
    return QueueUnits(
        np.arange(count), topic, queue_id, offset, physical, sizes, tags, physical, np.ones(count, np.int16)
    )


@given(SEEDS)
def test_units_are_packed_the_same(seed):
    units = units_of(seed)
    plain, packed = dispatch_units._packed(units), dispatch_units._packed_by_kernel(compiled, units)
    assert _by_queue(units, packed) == _by_queue(units, plain)


def _by_queue(units, packed):
    found, start = {}, 0
    for first, stop, gap in zip(packed.firsts.tolist(), packed.stops.tolist(), packed.gaps.tolist(), strict=True):
        queue = int(units.topic[first]), int(units.queue_id[first])
        found[queue] = (first, packed.order[start:stop].tolist(), packed.data[start * 20 : stop * 20], bool(gap))
        start = stop
    return found


@given(SEEDS, st.sampled_from([0, 5000]), st.booleans())
def test_entries_are_chained_the_same_over_slots_of_any_content(seed, begin, is_new):
    root, random = fast_directory(), np.random.default_rng(seed)
    slots = random.choice([0, 0, 1, 2, 5, 50, 1 << 30, -1], SLOTS).astype(">i4").tobytes()
    header = IndexHeader(begin, begin, 0, 0, 0, 1 if is_new else 6)
    parts = [
        (
            random.integers(0, 1 << 31, n).astype(np.int32),
            np.sort(random.integers(0, 1 << 60, n)),
            random.integers(0, 20_000, n) * random.choice([1, 1 << 40]),
        )
        for n in (1, 20, 50)
    ]
    found = []
    for size in (0, kernels.LARGE):
        file = Files().create(root / str(size), index_file.file_size(SLOTS, ENTRIES))
        file.write(index_file.HEADER_SIZE, slots)
        writer = IndexWriter(file, SLOTS, ENTRIES, header)
        with kernels.use(size):
            taken = [writer.put_many(*columns) for columns in parts]
        found.append((taken, writer.header, file.read(0, file.size)))
        writer.close()
    remove(root)
    assert found[0] == found[1]


def test_bytes_are_found_where_they_are():
    items = (b"", b"a", b"\0" * 5000, b"z" * 17)
    addresses, sizes = np.empty(4, np.uint64), np.empty(4, np.int64)
    assert compiled.find_bytes(id(items), id(bytes), addresses, sizes)
    found = [ctypes.string_at(address, size) for address, size in zip(addresses.tolist(), sizes.tolist(), strict=True)]
    assert found == list(items)


@pytest.mark.parametrize("other", [bytearray(b"b"), memoryview(b"m"), "text", 7])
def test_what_is_no_bytes_object_is_not_looked_into(other):
    items = (b"a", other)
    assert not compiled.find_bytes(id(items), id(bytes), np.empty(2, np.uint64), np.empty(2, np.int64))
