"""Every command is documented where its user looks: in its help and in docs/."""

import ast
import re
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from mqtool.cli.app import app
from mqtool.cli.meanings import MEANINGS
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


@pytest.mark.slow
def test_commands_to_type_are_built_in_one_place():
    """A command in an f-string is not quoted for a shell: `mqtool.commands` does that."""
    templates = ("mqtool/verify/catalogue/check.py", "mqtool/repair/runbooks/page.py")
    typed = [
        f"{path}:{node.lineno}"
        for path in sorted((ROOT / "mqtool").rglob("*.py"))
        if not path.as_posix().endswith(templates)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.JoinedStr)
        if re.search(
            r"mqtool [a-z]+[^:;,.]* \0",
            "".join(getattr(one, "value", "") if isinstance(one, ast.Constant) else "\0" for one in node.values),
        )
    ]
    assert typed == []


def test_the_documentation_shows_the_command(commands):
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    for name in commands:
        assert any(name + end in page for page in pages for end in " \n`"), name


def options(commands):
    return [one for command in commands.values() for one in command.params if one.param_type_name == "option"]


def test_every_option_has_one_meaning_in_all_commands(commands):
    known = {*MEANINGS, "--help"}
    assert [one.opts for one in options(commands) if not known.intersection(one.opts)] == []


def test_every_meaning_belongs_to_an_option():
    every = {text for command in GROUP.commands.values() for one in parameters(command) for text in one.opts}
    assert MEANINGS.keys() <= every


def test_a_letter_stands_for_one_option():
    long_of = {}
    for command in GROUP.commands.values():
        for one in parameters(command):
            long = [text for text in one.opts if text.startswith("--")]
            for letter in set(one.opts).difference(long):
                assert long_of.setdefault(letter, long) == long, letter


def parameters(command):
    inner = [one for child in getattr(command, "commands", {}).values() for one in parameters(child)]
    return [*command.params, *inner]


@pytest.mark.slow
def test_the_reference_is_what_the_commands_say():
    command = [sys.executable, "docs/generate_cli.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
