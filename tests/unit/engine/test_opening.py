"""Who may open a store, what is refused and in which words, and what an opening leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from mqtool.engine import Compat, components, open_store
from mqtool.engine.disk.files import Files
from mqtool.engine.start.detect import is_new, options_for
from mqtool.engine.start.lock import StoreLock
from mqtool.errors import LayoutError, StoreClosedError, StoreLockedError, UnreadableError, UnsupportedFormatError
from mqtool.formats import checkpoint, commit_log
from tests.support.damage import held_lock
from tests.support.engine import HeldClock, options_of, small_options
from tests.support.engine_faults import kill
from tests.support.stores import copy_store, store_fixture, tree_digest

ROOT = Path(__file__).resolve().parents[3]
OPEN_IT = """
import sys
from mqtool.engine import open_store
from mqtool.errors import StoreLockedError
try:
    open_store(sys.argv[1], background=False)
except StoreLockedError as error:
    print(error)
"""


def open_again(path, *, files=None, **more):
    return open_store(path, small_options(**more), clock=HeldClock(), background=False, files=files)


def test_a_store_is_open_once(opened):
    store = opened()
    with pytest.raises(StoreLockedError, match="has the store open"):
        open_again(store.path)


def test_another_process_is_kept_out_and_changes_nothing(opened):
    store = opened()
    store.put("T", 0, b"x")
    store.flush()
    before = tree_digest(store.path)
    said = subprocess.run(
        [sys.executable, "-c", OPEN_IT, str(store.path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "a broker or another mqtool has the store open" in said.stdout
    assert tree_digest(store.path) == before


def test_a_store_that_a_broker_holds_is_left_alone(opened):
    store = opened()
    store.put("T", 0, b"x")
    store.close()
    before = tree_digest(store.path)
    with held_lock(store.path / "lock"), pytest.raises(StoreLockedError):
        open_again(store.path)
    assert tree_digest(store.path) == before


@pytest.mark.parametrize(
    "sizes",
    [
        {"commit_log_file_size": 8192},
        {"consume_queue_file_size": 400},
        {"index_slots": 11},
        {"index_entries": 30},
    ],
)
def test_a_store_of_other_sizes_is_refused_with_nothing_changed(opened, sizes):
    store = opened()
    store.put("T", 0, b"x", b"KEYS\x01k\x02")
    store.close()
    before = tree_digest(store.path)
    with pytest.raises(LayoutError):
        open_again(store.path, **sizes)
    assert tree_digest(store.path) == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dledger-5.5.0", "DLedger"),
        ("rocksdb-cq-5.5.0", "RocksDB"),
        ("controller-5.5.0/store-x", "controller mode"),
    ],
)
def test_other_kinds_of_store_are_refused_by_name(in_memory, name, words):
    root = copy_store(name, in_memory)
    before = tree_digest(root)
    fixture = store_fixture(name)
    with pytest.raises(UnsupportedFormatError, match=words):
        open_store(root, options_of(fixture.config, fixture.version), background=False)
    assert tree_digest(root) == before


def test_a_checkpoint_with_more_fields_than_are_known_is_refused(opened):
    store = opened()
    store.put("T", 0, b"x")
    store.close()
    path = store.path / "checkpoint"
    data = path.read_bytes()
    path.write_bytes(data[:48] + b"\1" + data[49:])
    with pytest.raises(UnsupportedFormatError, match="expected zeros from byte 48 on, found 0x01 at 48"):
        open_again(store.path)
    path.write_bytes(data)


def test_records_of_a_version_to_come_are_refused_and_not_cut(opened):
    store = opened()
    results = [store.put("T", 0, b"x" * 50) for _ in range(4)]
    kill(store)
    log = store.path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    for result in results[1:]:
        data[result.physical_offset + 4 : result.physical_offset + 8] = bytes.fromhex("daa320af")
    log.write_bytes(data)
    with pytest.raises(UnsupportedFormatError, match="a record of version daa320af"):
        open_again(store.path)
    for result in results[1:]:
        data[result.physical_offset + 4 : result.physical_offset + 8] = (commit_log.MAGIC_V1 & 0xFFFFFFFF).to_bytes(4)
    log.write_bytes(data)
    assert opened().queue_bounds("T", 0) == (0, 4)


def test_4_9_does_not_cut_a_record_that_only_5_x_knows(opened):
    store = opened()
    store.put("%RETRY%" + "x" * 130, 0, b"x")
    kill(store)
    with pytest.raises(UnsupportedFormatError, match=r"4\.9\.7 does not know"):
        open_again(store.path, compat=Compat.V4_9)
    assert opened().recovered.end == store._components.log.queue.wrote_offset


def test_a_closed_store_answers_nothing_more(opened):
    store = opened()
    store.put("T", 0, b"x")
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.get_message("T", 0, 0)
    assert store.put("T", 0, b"x").status.name == "SERVICE_NOT_AVAILABLE"


def test_the_mark_of_an_open_store_names_process_and_boot(opened):
    import os

    store = opened()
    process, boot = (store.path / "abort").read_text().split()
    assert (int(process), len(boot)) == (os.getpid(), 36)
    store.close()
    assert not (store.path / "abort").exists()
    assert (store.path / "abort.bak").read_bytes() == b""


def test_a_store_that_was_killed_is_recovered_whole(opened):
    store = opened()
    for number in range(50):
        store.put("T", number % 2, b"x" * number, b"KEYS\x01k%d\x02" % number)
        if number == 30:
            store.dispatch()
    end = store.max_physical_offset
    kill(store)
    again = opened()
    assert (again.recovered.clean_stop, again.recovered.end) == (False, end)
    assert [again.queue_bounds("T", queue_id) for queue_id in (0, 1)] == [(0, 25), (0, 25)]
    assert all(len(again.query_message("T", f"k{number}").records) >= 1 for number in range(50))


def test_an_empty_file_made_ahead_is_taken_away_again(opened):
    store = opened()
    store.put("T", 0, b"x")
    kill(store)
    ahead = store.path / "commitlog" / f"{4096:020d}"
    ahead.write_bytes(bytes(4096))
    again = opened()
    assert again.recovered.deleted == (f"commitlog/{4096:020d}",)
    assert not ahead.exists()


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_a_last_file_on_a_disk_that_is_not_mounted_is_refused_and_not_deleted(opened, in_memory, directory):
    store = opened()
    for _ in range(60):
        store.put("T", 0, b"x" * 200)
    store.close()
    last = max((store.path / directory).iterdir())
    moved = last.rename(in_memory / "unmounted")
    last.symlink_to(in_memory / "disk" / last.name)
    with pytest.raises(UnreadableError, match="a broken link, and recovery would delete it; mount"):
        open_again(store.path)
    assert last.is_symlink()
    last.unlink()
    moved.rename(last)
    assert opened().queue_bounds("T", 0) == (0, 60)


def test_a_torn_tail_is_wiped_and_what_may_be_messages_is_kept_aside(opened):
    store = opened()
    store.put("T", 0, b"first")
    second = store.put("T", 0, b"second")
    store.put("T", 0, b"third")
    kill(store)
    log = store.path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[second.physical_offset + 90] ^= 0xFF
    log.write_bytes(data)
    again = opened()
    assert again.max_physical_offset == second.physical_offset
    assert not any(log.read_bytes()[second.physical_offset :])
    [kept] = again.recovered.quarantined
    assert b"third" in (again.path / kept).read_bytes()
    assert again.put("T", 0, b"other").queue_offset == 1


def test_topics_tell_which_queues_hold_batches(in_memory, opened):
    (in_memory / "store" / "config").mkdir(parents=True)
    topics = {"topicConfigTable": {"B": {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}}}
    (in_memory / "store" / "config" / "topics.json").write_text(json.dumps(topics), "utf-8")
    store = opened(declared=("config-topic-missing",))
    store.put("B", 0, b"x")
    store.put("S", 0, b"x")
    store.dispatch()
    assert (store.path / "batchconsumequeue" / "B" / "0").is_dir()
    assert (store.path / "consumequeue" / "S" / "0").is_dir()


@pytest.mark.parametrize("call", ["ftruncate", "link"])
def test_a_file_appears_with_its_size_or_not_at_all(tmp_path, monkeypatch, call):
    """A kill between the two leaves no file without a size: a broker of 4.9 would not start on it."""

    def killed(*_arguments, **_named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, call, killed)
        with pytest.raises(KeyboardInterrupt):
            Files().create(tmp_path / "file", 4096)
    assert list(tmp_path.iterdir()) == []
    Files().create(tmp_path / "file", 4096).close()
    (tmp_path / "file").write_bytes(b"kept")
    Files().create(tmp_path / "file", 8192).close()
    assert (tmp_path / "file").read_bytes() == b"kept".ljust(8192, b"\0")
    assert (tmp_path / "file").stat().st_mode & 0o111 == 0


def test_a_relative_path_means_the_same_after_a_change_of_directory(in_memory, monkeypatch):
    (in_memory / "elsewhere").mkdir()
    monkeypatch.chdir(in_memory)
    options = small_options(commit_log_dirs=(Path("log"),), read_only_dirs=(Path("old"),))
    with open_store("store", options, clock=HeldClock(), background=False) as store:
        monkeypatch.chdir("elsewhere")
        for _ in range(20):
            assert store.put("T", 0, b"x" * 1000).ok
        store.dispatch()
        assert store.queue_bounds("T", 0) == (0, 20)
    assert list((in_memory / "elsewhere").iterdir()) == []
    assert len(list((in_memory / "log").iterdir())) > 1
    assert (in_memory / "store/checkpoint").is_file()


class KilledAtTheMark(Files):
    """The process ends after `abort` was opened for writing and before its text was written."""

    def write_file(self, path, data, *, sync=True):
        if path.name.startswith("abort") and path.name != "abort.bak":
            super().write_file(path, b"")
            raise KeyboardInterrupt
        super().write_file(path, data, sync=sync)


@pytest.mark.parametrize("compat", list(Compat))
def test_a_store_killed_while_it_writes_abort_is_still_known_as_killed(opened, in_memory, compat):
    store = opened(compat=compat)
    for number in range(30):  # one full index file and a part of another
        store.put("T", 0, b"x", b"KEYS\x01k%d\x02" % number)
    store.dispatch()
    kill(store)
    before = (store.path / "abort").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        open_again(store.path, compat=compat, files=KilledAtTheMark())
    assert (store.path / "abort").read_bytes() == before
    again = opened(compat=compat)
    assert all(again.query_message("T", f"k{number}").records for number in range(30))
    again.close()
    assert not [path.name for path in again.path.iterdir() if path.name.startswith("abort") and path.suffix != ".bak"]


def test_a_new_store_killed_while_it_writes_abort_is_still_new(in_memory):
    with pytest.raises(KeyboardInterrupt):
        open_again(in_memory / "store", files=KilledAtTheMark())
    assert not (in_memory / "store" / "abort").exists()
    assert is_new(in_memory / "store")


class Restarted(Files):
    """The machine after another start."""

    def boot_id(self):
        return "another"


@pytest.mark.parametrize("compat", list(Compat))
def test_a_record_whose_properties_a_power_cut_tore_ends_the_log_and_after_a_kill_does_not(opened, compat, in_memory):
    for name, files in (("killed", Files()), ("power lost", Restarted())):
        store = opened(name, compat=compat)
        first = store.put("T", 0, b"a", b"KEYS\x01" + b"k" * 600 + b"\x02")
        store.flush()
        torn = store.put("T", 0, b"b", b"other\x01" + b"k" * 600 + b"\x02")
        last = store.put("T", 0, b"c")
        store.dispatch()
        kill(store)
        log = store.path / "commitlog" / f"{0:020d}"
        data = bytearray(log.read_bytes())
        data[torn.end - 1] = 0  # the CRC is that of the body
        log.write_bytes(data)
        again = opened(name, compat=compat, files=files)
        expected = (2, 3, last.end) if name == "killed" else (0, 1, first.end)
        assert (again.queue_bounds("T", 0)[1], again.max_physical_offset) == expected[1:]


def test_after_a_power_cut_a_4_9_store_whose_records_are_all_flushed_keeps_them(opened):
    store = opened(compat=Compat.V4_9)
    end = store.put("T", 0, b"a").end
    store.flush()
    kill(store)
    path = store.path / "checkpoint"
    later = (1_700_000_000_001).to_bytes(8, "big")
    path.write_bytes(later * 2 + path.read_bytes()[16:])
    again = opened(compat=Compat.V4_9, files=Restarted(), declared=("checkpoint-ahead",))
    assert (again.queue_bounds("T", 0), again.max_physical_offset) == ((0, 1), end)


def stored_at(opened, clock, times, **more):
    """A store with two records a segment, flushed after the third; it ends without closing."""
    store = opened(**more)
    for number, time in enumerate(times):
        clock.time = time
        store.put("Old" if number == 0 else "T", 0, b"x" * 1500)
        store.dispatch()
        if number == 2:
            store.flush()
    kill(store)
    return store.path


def test_after_a_power_cut_without_a_checkpoint_queues_start_where_they_did(opened, clock):
    """5.5 scans only the last ten segments then: what was discarded before them would not be dispatched again."""
    root = stored_at(opened, clock, range(1_700_000_000_000, 1_700_000_000_031))
    (root / "checkpoint").unlink()
    assert opened(files=Restarted()).queue_bounds("T", 0) == (0, 30)


def test_after_a_power_cut_with_the_clock_set_back_4_9_dispatches_what_was_discarded(opened, clock):
    """Only records before the first new one are known to be flushed, and the last segment begins with an old one."""
    times = [1_700_000_100_000, 1_700_000_100_000, 1_700_000_200_000, 1_700_000_200_000, 1_700_000_000_000]
    stored_at(opened, clock, times, compat=Compat.V4_9)
    assert opened(compat=Compat.V4_9, files=Restarted()).queue_bounds("T", 0) == (0, 4)


def test_a_power_cut_keeps_units_of_records_that_retention_has_deleted(opened, clock):
    root = stored_at(opened, clock, range(1_700_000_000_000, 1_700_000_000_004))
    (root / "commitlog" / f"{0:020d}").unlink()
    (root / "checkpoint").unlink()
    again = opened(files=Restarted())
    assert (again.queue_bounds("T", 0), again.put("Old", 0, b"x").queue_offset) == ((1, 3), 1)


def test_every_opening_notes_up_to_where_queues_are_flushed(opened):
    """The checkpoint of a release before 5.5 states no offset, and that of a log that was cut a larger one."""
    store = opened()
    end = store.put("T", 0, b"x").end
    store.close()
    path = store.path / "checkpoint"
    for offset in (0, end + 1000):
        values = checkpoint.parse(path.read_bytes())
        path.write_bytes(checkpoint.build(replace(values, logics_physical_offset=offset)).ljust(4096, b"\0"))
        kill(opened())
        assert checkpoint.parse(path.read_bytes()).logics_physical_offset == end
    opened().close()


def test_an_index_of_which_nothing_states_the_slots_is_refused_before_a_store_is_opened(opened):
    store = opened()
    store.put("T", 0, b"x")  # an index file without entries
    store.close()
    with pytest.raises(LayoutError, match="its number of slots: set maxHashSlotNum and maxIndexNum"):
        options_for(store.path)
    found = options_for(store.path, {"maxHashSlotNum": 10, "maxIndexNum": 20})
    assert (found.index_slots, found.index_entries, found.commit_log_file_size) == (10, 20, 4096)


def test_the_disk_of_a_directory_that_is_missing_is_used_to_an_unknown_part(tmp_path):
    assert Files().used_ratio(tmp_path / "missing") == -1.0


def test_a_store_that_another_process_has_opened_meanwhile_is_refused_and_its_lock_is_free_again(opened, monkeypatch):
    store = opened()
    store.put("T", 0, b"x")
    store.close()
    plan, abort = components.RecoveryExecutor, store.path / "abort"

    def planned(*arguments):
        abort.write_bytes(b"1234")
        return plan(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(components, "RecoveryExecutor", planned)
        with pytest.raises(StoreLockedError, match="has just had the store open; try again"):
            open_again(store.path)
    assert abort.read_bytes() == b"1234"
    abort.unlink()
    open_again(store.path).close()


def test_where_the_system_has_no_locks_of_open_files_a_lock_of_the_process_keeps_others_out(tmp_path, monkeypatch):
    lock = StoreLock(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("mqtool.engine.start.lock.OPEN_FILE_LOCK", None)
        lock.acquire()
    with pytest.raises(StoreLockedError, match="has the store open"):
        StoreLock(tmp_path).test()
    lock.release()
    StoreLock(tmp_path).test()
