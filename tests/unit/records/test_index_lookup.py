"""A look-up finds what going through all entries finds, in the engine's files and in those on disk alike."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqtool.engine.disk.files import Files
from mqtool.engine.index import IndexWriter
from mqtool.formats import index_file
from mqtool.records.index_chains import offsets_in_chain, query_offsets
from mqtool.store.index_file import IndexFile
from tests.support.engine_faults import fast_directory, remove

SLOTS, ENTRIES = 3, 20
entries = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), min_size=3, max_size=60)
TIMES = st.integers(0, 10).map(lambda second: second * 1000)


def written(root, rows) -> list[IndexWriter]:
    """Files of entries of (hash, seconds): their physical offsets count up."""
    files: list[IndexWriter] = []
    for number, (key_hash, second) in enumerate(rows):
        if not files or not files[-1].room:
            file = Files().create(root / f"{20231114221320000 + number}", index_file.file_size(SLOTS, ENTRIES))
            before = files[-1].header if files else None
            files.append(IndexWriter(file, SLOTS, ENTRIES, index_file.header_after(before)))
        files[-1].put(key_hash, number, second * 1000)
    return files


def expected(rows, key_hash, most, begin, end):
    """By IndexService.queryOffset and IndexFile.selectPhyOffset, over plain lists."""
    per_file = ENTRIES - 1
    found, previous_end = [], 0
    files = []
    for start in range(0, len(rows), per_file):
        mine = rows[start : start + per_file]
        first = mine[0][1] * 1000
        seconds = [max(0, second * 1000 - first) // 1000 if first > 0 else 0 for _, second in mine]
        seconds[0] = max(0, first - previous_end) // 1000 if previous_end > 0 else 0
        previous_end = mine[-1][1] * 1000
        files.append((start, mine, first, previous_end, seconds))
    for start, mine, first, last, seconds in reversed(files):
        if (begin < first and end > last) or first <= begin <= last or first <= end <= last:
            for at in range(len(mine) - 1, -1, -1):
                if mine[at][0] % SLOTS != key_hash % SLOTS:
                    continue
                time = first + seconds[at] * 1000
                if mine[at][0] == key_hash and begin <= time <= end and len(found) < most:
                    found.append(start + at)
                if time < begin:
                    break
        if first < begin or len(found) >= most:
            break
    return found


@given(entries, st.integers(0, 4), st.integers(0, 9), TIMES, TIMES)
def test_a_look_up_finds_what_the_broker_finds(rows, key_hash, most, begin, end):
    root = fast_directory()
    files = written(root, rows)
    disk = [IndexFile(file.file.path, SLOTS) for file in files]
    due = expected(rows, key_hash, most, begin, end)
    assert query_offsets(files, key_hash, most, begin, end) == due
    assert query_offsets(disk, key_hash, most, begin, end) == due
    for file in files:
        file.close()
    remove(root)


@given(st.integers(0, 1 << 30))
def test_a_look_up_in_damaged_chains_ends_alike(seed):
    random, root = np.random.default_rng(seed), fast_directory()
    (file,) = written(root, [(int(key), int(at)) for at, key in enumerate(random.integers(0, 8, ENTRIES - 1))])
    for number in random.integers(1, ENTRIES, 4).tolist():
        value = int(random.choice([-1, 0, number, number + 1, 5, 1 << 30, -(1 << 31)]))
        file.file.write(index_file.entry_position(number, SLOTS) + 16, value.to_bytes(4, "big", signed=True))
    disk = IndexFile(file.file.path, SLOTS)
    for key_hash in range(9):
        assert file.lookup(key_hash, 0, 1 << 40, 99) == disk.lookup(key_hash, 0, 1 << 40, 99)
    file.close()
    remove(root)


def in_chain(rows, key_hash, begin, end, most=9):
    """Rows are entries from number 1 on, the last one the newest."""
    read = dict(enumerate(rows, 1)).get
    return offsets_in_chain(
        read, len(rows), index_file.IndexHeader(0, 0, 0, 0, 0, len(rows) + 1), len(rows), (key_hash, begin, end), most
    )


def test_a_chain_ends_at_a_negative_time_at_an_entry_that_is_too_old_and_where_it_leads_back():
    chain = [(5, 50, 10, 0), (5, 100, -1, 1), (5, 200, 20, 2), (5, 300, 30, 3)]
    assert in_chain(chain, 5, 0, 60_000) == [300, 200]
    assert in_chain(chain, 5, 0, 60_000, most=1) == [300]
    assert in_chain([chain[0], (5, 200, 20, 1), (5, 300, 30, 2)], 5, 25_000, 60_000) == [300]
    assert in_chain([(5, 50, 10, 0), (5, 100, 10, 2)], 5, 0, 60_000) == [100]
    assert in_chain(chain, 6, 0, 60_000) == []
