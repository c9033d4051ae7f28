"""Queues and tables in RocksDB: what the real broker kept there, and both ways between RocksDB and files."""

import importlib.util
import json
import os
import shutil

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.convert.queues import into_files, into_rocksdb
from mqtool.engine.options import StoreOptions
from mqtool.engine.start.detect import check_admission
from mqtool.errors import RefusedError, StoreError, UnreadableError, UnsupportedFormatError
from mqtool.export.sources import resolve
from mqtool.formats.consume_queue import (
    CHECKPOINT_TOPIC,
    ROCKS_BOUND,
    ROCKS_MAX,
    ROCKS_UNIT,
    bound_key,
    parse_bound_key,
    unit_key,
)
from mqtool.repair import Purge, make_plan
from mqtool.repair.backup import backup
from mqtool.repair.salvage import SalvageOptions, salvage
from mqtool.scan.dataset import Stores
from mqtool.scan.tables import tables_of as scan_tables
from mqtool.store.config.rocksdb import Database
from mqtool.store.describe import describe, oddities
from mqtool.store.files import list_directory
from mqtool.store.groups.positions import in_flight
from mqtool.store.queues.rocksdb_queues import QueueDatabase
from mqtool.store.waiting.pending import PendingKind
from mqtool.verify import Area, Severity, State
from mqtool.verify.store import Options, verify
from tests.support.builder import StoreBuilder
from tests.support.damage import held_lock
from tests.support.expired import KEYS, store_with_expired_queue
from tests.support.stores import answers, copy_store, copy_tree, store_fixture, tree_digest
from tests.support.unreadable import unreadable

if importlib.util.find_spec("rocksdict") is None:
    pytest.skip("rocksdict is not installed: the extra rocksdb has it", allow_module_level=True)

import rocksdict

from mqtool.store.queues.rocksdb_queues import MAX_OFFSETS
from tests.support.tiers import night

NAME = "rocksdb-cq-5.5.0"
ROOT = store_fixture(NAME).directory


def put(root, key, value, family="default"):
    """Changes one row of a store's queues; None deletes it."""
    path = str(root / "consumequeue")
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(path, options, column_families=dict.fromkeys(rocksdict.Rdict.list_cf(path), options))
    rows = database.get_column_family(family)
    if value is None:
        del rows[key]
    else:
        rows[key] = value
    database.close()


def test_a_manifest_that_the_library_never_finishes_reading_is_an_error_within_seconds(tmp_path, capsys):
    """One byte makes the first whole record of the MANIFEST the last part of one that was begun nowhere."""
    root = copy_store(NAME, tmp_path)
    manifest = root / "consumequeue" / "MANIFEST-000005"
    data = bytearray(manifest.read_bytes())
    assert data[13] == 1
    data[13] = 7
    manifest.write_bytes(data)
    with pytest.raises(StoreError, match=r"consumequeue: .* does not return from it within 4 s of processor time; re"):
        Database(root / "consumequeue")
    assert run(["info", str(root)]) == 0
    capsys.readouterr()
    assert run(["verify", str(root)]) == 1
    assert "rocksdb-unreadable: consumequeue" in capsys.readouterr().out


def test_a_damaged_manifest_is_named_by_its_place_in_the_store(tmp_path):
    root = copy_store(NAME, tmp_path)
    manifest = root / "consumequeue" / "MANIFEST-000005"
    data = bytearray(manifest.read_bytes())
    data[100] ^= 1
    manifest.write_bytes(data)
    with pytest.raises(StoreError, match="checksum") as caught:
        Database(root / "consumequeue")
    assert str(manifest) in str(caught.value)


@pytest.mark.parametrize("needed", [False, True])
def test_a_file_that_is_deleted_while_a_database_is_opened_is_missed_only_if_it_is_needed(
    needed, tmp_path, monkeypatch
):
    path = copy_store(NAME, tmp_path) / "consumequeue"
    gone = next(path.glob("MANIFEST-*")) if needed else path / "999999.log"
    gone.touch()

    def list_and_delete(directory):
        yield from list(list_directory(directory))
        gone.unlink()

    monkeypatch.setattr("mqtool.store.config.rocksdb.list_directory", list_and_delete)
    if needed:
        with pytest.raises(StoreError, match="cannot be opened as a RocksDB"):
            QueueDatabase(path)
    else:
        with QueueDatabase(path) as database:
            assert list(database.queues())


