"""Every command is documented where its user looks: in its help and in docs/."""

from typing import Any

import pytest
import typer.main

from mqtool.cli.app import app
from tests.house.modules import ROOT

GROUP: Any = typer.main.get_command(app)


@pytest.fixture(params=list(GROUP.commands))
def commands(request) -> dict[str, Any]:
    """What can be typed that does something, `mqtool rebuild index`: one command, or all of one group."""

    def walk(command, path):
        if hasattr(command, "commands"):
            for name, child in command.commands.items():
                yield from walk(child, f"{path} {name}")
        elif not command.hidden:
            yield path, command

    return dict(walk(GROUP.commands[request.param], f"mqtool {request.param}"))


def test_help_begins_with_an_example(commands):
    for name, command in commands.items():
        lines = [line.strip() for line in (command.help or "").splitlines() if line.strip()]
        examples = [line.removeprefix("Example:").strip(" $`") for line in lines[:3]]
        assert any(f"{line} ".startswith(f"{name} ") for line in examples), (name, examples)


def test_help_says_what_the_command_may_change(commands):
    for name, command in commands.items():
        impacts = [line for line in (command.help or "").splitlines() if line.strip().startswith("impact: ")]
        assert len(impacts) == 1, name


def test_every_parameter_has_a_help_text(commands):
    for name, command in commands.items():
        assert [one.name for one in command.params if not getattr(one, "help", None)] == [], name


def test_the_documentation_shows_the_command(commands):
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    for name in commands:
        assert any(name + end in page for page in pages for end in " \n`"), name
