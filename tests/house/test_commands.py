"""Every command is documented where its user looks: in its help and in docs/."""

import ast
import re
from typing import Any

import pytest
import typer.main

from mqtool.cli.app import app, leaves
from mqtool.cli.reference import MEANINGS
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
    typed = [
        f"{path}:{node.lineno}"
        for path in sorted((ROOT / "mqtool").rglob("*.py"))
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


def spellings() -> dict[str, list[Any]]:
    """Every option of every command, by its long name."""
    known: dict[str, list[Any]] = {}
    for _, command in leaves(GROUP):
        for one in command.params:
            if one.param_type_name == "option" and one.name != "help":
                known.setdefault(next(text for text in one.opts if text.startswith("--")), []).append(one)
    return known


def test_an_option_has_one_meaning_in_all_commands():
    """One help text, or a meaning in the table of `mqtool help cli` that the help texts are about."""
    several = {name for name, same in spellings().items() if len({one.help for one in same}) > 1}
    assert several == set(MEANINGS)


def test_an_option_takes_the_same_in_all_commands():
    """A flag nowhere else takes a value, a file is nowhere else an address; formats differ in what a command can print."""
    kinds = {name: {kind(one) for one in same} for name, same in spellings().items()}
    assert {name: found for name, found in kinds.items() if len(found) > 1 and name != "--format"} == {}


def kind(option: Any) -> str:
    """What an option takes."""
    return "flag" if getattr(option, "is_flag", False) else option.metavar or option.bare_type()


def test_every_command_takes_json_for_its_format():
    for words, command in leaves(GROUP):
        context = command.make_context(words[-1], ["--json"], resilient_parsing=True)
        assert "json" in context.params.values(), words


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