def test_every_row_is_what_the_broker_kept_and_nothing_is_written():
    before = tree_digest(ROOT)
    expected = answers(NAME, "rocksdb")
    with QueueDatabase(ROOT / "consumequeue") as database:
        units = [
            [topic, queue_id, offset, unit.physical_offset, unit.size, unit.tags_code, unit.store_timestamp]
            for topic, queue_id, first, last in database.queues()
            for offset, unit in database.units(topic, queue_id, first, last - first + 1)
        ]
        bounds = {parse_bound_key(key): value for key, value in database.bounds()}
    fields = ("topic", "queueId", "queueOffset", "phyOffset", "size", "tagsCode", "storeTime")
    assert units == [[line[field] for field in fields] for line in expected if line["cf"] == "default"]
    for line in (line for line in expected if line["cf"] == "offset"):
        value = bounds.pop((line["topic"].encode(), line["queueId"], line["bound"].encode()))
        if line["topic"].encode() == CHECKPOINT_TOPIC:
            assert value.hex() == line["valueHex"]
        else:
            bound = ROCKS_BOUND.parse(value)
            assert (bound.physical_offset, bound.queue_offset) == (line["phyOffset"], line["queueOffset"])
    assert not bounds
    assert tree_digest(ROOT) == before


def test_messages_are_found_through_queues_in_rocksdb():
    lines = answers(NAME, "messages")
    before = tree_digest(ROOT)
    with mqtool.open(ROOT) as store:
        ends = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in store.queues()}
        for line in lines:
            if line["kind"] == "queue" and line["maxOffset"]:
                assert ends[line["topic"], line["queueId"]] == (line["minOffset"], line["maxOffset"])
            elif line["kind"] == "message":
                found = store.get_message(line["topic"], line["queueId"], line["queueOffset"], 1).messages
                assert [message.physical_offset for message in found] == [line["phyOffset"]]
        assert store.metadata.topics["Rocks"].read_queue_nums == 2
        assert len(store.metadata.groups) == 9
    assert tree_digest(ROOT) == before


def test_an_undamaged_database_agrees_with_the_log():
    with mqtool.open(ROOT) as store:
        found = verify(store)
    assert (found.state.value, found.findings) == ("clean", ())


UNIT = ROCKS_UNIT.parse(bytes(28))
MAX_OF_ROCKS = bound_key(b"Rocks", 0, ROCKS_MAX)
HARM = {
    "missing": (unit_key(b"Rocks", 0, 7), None, "default", "rocksdb-missing-unit"),
    "wrong": (unit_key(b"Rocks", 0, 7), bytes(28), "default", "rocksdb-wrong-unit"),
    "extra": (unit_key(b"Rocks", 9, 0), bytes(28), "default", "rocksdb-extra-unit"),
    "bound too low": (MAX_OF_ROCKS, bytes(16), "offset", "rocksdb-missing-unit"),
    "bound too high": (MAX_OF_ROCKS, bytes(15) + b"\x63", "offset", "rocksdb-bound"),
    "checkpoint": (b"\0\0\0\x10\1CHECKPOINT_TOPIC\1max\1\0\0\0\0", b"\0\0\0\1" + bytes(4), "offset", "rocksdb-bound"),
    "no key of a bound": (b"abc", bytes(16), "offset", "rocksdb-bound"),
    "short bound": (MAX_OF_ROCKS, b"abc", "offset", "rocksdb-bound"),
    "no key": (b"abc", b"", "default", "rocksdb-unreadable"),
    "short value": (unit_key(b"Rocks", 0, 7), b"abc", "default", "rocksdb-unreadable"),
    "negative": (unit_key(b"Rocks", 0, -1), bytes(28), "default", "rocksdb-unreadable"),
    "far away": (unit_key(b"Rocks", 0, 1 << 60), bytes(28), "default", "rocksdb-unreadable"),
}


@pytest.mark.parametrize("harm", list(HARM))
def test_each_harm_is_named(harm, tmp_path):
    root = copy_store(NAME, tmp_path)
    key, value, family, code = HARM[harm]
    put(root, key, value, family)
    with mqtool.open(root) as store:
        assert code in {finding.code for finding in verify(store).findings}
        assert sum(1 for _ in store.messages()) == 47


@pytest.fixture
def damaged(tmp_path):
    root = copy_store(NAME, tmp_path)
    (root / "consumequeue" / "CURRENT").write_bytes(b"garbage")
    return root


@pytest.mark.parametrize("options", [[], ["--list"]])
def test_what_waits_in_a_database_that_cannot_be_read_is_unknown(options, damaged, capsys):
    assert run(["pending", str(damaged), "-f", "json", *options]) == 1
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["rows"]
    assert [row["kind"] for row in rows if row["messages"] is None] == ([] if options else [*PendingKind])
    assert "unknown: the queues are in RocksDB and cannot be read" in printed.err or not options
    assert "nothing waits" not in printed.err


