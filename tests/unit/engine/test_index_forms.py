"""Entries chained by array arithmetic and one by one, for columns that no orderly log makes."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool import native
from mqtool.engine.disk.files import Files
from mqtool.engine.index import IndexWriter
from mqtool.formats import index_file
from mqtool.formats.index_file import IndexHeader
from mqtool.records.dispatch import IndexKeys
from tests.support.engine_faults import fast_directory, remove
from tests.support.native import form, needs_native

pytestmark = needs_native

SLOTS, ENTRIES = 7, 60
SEEDS = st.integers(0, 1 << 30)


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
    for name, size in (("one by one", 0), ("arrays", 0), ("compiled", 1)):
        file = Files().create(root / name, index_file.file_size(SLOTS, ENTRIES))
        file.write(index_file.HEADER_SIZE, slots)
        writer = IndexWriter(file, SLOTS, ENTRIES, header)
        with form(compiled=size > 0):
            taken = [put_one_by_one(writer, *part) if name == "one by one" else put(writer, *part) for part in parts]
            asked = [
                writer.lookup(int(key), *times, most)
                for key in (*parts[1][0], 5, 1 << 31)
                for times in ((0, 1 << 62), (6000, 9000), (-1, 0), (0, 1 << 70))
                for most in (0, 1, 99)
            ]
        found.append((taken, asked, writer.header, file.read(0, file.size)))
        writer.close()
    remove(root)
    assert found[0] == found[1]
    assert found[0] == found[2]


def put(writer, *part):
    keys = IndexKeys(np.arange(len(part[0])), *part).select(slice(0, writer.room))
    writer.put_many(keys)
    return len(keys)


def put_one_by_one(writer, *part):
    return sum(writer.put(*row) for row in zip(*(column.tolist() for column in part), strict=True))


def test_bytes_are_found_where_they_are():
    items = (b"", b"a", b"\0" * 5000, b"z" * 17)
    addresses, sizes = np.empty(4, np.uint64), np.empty(4, np.int64)
    assert native.engine.find_bytes(items, addresses, sizes)
    found = [ctypes.string_at(address, size) for address, size in zip(addresses.tolist(), sizes.tolist(), strict=True)]
    assert found == list(items)


@pytest.mark.parametrize("other", [bytearray(b"b"), memoryview(b"m"), "text", 7])
def test_what_is_no_bytes_object_is_not_looked_into(other):
    items = (b"a", other)
    assert not native.engine.find_bytes(items, np.empty(2, np.uint64), np.empty(2, np.int64))
