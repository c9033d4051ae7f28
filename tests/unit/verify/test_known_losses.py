"""Losses that a repair recorded are expected by later checks; new damage of the same kind is reported."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.formats import file_names
from mqtool.repair import Purge, apply, discard_undo, make_plan, undo
from mqtool.repair.plans import diagnose
from mqtool.repair.salvage import salvage
from mqtool.store import Message
from mqtool.verify import Options, Severity, State, Verification, verify
from tests.cli.answers import problems
from tests.support.damage import damage_answers, damage_case
from tests.support.stores import copy_store, tree_digest

CASE = "segment-missing-middle@5.5.0-clean"
LOST = sum(last - first + 1 for parts in damage_answers("5.5.0")[CASE]["lost"].values() for first, last in parts)
"""Messages that a real broker does not have after this damage: no record of them is left."""


def checked(root: Path, *topics: str) -> Verification:
    with mqtool.open(root) as store:
        return verify(store, Options(topics or None))


def gaps(verification: Verification, severity: Severity) -> set[tuple[str | None, int | None]]:
    reported = [finding for finding in verification.findings if finding.code == "log-offset-gap"]
    return {(finding.topic, finding.queue_id) for finding in reported if finding.severity is severity}


def repair(root: Path) -> None:
    plan = diagnose(root).plan
    assert plan is not None
    apply(plan.plan, backup_acknowledged=True)


def destroy(root: Path, queue: tuple[str, int], offset: int) -> None:
    """Overwrites the record at a queue offset with zeros."""
    with mqtool.open(root) as store:
        record = next(
            one
            for one in store.messages()
            if isinstance(one, Message) and (one.topic, one.queue_id, one.queue_offset) == (*queue, offset)
        )
        segment = next(part for part in store.commit_log.segments if part.base <= record.physical_offset < part.end)
    with segment.path.open("r+b") as file:
        file.seek(record.physical_offset - segment.base)
        file.write(bytes(record.store_size))


@pytest.fixture
def repaired(tmp_path: Path) -> Path:
    """Root of a store from which 44 messages of six queues are missing."""
    salvage(damage_case(CASE, tmp_path), tmp_path / "new")
    return tmp_path / "new"


def test_a_salvaged_store_is_clean_and_its_losses_are_known(repaired: Path) -> None:
    result = checked(repaired)
    assert (result.state, result.known_lost, result.losses.messages) == (State.CLEAN, LOST, 0)
    assert len(gaps(result, Severity.NOTE)) == 6
    assert checked(repaired, "Orders").known_lost == 25


def test_the_verdict_and_the_exit_code_are_those_of_a_clean_store(
    repaired: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["verify", str(repaired), "--fail-on", "warning"]) == ExitCode.OK
    verdict = capsysbinary.readouterr().out.decode().replace("\n    ", " ")
    assert f": clean after repair; {LOST} messages known lost: 12 notes\n" in verdict
    assert "next:" not in verdict.partition("\n\n")[0]
    assert run(["verify", str(repaired), "--json"]) == ExitCode.OK
    document = json.loads(capsysbinary.readouterr().out)
    assert (document["status"], document["known_lost"], document["lost_messages"]) == ("clean", LOST, 0)
    rows = document["lost_messages_of_queues"]
    assert {f"{row['topic']}/{row['queue_id']}": row["offsets"] for row in rows} == {
        queue: [list(run) for run in runs] for queue, runs in damage_answers("5.5.0")[CASE]["lost"].items()
    }
    assert {row["proof"] for row in rows} == {"known"}
    assert "lost messages\n" in verdict.lower()
    assert not any(item["next_step"] for item in document["findings"] if item["code"] == "log-offset-gap")
    assert problems("verify", document) == []


def test_new_damage_is_reported_and_the_old_losses_stay_known(repaired: Path) -> None:
    destroy(repaired, ("Orders", 0), 80)
    result = checked(repaired)
    assert (result.state, result.known_lost, result.losses.messages) == (State.CORRUPT, LOST, 1)


@pytest.mark.parametrize(("offset", "known"), [(80, LOST), (67, LOST - 20)], ids=["elsewhere", "next to a known gap"])
def test_a_gap_that_no_repair_recorded_is_a_warning(repaired: Path, tmp_path: Path, offset: int, known: int) -> None:
    """Only the record of the first repair is there; the second store lacks one more message of Orders/0."""
    destroy(repaired, ("Orders", 0), offset)
    salvage(repaired, tmp_path / "second")
    assert checked(tmp_path / "second").known_lost == LOST + 1
    shutil.copy(repaired / file_names.KNOWN_LOSSES, tmp_path / "second")
    result = checked(tmp_path / "second")
    assert (result.state, result.known_lost) == (State.DIRTY, known)
    assert gaps(result, Severity.WARNING) == {("Orders", 0)}


def test_a_gap_before_a_later_record_is_not_known(repaired: Path) -> None:
    """The record only concerns the log that was there when it was written."""
    path = repaired / file_names.KNOWN_LOSSES
    end = mqtool.open(repaired).commit_log.max_offset
    assert f'"log_end": {end}' in path.read_text()
    path.write_text(path.read_text().replace(f'"log_end": {end}', '"log_end": 83252'))
    result = checked(repaired)
    assert (result.state, result.known_lost) == (State.DIRTY, 27)
    assert gaps(result, Severity.WARNING) == {("Audit", 0), ("Payments", 1), ("Audit", 1)}


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"log_end": 1}', b'{"log_end": 1, "queues": [], "schema_version": 9}']
)
def test_an_unreadable_record_hides_nothing(repaired: Path, content: bytes) -> None:
    (repaired / file_names.KNOWN_LOSSES).write_bytes(content)
    result = checked(repaired)
    assert (result.state, result.known_lost, len(gaps(result, Severity.WARNING))) == (State.DIRTY, 0, 6)
    log = next(check for check in result.checks if check.area == "commitlog")
    assert file_names.KNOWN_LOSSES in log.detail


def test_a_store_without_losses_gets_no_record(tmp_path: Path) -> None:
    salvage(damage_case("none@5.5.0-clean", tmp_path), tmp_path / "new")
    assert not (tmp_path / "new" / file_names.KNOWN_LOSSES).exists()


def test_a_purge_which_moves_the_log_keeps_the_losses_known(repaired: Path) -> None:
    (repaired / "lock").touch()
    before = tree_digest(repaired)
    apply(make_plan(repaired, Purge(("Payments",))), backup_acknowledged=True)
    result = checked(repaired)
    assert (result.state, result.known_lost) == (State.CLEAN, LOST - 10), "ten of Payments"
    undo(repaired)
    assert tree_digest(repaired) == before


def test_queues_that_begin_again_and_the_last_messages_of_others_count_too(tmp_path: Path) -> None:
    """All messages of 23 queues, and the last ones of others, are in the part that was cut off."""
    root = copy_store("orders-5.5.0", tmp_path)
    os.truncate(root / "commitlog" / "00000000000000262144", 70_000)
    first = salvage(root, tmp_path / "first")
    assert first.lost == 146
    assert (checked(tmp_path / "first").state, checked(tmp_path / "first").known_lost) == (State.CLEAN, 146)
    second = salvage(tmp_path / "first", tmp_path / "second")
    assert (second.lost, checked(tmp_path / "second").known_lost) == (146, 146)


def test_a_loss_that_is_still_reported_is_not_counted_as_known(tmp_path: Path) -> None:
    """A queue is rebuilt in place; the flipped bit elsewhere stays, and with it the message."""
    root = copy_store("orders-5.5.0", tmp_path)
    destroy(root, ("Keyed", 1), 0)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    before = tree_digest(root)
    repair(root)
    assert (root / file_names.KNOWN_LOSSES).exists()
    assert (checked(root).losses.messages, checked(root).known_lost) == (1, 0)
    undo(root)
    assert tree_digest(root) == before


def test_losses_are_no_longer_counted_once_the_log_that_lacked_them_has_expired(repaired: Path) -> None:
    with mqtool.open(repaired) as store:
        begins = store.commit_log.min_offset
    path = repaired / file_names.KNOWN_LOSSES
    path.write_text(re.sub(r'"log_end": \d+', f'"log_end": {begins}', path.read_text()))
    assert checked(repaired).known_lost == 0


@pytest.mark.slow
def test_a_repair_in_place_records_its_losses_until_it_is_undone(tmp_path: Path) -> None:
    """Two segments are cut short, one after the other is repaired: the second repair keeps the record of the first."""
    root = copy_store("crash-4.9.7", tmp_path)
    (root / "abort").unlink()
    segments = sorted((root / "commitlog").iterdir())
    os.truncate(segments[3], 30_000)
    before = tree_digest(root)
    repair(root)
    first = checked(root)
    assert (first.state, first.known_lost, first.losses.messages) == (State.CLEAN, 223, 0)
    undo(root)
    assert tree_digest(root) == before
    repair(root)
    discard_undo(root)
    assert (checked(root).state, checked(root).known_lost) == (State.CLEAN, 223)
    os.truncate(segments[5], 60_000)
    damaged = checked(root)
    assert (damaged.state, damaged.known_lost) == (State.CORRUPT, 223)
    assert damaged.losses.messages > 0
    repair(root)
    second = checked(root)
    assert (second.state, second.known_lost) == (State.CLEAN, 223 + damaged.losses.messages)