@pytest.mark.parametrize("command", ["get", "story"])
def test_a_queue_in_a_database_that_cannot_be_read_is_not_called_missing(command, damaged, capsys):
    assert run([command, str(damaged), "Rocks/0@0"]) == 1
    notes = capsys.readouterr().err
    assert "the queues are in RocksDB and cannot be read" in notes
    assert "there is no queue" not in notes
    assert "spelling" not in notes


def test_tables_of_queues_that_cannot_be_read_are_an_error_and_not_empty(damaged):
    tables = scan_tables(Stores(resolve([damaged], None)))
    for name in ("queue_units", "pending", "topics"):
        with pytest.raises(StoreError, match="the queues are in RocksDB and cannot be read"):
            list(tables[name]._make_batches())
    with mqtool.open(damaged) as store:
        assert in_flight(store) is None


def test_a_database_that_the_system_does_not_let_be_read_is_unknown(tmp_path, monkeypatch):
    root = copy_store(NAME, tmp_path)
    file = root / "consumequeue" / "000010.sst"
    for denied in (file, file.with_name("LOG")):
        with unreadable(monkeypatch, denied), mqtool.open(root) as store:
            found = verify(store)
            assert bool(store.unread_queues) is (denied is file)
        assert [(one.code, one.severity, one.file) for one in found.findings] == (
            [("rocksdb-not-read", Severity.UNKNOWN, "consumequeue/000010.sst")] if denied is file else []
        )
        state = next(one.state for one in found.checks if one.area is Area.CONSUME_QUEUE)
        assert state is (State.UNKNOWN if denied is file else State.CLEAN)


def test_an_error_of_the_disk_is_not_taken_for_damage(tmp_path):
    with Database(ROOT / "consumequeue") as database:
        failed = database._damaged(Exception("IO error: While pread offset 0: 000010.sst: Input/output error"))
        assert isinstance(failed, UnreadableError)
        assert not isinstance(database._damaged(Exception("Corruption: block checksum mismatch")), UnreadableError)


def test_units_after_the_stored_end_are_those_of_messages_that_a_start_has_cut(tmp_path):
    """RocksDBMessageStore 5.5.0 moves the bound back, leaves the units, and answers OFFSET_OVERFLOW_ONE at the end."""
    root = copy_store(NAME, tmp_path)
    with QueueDatabase(root / "consumequeue") as database:
        end = database.ends()["Rocks", 0].queue_offset + 1
        (unit,) = (unit for _, unit in database.units("Rocks", 0, 0, 1))
    for offset in (end, end + 1):  # where they point, another record may be now
        put(root, unit_key(b"Rocks", 0, offset), ROCKS_UNIT.build(unit))
    with mqtool.open(root) as store:
        assert store.queue("Rocks", 0).max_offset == end
        got = store.get_message("Rocks", 0, end, 32)
        assert (got.status.name, got.messages) == ("OFFSET_OVERFLOW_ONE", [])
        found = verify(store)
        assert [(one.code, one.severity.value, one.evidence) for one in found.findings] == [
            ("rocksdb-leftover", "note", f"2 unit(s) after max, which is {end - 1}")
        ]
        assert found.state.value == "clean"
        assert into_files(store, tmp_path / "files").differences.count == 0
    with mqtool.open(tmp_path / "files") as store:
        assert store.queue("Rocks", 0).max_offset == end


