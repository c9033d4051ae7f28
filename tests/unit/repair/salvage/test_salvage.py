"""A salvage keeps every provable record where it was, says what is gone, and leaves nothing half made."""

import csv
import errno
import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

import mqtool
from mqtool.cli.app import run as cli
from mqtool.engine import open_store as engine_open
from mqtool.engine.start.detect import options_for
from mqtool.errors import LayoutError, NothingFoundError, RefusedError, StoreError, UnsupportedFormatError, UsageError
from mqtool.formats import commit_log, timer
from mqtool.formats.commit_log import MIN_RECORD_SIZE
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.jobs import atomic
from mqtool.rebuild.files import OutputFiles
from mqtool.records.frames import Frames
from mqtool.recovery import predict
from mqtool.repair.outlook import Preview
from mqtool.repair.salvage import SalvageOptions, merge, salvage
from mqtool.repair.salvage.merge import LARGEST, KeptLog, MovedLog, Run, correct_fields, fillers
from mqtool.repair.salvage.unit_evidence import UnitEvidence
from mqtool.store import Message
from mqtool.verify import Severity, verify
from tests.cli.answers import problems
from tests.support.builder import StoreBuilder
from tests.support.damage import CASES, base_messages, damage_case
from tests.support.expired import KEYS, store_with_expired_queue
from tests.support.stores import copy_store, copy_tree, fixture, shape_keys, store_fixture, tree_digest
from tests.support.tiers import one_in
from tests.support.unreadable import unreadable

BASES = ["4.9.7-clean", "5.5.0-crash"]


def records(root):
    """Physical offset and bytes of all records but fillers."""
    with mqtool.open(root) as store:
        messages = [message for message in store.messages() if isinstance(message, Message)]
        offsets = [message.physical_offset for message in messages if message.topic != "MQTOOL_HOLE"]
        return {at: commit_log.build_record(store.commit_log.record(at)) for at in offsets}


def errors(root):
    """Codes of findings that are errors."""
    with mqtool.open(root) as store:
        return {one.code for one in verify(store).findings if one.severity is Severity.ERROR}


def messages_of(root):
    """All messages, in the order of the log."""
    with mqtool.open(root) as store:
        return [message for message in store.messages() if isinstance(message, Message)]


def tree_contents(root):
    """Bytes of every file by its path."""
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def erase(root, physical_offset, length):
    """Zeroes bytes of the log."""
    with mqtool.open(root) as store:
        segment = store.commit_log.segments[store.commit_log.segment_at(physical_offset)]
    with segment.path.open("r+b") as file:
        file.seek(physical_offset - segment.base)
        file.write(bytes(length))


@pytest.mark.parametrize(
    "name", one_in(3, ["orders-5.5.0", "orders-4.9.7", "rollover-5.5.0", "hosts-5.5.0", "rocksdb-cq-5.5.0"])
)
def test_a_healthy_store_comes_out_with_the_same_records_and_is_clean(name, tmp_path):
    root = copy_store(name, tmp_path)
    before = tree_digest(root)
    found = salvage(root, tmp_path / "new")
    assert found.is_complete
    assert found.verify == "clean"
    assert records(tmp_path / "new") == records(root)
    assert tree_digest(root) == before


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "kind", one_in(2, ["old-flip-body", "tail-page-hole", "old-zero-segment", "segment-missing-middle"])
)
def test_every_record_that_was_not_hit_is_where_it_was(kind, base, tmp_path):
    root = damage_case(f"{kind}@{base}", tmp_path)
    found, left = salvage(root, tmp_path / "new"), records(root)
    assert records(tmp_path / "new") == left
    lost = [row for row in base_messages(base) if row["phy"] not in left]
    assert found.lost == sum(row["offset"] >= 0 for row in lost)
    named = {(row.topic, row.queue_id): row.lost_offsets for row in found.queues if row.lost}
    reported = {
        (*key, offset) for key, runs in named.items() for first, last in runs for offset in range(first, last + 1)
    }
    assert reported == {(row["topic"], row["queue"], row["offset"]) for row in lost if row["offset"] >= 0}
    assert all(any(hole.start <= row["phy"] < hole.end for hole in found.holes) for row in lost)


@pytest.mark.parametrize("base", BASES)
def test_the_new_log_has_no_hole_that_a_walk_meets(base, tmp_path):
    salvage(damage_case(f"old-zero-segment@{base}", tmp_path), tmp_path / "new")
    assert not {code for code in errors(tmp_path / "new") if code.startswith("log-")}


def test_what_the_master_lost_comes_from_its_slave(tmp_path):
    master = copy_store("ha-5.5.0/store-master", tmp_path)
    slave = copy_tree(fixture("ha-5.5.0/store-slave"), tmp_path / "slave")
    whole = records(master)
    erase(master, sorted(whole)[3], 900)
    found = salvage(master, tmp_path / "new", SalvageOptions(copies=(slave,)))
    assert found.is_complete
    assert records(tmp_path / "new") == whole
    assert found.records_by_copy[1] > 0
    assert sum(found.records_by_copy) == len(whole)


def test_two_damaged_copies_make_one_whole_store(tmp_path):
    master = copy_store("ha-5.5.0/store-master", tmp_path)
    slave = copy_tree(fixture("ha-5.5.0/store-slave"), tmp_path / "slave")
    whole = records(master)
    erase(master, sorted(whole)[3], 900)
    erase(slave, sorted(whole)[-4], 500)
    assert salvage(master, tmp_path / "new", SalvageOptions(copies=(slave,))).is_complete
    assert records(tmp_path / "new") == whole


@pytest.mark.parametrize("keys", [(), ("storePathRootDir",)], ids=["log", "root-and-log"])
@pytest.mark.parametrize("compact", one_in(2, [False, True]))
def test_a_configuration_that_names_the_log_is_not_about_the_new_store(compact, keys, tmp_path):
    """Its queues came from the damaged log, with the physical offsets of that one."""
    root = damage_case("old-zero-segment@5.5.0-crash", tmp_path)
    salvage(root, tmp_path / "new", SalvageOptions(compact=compact, map_file=tmp_path / "map" if compact else None))
    (root / "commitlog").rename(tmp_path / "log")
    config = {"storePathCommitLog": str(tmp_path / "log"), **dict.fromkeys(keys, str(root))}
    options = SalvageOptions(compact=compact, map_file=tmp_path / "map2" if compact else None, config=config)
    found = salvage(root, tmp_path / "new2", options)
    assert found.verify != "corrupt"
    assert tree_contents(tmp_path / "new2") == tree_contents(tmp_path / "new")


