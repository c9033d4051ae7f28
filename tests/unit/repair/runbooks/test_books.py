"""Runbooks that make something beside the store, that need another copy, or that only advise; pages and protocols."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

import mqtool
from mqtool.cli.app import run as cli
from mqtool.cli.commands.runbook import code_of
from mqtool.cli.exits import ExitCode
from mqtool.commands import Opened, new_store_command
from mqtool.errors import NothingToChangeError, RefusedError, StoreError, UsageError
from mqtool.formats import commit_log
from mqtool.recovery.losses import LossCount
from mqtool.repair import Redact, SetAside, apply, discard_undo, make_plan, undo
from mqtool.repair.from_findings import RepairProposal
from mqtool.repair.plans import RepairPlan
from mqtool.repair.runbooks import RUNBOOKS, Request, copy_runbooks, run, runner, store_runbooks
from mqtool.repair.runbooks.model import Case, Detection, next_verify
from mqtool.repair.runbooks.runner import Protocol
from mqtool.repair.salvage import salvage
from mqtool.store import Message
from mqtool.verify import CATALOGUE, Finding, Severity
from tests.cli.answers import problems
from tests.support.builder import StoreBuilder
from tests.support.damage import base_config, base_messages, damage_answers, damage_case, held_lock
from tests.support.stores import copy_store, tree_digest

ROOT = Path(__file__).resolve().parents[4]


def messages(root, config=None):
    """Topic, queue, offset and body of every message."""
    with mqtool.open(root, config=config) as store:
        return [
            (one.topic, one.queue_id, one.queue_offset, one.raw_body)
            for one in store.messages()
            if isinstance(one, Message) and one.topic != "MQTOOL_HOLE"
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("book", "fault"),
    [
        ("RB-05", "tail-page-hole@4.9.7-clean"),
        ("RB-05", "tail-page-hole@5.5.0-clean"),
        ("RB-13", "segment-missing-middle@5.5.0-clean"),
        ("RB-13", "segment-missing-recent@4.9.7-clean"),
    ],
)
def test_a_damaged_log_gives_a_new_store_and_stays_as_it_is(book, fault, tmp_path):
    root = damage_case(fault, tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS[book], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "new"))
    assert found.repaired
    assert messages(tmp_path / "new") == messages(root)
    assert tree_digest(root) == before


def test_starting_the_broker_loses_whole_segments_and_the_runbook_nothing(tmp_path):
    """4.9.7 cuts two segments for one bit in the third last: 297 of 389 are left (fixtures/damage)."""
    root = damage_case("third-last-flip-magic@4.9.7-clean", tmp_path)
    request = Request(apply=True, backup_acknowledged=True, to=tmp_path / "new", config=base_config("4.9.7-clean"))
    found = run(RUNBOOKS["RB-05"], root, request)
    total = sum(row["offset"] >= 0 for row in base_messages("4.9.7-clean"))
    assert found.losses == LossCount(by_start=total - 297)
    assert len(messages(tmp_path / "new")) == len(messages(root)) + 1, "a unit confirms the record with the bit"


def test_a_missing_segment_comes_from_another_copy(tmp_path):
    whole = damage_case("none@5.5.0-clean", tmp_path / "whole")
    root = damage_case("segment-missing-middle@5.5.0-clean", tmp_path)
    request = Request(apply=True, backup_acknowledged=True, copies=(whole,), to=tmp_path / "new")
    assert run(RUNBOOKS["RB-13"], root, request).repaired
    assert messages(tmp_path / "new") == messages(whole)


def test_without_a_directory_nothing_is_made(tmp_path):
    root = damage_case("segment-missing-middle@5.5.0-clean", tmp_path)
    found = run(RUNBOOKS["RB-13"], root, Request(apply=True, backup_acknowledged=True))
    assert not found.applied
    assert "-o" in found.step("plan").summary
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.slow
@pytest.mark.parametrize("book", ["RB-12", "RB-22"])
def test_a_copy_is_proved_and_equal(book, tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS[book], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "moved"))
    assert found.repaired
    assert any("queryMsgById" in fact for fact in found.step("detect").evidence)
    assert messages(tmp_path / "moved") == messages(root)
    assert tree_digest(root) == before


@pytest.mark.slow
def test_a_log_elsewhere_below_the_root_moves_with_its_store(tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    expected = messages(root)
    (root / "data").mkdir()
    (root / "commitlog").rename(root / "data" / "log")
    config = {"storePathRootDir": str(root), "storePathCommitLog": str(root / "data" / "log")}
    request = Request(apply=True, backup_acknowledged=True, to=tmp_path / "moved", config=config)
    assert run(RUNBOOKS["RB-12"], root, request).repaired
    assert messages(tmp_path / "moved", {"storePathCommitLog": str(tmp_path / "moved" / "data" / "log")}) == expected


def diverged(tmp_path):
    """Two stores with four messages in common; then the first has three of its own, the second two."""
    for name, own in (("mine", [b"x", b"y", b"z"]), ("other", [b"p", b"q"])):
        builder = StoreBuilder()
        for body in (b"a", b"b", b"c", b"d", *own):
            builder.put(body * 10)
        builder.write(tmp_path / name)
        (tmp_path / name / "lock").write_bytes(b"lock")
    return tmp_path / "mine", tmp_path / "other"


def test_a_slave_that_diverged_is_cut_to_what_it_has_in_common_with_its_master(tmp_path):
    mine, other = diverged(tmp_path)
    before = tree_digest(mine)
    request = Request(apply=True, backup_acknowledged=True, copies=(other,))
    found = run(RUNBOOKS["RB-14"], mine, request)
    assert found.repaired, found.markdown()
    assert [body for *_, body in messages(mine)] == [letter * 10 for letter in (b"a", b"b", b"c", b"d")]
    undo(mine)
    assert tree_digest(mine) == before


def test_a_slave_whose_log_is_on_another_disk_is_compared_with_the_log_of_its_master(tmp_path):
    mine, other = diverged(tmp_path)
    (mine / "commitlog").rename(tmp_path / "log")
    config = {"storePathRootDir": str(mine), "storePathCommitLog": str(tmp_path / "log")}
    with mqtool.open(mine, config) as store:
        found = RUNBOOKS["RB-14"].detect(Case(store, Request(copies=(other,), config=config)))
    assert found.present
    assert found.evidence[-1].endswith("that only this store has: 3")


def test_a_slave_that_is_only_behind_has_not_diverged(tmp_path):
    for name, bodies in (("mine", [b"a", b"b"]), ("other", [b"a", b"b", b"c"])):
        builder = StoreBuilder()
        for body in bodies:
            builder.put(body)
        builder.write(tmp_path / name)
    assert not run(RUNBOOKS["RB-14"], tmp_path / "mine", Request(copies=(tmp_path / "other",))).present


def test_a_divergence_needs_the_other_store(tmp_path):
    mine, _ = diverged(tmp_path)
    with pytest.raises(UsageError, match="--with"):
        run(RUNBOOKS["RB-14"], mine)


def test_damage_is_not_taken_for_a_divergence(tmp_path):
    for name in ("mine", "other"):
        builder = StoreBuilder()
        for body in (b"a", b"b", b"c", b"d"):
            builder.put(body * 10)
        builder.write(tmp_path / name)
    with mqtool.open(tmp_path / "mine") as store:
        (path,) = (segment.path for segment in store.commit_log.segments)
    with path.open("r+b") as file:
        file.seek(builder.puts[2].physical_offset)
        file.write(bytes(8))
    found = run(RUNBOOKS["RB-14"], tmp_path / "mine", Request(copies=(tmp_path / "other",)))
    assert not found.present
    assert "run RB-05" in found.step("detect").evidence[-1]


def same_log(tmp_path):
    """Two equal stores with a log of several segments, and the physical offsets of its records."""
    for name in ("mine", "other"):
        builder = StoreBuilder()
        for number in range(100):
            builder.put(b"%d" % number * 200)
        builder.write(tmp_path / name)
    assert len(builder.segments) > 2
    return tmp_path / "mine", tmp_path / "other", [put.physical_offset for put in builder.puts]


def spoil(root, offset, data=b"!"):
    """Overwrites a part of the body of a record, by default one byte."""
    with mqtool.open(root) as store:
        segment = next(one for one in store.commit_log.segments if one.base <= offset < one.end)
    with segment.path.open("r+b") as file:
        file.seek(offset - segment.base + 100)
        file.write(data)


@pytest.mark.parametrize(
    ("number", "data", "words"),
    [
        (50, b"!", "is damaged there, but this one is not"),
        (-1, b"!", "is damaged there, but this one is not"),
        (-1, bytes(400), "does not end cleanly"),
    ],
)
def test_a_store_is_not_cut_because_a_record_of_the_other_is_damaged(number, data, words, tmp_path):
    mine, other, offsets = same_log(tmp_path)
    spoil(other, offsets[number], data)
    before = tree_digest(mine)
    found = run(RUNBOOKS["RB-14"], mine, Request(apply=True, backup_acknowledged=True, copies=(other,)))
    assert not found.present
    assert words in found.step("detect").evidence[-1], found.markdown()
    assert tree_digest(mine) == before


@pytest.mark.parametrize(
    ("side", "words"), [("mine", "this store has no file"), ("other", "the other store has no file")]
)
def test_a_store_is_not_cut_where_a_file_is_missing(side, words, tmp_path):
    mine, other, _ = same_log(tmp_path)
    sorted((tmp_path / side / "commitlog").iterdir())[1].unlink()
    found = run(RUNBOOKS["RB-14"], mine, Request(copies=(other,)))
    assert not found.present
    assert words in found.step("detect").evidence[-1]


def test_a_cut_after_which_verify_finds_more_errors_is_no_repair(tmp_path):
    """The timer log has units of messages that only this store had."""
    mine, other = (copy_store("orders-5.5.0", tmp_path / name) for name in ("mine", "other"))
    with mqtool.open(other) as store:
        middle = [message.physical_offset for message in store.messages() if message.body.strip()][100]
    apply(make_plan(other, Redact((middle,))), backup_acknowledged=True, verify_after=False)
    found = run(RUNBOOKS["RB-14"], mine, Request(apply=True, backup_acknowledged=True, copies=(other,)))
    assert (found.applied, found.repaired) == (True, False)
    assert "verify now finds" in found.step("verify").summary
    assert (found.next_steps, found.undo) == ((f"mqtool verify {mine}",), f"mqtool undo {mine} --yes")


def test_logs_without_a_common_range_cannot_be_compared(tmp_path):
    mine, other = (copy_store("rollover-5.5.0", tmp_path / name) for name in ("mine", "other"))
    segments = sorted(path.name for path in (mine / "commitlog").iterdir())
    for root, gone in ((mine, segments[2:]), (other, segments[:2])):
        for name in gone:
            (root / "commitlog" / name).unlink()
    with pytest.raises(UsageError, match="has no range of the log in common"):
        run(RUNBOOKS["RB-14"], mine, Request(copies=(other,)))


@pytest.mark.parametrize("book", ["RB-12", "RB-22"])
def test_a_store_is_not_moved_while_a_broker_runs(book, tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    (root / "lock").touch()
    with held_lock(root / "lock"):
        found = run(RUNBOOKS[book], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "moved"))
    assert not found.present
    assert "stop it first" in found.step("detect").evidence[0]
    assert not (tmp_path / "moved").exists()


def test_a_copy_that_differs_is_refused(tmp_path, monkeypatch):
    root = copy_store("rollover-5.5.0", tmp_path)
    restore = copy_runbooks.restore

    def writes_meanwhile(*arguments, **named):
        found = restore(*arguments, **named)
        shutil.rmtree(root / "consumequeue" / "Roll" / "0")
        return found

    monkeypatch.setattr(copy_runbooks, "restore", writes_meanwhile)
    with pytest.raises(StoreError, match="the copy differs from the store; a broker may have written meanwhile"):
        run(RUNBOOKS["RB-12"], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "moved"))


def test_a_new_directory_is_only_made_on_request(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    found = run(RUNBOOKS["RB-12"], root, Request(to=tmp_path / "moved"))
    assert found.step("apply").status == "skipped"
    assert found.next_steps == (f"mqtool runbook run RB-12 {root} -o {tmp_path / 'moved'} --yes",)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(("at", "words"), [(None, "give the physical offset"), (7, "--at 7: "), (1 << 50, "--at ")])
def test_one_message_is_named_by_the_offset_of_its_record(at, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        run(RUNBOOKS["RB-21"], copy_store("rollover-5.5.0", tmp_path), Request(at=at))


def test_a_message_that_is_blank_has_gone(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        at = next(store.messages()).physical_offset
    request = Request(apply=True, backup_acknowledged=True, at=at)
    assert run(RUNBOOKS["RB-21"], root, request).repaired
    again = run(RUNBOOKS["RB-21"], root, request)
    assert (again.present, "its body is already blank" in again.step("detect").evidence[0]) == (False, True)


@pytest.mark.slow
def test_room_is_made_up_to_an_offset_that_a_person_chooses(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        end = store.commit_log.segments[0].end
        lags = [lag for lag in store.lags() if lag.lag]
    advice = run(RUNBOOKS["RB-11"], root, Request(used=99))
    assert advice.step("plan").status == "skipped"
    unsafe = [line for line in advice.step("plan").evidence if "--before" in line]
    assert unsafe[0].startswith(f"--before {end} is not safe, up to {0:020}: 7 unread, 0 waiting for delivery, ")
    assert unsafe[-1].startswith(f"--before {4 * end} is not safe, up to {3 * end:020}: 54 unread, 22 waiting ")
    assert all(
        f"group {lag.group} has {lag.lag} unread message(s) in {lag.topic}/{lag.queue_id}"
        in advice.step("plan").evidence
        for lag in lags
    )
    assert advice.next_steps == (), "the first segment has unread messages: `mqtool clean` deletes nothing"
    groups = advice.step("plan").evidence[0]
    assert advice.step("plan").summary.startswith(
        "no automatic repair: nothing more can be deleted without losing messages that somebody needs"
    )
    assert groups == f"let these groups read their messages: {', '.join(sorted({lag.group for lag in lags}))}"
    read = damage_case("none@5.5.0-clean", tmp_path / "read")
    advice = run(RUNBOOKS["RB-11"], read, Request(used=99))
    offer = f"--before 16384 removes 1 segment(s), up to {0:020}: 0 unread, 0 waiting for delivery"
    assert offer in advice.step("plan").evidence
    safe = [
        line.split()[1] for line in advice.step("plan").evidence if line.startswith("--before") and " removes " in line
    ]
    assert len(safe) > 1
    assert advice.next_steps == (f"mqtool runbook run RB-11 {read} --used 99 --before {safe[-1]}",)
    freed = run(RUNBOOKS["RB-11"], read, Request(apply=True, backup_acknowledged=True, used=99, before=int(safe[-1])))
    assert freed.applied
    left = run(RUNBOOKS["RB-11"], read, Request(used=99))
    assert left.next_steps == ()
    assert any(f"`mqtool discard-undo {read} --yes`" in line for line in left.step("plan").evidence)
    request = Request(apply=True, backup_acknowledged=True, used=10, before=end)
    with pytest.raises(RefusedError, match=r"7 unread, 0 waiting for delivery, .*--allow-unread"):
        run(RUNBOOKS["RB-11"], root, request)
    request = replace(request, allow_unread=True)
    assert run(RUNBOOKS["RB-11"], root, request).applied
    again = run(RUNBOOKS["RB-11"], root, request)
    assert (again.present, "mqtool discard-undo" in again.step("detect").evidence[-1]) == (False, True)
    with mqtool.open(root) as store:
        assert store.commit_log.min_offset == end


def test_a_plan_that_the_gates_refuse_is_reported_with_its_reason(tmp_path):
    root = damage_case("cq-queue-missing@5.5.0-clean", tmp_path)
    before = tree_digest(root)
    with held_lock(root / "lock"):
        found = run(RUNBOOKS["RB-03"], root, Request(apply=True, backup_acknowledged=True))
    assert not found.applied
    assert found.step("gate").status == "refused"
    assert tree_digest(root) == before


def test_a_dledger_store_becomes_an_ordinary_one(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS["RB-15"], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "plain"))
    assert found.repaired, found.markdown()
    assert messages(tmp_path / "plain") == messages(root)
    assert tree_digest(root) == before


def test_a_dledger_store_with_damage_does_not_become_a_complete_store(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        at = list(store.messages())[100].physical_offset
        segment = store.commit_log.segments[store.commit_log.segment_at(at)]
    with segment.path.open("r+b") as file:
        file.seek(at - segment.base + 80)
        file.write(b"\xee" * 30)
    found = run(RUNBOOKS["RB-15"], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "plain"))
    assert (found.applied, found.repaired, code_of(found)) == (True, False, ExitCode.NO)
    assert found.step("apply").summary.endswith("was created, but is not complete")
    assert "ranges of the old log without a valid record: 1" in found.step("apply").evidence


def test_a_replay_of_which_messages_are_refused_is_not_complete(tmp_path):
    builder = StoreBuilder()
    for size in (10, 500, 10):
        builder.put(b"x" * size)
    root = builder.write(tmp_path / "store")
    (tmp_path / "broker.conf").write_text("maxMessageSize=100\n")
    request = Request(apply=True, topics=("Topic",), to=tmp_path / "new", config=tmp_path / "broker.conf")
    found = run(RUNBOOKS["RB-16"], root, request)
    assert "rejected: 1" in found.step("apply").evidence
    assert (found.repaired, code_of(found)) == (False, ExitCode.NO)


def crc_zero(tmp_path):
    """A store whose one record has a body and CRC 0."""
    builder = StoreBuilder()
    builder.put(b"body")
    root = builder.write(tmp_path / "store")
    with mqtool.open(root) as store:
        path = store.commit_log.segments[0].path
    with path.open("r+b") as file:
        file.seek(commit_log.field_offset("body_crc"))
        file.write(bytes(4))
    return root


def test_an_old_rule_is_no_damage(tmp_path):
    found = run(RUNBOOKS["RB-20"], crc_zero(tmp_path), Request(broker="5.5"))
    assert found.present
    assert found.step("plan").summary.startswith("no automatic repair: the store is valid")


def test_a_held_lock_is_reported_with_its_process(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "lock").touch()
    with held_lock(root / "lock"):
        found = run(RUNBOOKS["RB-18"], root)
    assert found.present
    assert any("holds the store's lock" in fact for fact in found.step("detect").evidence)


def test_the_deepest_mount_tells_the_file_system(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nhost:/x {tmp_path} nfs4 rw 0 0\nother /elsewhere xfs rw 0 0\n")
    assert store_runbooks.file_system_of(tmp_path / "store", mounts) == "nfs4"
    assert store_runbooks.file_system_of(Path("/"), mounts) == "ext4"
    assert store_runbooks.file_system_of(Path("/"), tmp_path / "none") == ""


def test_queues_in_rocksdb_become_files_for_a_broker_that_wants_files(tmp_path):
    root = copy_store("rocksdb-cq-5.5.0", tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS["RB-19"], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "new"))
    assert found.repaired, found.markdown()
    with mqtool.open(root) as old, mqtool.open(tmp_path / "new") as new:
        assert {(one.topic, one.queue_id): one.max_offset for one in new.queues()} == {
            (one.topic, one.queue_id): one.max_offset for one in old.queues()
        }
        assert (tmp_path / "new" / "consumequeue").is_dir()
    assert tree_digest(root) == before


def test_a_downgrade_is_seen_before_it_is_done(tmp_path):
    found = run(RUNBOOKS["RB-19"], copy_store("orders-5.5.0", tmp_path), Request(broker="4.9"))
    assert found.present
    assert found.broker == "4.9"
    assert found.step("plan").status == "skipped"


def test_a_damaged_log_is_not_closed_as_if_it_were_whole(tmp_path):
    root = damage_case("old-zero-page@5.5.0-crash", tmp_path)
    found = run(RUNBOOKS["RB-08"], root, Request(apply=True, backup_acknowledged=True))
    assert not found.applied
    assert "RB-05" in found.next_steps[0]


def test_a_running_broker_has_not_crashed(tmp_path):
    root = damage_case("none@5.5.0-crash", tmp_path)
    (root / "lock").touch()
    with held_lock(root / "lock"):
        found = run(RUNBOOKS["RB-08"], root, Request(apply=True, backup_acknowledged=True))
    assert not found.present
    assert "because it is running" in found.step("detect").evidence[0]


@pytest.mark.parametrize(
    "config",
    [
        {"mappedFileSizeCommitLog": "65536"},
        {"mappedFileSizeConsumeQueue": "2000"},
        {"mapedFileSizeCommitLog": "16384"},
    ],
    ids=["segments", "queues", "old-spelling"],
)
def test_a_wrong_configuration_is_reported_and_no_file_is_fitted_to_it(config, tmp_path):
    root = damage_case("cq-odd-length@5.5.0-clean", tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS["RB-01"], root, Request(apply=True, backup_acknowledged=True, config=config))
    assert found.present
    assert any(next(iter(config)) in fact for fact in found.step("plan").evidence)
    assert tree_digest(root) == before


def test_no_queue_is_made_by_a_configuration_that_does_not_fit(tmp_path):
    root = damage_case("cq-queue-missing@5.5.0-clean", tmp_path)
    before = tree_digest(root)
    config = {"mappedFileSizeConsumeQueue": "2000"}
    found = run(RUNBOOKS["RB-03"], root, Request(apply=True, backup_acknowledged=True, config=config))
    assert found.step("plan").status == "refused"
    assert tree_digest(root) == before


def test_zeros_after_the_length_of_the_other_segments_are_cut_off(tmp_path):
    root = damage_case("segment-long@5.5.0-clean", tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS["RB-01"], root, Request(apply=True, backup_acknowledged=True))
    assert found.repaired, found.markdown()
    assert found.losses.by_change == 0
    assert len({path.stat().st_size for path in (root / "commitlog").iterdir()}) == 1
    undo(root)
    assert tree_digest(root) == before


def test_a_segment_with_records_is_never_set_aside_and_salvage_is_named(tmp_path):
    """It was a circle: RB-01, refused, `runbook match`, RB-01."""
    root = damage_case("segment-long@5.5.0-clean", tmp_path)
    with (root / "commitlog/00000000000000065536").open("ab") as file:
        file.write(b"not zero")
    before = tree_digest(root)
    found = run(RUNBOOKS["RB-01"], root, Request(apply=True, backup_acknowledged=True))
    assert found.present
    assert not found.applied
    assert tree_digest(root) == before
    assert found.next_steps == (f"mqtool repair {root} -o {root}.new",)
    result = salvage(root, tmp_path / "store.new")
    assert (result.is_complete, result.verify) == (True, "clean")


def test_what_can_be_replayed_is_counted(tmp_path):
    found = run(RUNBOOKS["RB-16"], copy_store("orders-5.5.0", tmp_path), Request(topics=("Compressed",)))
    assert found.step("detect").evidence == ("Compressed: 18 message(s) in the log",)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["orders-5.5.0", "orders-4.9.7"])
def test_a_topic_is_stored_again_with_a_map_of_its_ids(name, tmp_path):
    root, new = copy_store(name, tmp_path), tmp_path / "again"
    before = tree_digest(root)
    request = Request(apply=True, topics=("Compressed",), to=new)
    found = run(RUNBOOKS["RB-16"], root, request)
    assert found.repaired, found.markdown()
    old = {(queue, offset): body for topic, queue, offset, body in messages(root) if topic == "Compressed"}
    assert old
    assert [(topic, body) for topic, _, _, body in messages(new)] == [("Compressed", body) for body in old.values()]
    pairs = [json.loads(line) for line in (tmp_path / "again.ids.jsonl").read_text("utf-8").splitlines()]
    assert len(pairs) == len(old)
    assert tree_digest(root) == before
    with pytest.raises(UsageError, match="exists; name a new directory"):
        run(RUNBOOKS["RB-16"], root, request)


def test_every_code_names_its_runbooks_and_every_runbook_its_codes():
    """A code without a runbook says why; a runbook without a code is a job, or is told by the system, not by files."""
    for code, check in CATALOGUE.items():
        assert bool(check.runbooks) != bool(check.no_runbook), code
        assert all(code in RUNBOOKS[book].codes for book in check.runbooks)
    for book in RUNBOOKS.values():
        assert all(book.id in CATALOGUE[code].runbooks for code in book.codes)
        assert bool(book.codes) != (book.id in {"RB-11", "RB-12", "RB-14", "RB-16", "RB-18", "RB-21", "RB-22"}), book.id
        assert all(f"`{code}`" in book.text for code in book.codes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "flip-queue-id-negative@5.5.0-crash",
        "flip-queue-offset@4.9.7-clean",
        "flip-rollback@5.5.0-clean",
        "flip-compressed@4.9.7-crash",
        "flip-topic@4.9.7-clean",
    ],
)
def test_the_runbook_of_a_field_without_a_checksum_repairs_what_the_queues_prove(case, tmp_path):
    root = damage_case(case, tmp_path)
    found = run(RUNBOOKS["RB-05"], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "new"))
    assert found.repaired, found.markdown()
    assert found.losses.by_change == 0


def test_every_runbook_has_a_page_with_what_the_code_reads_and_a_row_in_the_list(capsys):
    directory = ROOT / "docs" / "runbooks"
    assert list(RUNBOOKS) == [f"RB-{number:02}" for number in range(1, len(RUNBOOKS) + 1)]
    assert {path.stem for path in directory.glob("*.md")} == {"README", *RUNBOOKS}
    assert cli(["help", "runbooks"]) == 0
    rows = [f"[{book.id} {book.name}](../runbooks/{book.id}.md) |" for book in RUNBOOKS.values()]
    lines = [line for line in capsys.readouterr().out.splitlines() if "/RB-" in line]
    assert [line.split(" | ")[1] for line in lines] == rows


@pytest.mark.parametrize("book", RUNBOOKS.values(), ids=list(RUNBOOKS))
def test_a_page_has_the_sections_of_all_and_names_the_options_that_it_needs(book):
    lines = book.page().splitlines()
    assert re.fullmatch(r"# RB-\d\d [A-Z][\w.,() ]+", lines[0])
    heads = ("Symptom", "Cause", "Without the runbook", "What it does", "Findings", "Limits", "How it runs")
    assert [line for line in lines if line.startswith("## ")] == [f"## {head}" for head in heads]
    command = " ".join(["mqtool runbook run", book.id, "/data/store", *filter(None, [book.needs])])
    assert lines[2:6] == ["```bash", command, f"{command} --yes --protocol ticket.md", "```"]
    assert re.fullmatch(r"((--[a-z]+|-o) \S+( |$))*", book.needs)


def test_the_protocol_holds_every_step_and_all_losses(tmp_path):
    case = "cq-queue-missing@5.5.0-clean"
    found = run(RUNBOOKS["RB-03"], damage_case(case, tmp_path), Request(apply=True, backup_acknowledged=True))
    text = found.markdown()
    assert damage_answers("5.5.0")[case]["lost"] == {"Orders/0": [[0, 120]]}
    assert found.losses == LossCount(unserved=121)
    assert "- messages not served: 121\n- messages lost by change: 0\n" in text
    for number, step in enumerate(found.steps, 1):
        assert f"## {number}. {step.name}: {step.status}" in text
    assert "mqtool undo" in text
    assert json.loads(json.dumps(found.as_dict()))["steps"][0]["name"] == "detect"


@pytest.fixture
def command(capsysbinary):
    """Runs `mqtool runbook`; returns exit code and stdout."""

    def call(*words):
        code = cli(["runbook", *map(str, words)])
        return code, capsysbinary.readouterr().out.decode()

    return call


@pytest.mark.slow
def test_the_command_runs_writes_the_protocol_and_tells_by_its_exit_code(command, tmp_path):
    root = damage_case("cq-queue-missing@5.5.0-clean", tmp_path)
    assert command("run", "RB-06", root)[0] == 4
    assert command("run", "RB-03", root, "--dry-run", "--protocol", tmp_path / "ticket.md")[0] == 0
    assert "RB-03" in (tmp_path / "ticket.md").read_text()
    assert command("run", "RB-03", root)[0] == 4
    code, printed = command("run", "RB-03", root, "--yes", "--format", "json")
    assert code == 0
    assert json.loads(printed)["repaired"] is True
    assert problems("runbook-run", json.loads(printed)) == []
    shutil.rmtree(root / ".mqtool")
    assert command("run", "RB-03", root)[0] == 4


def test_the_command_lists_and_shows(command):
    assert "RB-22" in command("list")[1]
    assert command("show", "RB-04") == (0, RUNBOOKS["RB-04"].page())
    assert command("show", "RB-99")[0] == 2
    assert command("run", "RB-04")[0] == 2


def test_without_topics_it_is_for_a_person_to_choose_what_is_stored_again(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    found = run(RUNBOOKS["RB-16"], root, Request(apply=True, to=tmp_path / "new"))
    assert (found.applied, found.step("plan").status) == (False, "skipped")
    assert found.next_steps[0] == f"mqtool runbook run RB-16 {root} -o {tmp_path / 'new'} --topic Exact"
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.parametrize("base", ["4.9.7-crash", "5.5.0-crash"])
def test_a_torn_end_is_cut_where_the_broker_cuts_it(base, tmp_path):
    root = damage_case(f"tail-torn@{base}", tmp_path)
    request = Request(apply=True, backup_acknowledged=True)
    found = run(RUNBOOKS["RB-08"], root, request)
    assert found.losses == LossCount(gone=1)
    assert not found.repaired, "abort is still there"
    with mqtool.open(root) as store:
        assert store.commit_log.max_offset == damage_answers(base[:5])[f"tail-torn@{base}"]["after_start"]["max"]
    discard_undo(root)
    found = run(RUNBOOKS["RB-08"], root, request)
    assert found.repaired, found.markdown()


@pytest.fixture
def case(tmp_path):
    """A healthy store as a runbook sees it."""
    with mqtool.open(copy_store("crash-5.5.0", tmp_path)) as store:
        yield Case(store, Request(broker="5.5"))


@pytest.mark.parametrize(("kind", "is_named"), [("nfs4", True), ("ext4", False), ("", False)])
def test_a_store_on_a_network_is_named(kind, is_named, case, monkeypatch):
    monkeypatch.setattr(store_runbooks, "file_system_of", lambda *_: kind)
    found = store_runbooks._shared(case)
    assert found.present == is_named
    assert any(f"the store is on {kind}: locks of other hosts" in fact for fact in found.evidence) == is_named


def test_an_unclean_stop_is_found_though_the_start_cannot_be_predicted(case):
    predicted = store_runbooks._unclean(case)
    assert (predicted.present, len(predicted.evidence)) == (True, 2)
    case.start = "cannot be predicted"
    found = store_runbooks._unclean(case)
    assert (found.present, found.evidence) == (True, predicted.evidence[:1])


def test_a_protocol_without_next_steps_has_no_list_of_them():
    protocol = Protocol("RB-01", "test", Path("store"), "5.5")
    protocol.add("detect", "done", "nothing found", ("a fact",))
    assert "Next:" not in protocol.markdown()
    assert protocol.markdown().endswith("```text\na fact\n```\n")
    protocol.next_steps = ("mqtool verify store",)
    assert protocol.markdown().endswith("Next:\n\n```sh\nmqtool verify store\n```\n")


def rehearsed(monkeypatch, case, outcome):
    """A run of RB-08 up to its plan, which ends as it is told."""

    def plan(*_arguments, **_options):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(runner, "plan_of", plan)
    protocol = Protocol("RB-08", "test", case.root, "5.5")
    change = RepairProposal((SetAside(("abort",)),))
    return runner._planned(protocol, RUNBOOKS["RB-08"], change, case, Detection(True)), protocol


def test_a_plan_that_changes_nothing_is_no_plan_and_other_findings_have_their_runbooks(case, monkeypatch):
    finding = Finding("queue-missing", Severity.ERROR, "consumequeue/T/0", 0, 0, "T", 0)
    assert "RB-08" not in CATALOGUE["queue-missing"].runbooks
    monkeypatch.setattr(Case, "verification", SimpleNamespace(findings=(finding,)))
    plan, protocol = rehearsed(monkeypatch, case, NothingToChangeError("nothing", case.root))
    assert plan is None
    assert protocol.step("plan").summary == "no change of these files repairs this"
    assert protocol.next_steps == (next_verify(case.root, case.request),)


def test_a_plan_that_changes_nothing_leads_to_a_new_store_where_no_other_runbook_is_left(case, monkeypatch):
    monkeypatch.setattr(Case, "verification", SimpleNamespace(findings=()))
    _, protocol = rehearsed(monkeypatch, case, NothingToChangeError("nothing", case.root))
    assert protocol.next_steps == (new_store_command(Opened(case.root, release="5.5")),)


def test_a_plan_that_is_refused_for_another_reason_than_losses_ends_the_run(case, monkeypatch):
    with pytest.raises(RefusedError, match="no room"):
        rehearsed(monkeypatch, case, RefusedError("space", "no room", case.root))


def test_a_store_that_cannot_be_read_after_its_change_is_not_called_repaired(case, monkeypatch):
    def fails(_case):
        raise StoreError("Input/output error", case.root)

    protocol = Protocol("RB-08", "test", case.root, "5.5")
    book = msgspec.structs.replace(RUNBOOKS["RB-08"], detect=fails)
    runner._prove(protocol, book, RepairPlan(make_plan(case.root, SetAside(("abort",))), (), False, True), case)
    step = protocol.step("verify")
    assert (step.status, protocol.repaired) == ("failed", None)
    assert "the store cannot be read" in step.summary


def test_a_slave_that_has_more_than_its_master_is_cut_to_the_end_of_that(tmp_path):
    for name, bodies in (("mine", [b"a", b"b", b"c"]), ("other", [b"a", b"b"])):
        builder = StoreBuilder()
        for body in bodies:
            builder.put(body)
        builder.write(tmp_path / name)
        (tmp_path / name / "lock").write_bytes(b"lock")
    mine = tmp_path / "mine"
    before = tree_digest(mine)
    request = Request(apply=True, backup_acknowledged=True, copies=(tmp_path / "other",))
    found = run(RUNBOOKS["RB-14"], mine, request)
    assert "messages after it that only this store has: 1" in found.step("detect").evidence
    assert found.repaired, found.markdown()
    assert [body for *_, body in messages(mine)] == [b"a", b"b"]
    undo(mine)
    assert tree_digest(mine) == before
