"""Index files tell how many slots they have, and are looked up chain by chain, whatever state they are in."""

import os
import struct

import numpy as np
import pytest

import mqtool
from mqtool.engine.start.detect import options_for
from mqtool.errors import LayoutError, StoreError
from mqtool.formats import index_file
from mqtool.formats.index_file import ENTRY, HEADER, IndexEntry
from mqtool.formats.release import V5_5
from mqtool.rebuild import settings as rebuild_settings
from mqtool.recovery.settings import settings_of
from mqtool.store.config import broker_config
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.index_file import IndexFile, list_index_files, shape_of
from mqtool.verify import verify
from mqtool.verify.survey import plan_index
from tests.support.builder import FIRST_TIME, Put, index_bytes
from tests.support.engine import open_small
from tests.support.stores import copy_store
from tests.support.unreadable import unreadable

EVER = (0, 1 << 62)
SHAPES = [(1, 2), (50, 200), (7, 300), (499, 100), (5000, 20_000), (1000, 17)]


@pytest.mark.parametrize(("key", "expected"), [({}, 64), ({"maxMsgsNumBatch": 3}, 3), ({"maxMsgsNumBatch": 80}, 70)])
def test_a_query_by_key_returns_the_newest_up_to_the_configured_number(tmp_path, key, expected):
    with open_small(tmp_path, index_entries=100) as store:
        for _ in range(70):
            store.put("T", 0, b"x", b"KEYS\x01k\x02")
        store.dispatch()
    with mqtool.open(tmp_path, config={"maxHashSlotNum": 10, "maxIndexNum": 100, **key}) as store:
        found = [message.queue_offset for message in store.query_message("T", "k", 1000)]
    assert found == list(range(70 - expected, 70))


def put(number, key):
    return Put(number * 100, 100, "T", 0, number, "", key, "", FIRST_TIME + number * 700, b"")


def keyed(count, keys=40):
    return [(put(number, f"k{number % keys}"), f"k{number % keys}") for number in range(count)]


def written(directory, data, name="20231114221320000"):
    path = directory / name
    path.write_bytes(data)
    return IndexFile(path)


