"""An uncleanly stopped store shows what a broker's start will make of it, and what lies on disk beside that."""

import shutil

import pytest

import mqtool
from mqtool.store import recovered
from mqtool.store.recovered import OverlaidFile
from tests.support.builder import StoreBuilder
from tests.support.damage import CASES, damage_answers, damage_case
from tests.support.stores import answers, copy_store, store_fixture, tree_digest

QUEUES_BEHIND = ("none", "cq-behind", "cq-behind-all", "cq-file-missing-last", "cq-hole", "abort-removed")
ANSWERS = {**damage_answers("4.9.7"), **damage_answers("5.5.0")}
CRASHED = [name for name in ANSWERS if name in CASES and CASES[name].kind in QUEUES_BEHIND and name.endswith("-crash")]


@pytest.mark.parametrize("name", CRASHED)
def test_queues_have_the_bounds_that_the_broker_gave_them(name, tmp_path):
    with mqtool.open(damage_case(name, tmp_path)) as store:
        found = {f"{queue.topic}/{queue.queue_id}": (queue.min_offset, queue.max_offset) for queue in store.queues()}
    assert found == {name: (queue["min"], queue["max"]) for name, queue in ANSWERS[name]["queues"].items()}


def test_a_queue_that_is_gone_comes_again_with_what_recovery_scans(tmp_path):
    name = "cq-queue-missing@5.5.0-crash"
    with mqtool.open(damage_case(name, tmp_path)) as store:
        assert store.queue("Orders", 0) is not None
        assert "Orders/0" not in {f"{queue.topic}/{queue.queue_id}" for queue in store.disk_queues()}
        found = {f"{queue.topic}/{queue.queue_id}": (queue.min_offset, queue.max_offset) for queue in store.queues()}
    assert found == {name: (queue["min"], queue["max"]) for name, queue in ANSWERS[name]["queues"].items()}


def test_pending_units_lie_behind_those_on_disk():
    with mqtool.open(store_fixture("crash-4.9.7").directory) as store:
        on_disk = {(queue.topic, queue.queue_id): queue for queue in store.disk_queues()}
        grown = [
            queue for queue in store.queues() if queue.max_offset > on_disk[queue.topic, queue.queue_id].max_offset
        ]
        assert len(grown) == 3
        for queue in grown:
            below = on_disk[queue.topic, queue.queue_id]
            whole, count = queue.units(), below.max_offset - below.first_offset
            assert whole[:count].tobytes() == below.units()[:count].tobytes()
            assert (whole["physical_offset"][count:] > below.max_physical_offset - 1).all()


def bounds_and_units(queue):
    fields = ("physical_offset", "size", "tags_code", "store_timestamp", "base_queue_offset", "batch_size")
    return queue.min_offset, queue.max_offset, [tuple(int(unit[name]) for name in fields) for unit in queue.units()]


@pytest.mark.parametrize("kept", [0, 1, 7, None], ids=["none", "one", "seven", "no file"])
def test_units_of_batches_that_a_crash_left_out_are_dispatched_again(kept, tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        expected = {queue.queue_id: bounds_and_units(queue) for queue in store.queues() if queue.is_batch}
    assert len(expected[0][2]) > 10
    (root / "abort").touch()
    for path in sorted((root / "batchconsumequeue").rglob("0*")):
        if not path.is_file():
            continue
        if kept is None or path.name != "0" * 20:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: kept * 46].ljust(path.stat().st_size, b"\0"))
    with mqtool.open(root, store_fixture("bcq-5.5.0").config) as store:
        found = {queue.queue_id: bounds_and_units(queue) for queue in store.queues() if queue.is_batch}
        assert found == expected
        assert sum(len(queue.units()) for queue in store.disk_queues() if queue.is_batch) == 2 * (kept or 0)


def test_after_an_orderly_stop_the_disk_is_all_there_is():
    with mqtool.open(store_fixture("orders-5.5.0").directory) as store:
        assert store.queues() == store.disk_queues()
        assert store.index_files() == store.disk_index_files()


def test_index_files_on_disk_stay_in_reach_after_a_crash():
    directory = store_fixture("crash-5.5.0").directory
    with mqtool.open(directory) as store:
        names = sorted(path.name for path in (directory / "index").iterdir())
        assert [file.path.name for file in store.disk_index_files()] == names
        kept = [file.path.name for file in store.index_files() if file.path.name in names]
        assert 0 < len(kept) < len(names)


def test_where_recovery_scans_too_far_back_files_count_as_they_are(monkeypatch, tmp_path):
    monkeypatch.setattr(recovered, "MAX_QUEUE_BYTES", 10)
    monkeypatch.setattr(recovered, "MAX_INDEX_BYTES", 10)
    with mqtool.open(damage_case("cq-behind-all@5.5.0-crash", tmp_path)) as store:
        assert store.queues() == store.disk_queues()
        assert store.index_files() == store.disk_index_files()


