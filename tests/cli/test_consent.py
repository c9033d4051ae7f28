"""One rule of consent: what changes or deletes is dry by default, and done with `--yes` or after a question."""

import os
import re
import shutil
from pathlib import Path

import pytest
import typer.main

from mqtool.cli.app import app, leaves
from mqtool.cli.commands import COMMANDS
from mqtool.cli.exits import ExitCode
from tests.support.stores import copy_store, tree_digest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "repair.md"
CHANGES, ADDS, WRITES, READS = "Changes or deletes", "Adds messages", "Writes something new", "Reads"


def table() -> dict[str, set[str]]:
    """The commands of each row of the table in docs/repair.md."""
    section = PAGE.read_text("utf-8").partition("## Consent")[2].partition("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {name: set(re.findall(r"`([a-z-]+)`", commands)) for name, _, commands in rows[1:]}


def test_every_command_is_in_one_row_of_the_table():
    rows = table()
    assert set(rows) == {CHANGES, ADDS, WRITES, READS}
    assert sorted(name for names in rows.values() for name in names) == sorted(COMMANDS)


GROUP = typer.main.get_command(app)
CALLS = {
    ("apply",): ("PLAN",),
    ("undo",): ("CHANGED",),
    ("discard-undo",): ("CHANGED",),
    ("repair",): ("BROKEN",),
    ("runbook", "run"): ("RB-03", "BROKEN"),
    ("clean",): ("OLD", "--now", "--allow-unread"),
}
"""The commands that need consent, each with words for which it has something to do."""


def test_commands_that_need_consent_are_those_with_yes_and_can_all_be_tried():
    options = {words: {text for one in command.params for text in one.opts} for words, command in leaves(GROUP)}
    asking = {words for words, names in options.items() if "--yes" in names} - {("serve",)}  # it consents to no change
    assert {words[0] for words in asking} == table()[CHANGES]
    assert asking == set(CALLS)
    assert all("--dry-run" in options[words] for words in asking)


@pytest.fixture(params=CALLS, ids=" ".join)
def call(request, mqtool, tmp_path):
    """Runs a command on a store on which it has something to do."""
    root, plan = copy_store("orders-5.5.0", tmp_path), tmp_path / "plan.json"
    words = CALLS[request.param]
    if "OLD" in words:
        for path in sorted((root / "commitlog").iterdir())[:-1]:
            os.utime(path, (0, 0))
    else:
        shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    if {"PLAN", "CHANGED"} & set(words):
        assert mqtool("plan", "repair", root, "-o", plan).code == ExitCode.OK
    if "CHANGED" in words:
        assert mqtool("apply", plan, "--yes", "--no-verify").code == ExitCode.OK
    given = [plan if word == "PLAN" else root if word.isupper() and "-" not in word else word for word in words]

    def run(*more):
        return mqtool(*request.param, *given, *more)

    run.digest = lambda: tree_digest(root)
    return run


def test_nothing_changes_before_consent_and_the_output_says_what_would(call):
    before = call.digest()
    refused, shown = call("--json"), call("--json", "--dry-run")
    assert (refused.code, refused.document["ok"]) == (ExitCode.REFUSED, False)
    assert "nothing was changed: add --yes to make the change" in refused.stderr
    assert (shown.code, shown.stderr, shown.document["ok"]) == (ExitCode.OK, "", True)
    assert shown.document.keys() == refused.document.keys()
    assert shown.document.get("dry_run", True) is refused.document.get("dry_run", True) is True
    assert call("--dry-run", "--yes").code == ExitCode.USAGE
    assert call.digest() == before
    assert call("--yes").code == ExitCode.OK
    assert call.digest() != before


def test_a_terminal_is_asked_after_what_would_be_done_is_shown(call, monkeypatch):
    asked, answers = [], [False, True]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question) or answers.pop(0))
    before = call.digest()
    declined = call()
    assert (declined.code, bool(declined.stdout), call.digest() == before) == (ExitCode.REFUSED, True, True)
    assert call("--json").code == ExitCode.REFUSED
    assert call().code == ExitCode.OK
    assert (len(asked), call.digest() == before) == (2, False)
