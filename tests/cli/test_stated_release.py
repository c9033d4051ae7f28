"""A command that assumes a release states which and why; one that is given a release does not."""

import logging
import re
import shutil

import pytest
import typer.main

from mqtool.cli.app import app
from mqtool.server import serve
from tests.support.stores import copy_store, store_fixture

WHY = "assumed: config/lmqConsumerOffset.json has a pullOffsetTable"
COMMANDS = {
    "append": "STORE --from ROWS --dry-run",
    "explain-start": "STORE",
    "plan recover": "STORE -o OUT/plan",
    "rebuild": "index STORE -o OUT/rebuilt",
    "repair": "STORE --dry-run",
    "replay": f"{store_fixture('orders-4.9.7').directory} --into STORE --dry-run",
    "runbook match": "STORE",
    "runbook run": "RB-08 STORE --dry-run -f json",
    "serve": "STORE",
    "verify": "STORE",
}


def commands_with_release(command, name=""):
    for verb, child in getattr(command, "commands", {}).items():
        yield from commands_with_release(child, f"{name} {verb}".strip())
    if any("--release" in parameter.opts for parameter in command.params):
        yield name


def test_commands_with_release_state_the_one_that_they_assume_and_why(mqtool, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(serve, "run", lambda _, ready: ready({}))
    root, rows = copy_store("crash-5.5.0", tmp_path), tmp_path / "rows"
    rows.write_text('{"topic": "T", "body": "x"}\n')
    places = {"STORE": root, "ROWS": rows}
    silent, loud = set(), set()
    for name, words in COMMANDS.items():
        for given in ((), ("--release", "5.5")):
            out = tmp_path / f"{name} {bool(given)}"
            out.mkdir()
            arguments = [str(places.get(word, word)).replace("OUT", str(out)) for word in words.split()]
            caplog.clear()
            result = mqtool(*name.split(), *arguments, *given)
            is_stated = WHY in " ".join(f"{result.text} {result.stderr} {caplog.text}".split())
            if is_stated is bool(given):
                (loud if given else silent).add(name)
    assert (silent, loud) == (set(), set())
    assert COMMANDS.keys() == set(commands_with_release(typer.main.get_command(app)))


@pytest.mark.parametrize(
    ("fixture", "words"),
    [
        ("orders-5.5.0", "salvage STORE -o OUT"),
        ("orders-5.5.0", "plan rebuild index STORE -o OUT"),
        ("orders-5.5.0", "clean STORE --now --allow-unread --reserved-hours 0 --no-keep --yes"),
        ("dledger-5.5.0", "convert dledger STORE -o OUT"),
    ],
)
def test_commands_without_release_state_the_one_that_they_assume(mqtool, tmp_path, fixture, words):
    places = {"STORE": copy_store(fixture, tmp_path), "OUT": tmp_path / "out"}
    shutil.rmtree(places["STORE"] / "index", ignore_errors=True)
    result = mqtool(*(places.get(word, word) for word in words.split()))
    assert re.search(r"^mqtool: release 5\.5 is assumed.*: [^;]+$", result.stderr, re.MULTILINE), result.stderr


def test_a_new_store_takes_the_release_that_append_states(mqtool, tmp_path):
    (tmp_path / "rows").write_text('{"topic": "T", "body": "x"}\n')
    result = mqtool("append", tmp_path / "new", "--from", tmp_path / "rows", "--dry-run")
    assert "release 5.5 is assumed: unknown from the store; --release states another" in result.stderr