def test_where_only_the_scan_is_too_long_units_are_looked_for_from_the_largest_end(monkeypatch):
    monkeypatch.setattr(recovered, "MAX_QUEUE_BYTES", 10_000)
    with mqtool.open(store_fixture("crash-4.9.7").directory) as store:
        found = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
    asked = [queue for queue in answers("crash-4.9.7", "queues") if queue["units"]]
    assert found == {(queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in asked}


def test_looking_at_a_crashed_store_writes_nothing(tmp_path):
    root = copy_store("crash-4.9.7", tmp_path)
    before = tree_digest(root)
    with mqtool.open(root) as store:
        assert sum(len(queue.units()) for queue in store.queues()) > 2000
        assert sum(len(file.entries) for file in store.index_files()) > 4000
    assert tree_digest(root) == before


def test_a_topic_that_leads_out_of_the_store_gets_no_queue(tmp_path):
    from tests.unit.rebuild.model import laid_out, record

    (tmp_path / "commitlog").mkdir()
    data, _ = laid_out([record("../../escaped"), record("T")])
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(data.ljust(4096, b"\0"))
    (tmp_path / "abort").touch()
    with mqtool.open(tmp_path) as store:
        assert [queue.topic for queue in store.queues()] == ["T"]


def test_patches_lie_over_a_file_and_behind_its_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    with OverlaidFile(path, 12, [(2, b"XY"), (3, b"Z"), (8, b"end")], exists=True) as file:
        assert file.read(0, 99) == b"abXZef\0\0end\0"
        assert file.read(3, 2) == b"Ze"
        assert file.read(12, 1) == b""
        assert file.data_end() == 11
    with OverlaidFile(tmp_path / "none", 4, [(1, b"x")], exists=False) as file:
        assert file.read(0, 4) == b"\0x\0\0"


@pytest.mark.parametrize("limit", [1 << 30, 30_000], ids=["from the start", "from the largest end"])
def test_units_after_a_segment_that_the_queues_have_completely_are_found(limit, tmp_path, monkeypatch):
    """The last unit on disk is of the record before a BLANK, so the next record is in the next segment."""
    monkeypatch.setattr(recovered, "MAX_QUEUE_BYTES", limit)
    builder = StoreBuilder(queue_file_units=200)
    for _ in range(300):
        builder.put(b"x" * 100)
    path = builder.write(tmp_path / "store", index=False)
    kept = sum(put.physical_offset < 2 * builder.segment_size for put in builder.puts)
    assert builder.end - 2 * builder.segment_size < 30_000 < builder.end
    for file in (path / "consumequeue" / "Topic" / "0").iterdir():
        data = file.read_bytes()
        units = max(0, min(200, kept - int(file.name) // 20)) * 20
        file.write_bytes(data[:units].ljust(len(data), b"\0"))
    (path / "abort").touch()
    with mqtool.open(path) as store:
        assert [queue.max_offset for queue in store.disk_queues()] == [kept]
        (queue,) = store.queues()
        assert queue.max_offset == 300
        found = queue.units()["physical_offset"].tolist()
    assert found[:300] == [put.physical_offset for put in builder.puts]


def test_a_record_with_a_queue_offset_that_the_queue_has_gets_no_unit(tmp_path):
    """ConsumeQueue.putMessagePositionInfo: "Build consume queue repeatedly", and nothing is written."""
    builder = StoreBuilder()
    for queue_offset in (0, 1, 1, 2):
        builder.put(queue_offset=queue_offset)
    path = builder.write(tmp_path / "store", queues=False, index=False)
    (path / "abort").touch()
    with mqtool.open(path) as store:
        (queue,) = store.queues()
        places = queue.units()["physical_offset"][: queue.max_offset].tolist()
    assert places == [builder.puts[number].physical_offset for number in (0, 1, 3)]


@pytest.mark.parametrize("name", ["dledger-4.9.7", "dledger-5.5.0"])
def test_queues_of_a_dledger_log_are_completed_after_a_crash(name, tmp_path):
    root = copy_store(name, tmp_path)
    (root / "abort").touch()
    with mqtool.open(root) as store:
        whole = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
    expected = {
        (line["topic"], line["queueId"]): line["maxOffset"]
        for line in answers(name, "messages")
        if line["kind"] == "queue"
    }
    assert {key: whole[key] for key in expected} == expected
    if name.endswith("4.9.7"):  # which scans from the start of the log
        shutil.rmtree(root / "consumequeue")
        with mqtool.open(root) as store:
            found = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues()}
        assert {key: found[key] for key in expected} == expected