def test_a_configuration_that_names_the_log_does_not_hide_the_log_of_another_copy(tmp_path):
    root = damage_case("old-zero-segment@5.5.0-clean", tmp_path)
    whole = damage_case("none@5.5.0-clean", tmp_path / "whole")
    (root / "commitlog").rename(tmp_path / "log")
    config = {"storePathRootDir": str(root), "storePathCommitLog": str(tmp_path / "log")}
    found = salvage(root, tmp_path / "new", SalvageOptions(copies=(whole,), config=config))
    assert found.is_complete
    assert records(tmp_path / "new") == records(whole)


def test_a_copy_without_a_log_is_refused(tmp_path):
    root = damage_case("old-zero-segment@5.5.0-clean", tmp_path)
    copy = damage_case("none@5.5.0-clean", tmp_path / "copy")
    (copy / "commitlog").rename(tmp_path / "log")
    with pytest.raises(UsageError, match=f"{copy}: expected a copy with a CommitLog below it"):
        salvage(root, tmp_path / "new", SalvageOptions(copies=(copy,)))
    assert not (tmp_path / "new").exists()


def test_copies_of_different_logs_are_refused_and_leave_nothing(tmp_path):
    for name, body in (("a", b"one"), ("b", b"two")):
        builder = StoreBuilder()
        builder.put(body)
        builder.write(tmp_path / name)
    with pytest.raises(RefusedError, match="diverged"):
        salvage(tmp_path / "a", tmp_path / "new", SalvageOptions(copies=(tmp_path / "b",)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_field_without_a_checksum_is_taken_from_the_first_copy_and_counted(tmp_path):
    master = copy_store("ha-5.5.0/store-master", tmp_path)
    slave = copy_tree(fixture("ha-5.5.0/store-slave"), tmp_path / "slave")
    at = sorted(records(master))[2]
    with mqtool.open(slave) as store:
        segment = store.commit_log.segments[store.commit_log.segment_at(at)]
    with segment.path.open("r+b") as file:
        file.seek(at - segment.base + commit_log.field_offset("flag"))
        file.write(b"\x01\x02\x03\x04")
    whole = records(master)
    found = salvage(master, tmp_path / "new", SalvageOptions(copies=(slave,)))
    assert found.conflicts == 1
    assert any(str(at) in note for note in found.notes)
    assert records(tmp_path / "new") == whole


def test_a_copy_that_shares_nothing_proves_nothing(tmp_path):
    for name, first in (("a", 0), ("b", 1)):
        builder = StoreBuilder()
        for number in range(2):
            builder.put(bytes([65 + number]) * 50)
        builder.write(tmp_path / name)
        erase(tmp_path / name, builder.puts[first].physical_offset, 60)
    with pytest.raises(RefusedError, match="history"):
        salvage(tmp_path / "a", tmp_path / "new", SalvageOptions(copies=(tmp_path / "b",)))


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="No space"):
        salvage(root, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_compacted_store_keeps_messages_and_queue_offsets_and_has_a_map(tmp_path):
    root = damage_case("old-zero-segment@5.5.0-crash", tmp_path)
    found = salvage(root, tmp_path / "new", SalvageOptions(compact=True, map_file=tmp_path / "map.csv"))
    old = records(root)
    with (tmp_path / "map.csv").open() as file:
        moves = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]
    with mqtool.open(tmp_path / "new") as store, mqtool.open(root) as before:
        assert sum(1 for _ in store.messages()) == len(old) == found.records
        for at in old:
            move = next(move for move in moves if move["old"] <= at < move["old"] + move["length"])
            new = store.message_at(at - move["old"] + move["new"])
            same = before.message_at(at)
            assert (new.topic, new.queue_id, new.queue_offset, new.raw_body, new.properties) == (
                same.topic,
                same.queue_id,
                same.queue_offset,
                same.raw_body,
                same.properties,
            )


def test_the_records_own_checksum_is_right_after_a_move(tmp_path):
    root = copy_store("propcrc-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        second = [message.physical_offset for message in store.messages(limit=2)][1]
    erase(root, 0, second)
    salvage(root, tmp_path / "new", SalvageOptions(compact=True, map_file=tmp_path / "map.csv"))
    with mqtool.open(tmp_path / "new") as store:
        assert not {one.code for one in verify(store).findings if "crc" in one.code}


def test_a_taken_target_is_refused(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (tmp_path / "new").mkdir()
    with pytest.raises(RefusedError, match="target"):
        salvage(root, tmp_path / "new")


def test_a_target_inside_the_store_is_refused(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with pytest.raises(UsageError, match="outside"):
        salvage(root, root / "new")


def _zero_log(root):
    for segment in (root / "commitlog").iterdir():
        segment.write_bytes(bytes(segment.stat().st_size))


def _no_log(root):
    shutil.rmtree(root / "commitlog")


@pytest.mark.parametrize(("harm", "words"), [(_zero_log, "provable record"), (_no_log, "no copy with a segment")])
def test_a_store_without_a_provable_record_gives_nothing_and_exit_code_1(harm, words, tmp_path, capsys):
    root = copy_store("orders-5.5.0", tmp_path)
    harm(root)
    assert cli(["salvage", str(root), "-o", str(tmp_path / "new")]) == 1
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.slow
def test_what_an_interrupted_run_left_does_not_look_whole_and_does_not_stop_the_next(tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)

    def die(_path):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "sync_tree", die)
    monkeypatch.setattr(shutil, "rmtree", lambda *_args, **_more: None)  # as after kill -9
    with pytest.raises(KeyboardInterrupt):
        salvage(root, tmp_path / "new")
    assert not os.path.lexists(tmp_path / "new")
    monkeypatch.undo()
    assert salvage(root, tmp_path / "new").is_complete
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "store"]


def compacted(tmp_path):
    return SalvageOptions(compact=True, map_file=tmp_path / "map")


def test_a_compacted_store_that_cannot_be_completed_leaves_no_map(tmp_path, monkeypatch):
    root = copy_store("rollover-5.5.0", tmp_path)

    def full(_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "sync_tree", full)
        with pytest.raises(StoreError, match="No space left"):
            salvage(root, tmp_path / "new", compacted(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert salvage(root, tmp_path / "new", compacted(tmp_path)).map_file == tmp_path / "map"


def test_the_map_of_a_killed_run_is_written_again_and_any_other_file_stays(tmp_path, monkeypatch):
    root = copy_store("rollover-5.5.0", tmp_path)

    def die(_path):
        raise Killed

    class Killed(BaseException):
        pass

    with monkeypatch.context() as patch:  # as after kill -9
        patch.setattr(atomic, "sync_tree", die)
        patch.setattr(shutil, "rmtree", lambda *_args, **_more: None)
        patch.setattr(type(tmp_path), "unlink", lambda *_args, **_more: None)
        with pytest.raises(Killed):
            salvage(root, tmp_path / "new", compacted(tmp_path))
    (tmp_path / "other").write_text("mine")
    with pytest.raises(RefusedError, match="expected a new file for the map"):
        salvage(root, tmp_path / "new", SalvageOptions(compact=True, map_file=tmp_path / "other"))
    assert (tmp_path / "other").read_text() == "mine"
    first = (tmp_path / "map").read_bytes()
    salvage(root, tmp_path / "new", compacted(tmp_path))
    assert (tmp_path / "map").read_bytes() == first


def test_the_map_of_a_run_that_is_in_progress_stays(tmp_path, monkeypatch):
    root, sync, refused = copy_store("rollover-5.5.0", tmp_path), atomic.sync_tree, []

    def meanwhile(path):
        with pytest.raises(RefusedError, match="another run may be writing this") as found:
            salvage(root, tmp_path / "new", compacted(tmp_path))
        refused.append(found)
        sync(path)

    monkeypatch.setattr(atomic, "sync_tree", meanwhile)
    assert salvage(root, tmp_path / "new", compacted(tmp_path)).is_complete
    assert refused
    assert (tmp_path / "map").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compact": True}, "needs a file for the map"),
        ({"map_file": "map"}, "--map needs --compact"),
        ({"without_topics": ("Roll",)}, "--without-topic needs --compact"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        salvage(copy_store("rollover-5.5.0", tmp_path), tmp_path / "new", SalvageOptions(**options))


def test_segments_of_two_sizes_can_only_be_compacted(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    expected = [message.raw_body for message in messages_of(root)]
    with mqtool.open(root) as store:
        last = store.commit_log.segments[-1]
    with last.path.open("ab") as file:
        file.write(bytes(4096))
    with pytest.raises(LayoutError, match="so records cannot keep their offsets: correct mappedFileSizeCommitLog"):
        salvage(root, tmp_path / "new")
    salvage(root, tmp_path / "new", compacted(tmp_path))
    assert [message.raw_body for message in messages_of(tmp_path / "new")] == expected


def test_a_directory_in_the_way_that_is_not_ours_stays(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (tmp_path / "new.incomplete" / "store").mkdir(parents=True)
    with pytest.raises(RefusedError, match="not left by an interrupted run"):
        salvage(root, tmp_path / "new")
    assert (tmp_path / "new.incomplete" / "store").is_dir()


@pytest.mark.parametrize("size", [91, 92, 101, 102, 4096, LARGEST, LARGEST + 1, LARGEST + 90, 2 * LARGEST + 17])
def test_fillers_cover_a_hole_exactly(size):
    at, end = 1000, 1000 + size
    for filler in fillers(1000, end, 7):
        record = commit_log.parse_record(filler)
        assert record.physical_offset == at
        assert record.body_crc == commit_log.body_crc(record.body)
        assert commit_log.transaction_type(record.sys_flag) == commit_log.SysFlag.TRANSACTION_ROLLBACK
        assert MIN_RECORD_SIZE <= len(filler) <= LARGEST
        at += len(filler)
    assert at == end


def test_tables_in_a_rocksdb_become_files(tmp_path):
    root = copy_store("rocksdb-cq-5.5.0", tmp_path)
    salvage(root, tmp_path / "new")
    with mqtool.open(root) as old, mqtool.open(tmp_path / "new") as new:
        assert set(new.metadata.topics) >= set(old.metadata.topics)
        assert new.metadata.consumer_offsets == old.metadata.consumer_offsets
        assert new.metadata.topics


@pytest.mark.slow
def test_the_command_tells_by_its_exit_code_and_keeps_to_its_schema(tmp_path, capsysbinary):
    root = damage_case("tail-page-hole@5.5.0-crash", tmp_path)
    words = ["salvage", str(root), "-o", str(tmp_path / "new"), "--format", "json"]
    assert cli(words) == 1
    document = json.loads(capsysbinary.readouterr().out)
    assert problems("salvage", document) == []
    assert document["lost_messages"] == sum(row["lost"] for row in document["queues"]) > 0
    assert cli(words) == 4
    assert (
        cli(["salvage", str(copy_store("orders-5.5.0", tmp_path / "whole")), "-o", str(tmp_path / "two"), "--compact"])
        == 0
    )
    assert (tmp_path / "two.map.csv").is_file()


SERVED = ["flip-physical-offset", "flip-rollback", "flip-prepared", "old-flip-magic", "blank-early"]


@pytest.mark.parametrize("kind", one_in(2, [name for name in SERVED if f"{name}@4.9.7-clean" in CASES]))
def test_a_message_that_the_broker_serves_is_salvaged_though_a_field_without_checksum_is_damaged(kind, tmp_path):
    root = damage_case(f"{kind}@4.9.7-clean", tmp_path)
    with mqtool.open(root) as store:
        preview = Preview(store, "4.9")
        assert preview.unchanged.lost_before == 0
    found = salvage(root, tmp_path / "new")
    assert found.lost == 0
    assert preview.compare_with(tmp_path / "new").lost_after == 0
    assert not errors(tmp_path / "new")


@pytest.mark.parametrize("stated", [0, 3])
def test_the_last_message_of_a_queue_is_salvaged_though_it_states_a_smaller_queue_offset(stated, tmp_path):
    root = damage_case("none@4.9.7-clean", tmp_path)
    with mqtool.open(root) as store:
        unit = store.queue("Orders", 0).units()[-1]
        at = int(unit["physical_offset"])
        segment = store.commit_log.segments[store.commit_log.segment_at(at)]
        preview = Preview(store, "4.9")
    with segment.path.open("r+b") as file:
        file.seek(at - segment.base + commit_log.field_offset("queue_offset"))
        file.write(stated.to_bytes(8, "big"))
    assert preview.unchanged.lost_before == 0
    salvage(root, tmp_path / "new")
    assert preview.compare_with(tmp_path / "new").lost_after == 0


def written(root, message, name, value, width):
    """Overwrites a fixed field of a record's head, before its hosts."""
    with mqtool.open(root) as store:
        segment = store.commit_log.segments[store.commit_log.segment_at(message.physical_offset)]
    with segment.path.open("r+b") as file:
        file.seek(message.physical_offset - segment.base + commit_log.field_offset(name))
        file.write(value.to_bytes(width, "big", signed=True))


IN_PLACE = [
    "flip-queue-id-negative@5.5.0-crash",
    "flip-queue-offset@4.9.7-clean",
    "flip-queue-offset@5.5.0-crash",
    "flip-compressed@5.5.0-crash",
    "flip-born-timestamp@5.5.0-crash",
    "flip-store-timestamp@5.5.0-crash",
    "timestamp-zero-first@5.5.0-crash",
    "segment-missing-last@4.9.7-clean",
    "tail-zeroed-segment@5.5.0-crash",
]


@pytest.mark.slow
@pytest.mark.parametrize("case", IN_PLACE)
def test_a_salvaged_store_is_never_corrupt(case, tmp_path):
    root = damage_case(case, tmp_path)
    found = salvage(root, tmp_path / "new")
    assert (found.verify, errors(tmp_path / "new")) in [("clean", set()), ("dirty", set())]


@pytest.mark.parametrize("back", one_in(3, [1, 3, 1000]))
def test_records_in_a_row_with_too_small_queue_offsets_stay_where_their_units_are(back, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        mine = [one for one in store.messages() if (one.topic, one.queue_id) == ("Orders", 0)]
        whole = {one.physical_offset: one.queue_offset for one in store.messages()}
    for message in mine[10:15]:
        written(root, message, "queue_offset", max(0, message.queue_offset - back), 8)
    found = salvage(root, tmp_path / "new")
    assert found.verify == "clean"
    assert any(f": physical offsets {mine[10].physical_offset} (queue_offset), " in note for note in found.notes)
    with mqtool.open(tmp_path / "new") as store:
        assert {one.physical_offset: one.queue_offset for one in store.messages()} == whole
        queue = next(one for one in store.disk_queues() if (one.topic, one.queue_id) == ("Orders", 0))
        assert queue.units()["physical_offset"].tolist() == [one.physical_offset for one in mine]


@pytest.mark.parametrize(
    ("topic", "tags", "is_repaired"),
    one_in(
        2,
        [
            (b"Orderz", None, True),
            (b"\xff\x00ders", None, True),
            (b"Orderz", b"TagQ", False),  # what the unit says of the tags is not what the record says
        ],
    ),
)
def test_wrong_bytes_in_a_topic_are_put_right_where_one_unit_vouches_for_the_record(topic, tags, is_repaired, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    whole = records(root)
    with mqtool.open(root) as store:
        mine = [one for one in store.messages() if (one.topic, one.queue_id) == ("Orders", 0)]
        hit = [one for one in mine if one.tags == "TagA"][-1]
        segment = store.commit_log.segments[store.commit_log.segment_at(hit.physical_offset)]
    data = bytearray(segment.path.read_bytes())
    start = hit.physical_offset - segment.base
    record = bytes(data[start : start + hit.store_size])
    assert record.count(b"\x06Orders") == record.count(b"TAGS\x01Tag") == 1
    harmed = record.replace(b"\x06Orders", b"\x06" + topic)
    at = harmed.index(b"TAGS\x01") + 5
    harmed = harmed[:at] + (tags or harmed[at : at + 4]) + harmed[at + 4 :]
    data[start : start + hit.store_size] = harmed
    segment.path.write_bytes(data)
    found = salvage(root, tmp_path / "new")
    assert (
        any("corrected from the queues" in note and f"{hit.physical_offset} (topic)" in note for note in found.notes)
        == is_repaired
    )
    assert (records(tmp_path / "new") == whole) == is_repaired
    with mqtool.open(tmp_path / "new") as store:
        queue = next(one for one in store.disk_queues() if (one.topic, one.queue_id) == ("Orders", 0))
        assert (hit.physical_offset in queue.units()["physical_offset"].tolist()) == is_repaired


@pytest.mark.slow
def test_units_that_are_wrong_change_no_record(tmp_path):
    """A queue file moved by one unit, and the files of two queues swapped: it is the records that are right."""
    root = copy_store("orders-5.5.0", tmp_path)
    before = records(root)
    name = "00000000000000000000"
    queue = root / "consumequeue" / "Orders"
    data = (queue / "0" / name).read_bytes()
    (queue / "0" / name).write_bytes(data[:200] + data[220:] + bytes(20))
    first, second = (root / "consumequeue" / "Payments" / number / name for number in ("0", "1"))
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    with mqtool.open(root) as store:
        last = [message for message in store.messages() if message.topic == "Orders" and message.queue_id == 1][-1]
    written(root, last, "queue_offset", 5000, 8)  # the units are asked
    before = records(root)
    salvage(root, tmp_path / "new")
    made = records(tmp_path / "new")
    assert {at for at in before if made.get(at) != before[at]} <= {last.physical_offset}


@pytest.mark.parametrize("kind", [4, 12])
@pytest.mark.parametrize("place", [0, -1])
def test_a_message_that_is_turned_into_a_part_of_a_transaction_is_found_and_kept(kind, place, tmp_path):
    root = copy_store("txbits-4.9.7", tmp_path)
    with mqtool.open(root) as store:
        message = [one for one in store.messages() if one.topic == "TxBits" and one.sys_flag & 4 == 0][place]
        before = {one.physical_offset for one in store.messages()}
    written(root, message, "sys_flag", message.sys_flag & ~12 | kind, 4)
    with mqtool.open(root) as store:
        found = [
            one.evidence for one in verify(store).findings if one.code in ("log-wrong-flags", "queue-transaction-unit")
        ]
    assert len(found) == 1
    assert salvage(root, tmp_path / "new").verify == "clean"
    assert set(records(tmp_path / "new")) == before


@pytest.mark.parametrize("name", one_in(3, ["LivesRetry", "RMQ_SYS_TRACE_TOPIC", "LivesPlain"]))
def test_a_topic_that_is_left_out_gives_its_space_back_and_nothing_else_is_missing(tmp_path, name):
    root = copy_store("lives-5.5.0", tmp_path)
    options = SalvageOptions(compact=True, without_topics=(name,), map_file=tmp_path / "map.csv")
    before = tree_digest(root)
    found = salvage(root, tmp_path / "new", options)
    assert tree_digest(root) == before
    with mqtool.open(root) as store:
        old = [one for one in store.messages() if one.topic != name]
        purged = [one for one in store.messages() if one.topic == name]
    with mqtool.open(tmp_path / "new") as store:
        new = list(store.messages())
        assert store.commit_log.max_offset <= sum(one.store_size for one in old) + 262_144  # a BLANK between segments
        assert store.queue(name, 0) is None
    shown = [
        [(one.topic, one.queue_id, one.queue_offset, one.unique_key, one.body) for one in log] for log in (old, new)
    ]
    assert shown[0] == shown[1]
    assert (found.purged_records, found.purged_bytes) == (len(purged), sum(one.store_size for one in purged))
    assert (found.is_complete, found.verify, found.lost) == (True, "clean", 0)
    assert any("offset message ids" in note for note in found.notes)
    with (tmp_path / "map.csv").open() as lines:
        moves = [tuple(map(int, row)) for row in list(csv.reader(lines))[1:]]
    places = {
        at: at - start + to
        for start, to, length in moves
        for at in (one.physical_offset for one in old)
        if start <= at < start + length
    }
    assert [places[one.physical_offset] for one in old] == [one.physical_offset for one in new]


def test_what_waits_for_a_topic_that_is_left_out_is_said(tmp_path):
    root = copy_store("lives-5.5.0", tmp_path)
    options = SalvageOptions(compact=True, without_topics=("LivesDelay",), map_file=tmp_path / "map.csv")
    found = salvage(root, tmp_path / "new", options)
    assert any(note.startswith("10 message(s) for these topics are waiting") for note in found.notes)


@pytest.mark.parametrize("name", ["timer-5.5.0", "orders-5.5.0"])
def test_the_timer_s_files_are_the_broker_s_so_that_nothing_is_delivered_again(name, tmp_path):
    root = copy_store(name, tmp_path)
    config = {key: value for key, value in shape_keys(store_fixture(name).config).items() if "TimerLog" not in key}
    salvage(root, tmp_path / "new", SalvageOptions(config=config))
    files = [path.relative_to(root) for path in [*(root / "timerlog").iterdir(), root / "config/timercheck"]]
    assert len(files) > 1
    for path in [*files, "timerwheel"]:
        assert (tmp_path / "new" / path).read_bytes() == (root / path).read_bytes(), path


def test_a_copy_states_what_was_delivered_if_the_first_store_does_not(tmp_path):
    root, copy = copy_store("timer-5.5.0", tmp_path / "a"), copy_store("timer-5.5.0", tmp_path / "b")
    (root / "config/timercheck").unlink()
    salvage(root, tmp_path / "new", SalvageOptions(copies=(copy,)))
    known, made = (
        timer.parse_checkpoint((store / "config/timercheck").read_bytes()) for store in (copy, tmp_path / "new")
    )
    assert made.last_read_time_ms == known.last_read_time_ms


@pytest.mark.parametrize(("name", "config"), [("orders-4.9.7", None), ("timer-5.5.0", {"timerRocksDBEnable": "true"})])
def test_no_wheel_is_written_for_a_broker_that_reads_none(name, config, tmp_path):
    salvage(copy_store(name, tmp_path), tmp_path / "new", SalvageOptions(config=config))
    assert not (tmp_path / "new/timerwheel").exists()


def test_topics_of_another_broker_are_completed_so_that_a_broker_starts(tmp_path):
    """5.5.0 ends with -3 if a BatchConsumeQueue belongs to a topic without the type BatchCQ."""
    root = copy_store("bcq-5.5.0", tmp_path)
    foreign = fixture("orders-5.5.0/store/config/topics.json").read_bytes()
    (root / "config/topics.json").write_bytes(foreign)
    (root / "config/topics.json.bak").unlink()
    assert predict(root).exit == -3
    result = salvage(root, tmp_path / "new")
    assert (result.is_complete, result.verify) == (True, "clean")
    assert predict(tmp_path / "new").runs
    table = json.loads((tmp_path / "new/config/topics.json").read_text())["topicConfigTable"]
    assert table.keys() - json.loads(foreign)["topicConfigTable"].keys() == {"BatchTopic"}
    assert table["BatchTopic"]["attributes"] == {"queue.type": "BatchCQ"}


def test_a_topic_that_was_deleted_stays_deleted(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue/Payments")
    table = json.loads((root / "config/topics.json").read_text())
    del table["topicConfigTable"]["Payments"]
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text(json.dumps(table))
    salvage(root, tmp_path / "new")
    assert "Payments" not in json.loads((tmp_path / "new/config/topics.json").read_text())["topicConfigTable"]


def test_a_result_that_does_not_start_is_not_complete(tmp_path, capsys):
    root = copy_store("bcq-5.5.0", tmp_path)
    for path in (root / "config").glob("topics.json*"):
        path.write_bytes(path.read_bytes().replace(b"BatchCQ", b"SimpleCQ"))
    assert cli(["salvage", str(root), "-o", str(tmp_path / "new"), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] is False
    assert document["lost_messages"] == 0
    assert any("does not start" in note and f"mqtool verify {root}" in note for note in document["notes"])
    assert not predict(tmp_path / "new").runs


def test_topics_that_are_left_out_are_chosen_by_globs(tmp_path):
    options = SalvageOptions(compact=True, without_topics=("LivesP*",), map_file=tmp_path / "map.csv")
    salvage(fixture("lives-5.5.0/store"), tmp_path / "new", options)
    with mqtool.open(tmp_path / "new") as store:
        names = {one.topic for one in store.messages()}
    assert "LivesDelay" in names
    assert not [name for name in names if name.startswith("LivesP")]


@pytest.mark.parametrize(
    ("names", "compact", "words"),
    [
        (("NoSuch",), True, "there is no topic 'NoSuch'"),
        (("SCHEDULE_TOPIC_XXXX",), True, "cannot be left out"),
        (("LivesPlain",), False, "--without-topic needs --compact"),
    ],
)
def test_topics_that_cannot_be_left_out_are_refused(tmp_path, names, compact, words):
    path = tmp_path / "map.csv" if compact else None
    options = SalvageOptions(compact=compact, without_topics=names, map_file=path)
    with pytest.raises(UsageError, match=words):
        salvage(fixture("lives-5.5.0/store"), tmp_path / "new", options)
    assert not (tmp_path / "new").exists()


def test_a_host_with_an_impossible_port_becomes_one_that_a_client_can_read(tmp_path):
    builder = StoreBuilder()
    for number in range(12):
        builder.put(b"body %d" % number)
    root = builder.write(tmp_path / "store", queues=False)
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        for put, name in ((builder.puts[7], "born_host"), (builder.puts[9], "store_host")):
            file.seek(put.physical_offset + commit_log.field_offset(name) + 4)
            file.write((1 << 20).to_bytes(4, "big"))
    assert errors(root) >= {"log-bad-field"}
    salvage(root, tmp_path / "new")
    assert "log-bad-field" not in errors(tmp_path / "new")
    made = records(tmp_path / "new")
    for put in builder.puts:
        record = commit_log.parse_record(made[put.physical_offset])
        ports = [int.from_bytes(host[4:], "big") for host in (record.born_host, record.store_host)]
        assert ports == [0 if put is builder.puts[7] else 10911, 0 if put is builder.puts[9] else 10911]
        assert record.body == b"body %d" % put.queue_offset


def test_a_dledger_log_is_converted_first(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    with pytest.raises(UnsupportedFormatError, match="convert it to a plain CommitLog first with mqtool convert"):
        salvage(root, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_store_without_a_checkpoint_gets_one(tmp_path):
    builder = StoreBuilder()
    for number in range(5):
        builder.put(b"body %d" % number)
    root = builder.write(tmp_path / "store")
    (root / "checkpoint").unlink()
    salvage(root, tmp_path / "new")
    assert records(tmp_path / "new") == records(root)
    with mqtool.open(tmp_path / "new") as store:
        assert store.checkpoint is not None
        assert store.checkpoint.physic_msg_timestamp == builder.puts[-1].store_timestamp


def test_a_queue_whose_messages_have_expired_continues_at_its_queue_offset(tmp_path):
    root = store_with_expired_queue(tmp_path / "store")
    found = salvage(root, tmp_path / "new", SalvageOptions(config=KEYS))
    assert (found.is_complete, found.verify, [row.topic for row in found.queues]) == (True, "clean", ["Busy"])
    with mqtool.open(tmp_path / "new") as store:
        quiet = store.queue("Quiet", 0)
        assert (quiet.min_offset, quiet.max_offset, store.metadata.consumer_offsets["G"]["Quiet"]) == (10, 10, {0: 10})
        assert store.metadata.consumer_offsets["G"]["Gone"] == {0: 0}
    with engine_open(tmp_path / "new", options_for(tmp_path / "new", KEYS)) as store:
        assert store.put("Quiet", 0, b"next").queue_offset == 10
    assert errors(tmp_path / "new") == set()


def test_a_queue_whose_messages_have_expired_continues_in_a_compacted_store_too(tmp_path):
    root = store_with_expired_queue(tmp_path / "store")
    found = salvage(root, tmp_path / "new", SalvageOptions(compact=True, map_file=tmp_path / "map", config=KEYS))
    assert (found.is_complete, found.verify) == (True, "clean")
    with mqtool.open(root) as old, mqtool.open(tmp_path / "new") as store:
        size = old.commit_log.segments[0].size
        assert store.commit_log.min_offset == size, "the unit needs a place before the log"
        quiet = store.queue("Quiet", 0)
        assert (quiet.min_offset, quiet.max_offset, store.metadata.consumer_offsets["G"]["Quiet"]) == (10, 10, {0: 10})
        assert store.metadata.consumer_offsets["G"]["Gone"] == {0: 0}
        kept = [(one.topic, one.queue_offset, one.body) for one in old.messages()]
        assert [(one.topic, one.queue_offset, one.body) for one in store.messages()] == kept
    with engine_open(tmp_path / "new", options_for(tmp_path / "new", KEYS)) as store:
        assert store.put("Quiet", 0, b"next").queue_offset == 10
    assert errors(tmp_path / "new") == set()


def test_a_compacted_store_keeps_ends_of_queues_if_the_first_copy_has_no_log(tmp_path):
    copy = store_with_expired_queue(tmp_path / "copy")
    root = copy_tree(copy, tmp_path / "store")
    for segment in (root / "commitlog").iterdir():
        segment.unlink()
    options = SalvageOptions(compact=True, map_file=tmp_path / "map", config=KEYS, copies=(copy,))
    salvage(root, tmp_path / "new", options)
    with engine_open(tmp_path / "new", options_for(tmp_path / "new", KEYS)) as store:
        assert store.put("Quiet", 0, b"next").queue_offset == 10


def test_a_store_of_which_every_topic_is_left_out_is_not_written(tmp_path):
    root = store_with_expired_queue(tmp_path / "store")
    with mqtool.open(root) as store:
        topics = tuple({one.topic for one in store.messages()})
    options = SalvageOptions(compact=True, map_file=tmp_path / "map", without_topics=topics, config=KEYS)
    with pytest.raises(NothingFoundError, match="every provable record is of a topic that is to be left out"):
        salvage(root, tmp_path / "new", options)
    assert not (tmp_path / "new").exists()


def test_a_log_in_another_directory_than_before_is_noted(tmp_path):
    source = store_fixture("multipath-5.5.0")
    found = salvage(source.directory, tmp_path / "new", SalvageOptions(config=source.config))
    [note] = [note for note in found.notes if "storePathCommitLog" in note]
    assert "/clC" in note
    assert f" is in {tmp_path / 'new' / 'commitlog'}: " in note
    assert not [note for note in salvage(tmp_path / "new", tmp_path / "again").notes if "storePathCommitLog" in note]


def test_a_message_lost_at_the_front_of_the_log_is_reported_though_its_unit_ends_a_queue(tmp_path):
    builder = StoreBuilder()
    builder.put(b"lost", topic="Quiet")
    for number in range(150):
        builder.put(b"busy %d" % number * 40, topic="Busy")
    root = builder.write(tmp_path / "store")
    erase(root, 0, builder.segment_size)
    found = salvage(root, tmp_path / "new")
    assert [(row.topic, row.salvaged, row.lost) for row in found.queues if row.topic == "Quiet"] == [("Quiet", 0, 1)]
    with mqtool.open(tmp_path / "new") as store:
        assert store.commit_log.min_offset == builder.segment_size


def test_users_and_their_permissions_are_copied(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    for name in ("users", "acls"):
        (root / "config" / name).mkdir()
        (root / "config" / name / "CURRENT").write_bytes(b"MANIFEST-000005\n")
        (root / "config" / name / "000004.log").write_bytes(name.encode())
    result = salvage(root, tmp_path / "new")
    assert (result.config["users"], result.config["acls"]) == ("copied", "copied")
    for name in ("users", "acls"):
        copied = tmp_path / "new" / "config" / name
        assert {path.name: path.read_bytes() for path in copied.iterdir()} == {
            "CURRENT": b"MANIFEST-000005\n",
            "000004.log": name.encode(),
        }


def test_a_batch_queue_whose_messages_have_expired_continues_at_its_queue_offset(tmp_path):
    root, config = copy_store("bcq-5.5.0", tmp_path), store_fixture("bcq-5.5.0").config
    with engine_open(root, options_for(root, config)) as store:
        for _ in range(100):  # into the second segment
            store.put("Busy", 0, b"busy" * 200)
    (root / "commitlog" / f"{0:020d}").unlink()
    with mqtool.open(root, config) as old:
        ends = [old.queue("BatchTopic", number).max_offset for number in range(2)]
    assert ends == [60, 17]
    salvage(root, tmp_path / "new", SalvageOptions(config=config))
    with mqtool.open(tmp_path / "new", config) as store:
        assert [store.queue("BatchTopic", number).max_offset for number in range(2)] == ends
    assert errors(tmp_path / "new") == set()


def test_a_record_that_a_copy_has_intact_is_not_made_again_from_its_unit(tmp_path):
    """Its magic code is damaged in the master; the unit there would confirm it too."""
    master = copy_store("ha-5.5.0/store-master", tmp_path)
    slave = copy_tree(fixture("ha-5.5.0/store-slave"), tmp_path / "slave")
    whole = records(master)
    with mqtool.open(master) as store:
        message = sorted(store.messages(), key=lambda one: one.physical_offset)[3]
    written(master, message, "magic_code", 1, 4)
    found = salvage(master, tmp_path / "new", SalvageOptions(copies=(slave,)))
    assert records(tmp_path / "new") == whole
    assert found.records_by_copy[1] == 1


def test_a_copy_without_a_part_of_the_log_does_not_count_as_different(tmp_path):
    root, copy = copy_store("orders-5.5.0", tmp_path), copy_store("orders-5.5.0", tmp_path / "copy")
    for path in sorted((copy / "commitlog").iterdir())[1:]:
        path.unlink()
    whole = records(root)
    found = salvage(root, tmp_path / "new", SalvageOptions(copies=(copy,)))
    assert (found.is_complete, found.conflicts, found.records_by_copy[1]) == (True, 0, 0)
    assert records(tmp_path / "new") == whole


def test_records_that_differ_are_counted_beyond_those_that_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "NOTED", 1)
    master = copy_store("ha-5.5.0/store-master", tmp_path)
    slave = copy_tree(fixture("ha-5.5.0/store-slave"), tmp_path / "slave")
    with mqtool.open(slave) as store:
        messages = sorted(store.messages(), key=lambda one: one.physical_offset)[2:5]
    for message in messages:
        written(slave, message, "flag", 77, 4)
    found = salvage(master, tmp_path / "new", SalvageOptions(copies=(slave,)))
    assert found.conflicts == 3
    named = [
        str(one.physical_offset) for one in messages if any(str(one.physical_offset) in note for note in found.notes)
    ]
    assert named == [str(messages[0].physical_offset)]


def frames_of(bodies, start=0):
    """Records with these bodies, one after the other from a physical offset on."""
    builder = StoreBuilder()
    for body in bodies:
        builder.put(body)
    data = b"".join(bytes(builder.segments[0][put.physical_offset :][: put.size]) for put in builder.puts)
    sizes = np.array([put.size for put in builder.puts], np.int64)
    return Frames(memoryview(data), start, np.cumsum(sizes) - sizes, sizes)


def test_records_after_a_hole_that_is_too_short_for_a_filler_are_left_out_up_to_one_that_fits(tmp_path):
    with OutputFiles(tmp_path / "log") as files:
        log = KeptLog(files, 1 << 16, lambda _start, _end: False)
        first = Run(0, frames_of([b"one"]))
        log.add(first)
        end = log.end
        log.add(Run(0, frames_of([b"two", b"three"], end + 5)))
        assert (log.unplaced, log.records) == ([end + 5], 2)
        assert log.holes[-1].end > end + MIN_RECORD_SIZE
        alone = log.end + MIN_RECORD_SIZE - 1
        before = log.end
        log.add(Run(0, frames_of([b"four"], alone)))
        assert (log.unplaced[1:], log.records, log.end) == ([alone], 2, before)


def test_no_frames_are_corrected_to_none(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    nothing = frames_of([b"x"]).select(slice(0, 0))
    with mqtool.open(root) as store:
        assert UnitEvidence(store).queued(nothing) is nothing
        assert merge.Merge([store], [])._correct(0, nothing) is nothing


def test_what_no_record_proves_is_no_evidence(tmp_path):
    """Units that lead out of the log, to other bytes, or to no message at all."""
    root = copy_store("orders-5.5.0", tmp_path)
    path = root / "consumequeue/Orders/0/00000000000000000000"
    units = bytearray(path.read_bytes())
    units[20:40] = CONSUME_QUEUE_UNIT.struct.pack(1 << 40, 200, 0)
    units[40:60] = CONSUME_QUEUE_UNIT.struct.pack(0, (1 << 31) - 1, 0)
    path.write_bytes(units)
    with mqtool.open(root) as store:
        evidence = UnitEvidence(store)
        number = next(n for n, one in enumerate(evidence._queues) if (one.topic, one.queue_id) == ("Orders", 0))
        end = evidence._queues[number].max_offset
        assert [evidence._agrees(number, at) for at in (-1, 0, 1, 2, 3, end + 1000)] == [
            None,
            True,
            False,
            False,
            True,
            None,
        ]
        assert evidence._nearest(number, range(1, 3)) is None
        assert [evidence._nearest(number, range(1, 9)), evidence._nearest(number, range(2, -1, -1))] == [3, 0]
        assert evidence._corrected_record(0, 1 << 40, 200) is None


def test_a_damaged_queue_id_is_left_as_it_is_and_a_born_time_without_any_valid_time_too():
    frames = frames_of([b"x"])
    data = bytearray(frames.view)
    for name, width in (("queue_id", 4), ("store_timestamp", 8), ("born_timestamp", 8)):
        at = commit_log.field_offset(name)
        data[at : at + width] = (-5).to_bytes(width, "big", signed=True)
    harmed = Frames(memoryview(data), 0, frames.positions, frames.sizes)
    changed: dict[int, set[str]] = {}
    same = correct_fields(harmed, 0, changed)
    assert (bytes(same.view), changed) == (bytes(data), {})
    made = correct_fields(harmed, 1_700_000_000_000, changed)
    assert changed == {0: {"store_timestamp", "born_timestamp"}}
    assert made.column("store_timestamp").tolist() == [1_700_000_000_000]
    assert made.column("queue_id").tolist() == [-5]


def test_a_record_that_reaches_past_the_end_of_a_range_is_left_out():
    frames = frames_of([b"one", b"two", b"three"], 1000)
    first, second = (int(size) for size in frames.sizes[:2])
    runs = [[(run.start, run.end) for run in merge._split(frames, 0, end)] for end in (None, 1000 + first + 1, 1001)]
    assert runs == [[(1000, 1000 + int(frames.sizes.sum()))], [(1000, 1000 + first)], []]
    apart = frames.select([0, 2])
    assert [run.start for run in merge._split(apart, 0, 1000 + first + second)] == [1000]


def test_records_that_follow_each_other_in_two_runs_leave_no_hole(tmp_path):
    with OutputFiles(tmp_path / "log") as files:
        log = MovedLog(files, 1 << 16, lambda _start, _end: False)
        log.add(Run(0, frames_of([b"one"], 500)))
        log.add(Run(0, frames_of([b"two"], log.end)))
        assert (log.holes, log.records) == ([], 2)
        end = log.end
        log.add(Run(0, frames_of([b"three"], end + 7)))
        assert [(hole.start, hole.end) for hole in log.holes] == [(end, end + 7)]


def test_units_vouch_for_no_record_of_another_size_or_with_another_length_of_topic(tmp_path):
    root = copy_store("txbits-4.9.7", tmp_path)
    with mqtool.open(root) as store:
        message = next(one for one in store.messages() if one.topic == "TxBits" and one.sys_flag & 4 == 0)
        evidence = UnitEvidence(store)
        number = int(np.searchsorted(evidence._units.physical, message.physical_offset))
        record = store.commit_log.record_at(message.physical_offset)
        assert evidence._is_of(number, record)
        assert not evidence._is_of(number, replace(record, topic=b"TxBitsX"))
        prepared = bytearray(store.commit_log.read(message.physical_offset, message.store_size))
        at = commit_log.field_offset("sys_flag")
        prepared[at : at + 4] = (record.sys_flag | 4).to_bytes(4, "big")
        sizes = np.array([message.store_size], np.int64)
        frames = Frames(memoryview(prepared), message.physical_offset, np.zeros(1, np.int64), sizes)
        assert evidence._unprepared(frames) is not frames
        evidence._units.size[number] += 1
        assert evidence._unprepared(frames) is frames


def test_bytes_that_cannot_be_read_are_no_evidence(tmp_path, monkeypatch):
    def unreadable(*_arguments):
        raise StoreError("cannot be read: Input/output error", tmp_path)

    root = copy_store("orders-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        evidence = UnitEvidence(store)
        physical, size = int(evidence._units.physical[0]), int(evidence._units.size[0])
        assert evidence._corrected_record(0, physical, size) is not None
        monkeypatch.setattr(evidence, "_log", SimpleNamespace(read=unreadable))
        assert evidence._corrected_record(0, physical, size) is None


def test_a_record_with_unread_properties_is_lost_although_its_unit_confirms_it(tmp_path, monkeypatch):
    builder = StoreBuilder(segment_size=1 << 14)
    builder.put(b"first")
    bad = builder.put(b"second", properties=("long\1" + "y" * 12_000 + "\2").encode())
    builder.put(b"third")
    root = builder.write(tmp_path / "store")
    with unreadable(monkeypatch, root / "commitlog" / f"{0:020}", from_position=5000, until=5512):
        assert cli(["salvage", str(root), "-o", str(tmp_path / "new")]) == 1
    found = [message for message in messages_of(tmp_path / "new") if message.topic == "Topic"]
    assert [message.body for message in found] == [b"first", b"third"]
    assert bad.physical_offset not in [message.physical_offset for message in found]


@pytest.mark.parametrize("from_position", [None, 30], ids=["denied", "bad sector"])
def test_a_queue_that_cannot_be_read_keeps_no_record_and_the_result_says_that_more_may_be_lost(
    from_position, tmp_path, monkeypatch, capsys
):
    builder = StoreBuilder(segment_size=1 << 14)
    for number in range(50):
        builder.put(b"%d" % number, queue_id=number % 2)
    root = builder.write(tmp_path / "store")
    erase(root, builder.puts[20].physical_offset, 4)  # of queue 0, with a unit that confirms the record
    (path,) = (root / "consumequeue/Topic/1").iterdir()
    with unreadable(monkeypatch, path, from_position=from_position):
        assert cli(["salvage", str(root), "-o", str(tmp_path / "new"), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["complete"], found["records"], found["lost_messages"]) == (False, 50, 0)
    (note,) = (note for note in found["notes"] if "Topic/1" in note)
    assert str(path) in note
    assert [message.body for message in messages_of(tmp_path / "new")] == [b"%d" % number for number in range(50)]
