"""What this user may not read is no damage: it is a finding of its own, and nothing is copied without it."""

import os
import pwd
import shlex
import subprocess

import pytest

from mqtool.cli.exits import ExitCode
from tests.support.damage import damage_case
from tests.support.html_page import Page
from tests.support.permissions import without_rights
from tests.support.stores import copy_store, tree_digest

OTHER = pwd.getpwuid(1).pw_name if os.geteuid() == 0 else ""


@pytest.fixture
def store(tmp_path):
    """A healthy store with a segment that only its owner may read, who is another user if the tests run as root."""
    root = copy_store("orders-5.5.0", tmp_path)
    segment = root / "commitlog" / "00000000000000131072"
    if OTHER:
        os.chown(segment, 1, -1)
    segment.chmod(0o600 if OTHER else 0)
    yield root
    segment.chmod(0o600)


@pytest.mark.parametrize("place", ["commitlog/00000000000000131072", "consumequeue/Orders/0", "index", "config"])
def test_it_is_a_finding_of_its_own_whose_step_is_the_owners(mqtool, store, place):
    (store / "commitlog" / "00000000000000131072").chmod(0o600 if place.startswith("commitlog") else 0o644)
    mode = (store / place).stat().st_mode
    if OTHER:
        os.chown(store / place, 1, -1)
    (store / place).chmod((0o700 if (store / place).is_dir() else 0o600) if OTHER else 0)
    with without_rights():
        document = mqtool("verify", store, "--format", "json").document
    (store / place).chmod(mode)
    (finding,) = (row for row in document["findings"] if row["severity"] != "note")
    assert (finding["code"], finding["severity"], finding["file"]) == ("permission-denied", "unknown", place)
    assert "Permission denied, owner " in finding["evidence"]
    assert shlex.split(finding["next_step"]) == ["sudo", "mqtool", "verify", str(store)]
    assert document["next_steps"] == [finding["next_step"]]
    assert (document["status"], document["lost_messages"]) == ("unknown", 0)


@pytest.mark.parametrize(
    "words",
    [
        ("salvage", "STORE", "-o", "NEW"),
        ("runbook", "run", "RB-05", "STORE", "-o", "NEW", "--yes"),
        ("backup", "STORE", "-o", "NEW"),
        ("export", "STORE", "-o", "NEW"),
        ("rebuild", "consumequeue", "STORE", "-o", "NEW"),
    ],
    ids=lambda words: words[0],
)
def test_nothing_is_copied_without_it(mqtool, store, tmp_path, words):
    before, new = tree_digest(store), tmp_path / "new"
    with without_rights():
        result = mqtool(*(word.replace("STORE", str(store)).replace("NEW", str(new)) for word in words))
    assert result.code == ExitCode.REFUSED
    assert not new.exists()
    assert tree_digest(store) == before


@pytest.mark.parametrize("runbook", ["RB-03", "RB-05", "RB-09", "RB-10"])
def test_whether_a_runbook_is_needed_is_unknown_without_it(mqtool, store, runbook):
    with without_rights():
        (step,) = mqtool("verify", store, "--json").document["next_steps"]
        result = mqtool("runbook", "run", runbook, store, "--json")
        text = mqtool("runbook", "run", runbook, store).text
    assert (result.code, result.document["present"]) == (ExitCode.NO, None)
    assert result.document["next_steps"] == [step]
    assert "unknown whether the symptom is present" in text
    assert "absent" not in text
    healthy = mqtool("runbook", "run", runbook, store, "--json")
    assert (healthy.code, healthy.document["present"]) == (ExitCode.REFUSED, False)


def test_what_fits_and_what_is_in_the_log_is_not_said_without_it(mqtool, store):
    with without_rights():
        (step,) = mqtool("verify", store, "--json").document["next_steps"]
        found, info = mqtool("runbook", "match", store), mqtool("info", store).text
    assert " is unknown: permission-denied: commitlog/00000000000000131072: " in found.stderr
    assert found.text.rstrip().endswith(f"next: {step}")
    assert "1 segment(s) cannot be read, the first 00000000000000131072: run `mqtool verify` as root" in info