def naive(entries, key, begin=0, end=1 << 62, most=1 << 31):
    """Newest first, by all entries."""
    wanted = index_file.key_hash(index_file.key_text("T", key))
    first = entries[0][0].store_timestamp
    times = [(at, first + (at.store_timestamp - first) // 1000 * 1000, key) for at, key in entries]
    found = [
        at.physical_offset
        for at, time, key in times
        if index_file.key_hash(index_file.key_text("T", key)) == wanted and begin <= time <= end
    ]
    return found[::-1][:most]


@pytest.mark.parametrize(("slots", "places"), SHAPES)
@pytest.mark.parametrize("fill", [1, 2, 0.5, 1.0])
def test_the_number_of_slots_is_worked_out(slots, places, fill, tmp_path):
    count = min(places - 1, int(fill if isinstance(fill, int) else fill * (places - 1)) or 1)
    file = written(tmp_path, index_bytes(keyed(count), slots, places))
    assert (file.slot_count, file.max_entries, file.entry_count) == (slots, places, count)
    assert len(file.entries) == count
    assert np.count_nonzero(file.slots) == file.header.hash_slot_count


@pytest.mark.parametrize(("slots", "places"), [(50, 200), (7, 300), (5000, 20_000)])
def test_a_look_up_gives_what_a_look_at_all_entries_gives(slots, places, tmp_path):
    entries = keyed(min(places - 1, 3000))
    file = written(tmp_path, index_bytes(entries, slots, places))
    times = [entries[0][0].store_timestamp, entries[len(entries) // 2][0].store_timestamp]
    for key in ["k0", "k1", "k39", "absent", ""]:
        wanted = index_file.key_hash(index_file.key_text("T", key))
        assert file.lookup(wanted, *EVER, 1 << 31) == naive(entries, key)
        assert file.lookup(wanted, *EVER, 3) == naive(entries, key, most=3)
        assert file.lookup(wanted, 0, times[1], 1 << 31) == naive(entries, key, end=times[1])
        assert file.lookup(wanted, *EVER, 0) == []


def test_a_look_up_reads_the_chain_and_not_the_file(tmp_path, monkeypatch):
    entries = keyed(10_000, keys=500)
    file = written(tmp_path, index_bytes(entries, 5000, 20_000))
    assert file.slot_count == 5000
    read = []
    original = index_file.ENTRY.size

    from mqtool.store.files import ReadFile

    plain = ReadFile.read
    monkeypatch.setattr(ReadFile, "read", lambda self, at, count: read.append(count) or plain(self, at, count))
    found = file.lookup(index_file.key_hash("T#k7"), *EVER, 5)
    assert found == naive(entries, "k7", most=5)
    assert sum(read) < 100 * original


def test_opening_a_huge_sparse_file_reads_its_head(tmp_path, monkeypatch):
    size = index_file.file_size(index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES)
    path = tmp_path / "20231114221320000"
    with path.open("wb") as file:
        file.truncate(size)
        head = index_bytes(keyed(1), 50, 200)[: HEADER.size]
        file.write(head)
        file.seek(index_file.entry_position(1, index_file.DEFAULT_SLOTS))
        value = index_file.key_hash("T#k0")
        file.write(ENTRY.build(IndexEntry(value, 0, 0, 0)))
        file.seek(index_file.slot_position(value % index_file.DEFAULT_SLOTS))
        file.write(struct.pack(">i", 1))
    read = []
    from mqtool.store.files import ReadFile

    plain = ReadFile.read
    monkeypatch.setattr(ReadFile, "read", lambda self, at, count: read.append(count) or plain(self, at, count))
    index = IndexFile(path)
    assert (index.entry_count, index.slot_count) == (1, index_file.DEFAULT_SLOTS)
    assert index.lookup(value, *EVER, 10) == [0]
    assert sum(read) < 4096


COUNTS = [-(1 << 31), -1, 0, 1, 2, 199, 200, 201, 1000, (1 << 31) - 1]


@pytest.mark.parametrize("count", COUNTS)
def test_a_hostile_count_in_the_header_is_survived(count, tmp_path):
    data = index_bytes(keyed(100), 50, 200)
    file = written(tmp_path, data[:36] + struct.pack(">i", count) + data[40:])
    assert 0 <= file.entry_count <= 281
    assert file.slot_count in {None, 50}
    assert len(file.entries) <= 281
    assert set(file.lookup(index_file.key_hash("T#k3"), *EVER, 1 << 31)) <= set(naive(keyed(100), "k3"))


CHAINS = {
    "itself": lambda number: number,
    "a younger one": lambda number: number + 1,
    "the last": lambda number: 100,
    "a huge one": lambda number: (1 << 31) - 1,
    "a negative one": lambda number: -number,
}


@pytest.mark.parametrize("where", CHAINS)
def test_a_chain_that_does_not_lead_to_older_entries_ends(where, tmp_path):
    data = bytearray(index_bytes(keyed(100), 50, 200))
    for number in range(1, 101):
        at = index_file.entry_position(number, 50) + 16
        data[at : at + 4] = struct.pack(">i", CHAINS[where](number))
    (tmp_path / "20231114221320000").write_bytes(data)
    file = IndexFile(tmp_path / "20231114221320000", slots=50)
    assert set(file.lookup(index_file.key_hash("T#k3"), *EVER, 1 << 31)) <= set(naive(keyed(100), "k3"))


@pytest.mark.parametrize("value", [-1, 0, 101, (1 << 31) - 1, -(1 << 31)])
def test_a_slot_that_names_no_entry_finds_nothing(value, tmp_path):
    data = bytearray(index_bytes(keyed(100), 50, 200))
    data[40:240] = struct.pack(">i", value) * 50
    (tmp_path / "20231114221320000").write_bytes(data)
    file = IndexFile(tmp_path / "20231114221320000", slots=50)
    assert file.lookup(index_file.key_hash("T#k3"), *EVER, 1 << 31) == []


def test_a_file_cut_at_any_byte_gives_values_and_nothing_else(tmp_path):
    data = index_bytes(keyed(20), 10, 30)
    path = tmp_path / "20231114221320000"
    for cut in range(0, len(data), 3):
        path.write_bytes(data[:cut])
        for slots in (None, 10):
            file = IndexFile(path, slots)
            assert len(file.entries) <= 20
            assert set(file.lookup(index_file.key_hash("T#k3"), *EVER, 9)) <= {300}
            assert file.max_entries is None or file.max_entries >= -20


def test_a_file_that_is_cut_behind_our_back_gives_values_and_nothing_else(tmp_path):
    data = index_bytes(keyed(100), 50, 200)
    for cut in (0, 30, 100, 240, 300, 900):
        file = written(tmp_path, data)
        assert file.slot_count == 50
        os.truncate(file.path, cut)
        assert set(file.lookup(index_file.key_hash("T#k3"), *EVER, 9)) <= set(naive(keyed(100), "k3"))
        assert len(file.entries) <= 100


@pytest.mark.parametrize("slots", [-5, 0, 1 << 40])
def test_a_configured_number_of_slots_that_cannot_be_is_not_used(slots, tmp_path):
    (tmp_path / "20231114221320000").write_bytes(index_bytes(keyed(20), 10, 30))
    file = IndexFile(tmp_path / "20231114221320000", slots)
    assert (file.slot_count, file.max_entries, file.lookup(5, *EVER, 9)) == (None, None, [])


def test_a_configured_number_of_slots_overrules(tmp_path):
    (tmp_path / "20231114221320000").write_bytes(bytes(index_file.file_size(10, 30)))
    assert IndexFile(tmp_path / "20231114221320000", 10).max_entries == 30


def test_random_bytes_have_no_slots_and_take_no_time(tmp_path):
    data = np.random.default_rng(5).bytes(1 << 20)
    file = written(tmp_path, data[:36] + struct.pack(">i", 30_000) + data[40:])
    assert file.slot_count is None


def test_index_files_are_listed_by_name_and_the_rest_apart(tmp_path):
    for name in ("20240101000000000", "20230101000000000"):
        (tmp_path / name).write_bytes(index_bytes(keyed(5), 10, 30))
    (tmp_path / "20250101000000000").mkdir()
    (tmp_path / "copy").touch()
    os.mkfifo(tmp_path / "20220101000000000")
    files, strays = list_index_files(tmp_path)
    assert [file.path.name for file in files] == ["20230101000000000", "20240101000000000"]
    assert [path.name for path in strays] == ["20220101000000000", "20250101000000000", "copy"]


def test_a_configuration_that_states_one_number_has_the_brokers_default_for_the_other(tmp_path):
    root, config = copy_store("orders-5.5.0", tmp_path), {"maxHashSlotNum": "100"}
    with mqtool.open(root, config) as store:
        rebuilt = rebuild_settings.settings_of(store, None)
        assert (rebuilt.index_slots, rebuilt.index_entries) == (100, 20_000_000)
        shape = plan_index(store).shape
        assert (shape.slots, shape.places) == (100, 20_000_000)
        assert [one.code for one in verify(store).findings if one.code.startswith("lint")] == ["lint-size"]
    started = settings_of(root, V5_5, broker_config.load(config))
    assert (started.index_slots, started.index_entries) == (100, 20_000_000)
    with pytest.raises(LayoutError, match="maxIndexNum is missing in configuration: a broker expects index files of"):
        options_for(root, config)


def test_a_file_of_the_default_size_without_entries_has_the_default_slots(tmp_path):
    path = tmp_path / "20231114221320000"
    path.touch()
    os.truncate(path, index_file.DEFAULT_FILE_SIZE)
    file = IndexFile(path)
    assert (file.slot_count, file.max_entries, len(file.entries)) == (5_000_000, 20_000_000, 0)


def test_a_file_that_cannot_be_read_says_nothing_about_the_shape_of_others(tmp_path, monkeypatch):
    names = ("20231114221320000", "20231114221320001")
    files = [written(tmp_path, index_bytes(keyed(10), 50, 200), name) for name in names]
    with unreadable(monkeypatch, files[0].path, from_position=0):
        with pytest.raises(StoreError):
            shape_of(files, BrokerConfig())
        shape = shape_of(files, BrokerConfig(), may_be_damaged=True)
    assert (shape.slots, shape.places) == (50, 200)
