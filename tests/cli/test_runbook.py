"""`mqtool runbook`: verbs, ids, and which runbook fits a store, a code or a line of a broker's log."""

import errno
import os
import shlex
import shutil
from types import SimpleNamespace

import pytest

from mqtool.cli.commands.runbook import _ids
from mqtool.cli.exits import ExitCode
from mqtool.repair.runbooks import ORDER, RUNBOOKS, by_line
from mqtool.verify import CATALOGUE, Severity
from tests.support.damage import damage_answers, damage_case
from tests.support.stores import copy_store, fixture, tree_digest

WITHOUT = (
    "config-queue-type",
    "lint-",
    "compaction-",
    "epoch-",
    "log-",
    "owner-denied",
    "queue-transaction-unit",
    "config-offset-orphan",
)
"""Codes, or their beginnings, that no runbook is about: what repairs them is not in the store."""


@pytest.fixture(autouse=True)
def _free_disk(monkeypatch):
    """RB-11 looks at the disk of the store, whose state is not a matter of these tests."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100, used=10, free=90))


def rows(result):
    return result.document["rows"]


def test_runbooks_and_codes_name_each_other_and_all_have_an_order():
    assert sorted(ORDER) == sorted(RUNBOOKS)
    for code, check in CATALOGUE.items():
        assert set(check.runbooks) <= set(RUNBOOKS), code
        assert all(code in RUNBOOKS[book].codes for book in check.runbooks)
        assert check.runbooks or check.severity in (Severity.NOTE, Severity.UNKNOWN) or code.startswith(WITHOUT), code


@pytest.mark.parametrize("name", ["RB-03", "rb-03", "RB-3", "rb3", "3", "consumequeue-files-are-lost-or-were-deleted"])
def test_a_runbook_is_named_as_people_name_it(mqtool, name):
    result = mqtool("runbook", "show", name)
    assert (result.code, result.text.splitlines()[0]) == (0, "# RB-03 ConsumeQueue files are lost or were deleted")
    assert "`queue-missing`" in result.text


def test_a_protocol_that_cannot_be_written_is_refused_before_anything_changes(mqtool, tmp_path):
    root = damage_case("cq-queue-missing@5.5.0-clean", tmp_path)
    before = tree_digest(root)
    words = ("runbook", "run", "RB-03", root, "--yes", "--protocol")
    for protocol in (tmp_path / "nothing" / "protocol.md", root / "protocol.md", root / "checkpoint"):
        result = mqtool(*words, protocol)
        assert (result.code, str(protocol) in result.stderr) == (2, True), result.stderr
    assert tree_digest(root) == before


def test_a_protocol_that_is_not_written_in_the_end_does_not_hide_that_the_store_changed(mqtool, tmp_path, monkeypatch):
    root = damage_case("cq-queue-missing@5.5.0-clean", tmp_path)

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("mqtool.jobs.atomic.replace_file", full)
    words = ("runbook", "run", "RB-03", root, "--yes", "--protocol", tmp_path / "protocol.md")
    result = mqtool(*words)
    assert (result.code, "No space left on device; the runbook was applied all the same" in result.stderr) == (74, True)
    assert mqtool("verify", root).code == 0


def test_a_runbook_that_there_is_not_is_refused(mqtool):
    assert mqtool("runbook", "show", "RB-99").code == 2
    assert mqtool("runbook", "run", "RB-99", fixture("orders-5.5.0/store")).code == 2


def test_a_store_matches_in_the_order_to_run_and_each_command_finds_its_trouble(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    min((root / "index").iterdir()).write_bytes(b"x")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    found = mqtool("runbook", "match", root, "--format", "json")
    assert (found.code, [row["id"] for row in rows(found)]) == (0, ["RB-03", "RB-06", "RB-09", "RB-08"])
    assert {row["next_step"] for row in rows(found)} == {f"mqtool repair {root}"}
    codes = [mqtool("runbook", "run", row["id"], root).code for row in rows(found)]
    assert codes[:2] == [4, 4]  # they are dry without consent
    assert set(codes) <= {1, 4}, "1 if it would lose messages before the others have been carried out"


@pytest.mark.parametrize("columns", ["60", "200"])
def test_a_match_names_the_command_of_verify_once_with_the_given_release(mqtool, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    root = damage_case("old-flip-body@5.5.0-clean", tmp_path)
    for release in ("4.9", "5.5"):
        steps = mqtool("verify", root, "--release", release, "--format", "json").document["next_steps"]
        assert steps == [f"mqtool repair {root} --release {release} -o {root}.new"]
        text = mqtool("runbook", "match", root, "--release", release).text
        assert [line for line in text.splitlines() if "mqtool" in line] == [f"next: {steps[0]}"]
        assert "RB-05" in text


def test_a_healthy_store_matches_nothing(mqtool):
    found = mqtool("runbook", "match", fixture("orders-5.5.0/store"), "--format", "json")
    assert (found.code, rows(found)) == (1, [])


def test_a_code_matches_its_runbooks(mqtool):
    found = mqtool("runbook", "match", "timer-log-size", "--format", "json")
    assert (found.code, [row["id"] for row in rows(found)]) == (0, ["RB-17", "RB-01"])
    assert mqtool("runbook", "match", "config-offset-orphan").code == 1


@pytest.mark.parametrize(
    ("line", "book"),
    [
        (
            "WARN - /commitlog/0 0 length not matched message store config value, please check it manually",
            "RB-01",
        ),
        (
            "[BUG]logic queue order maybe wrong, expectLogicOffset: 40 currentLogicOffset: 60 Topic: T QID: 0 Diff: -20",
            "RB-02",
        ),
        ("found a half message at 1044480, it will be truncated.", "RB-04"),
        ("length not matched message store config value", "RB-01"),
        pytest.param(
            "x" * 5000 + " length not matched message store config value, please check it manually", "RB-01", id="long"
        ),
        ("CODE: 14  DESC: service not available now, maybe disk full", "RB-11"),
    ],
)
def test_a_line_of_a_log_matches_by_its_words(mqtool, line, book):
    found = mqtool("runbook", "match", line, "--format", "json")
    assert (found.code, rows(found)[0]["id"]) == (0, book)


@pytest.mark.parametrize("name", ["RB-03", "RB-3", "rb3", "consumequeue-files-are-lost-or-were-deleted"])
def test_a_runbook_matches_its_own_name(mqtool, name):
    found = mqtool("runbook", "match", name, "--format", "json")
    assert (found.code, [row["id"] for row in rows(found)]) == (0, ["RB-03"])


def test_a_word_or_two_of_a_log_line_match_nothing(mqtool):
    assert mqtool("runbook", "match", "config value").code == 1


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("mappedFileSizeCommitLog=1073741824", "mappedFileSizeCommitLog=131072"),
        ("mappedFileSizeCommitLog=65536", "mappedFileSizeCommitLog=131072"),
        ("mappedFileSizeConsumeQueue=1000", "mappedFileSizeConsumeQueue=2000"),
    ],
)
def test_a_wrong_size_is_answered_with_the_line_for_broker_conf_and_with_no_command_that_leads_back(
    mqtool, tmp_path, wrong, right
):
    store = copy_store("crash-5.5.0", tmp_path)
    shutil.rmtree(store / "index")
    config = store.parent / "broker.conf"
    others = fixture("crash-5.5.0/broker.conf").read_text("utf-8").replace(f"{right}\n", "")
    config.write_text(f"{others}\n{wrong}\n", "utf-8")
    before = tree_digest(store)
    for words in (
        ("verify", store),
        ("explain-start", store),
        ("repair", store, "--yes"),
        ("plan", "repair", store, "-o", tmp_path / "plan"),
        ("runbook", "run", "RB-01", store, "--yes"),
        ("runbook", "run", "RB-06", store, "--yes"),
    ):
        result = mqtool(*words)
        said = " ".join(f"{result.text} {result.stderr}".split())
        assert result.code != ExitCode.OK, words
        assert f"{config}: {wrong}: " in said, words
        assert f": set {right}" in said, words
        assert "\nnext: " not in f"\n{result.text}", words
    assert tree_digest(store) == before
    config.write_text(f"{others}\n{right}\n", "utf-8")
    assert mqtool("explain-start", store).text.startswith("starts")


def test_what_real_brokers_write_about_a_damaged_store_leads_to_its_runbook():
    said = {}
    for release in ("4.9.7", "5.5.0"):
        for case, answer in damage_answers(release).items():
            said[case] = [match.runbook.id for line in answer["log"] for match in by_line(line)]
    for case, book in {
        "segment-extra-short@4.9.7-clean": "RB-01",
        "commitlog-deleted@5.5.0-clean": "RB-13",
        "segment-missing-middle@5.5.0-clean": "RB-13",
        "recent-flip-body@4.9.7-clean": "RB-05",
        "config-topics-torn@5.5.0-clean": "RB-09",
        "index-name-text@4.9.7-clean": "RB-06",
    }.items():
        assert book in said[case], (case, said[case])


def test_an_unknown_line_matches_nothing(mqtool):
    assert mqtool("runbook", "match", "everything is fine").code == 1


def test_a_runbook_that_makes_a_directory_names_one_and_what_comes_after(mqtool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    damage_case("old-flip-body@5.5.0-clean", tmp_path)
    dry = mqtool("runbook", "run", "rb5", "store", "--format", "json").document
    assert dry["next_steps"] == ["mqtool runbook run RB-05 store -o store.new --yes"]
    made = mqtool(*shlex.split(dry["next_steps"][0])[1:], "--format", "json").document
    checks = ["mqtool verify store.new", "mqtool explain-start store.new --release 5.5"]
    assert made["next_steps"] == [*checks, "mv store store.old", "mv store.new store"]
    assert all(mqtool(*shlex.split(step)[1:]).code in (0, 1) for step in checks)


@pytest.mark.parametrize("columns", ["60", ""])
def test_a_run_shows_the_files_of_its_plan_and_cuts_no_reason(mqtool, tmp_path, monkeypatch, columns):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    document = mqtool("runbook", "run", "RB-03", root, "--dry-run", "--format", "json").document
    monkeypatch.setenv("COLUMNS", columns)
    text = mqtool("runbook", "run", "RB-03", root, "--dry-run").text
    assert "…" not in text
    assert "physically" not in text
    assert all(part in text for step in document["plan"]["steps"] for part in step["path"].split("/"))
    reasons = {word for step in document["steps"] for word in step["summary"].split() if "/" not in word}
    assert reasons <= set(text.split())


def test_after_a_change_in_place_verify_is_next_and_undo_is_named_apart(mqtool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    before = tree_digest(root)
    (step,) = mqtool("runbook", "run", "RB-03", "store", "--format", "json").document["next_steps"]
    done = mqtool(*shlex.split(step)[1:], "--format", "json").document
    assert (done["next_steps"], done["undo"]) == (["mqtool verify store"], "mqtool undo store --yes")
    verified = mqtool(*shlex.split(done["next_steps"][0])[1:], "--format", "json")
    assert (verified.code, verified.document["next_steps"]) == (ExitCode.OK, [])
    assert mqtool(*shlex.split(done["undo"])[1:]).code == ExitCode.OK
    assert tree_digest(root) == before
    text = mqtool(*shlex.split(step)[1:]).text
    assert [line for line in text.splitlines() if " mqtool " in f" {line}"] == [
        "next: mqtool verify store",
        "undo: mqtool undo store --yes",
    ]


def test_a_change_in_place_that_repair_refuses_is_not_offered_by_a_runbook_either(mqtool, tmp_path):
    """All messages of 23 queues are in the part that was cut off: with filler there, their units lead nowhere."""
    root = copy_store("orders-5.5.0", tmp_path)
    os.truncate(root / "commitlog" / "00000000000000262144", 70_000)
    before, options = tree_digest(root), ("--release", "5.5", "--json")
    shown = mqtool("runbook", "run", "RB-01", root, *options)
    assert (shown.code, shown.document["plan"], shown.document["applied"]) == (ExitCode.NO, None, False)
    plan = next(step for step in shown.document["steps"] if step["name"] == "plan")
    assert "after a change in place there would be 23 x queue-dangling-unit" in plan["summary"]
    (step,) = shown.document["next_steps"]
    assert mqtool("repair", root, *options).document["next_steps"] == [f"{step} --yes"]
    assert shown.document["next_steps"] == [f"mqtool repair {root} --release 5.5 -o {root}.new"]
    assert mqtool("runbook", "run", "RB-01", root, "--yes", "--json").document["applied"] is False
    assert tree_digest(root) == before


def test_the_disk_usage_that_a_runbook_is_to_assume_is_carried_into_the_commands_that_it_prints(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    assert mqtool("runbook", "run", "RB-11", root, "--used", "80").code == ExitCode.REFUSED
    assert mqtool("runbook", "run", "RB-11", root, "--used", "99", "--json").document["next_steps"] == []
    first = min(path.name for path in (root / "commitlog").iterdir())
    end = int(first) + (root / "commitlog" / first).stat().st_size
    words = ("--used", "99", "--before", end, "--allow-unread", "--json")
    (step,) = mqtool("runbook", "run", "RB-11", root, *words).document["next_steps"]
    assert step == f"mqtool runbook run RB-11 {root} --before {end} --used 99 --allow-unread --yes"
    assert mqtool(*shlex.split(step)[1:]).code == ExitCode.OK
    assert not (root / "commitlog" / first).exists()


@pytest.mark.parametrize(
    ("incomplete", "names"),
    [("RB-0", [f"RB-0{n}" for n in range(1, 10)]), ("rb-01", ["rb-01"]), ("", sorted(ORDER)), ("RB-99", []), ("x", [])],
)
def test_ids_are_completed_in_the_case_that_was_begun(incomplete, names):
    assert _ids(incomplete) == names
