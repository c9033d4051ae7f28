"""A printed command carries the options that shaped the answer, if its command takes them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer.main

from mqtool.cli.app import app
from mqtool.cli.exits import ExitCode
from mqtool.commands import WITH_RELEASE, WITHOUT_CONFIG
from tests.support.damage import base_config, damage_case

CASES = ("recent-flip-body@4.9.7-clean", "tail-torn@5.5.0-crash")
RELEASE = "5.5"
COMMANDS = (
    "verify",
    "explain-start",
    "repair",
    "repair -o new",
    "repair --yes",
    "runbook match",
    "runbook run RB-05",
    "runbook run RB-08",
    "runbook run RB-08 --yes",
    "plan repair -o plan",
    "plan recover -o plan",
    "clean --dry-run --now --reserved-hours 0",
    "salvage -o new",
)


def parsed(line: str) -> tuple[str, dict[str, str]]:
    """The name of the command that a line calls, and its options."""
    words = shlex.split(line)
    words, command, name = words[words.index("mqtool") + 1 :], typer.main.get_command(app), ""
    while hasattr(command, "resolve_command"):
        part, command, words = command.resolve_command(command.make_context("mqtool", words), words)
        name = f"{name} {part}".strip()
    return name, command.make_context(name, words).params


def printed(value: object) -> set[str]:
    """Every command in a document, also those inside a sentence."""
    if isinstance(value, dict):
        return set().union(*map(printed, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(printed, value), set())
    text = value if isinstance(value, str) else ""
    if text.startswith(("mqtool ", "sudo ")):
        return {text}
    return set(re.findall(r"mqtool (?:salvage|repair|verify|explain-start) /.*?(?= \(|[.;,`](?:\s|$)|$)", text))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "is_given"), [*((case, True) for case in CASES), (CASES[0], False)])
def test_a_printed_command_carries_release_and_the_config_that_was_given_or_found(
    mqtool, tmp_path, monkeypatch, case, is_given
):
    config = base_config(case.partition("@")[2])
    seen, stating = set(), set()
    for number, command in enumerate(COMMANDS):
        place = tmp_path / str(number)
        monkeypatch.chdir(place.mkdir() or place)
        root = damage_case(case, place)
        name, *words = shlex.split(command)
        name = (name, words.pop(0)) if name in ("plan", "runbook") else (name,)
        identity = [words.pop(0)] if name[-1] == "run" else []
        takes_release = " ".join(name) in WITH_RELEASE
        if not is_given:
            config = Path(shutil.copyfile(config, place / "broker.conf"))
        given = ["--config", config] if is_given else []
        given += ["--release", RELEASE] if takes_release else []
        answer = mqtool(*name, *identity, root, *words, *given, "--format", "json")
        assert answer.code in (ExitCode.OK, ExitCode.NO, ExitCode.REFUSED), (command, answer.stderr)
        if isinstance(answer.document, dict) and answer.document.get("config") == str(config):
            stating.add(name[0])
        for line in printed(json.loads(answer.stdout)) | printed(answer.stderr):
            called, options = parsed(line)
            seen.add(called)
            about = next((str(options[key]) for key in ("store", "what", "target") if options.get(key)), "")
            if "config" in options and about.startswith(str(root)):
                assert str(config) in shlex.split(line), (command, line)
            if takes_release and called in WITH_RELEASE:
                assert str(options.get("release") or options.get("started")) == RELEASE, (command, line)
    assert len(seen) > 2
    assert stating >= {"verify", "explain-start", "repair", "runbook", "clean", "salvage"}


def test_the_lists_of_commands_that_take_the_options_are_those_of_the_program():
    group = typer.main.get_command(app)
    takes = {}

    def walk(command: object, name: str) -> None:
        for verb, child in getattr(command, "commands", {}).items():
            walk(child, f"{name} {verb}".strip())
        if not hasattr(command, "commands"):
            takes[name] = {word for parameter in command.params for word in parameter.opts}, command

    walk(group, "")
    stores = {
        name for name, (_, command) in takes.items() if any(p.name in ("store", "target") for p in command.params)
    }
    assert {name for name in stores if "--config" not in takes[name][0]} & WITHOUT_CONFIG == WITHOUT_CONFIG - {"apply"}
    started = {
        name
        for name, (_, command) in takes.items()
        if any("that would be started" in (getattr(p, "help", "") or "") for p in command.params)
    }
    assert started == WITH_RELEASE