@pytest.mark.skipif(not OTHER, reason="only root can own a store as root")
def test_sudo_on_a_store_of_root_says_that_the_brokers_user_may_be_another(mqtool, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    line = f"the store belongs to root: if the broker runs as another user, first run chown -R USER {root}"
    for user in ("", "rocketmq"):
        monkeypatch.setenv("SUDO_USER", user or "root")
        for name in ("verify", "explain-start"):
            assert (line in mqtool(name, root).text.splitlines()) is bool(user), name


def test_a_report_says_that_the_loss_is_unknown(mqtool, store, tmp_path):
    with without_rights():
        mqtool("report", store, "-o", tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text("utf-8")).text
    assert "Messages lost unknown Bytes damaged unknown Messages in the log at least " in text
    assert "Losses Not all of the log was read: what is lost of the rest is unknown." in text
    assert "Damage Unknown: not all of the log was read." in text
    assert "No message and no byte is lost" not in text
    assert "Every byte between" not in text


def test_a_salvage_that_leaves_it_out_says_that_the_loss_is_unknown(mqtool, store, tmp_path):
    with without_rights():
        result = mqtool("salvage", store, "-o", tmp_path / "new", "--skip-unreadable", "--format", "json")
    assert (result.code, result.document["complete"]) == (ExitCode.NO, False)
    path = store / "commitlog" / "00000000000000131072"
    assert any(
        note.startswith(f"{path} was left out, so what is lost is unknown: ") for note in result.document["notes"]
    )


def test_with_the_right_to_read_it_nothing_is_said(mqtool, store):
    if os.geteuid() != 0:
        (store / "commitlog" / "00000000000000131072").chmod(0o600)
    assert mqtool("verify", store).code == ExitCode.OK


@pytest.mark.skipif(not OTHER, reason="only root may read what the owner of the store may not")
@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("commitlog/00000000000000131072", "chown"),
        ("consumequeue/Orders/0", "chown"),
        ("config/topics.json", "chmod"),
        ("lock", "chown"),
    ],
)
def test_root_is_shown_what_the_owner_may_not_use_and_the_one_command_that_permits_it(mqtool, tmp_path, place, command):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "lock").touch()
    for path in (root, *root.rglob("*")):
        os.chown(path, 1, 1)
    assert mqtool("verify", root).code == mqtool("explain-start", root).code == ExitCode.OK
    if command == "chown":
        os.chown(root / place, 0, 0)
    (root / place).chmod(0o700 if command == "chown" else 0)
    document = mqtool("verify", root, "--json").document
    (finding,) = (row for row in document["findings"] if row["severity"] != "note")
    assert (finding["code"], finding["severity"], finding["file"]) == ("owner-denied", "unknown", place)
    assert {check["state"] for check in document["checks"]} == {"clean", "unknown"}, "nothing is corrupt"
    owner, mode = ("root", "700") if command == "chown" else (OTHER, "000")
    assert finding["evidence"] == f"Permission denied to {OTHER}, owner {owner}, mode {mode}"
    (step,) = document["next_steps"]
    assert shlex.split(step)[0] == command
    for name in ("verify", "repair"):
        assert "with permission: a start of 5.5 loses no message" in mqtool(name, root).text
    head = mqtool("verify", root).text.partition("\n\n")[0]
    assert (head.startswith(f"{root}: no file is damaged: 1 unreadable path"), "\nunknown: " in head) == (True, False)
    assert mqtool("explain-start", root).text.startswith(f"cannot use {root / place}: Permission denied to {OTHER}")
    for name in ("explain-start", "repair"):
        shown = mqtool(name, root, "--json")
        assert (shown.code, shown.document["next_steps"]) == (ExitCode.NO, [step])
    subprocess.run(shlex.split(step), check=True)
    assert mqtool("verify", root).code == mqtool("explain-start", root).code == ExitCode.OK


@pytest.mark.skipif(not OTHER, reason="only root may read what the owner of the store may not")
def test_monitoring_too_is_shown_that_a_start_needs_a_permission(mqtool, tmp_path):
    root = damage_case("recent-flip-body@4.9.7-clean", tmp_path)
    for path in (root, *root.rglob("*")):
        os.chown(path, 1, 1)
    os.chown(root / "checkpoint", 0, 0)
    (root / "checkpoint").chmod(0o700)
    words = "with permission: a start of 4.9 loses 49 messages; 1 is lost already; do not start the broker"
    assert f", {words} | " in mqtool("verify", root, "-f", "nagios").text.splitlines()[0]


