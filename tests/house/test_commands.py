"""Every command is documented where its user looks: in its help and in docs/."""

from typing import Any

import pytest
import typer.main

from mqtool.cli.app import app
from tests.house.modules import ROOT


def commands() -> dict[str, Any]:
    """Every command that does something, by what is typed: `mqtool rebuild index`."""

    def walk(command, path):
        if hasattr(command, "commands"):
            for name, child in command.commands.items():
                yield from walk(child, f"{path} {name}")
        elif not command.hidden:
            yield path, command

    return dict(walk(typer.main.get_command(app), "mqtool"))


COMMANDS = commands()


def test_there_are_commands():
    assert {"mqtool info", "mqtool dump", "mqtool get", "mqtool find"} <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_begins_with_an_example(name):
    lines = [line.strip() for line in (COMMANDS[name].help or "").splitlines() if line.strip()]
    examples = [line.removeprefix("Example:").strip(" $`") for line in lines[:3]]
    assert any(f"{line} ".startswith(f"{name} ") for line in examples), examples


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_says_what_the_command_may_change(name):
    impacts = [line.strip() for line in (COMMANDS[name].help or "").splitlines() if line.strip().startswith("impact: ")]
    assert len(impacts) == 1


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_parameter_has_a_help_text(name):
    silent = [parameter.name for parameter in COMMANDS[name].params if not getattr(parameter, "help", None)]
    assert silent == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_documentation_shows_the_command(name):
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    assert any(f"{name} " in page or f"{name}\n" in page or f"{name}`" in page for page in pages)
