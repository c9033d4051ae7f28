"""The array-wise index builder makes the bytes that the broker's putKey makes key by key."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtool.formats.index_file import HEADER
from mqtool.records import index_chains
from mqtool.records.dispatch import IndexKeys
from mqtool.records.index_chains import IndexBuilder, IndexFileBuilder
from tests.unit.rebuild.model import IndexModel

times = st.integers(-2000, 100_000) | st.integers(1_700_000_000_000, 1_700_000_100_000) | st.just(1 << 62)
runs = st.lists(st.tuples(st.lists(st.integers(0, (1 << 31) - 1), max_size=5), times), max_size=30)


def keys_of(records):
    """Columns of [(offset, [hash], time)]."""
    rows = [(row, one, offset, time) for row, (offset, hashes, time) in enumerate(records) for one in hashes]
    columns = np.array(rows, np.int64).reshape(-1, 4)
    return IndexKeys(columns[:, 0], columns[:, 1].astype(np.int32), columns[:, 2], columns[:, 3])


class Image:
    """Collects what a builder gives into the bytes of files."""

    def __init__(self, slots, capacity):
        self.size = 40 + 4 * slots + 20 * capacity
        self.slots = slots
        self.files = {}

    def take(self, pieces):
        for file, piece in pieces:
            image = self.files.setdefault(id(file), (file, bytearray(self.size)))[1]
            at = 40 + 4 * self.slots + 20 * piece.first
            image[at : at + 20 * len(piece.entries)] = piece.entries.tobytes()

    def images(self):
        for file, image in self.files.values():
            image[:40] = HEADER.build(file.header)
            image[40 : 40 + 4 * self.slots] = file.slot_bytes()
        return [bytes(image) for _, image in self.files.values()]


def numbered(run, first=0):
    return [(first + 100 * number, hashes, time) for number, (hashes, time) in enumerate(run)]


def feed(builder, image, records):
    if records:
        image.take(list(builder.add(keys_of(records), len(records))))


def modelled(records, slots, capacity):
    model = IndexModel(slots, capacity)
    for offset, hashes, time in records:
        model.record([(one, offset, time) for one in hashes], offset)
    return [bytes(file) for file in model.files]


@pytest.mark.slow
@settings(max_examples=300)
@given(runs, st.integers(1, 12), st.integers(2, 9), st.lists(st.integers(0, 30), max_size=4))
def test_files_are_those_of_put_key(run, slots, capacity, cuts):
    records = numbered(run)
    builder, image = IndexBuilder(slots, capacity), Image(slots, capacity)
    edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    for start, end in pairwise(edges):
        feed(builder, image, records[start:end])
    assert image.images() == modelled(records, slots, capacity)


def test_a_chunk_longer_than_a_pass_is_chained_across_passes(monkeypatch):
    monkeypatch.setattr(index_chains, "CHUNK", 64)
    random = np.random.default_rng(5)
    run = [([int(one)], 1_700_000_000_000) for one in random.integers(0, 300, 64 * 2 + 7)]
    builder, image = IndexBuilder(97, 500), Image(97, 500)
    feed(builder, image, numbered(run))
    assert image.images() == modelled(numbered(run), 97, 500)


@given(runs, st.integers(0, 30), st.integers(1, 12), st.integers(2, 40))
def test_a_file_that_is_there_is_gone_on_with_and_the_last_record_indexed_twice(run, cut, slots, capacity):
    records = numbered(run)
    first, rest = records[: min(cut, len(records))], records[max(0, min(cut, len(records)) - 2) :]
    model = IndexModel(slots, capacity)
    builder, image = IndexBuilder(slots, capacity), Image(slots, capacity)
    feed(builder, image, first)
    if builder.file is None:
        return
    resumed = IndexFileBuilder.resumed(builder.file.header, builder.file.heads.astype(">i4"), capacity)
    before = image.images()
    again = Image(slots, capacity)
    again.files[id(resumed)] = (resumed, bytearray(before[-1]))
    feed(IndexBuilder(slots, capacity, resumed), again, rest)
    for offset, hashes, time in first + rest:
        model.record([(one, offset, time) for one in hashes], offset)
    assert before[:-1] + again.images() == [bytes(file) for file in model.files]


def test_a_full_last_file_is_followed_by_an_empty_one_once_another_record_comes():
    full = [(0, [1], 5000), (100, [2], 6000)]
    builder, image = IndexBuilder(3, 3), Image(3, 3)
    feed(builder, image, full)
    assert len(image.files) == 1
    feed(builder, image, [(200, [], 7000)])
    assert [HEADER.parse(file) for file in image.images()][1].index_count == 1
    assert image.images() == modelled([*full, (200, [], 7000)], 3, 3)


def test_a_record_that_is_left_out_begins_a_new_file_too():
    full, again = [(0, [1], 5000), (100, [2], 6000)], [(0, [1], 5000), (50, [3], 5500)]
    builder, image = IndexBuilder(3, 3), Image(3, 3)
    feed(builder, image, full)
    feed(builder, image, again)
    assert len(image.files) == 2
    assert image.images() == modelled([*full, *again], 3, 3)


def test_heads_that_the_broker_takes_for_empty_are_empty():
    header = HEADER.parse(bytes(36) + (3).to_bytes(4, "big"))
    resumed = IndexFileBuilder.resumed(header, np.array([-1, 5, 3, 2], ">i4"), 10)
    keys = keys_of([(0, [0, 1, 2, 3], 5)])
    assert resumed.add(keys).entries["previous"].tolist() == [0, 0, 3, 2]
    assert resumed.header.hash_slot_count == 2