@pytest.mark.skipif(not OTHER, reason="only root can give a store to another user")
@pytest.mark.parametrize(("mode", "outcome"), [(0o444, "starts, and loses no message"), (0, "unknown")])
def test_the_owner_of_a_store_is_shown_what_keeps_its_broker_from_starting(
    mqtool, tmp_path, monkeypatch, mode, outcome
):
    """A broker opens its files for reading and writing, as the user who owns the store."""
    root = copy_store("orders-5.5.0", tmp_path)
    for path in (root, *root.rglob("*")):
        os.chown(path, 1, 1)
    segment = root / "commitlog" / "00000000000000131072"
    segment.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    with without_rights():
        result = mqtool("explain-start", root, "--json")
    reason = f"Permission denied to {OTHER}, owner {OTHER}, mode {mode:03o}"
    assert result.code == ExitCode.NO
    assert result.document["verdict"].startswith(f"cannot use {segment}: {reason}; with permission: {outcome}")
    step = f"chmod -R u+rwX {root}" if mode else f"sudo mqtool verify {root}"
    assert result.document["next_steps"] == [step]


@pytest.mark.skipif(not OTHER, reason="only root can give a store to another user")
@pytest.mark.parametrize(("mode", "code"), [(0o644, "owner-denied"), (0o600, "permission-denied")])
def test_the_owner_of_a_store_is_shown_a_file_of_another_user(mqtool, tmp_path, monkeypatch, mode, code):
    root = copy_store("orders-5.5.0", tmp_path)
    for path in (root, *root.rglob("*")):
        os.chown(path, 1, 1)
    segment = root / "commitlog" / "00000000000000131072"
    os.chown(segment, 2, 2)
    segment.chmod(mode)
    (root / "checkpoint").chmod(0o444)  # its own, as in a copy that is only to be read
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    with without_rights():
        result, repair = mqtool("verify", root, "--json"), mqtool("repair", root, "--json")
    (finding,) = (row for row in result.document["findings"] if row["severity"] != "note")
    assert (finding["code"], finding["severity"]) == (code, "unknown")
    assert finding["file"] == "commitlog/00000000000000131072"
    assert (result.code, result.document["status"], repair.code) == (ExitCode.NO, "unknown", ExitCode.NO)
    step = f"sudo chown -R --reference={root} {root}" if mode == 0o644 else f"sudo mqtool verify {root}"
    assert result.document["next_steps"] == repair.document["next_steps"] == [step]


def test_help_shows_the_command_for_what_the_owner_may_not_use(mqtool):
    (row,) = mqtool("help", "owner-denied", "--json").document["rows"]
    assert row["next_step"] == "sudo chown -R --reference=STORE STORE"


@pytest.mark.skipif(not OTHER, reason="only root can give a store to another user")
@pytest.mark.parametrize("owner", [0, 1])
def test_a_store_that_another_user_restored_is_given_to_the_broker_where_that_is_another_user(mqtool, tmp_path, owner):
    root = copy_store("orders-5.5.0", tmp_path)
    for path in (root, *root.rglob("*")):
        os.chown(path, owner, owner)
    assert mqtool("backup", root, "-o", tmp_path / "backup").code == ExitCode.OK
    steps = mqtool("restore", tmp_path / "backup", "-o", tmp_path / "new", "--json").document["next_steps"]
    assert steps == [
        *([f"chown -R {OTHER}:{OTHER} {tmp_path / 'new'}"] if owner else []),
        f"mqtool explain-start {tmp_path / 'new'}",
    ]
    drill = mqtool("runbook", "run", "RB-22", root, "-o", tmp_path / "drill", "--yes", "--json").document["next_steps"]
    own = [step for step in drill if step.startswith("chown ")]
    assert own == ([f"chown -R --reference={root} {tmp_path / 'drill'}"] if owner else [])
    for step in (steps[0], *own):
        if step.startswith("chown"):
            subprocess.run(shlex.split(step), check=True)
    made = (path for new in ("new", "drill") for path in (tmp_path / new).rglob("*"))
    assert {path.stat().st_uid for path in made} == {owner}


@pytest.mark.parametrize("command", ["explain-start", "repair", "salvage"])
@pytest.mark.parametrize("place", ["config", "commitlog", "consumequeue"])
def test_a_directory_that_may_not_be_read_is_refused_with_one_code(mqtool, tmp_path, command, place):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / place).chmod(0)
    with without_rights():
        result = mqtool(command, root, *(["-o", tmp_path / "new"] if command == "salvage" else []))
    (root / place).chmod(0o755)
    assert result.code in (ExitCode.REFUSED, ExitCode.NO), result.stderr
    assert "sudo mqtool" in result.text + result.stderr