def test_files_of_a_queue_follow_its_units_and_not_the_offsets_in_its_keys(tmp_path):
    root = copy_store(NAME, tmp_path)
    for offset in (0, MAX_OFFSETS):
        put(root, unit_key(b"Evil", 0, offset), bytes(28))
    with mqtool.open(root) as store:
        (queue,) = (queue for queue in store.queues() if queue.topic == "Evil")
        assert [file.base for file in queue.files] == [0, MAX_OFFSETS * 20 // 6_000_000 * 6_000_000]


@pytest.mark.parametrize("file", ["CURRENT", "MANIFEST-000005", "000010.sst"])
def test_a_damaged_database_is_reported_and_the_log_is_read(file, tmp_path):
    root = copy_store(NAME, tmp_path)
    (root / "consumequeue" / file).write_bytes(b"garbage")
    with mqtool.open(root) as store:
        assert sum(1 for _ in store.messages()) == 47
        assert "rocksdb-unreadable" in {finding.code for finding in verify(store).findings}


def test_a_damaged_block_is_named_by_its_place_in_the_store(tmp_path):
    root = copy_store(NAME, tmp_path)
    for path in (root / "consumequeue").glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[100] ^= 0xFF
        path.write_bytes(data)
    with mqtool.open(root) as store:
        assert store.queues() == []
        assert "block checksum mismatch" in store.rocksdb.problem
        assert f"in {root}/consumequeue/000010.sst offset 0" in store.rocksdb.problem


def in_separate_place(tmp_path):
    """A store of a broker with useSeparateStorePathForRocksdbCQ."""
    root = copy_store(NAME, tmp_path)
    (root / "consumequeue").rename(root / "consumequeue_rocksdb")
    return root


@pytest.mark.parametrize("config", [None, {"useSeparateStorePathForRocksdbCQ": "true", "storeType": "defaultRocksDB"}])
def test_a_database_in_the_separate_place_is_read(config, tmp_path):
    root = in_separate_place(tmp_path)
    with mqtool.open(root, config) as store:
        assert len(store.queues()) == 3
        assert verify(store).findings == ()
        into_files(store, tmp_path / "files")
    with mqtool.open(tmp_path / "files") as store:
        assert verify(store).findings == ()
        assert not (tmp_path / "files/consumequeue_rocksdb").exists()
        with pytest.raises(UnsupportedFormatError, match="already"), mqtool.open(root, config) as again:
            into_rocksdb(again, tmp_path / "made")
    with pytest.raises(UnsupportedFormatError, match="queues in RocksDB"):
        make_plan(root, Purge(("Rocks",)), config=config)
    with pytest.raises(UnsupportedFormatError, match="its ConsumeQueues are in RocksDB"):
        check_admission(root, StoreOptions())
    (root / "lock").touch()
    with held_lock(root / "lock"), pytest.raises(RefusedError, match="queues in RocksDB cannot be copied"):
        backup(root, tmp_path / "backup", config)


def test_damage_in_the_separate_place_is_found(tmp_path):
    root = in_separate_place(tmp_path)
    (root / "consumequeue_rocksdb" / "CURRENT").write_bytes(b"garbage")
    with mqtool.open(root) as store:
        (one,) = [one for one in verify(store).findings if one.code == "rocksdb-unreadable"]
    assert one.file == "consumequeue_rocksdb"


def test_the_configuration_decides_where_a_new_database_is(tmp_path):
    with mqtool.open(copy_store("orders-5.5.0", tmp_path), {"useSeparateStorePathForRocksdbCQ": "true"}) as store:
        into_rocksdb(store, tmp_path / "made")
    assert (tmp_path / "made/consumequeue_rocksdb/CURRENT").is_file()
    assert not (tmp_path / "made/consumequeue").exists()


def test_files_of_queues_next_to_a_database_in_the_separate_place_are_checked(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    copy_tree(ROOT / "consumequeue", root / "consumequeue_rocksdb")
    shutil.rmtree(root / "consumequeue" / "Orders")
    with mqtool.open(root) as store:
        found = verify(store)
        assert "queue-missing" in {one.code for one in found.findings}
        (state,) = [check for check in found.checks if check.area.value == "consumequeue"]
        assert "consumequeue_rocksdb: the RocksDB next to the queue files was not checked" in state.detail
    with pytest.raises(UnsupportedFormatError, match="queues in RocksDB"):
        make_plan(root, Purge(("Keyed",)))


def test_queues_become_files_that_a_rebuild_from_the_log_would_make(tmp_path):
    config = store_fixture(NAME).config
    before = tree_digest(ROOT)
    with mqtool.open(ROOT, config) as store:
        found = into_files(store, tmp_path / "files")
    assert run(["rebuild", "consumequeue", str(ROOT), "--output", str(tmp_path / "made"), "--config", str(config)]) == 0
    expected = {p.relative_to(tmp_path / "made"): p.read_bytes() for p in (tmp_path / "made").rglob("*") if p.is_file()}
    assert {path: (tmp_path / "files" / path).read_bytes() for path in expected} == expected
    assert (found.queues, found.units, found.differences.count) == (3, 47, 0)
    with mqtool.open(tmp_path / "files") as store:
        assert verify(store).findings == ()
        assert store.metadata.topics_file is not None
    assert tree_digest(ROOT) == before


def test_there_and_back_gives_the_broker_s_rows(tmp_path):
    with mqtool.open(ROOT) as store:
        into_files(store, tmp_path / "files")
    with mqtool.open(tmp_path / "files") as store:
        into_rocksdb(store, tmp_path / "back")
    with QueueDatabase(ROOT / "consumequeue") as real, QueueDatabase(tmp_path / "back/consumequeue") as made:
        assert dict(made.items("default")) == dict(real.items("default"))
        known, written = dict(real.bounds()), dict(made.bounds())
    is_max = {key: parse_bound_key(key)[2] == ROCKS_MAX for key in known}
    assert {key: value for key, value in known.items() if is_max[key]} == {
        k: v for k, v in written.items() if is_max[k]
    }
    for key in (key for key in written if not is_max[key]):  # its physical offset may be 0 until the first deletion
        assert ROCKS_BOUND.parse(written[key]).queue_offset == ROCKS_BOUND.parse(known[key]).queue_offset


def test_a_queue_whose_messages_have_expired_keeps_its_end_in_both_directions(tmp_path):
    root = store_with_expired_queue(tmp_path / "store")
    with mqtool.open(root, KEYS) as store:
        known = {finding.code for finding in verify(store).findings}
        into_rocksdb(store, tmp_path / "rocks")
    with mqtool.open(tmp_path / "rocks") as store:
        assert (store.queue("Quiet", 0).min_offset, store.queue("Quiet", 0).max_offset) == (10, 10)
        assert {finding.code for finding in verify(store).findings} == known
    with QueueDatabase(tmp_path / "rocks/consumequeue") as made:
        bounds = {parse_bound_key(key): value for key, value in made.bounds()}
    assert ROCKS_BOUND.parse(bounds[b"Quiet", 0, ROCKS_MAX]).queue_offset == 9
    put(tmp_path / "rocks", unit_key(b"Quiet", 0, 9), None)  # as the broker's compaction leaves it
    with mqtool.open(tmp_path / "rocks", KEYS) as store:
        assert (store.queue("Quiet", 0).min_offset, store.queue("Quiet", 0).max_offset) == (10, 10)
        assert {finding.code for finding in verify(store).findings} == known
        into_files(store, tmp_path / "files")
    salvage(tmp_path / "rocks", tmp_path / "new", SalvageOptions(config=KEYS))
    for name, codes in (("files", known), ("new", set())):
        with mqtool.open(tmp_path / name) as store:
            assert (store.queue("Quiet", 0).min_offset, store.queue("Quiet", 0).max_offset) == (10, 10)
            assert {finding.code for finding in verify(store).findings} == codes


def test_differences_between_files_and_log_are_listed(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with (root / "consumequeue/Orders/0/00000000000000000000").open("r+b") as file:
        file.seek(12)
        file.write(bytes(8))
    with mqtool.open(root) as store:
        found = into_rocksdb(store, tmp_path / "rocks")
    assert found.differences.count == 1
    assert "Orders/0 at 0" in found.differences.items[0]


def test_a_unit_that_is_missing_in_rocksdb_leaves_its_place_in_the_file_empty(tmp_path):
    root = copy_store(NAME, tmp_path)
    put(root, unit_key(b"Rocks", 0, 7), None)
    with mqtool.open(root) as store:
        found = into_files(store, tmp_path / "files")
    assert found.differences.items == ["queue Rocks/0: no unit from 7 to 7"]
    with mqtool.open(ROOT) as whole, mqtool.open(tmp_path / "files") as made:
        known, now = (store.queue("Rocks", 0) for store in (whole, made))
        assert (now.min_offset, now.max_offset) == (known.min_offset, known.max_offset)
        units = [queue.units_of(0)[: known.max_offset].tolist() for queue in (known, now)]
        assert [at for at in range(known.max_offset) if units[0][at] != units[1][at]] == [7]
        assert units[1][7] == (0, 0, 0)


def test_damage_and_tables_that_are_no_json_stop_no_conversion(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        damaged = list(store.messages())[20]
        intact = sum(queue.max_offset - queue.min_offset for queue in store.queues()) - 1
    segment = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= damaged.physical_offset)
    with segment.open("r+b") as file:
        file.seek(damaged.physical_offset - int(segment.name))
        file.write(bytes(8))
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_bytes(b"{")
    with mqtool.open(root) as store:
        found = into_rocksdb(store, tmp_path / "rocks")
    assert (found.damage.count, found.units) == (1, intact)
    assert (tmp_path / "rocks" / "config" / "topics.json").read_bytes() == b"{"


@pytest.mark.parametrize("name", ["cqext-4.9.7", "cqext-5.5.0"])
def test_tags_codes_that_an_extension_holds_are_no_differences(name, tmp_path):
    root = copy_store(name, tmp_path)
    with mqtool.open(root, store_fixture(name).config) as store:
        found = into_rocksdb(store, tmp_path / "made")
    assert found.units > 0
    assert found.differences.items == []


@pytest.mark.parametrize("topic", ["nul\0topic", "../.."])
def test_a_queue_in_rocksdb_need_not_have_a_topic_that_can_be_a_directory(topic, tmp_path):
    builder = StoreBuilder(segment_size=1 << 14, slots=20, entries=300)
    for number in range(4):
        builder.put(b"body %d" % number, topic=topic)
    root = builder.write(tmp_path / "store", queues=False)
    (root / "abort").touch()
    (tmp_path / "made" / "0").mkdir(parents=True)  # what `../..` leads to
    (tmp_path / "made" / "0" / "foreign").touch()
    with mqtool.open(root) as store:
        into_rocksdb(store, tmp_path / "made" / "store")
    with mqtool.open(tmp_path / "made" / "store") as store:
        [queue] = describe(store)["queues"]
        assert (queue["topic"], queue["min_offset"], queue["max_offset"]) == (topic, 0, 4)
        assert not any("foreign" in oddity for oddity in oddities(store))
        found = into_files(store, tmp_path / "made" / "files")
    assert found.differences.items == [f"queue {topic!r}/0: the topic is not a valid directory name"]
    assert found.queues == 0
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["0", "files", "store"]


def test_the_wrong_kind_of_source_is_refused(tmp_path):
    with mqtool.open(ROOT) as store, pytest.raises(UnsupportedFormatError, match="already"):
        into_rocksdb(store, tmp_path / "made")
    with mqtool.open(store_fixture("orders-5.5.0").directory) as store, pytest.raises(UnsupportedFormatError):
        into_files(store, tmp_path / "made")
    with (
        mqtool.open(store_fixture("bcq-5.5.0").directory) as store,
        pytest.raises(UnsupportedFormatError, match="Batch"),
    ):
        into_rocksdb(store, tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_the_queues_are_unknown_and_the_log_is_read(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    with mqtool.open(ROOT) as store:
        found = verify(store)
        assert sum(1 for _ in store.messages()) == 47
        assert "rocksdict: " in store.rocksdb.problem
    assert [check.area.value for check in found.checks if check.state.value == "unknown"] == ["consumequeue", "config"]


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("into", [night("files"), "rocksdb"])
def test_the_real_broker_starts_on_the_result_and_serves_it(into, tmp_path, rocketmq):
    source = ROOT if into == "files" else copy_store("multipath-5.5.0", tmp_path / "copy")
    name, keys = (
        NAME,
        {
            "mappedFileSizeCommitLog": 65536,
            "mappedFileSizeConsumeQueue": 2000,
            "maxHashSlotNum": 100,
            "maxIndexNum": 400,
            "timerWheelEnable": False,
        },
    )
    if into == "files":
        with mqtool.open(source, keys) as store:
            into_files(store, tmp_path / "store")
    else:
        name = "timer-5.5.0"
        with mqtool.open(copy_store(name, tmp_path / "plain"), keys) as store:
            into_rocksdb(store, tmp_path / "store")
        keys["storeType"] = "defaultRocksDB"
    line = next(line for line in reversed(answers(name, "messages")) if line["kind"] == "message")
    broker = rocketmq("5.5.0").start_broker(tmp_path, **keys)
    printed = broker.admin(
        "queryMsgByOffset",
        "-b",
        "broker-a",
        "-t",
        line["topic"],
        "-i",
        str(line["queueId"]),
        "-o",
        str(line["queueOffset"]),
    )
    assert line["properties"]["UNIQ_KEY"] in printed, printed
    assert line["topic"] in broker.admin("topicList")
    broker.stop()
    shutil.rmtree(tmp_path / "store")


def test_tables_that_were_never_counted_up_get_a_version_that_a_broker_takes(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path / "copy")
    (root / "config" / "consumerOffset.json").write_text('{"dataVersion":{"counter":0},"offsetTable":{"T@G":{0:5}}}')
    with mqtool.open(root) as store:
        into_rocksdb(store, tmp_path / "made")
    with mqtool.open(tmp_path / "made") as store:
        assert store.metadata.offset_tables.offsets.data_version.counter == 1
        assert store.metadata.consumer_offsets == {"G": {"T": {0: 5}}}


def test_a_unit_of_a_topic_that_was_not_asked_for_is_not_judged(tmp_path):
    root = copy_store(NAME, tmp_path)
    put(root, unit_key(b"Rocks", 0, 7), None)
    with mqtool.open(root) as store:
        found = {
            name: [one.code for one in verify(store, Options(topics=(name,))).findings] for name in ("Rocks", "R2*")
        }
    assert found == {"Rocks": ["rocksdb-missing-unit"], "R2*": []}


def test_while_a_broker_runs_it_may_have_written_rows_that_the_log_had_not(tmp_path):
    """The last units that are stored, the dispatch position, and units of records that have come since."""
    root = copy_store(NAME, tmp_path)
    for harm in ("extra", "bound too high", "checkpoint"):
        key, value, family, _ = HARM[harm]
        put(root, key, value, family)
    with mqtool.open(root) as store:
        assert {one.code for one in verify(store).findings} == {"rocksdb-extra-unit", "rocksdb-bound"}
        (root / "lock").touch()
        with held_lock(root / "lock"):
            assert verify(store).findings == ()


def test_a_damaged_record_has_no_unit_in_the_log_to_compare(tmp_path):
    root = copy_store(NAME, tmp_path)
    with mqtool.open(root) as store:
        at = next(one.physical_offset for one in store.messages() if one.queue_offset == 3)
    with min((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(at + 4)
        file.write(bytes(3))
    with mqtool.open(root) as store:
        found = verify(store)
    assert "log-bad-header" in {one.code for one in found.findings}
    assert "rocksdb-missing-unit" not in {one.code for one in found.findings}


def test_what_is_neither_a_file_nor_a_directory_ends_a_conversion_and_leaves_nothing(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    os.mkfifo(root / "pipe")
    with mqtool.open(root) as store, pytest.raises(StoreError, match="pipe: is neither a file nor a directory"):
        into_rocksdb(store, tmp_path / "rocks")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def config_table(root, name, rows, counter):
    """Writes a table of configuration as RocksDBConfigManager keeps it."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    families = {"default": rocksdict.Options(raw_mode=True), "kvDataVersion": rocksdict.Options(raw_mode=True)}
    database = rocksdict.Rdict(str(root / "config" / name), options, column_families=families)
    for key, value in rows.items():
        database.get_column_family("default")[key.encode()] = json.dumps(value).encode()
    version = {"counter": counter, "stateVersion": 0, "timestamp": 1}
    database.get_column_family("kvDataVersion")[b"kvDataVersionKey"] = json.dumps(version).encode()
    database.close()


def tables_of(root, config):
    with mqtool.open(root, config) as store:
        found = store.metadata
        return {name: one.perm for name, one in found.topics.items()}, set(found.groups)


@pytest.mark.parametrize(
    ("config", "counter", "topics", "groups"),
    [
        ({}, 7, {"T": 4, "Kept": 4}, {"Kept"}),
        ({"storeType": "defaultRocksDB"}, 8, {"T": 6, "New": 6, "Kept": 4}, {"New", "Kept"}),
        ({"storeType": "default"}, 7, {"T": 6, "New": 6}, {"New"}),
    ],
)
def test_topics_and_groups_are_taken_from_json_only_if_it_is_newer(tmp_path, config, counter, topics, groups):
    """RocksDBTopicConfigManager.merge: the entries of a newer file replace those of the database, which keeps others."""
    root = copy_store("orders-5.5.0", tmp_path)
    config_table(root, "topics", {name: {"topicName": name, "perm": 4} for name in ("T", "Kept")}, 7)
    config_table(root, "subscriptionGroups", {"Kept": {"groupName": "Kept"}}, 7)
    version = {"counter": counter, "stateVersion": 0, "timestamp": 1}
    table = {name: {"topicName": name, "perm": 6} for name in ("T", "New")}
    documents = {
        "topics.json": {"topicConfigTable": table, "dataVersion": version},
        "subscriptionGroup.json": {
            "subscriptionGroupTable": {"New": {"groupName": "New"}},
            "dataVersion": version,
        },
    }
    for name, document in documents.items():
        (root / "config" / name).write_text(json.dumps(document))
    assert tables_of(root, config) == (topics, groups)


def verified(root):
    with mqtool.open(root) as store:
        return verify(store)


def test_one_database_with_all_tables_is_reported_as_unread(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "lmqConsumerOffset.json"):
        for path in (root / "config").glob(f"{name}*"):
            path.unlink()
    (root / "config" / "consumerFilter.json").write_text("{}")
    config_table(root, "metadata", {}, 1)
    report = verified(root)
    assert [one.code for one in report.findings] == []
    (state,) = [one for one in report.checks if one.area == "config"]
    assert "config/metadata: topics, groups and positions are in one RocksDB" in state.detail
    with mqtool.open(root) as store:
        tables = store.metadata.offset_tables
        assert tables.unread.startswith("config/metadata: ")
        assert tables.problems == (tables.unread,)
        assert store.metadata.problems == (tables.unread,)


@pytest.mark.parametrize("into", [into_files, into_rocksdb])
def test_users_and_other_databases_below_config_are_copied(into, tmp_path):
    root = copy_store(NAME if into is into_files else "orders-5.5.0", tmp_path)
    config_table(root, "users", {"alice": {"username": "alice"}}, 1)
    (root / "config/own/inner").mkdir(parents=True)
    (root / "config/own/inner/file").write_text("x")
    with mqtool.open(root) as store:
        into(store, tmp_path / "made")
    copied = tmp_path / "made/config"
    users = {path.name: path.read_bytes() for path in (root / "config/users").iterdir()}
    assert {path.name: path.read_bytes() for path in (copied / "users").iterdir()} == users != {}
    assert (copied / "own/inner/file").read_text() == "x"
    assert not [name for name in ("topics", "subscriptionGroups", "consumerOffsets") if (copied / name).exists()]


@pytest.mark.parametrize("tool", ["convert", "salvage"])
def test_a_database_of_topics_counts_although_there_is_an_older_file(tool, tmp_path):
    root = copy_store(NAME, tmp_path)
    with mqtool.open(root) as store:
        expected = store.metadata
    table = {"topicConfigTable": {}, "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}}
    (root / "config/topics.json").write_text(json.dumps(table))
    if tool == "convert":
        with mqtool.open(root) as store:
            into_files(store, tmp_path / "made")
    else:
        salvage(root, tmp_path / "made")
    with mqtool.open(tmp_path / "made") as store:
        assert set(store.metadata.topics) >= set(expected.topics) > set()
        assert store.metadata.consumer_offsets == expected.consumer_offsets


@pytest.mark.parametrize("into", [into_files, into_rocksdb])
def test_what_cannot_be_converted_is_refused(into, tmp_path):
    root = copy_store(NAME if into is into_files else "orders-5.5.0", tmp_path)
    shutil.move(root / "commitlog", tmp_path / "log")
    keys = {"storePathCommitLog": str(tmp_path / "log")}
    with mqtool.open(root, keys) as store, pytest.raises(UnsupportedFormatError, match="this log is outside of"):
        into(store, tmp_path / "made")
    shutil.move(tmp_path / "log", root / "commitlog")
    config_table(root, "metadata", {}, 1)
    with (
        mqtool.open(root) as store,
        pytest.raises(UnsupportedFormatError, match=r"in one RocksDB .* which is not read"),
    ):
        into(store, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_salvage_without_the_tables_of_the_one_database_is_not_complete_and_says_so(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    config_table(root, "metadata", {}, 1)
    found = salvage(root, tmp_path / "new")
    assert not found.is_complete
    assert [note for note in found.notes if "config/metadata: topics, groups and positions are in one RocksDB" in note]


def test_positions_are_compared_with_the_ends_of_queues_in_rocksdb(tmp_path):
    root = copy_store(NAME, tmp_path)
    with mqtool.open(root) as store:
        queue = store.queues()[0]
        name, end = f"{queue.topic}@G", queue.max_offset
    path = root / "config" / "consumerOffset.json"
    version = {"counter": 99, "stateVersion": 0, "timestamp": 1}
    path.write_text(json.dumps({"offsetTable": {name: {str(queue.queue_id): end}}, "dataVersion": version}))
    assert [one.code for one in verified(root).findings] == []
    path.write_text(json.dumps({"offsetTable": {name: {str(queue.queue_id): end + 1}}, "dataVersion": version}))
    assert [one.code for one in verified(root).findings] == ["config-offset-ahead"]
    (root / "abort").touch()
    report = verified(root)
    (state,) = [one for one in report.checks if one.area == "config"]
    assert state.detail.startswith("positions were not compared with the queues in RocksDB: ")


# --- the library -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        ("import os; os.abort()", "the library ends its process by SIGABRT"),
        ("import time; time.sleep(60)", "the library does not return from it within 0.5 s"),
    ],
    ids=["crashes", "waits"],
)
def test_a_database_that_the_library_fails_on_is_not_opened_here(trial, words, tmp_path, monkeypatch):
    path = copy_store(NAME, tmp_path) / "consumequeue"
    monkeypatch.setattr("mqtool.store.config.rocksdb.TRIAL", trial)
    monkeypatch.setattr("mqtool.store.config.rocksdb.TRIAL_PATIENCE", 0.125)
    monkeypatch.setattr(
        "mqtool.store.config.rocksdb._tried", {}
    )  # the copy of the test before may have had this path and state
    with pytest.raises(StoreError, match=f"cannot be opened as a RocksDB: {words}; restore it from a backup") as caught:
        Database(path)
    assert caught.value.path == path


def test_a_search_in_a_table_that_is_not_there_is_an_error_of_the_database(tmp_path):
    with QueueDatabase(copy_store(NAME, tmp_path) / "consumequeue") as database:
        with pytest.raises(StoreError, match="consumequeue: cannot be read: ") as caught:
            database.last_before("absent", b"")
        assert caught.value.path == database.path


def test_units_after_the_stored_end_do_not_belong_to_a_queue_wherever_they_are(tmp_path):
    root = copy_store(NAME, tmp_path)
    with mqtool.open(root) as store:
        queue = max(store.queues(), key=lambda queue: queue.max_offset)
        name, before = (queue.topic, queue.queue_id), (queue.max_offset, len(queue.files), len(queue.units()))
        unit = ROCKS_UNIT.build(next(store.rocksdb.queues[name]._database.units(*name, 0, 1))[1])
    put(root, unit_key(name[0].encode(), name[1], 400_000), unit)
    with mqtool.open(root) as store:
        queue = store.queue(*name)
        assert (queue.max_offset, len(queue.files), len(queue.units())) == before
        assert not any(queue.unit_at(0, queue.max_offset)[0].item())
        assert not any(queue.unit_at(0, 299_999)[0].item())
