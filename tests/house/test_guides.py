"""What the guides in docs/ show is what the commands print: every `mqtool …` on a fixture is run and compared."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.modules import ROOT
from tests.support.tables import in_parts

GUIDES = ("convert", "diff", "kinds", "rebuild", "report", "verify")
BLOCK = re.compile(r"^```bash\n(.*?)\n```$(?:\n\n^```text\n(.*?)\n```$)?", re.MULTILINE | re.DOTALL)


def shown(page: Path) -> list[tuple[str, list[str]]]:
    """(command, lines of output) of every command of a page that is to be run, in order; of a block the last has the output."""
    found: list[tuple[str, list[str]]] = []
    for body, output in BLOCK.findall(page.read_text("utf-8")):
        commands = body.replace("\\\n", " ").split("\n")
        found += [(command, []) for command in commands[:-1]] + [(commands[-1], output.split("\n") if output else [])]
    return found


def examples() -> list[tuple[str, str, list[str]]]:
    """(page, command, lines below it) of every example that names a fixture."""
    return [
        (name, command, lines)
        for name in GUIDES
        for command, lines in shown(ROOT / "docs" / f"{name}.md")
        if "fixtures/" in command
    ]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """One directory for all examples: one may go on with what another has made."""
    directory = tmp_path_factory.mktemp("guides")
    (directory / "fixtures").symlink_to(ROOT / "fixtures")
    return directory


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.xdist_group("guides")
@pytest.mark.parametrize(
    ("page", "command", "lines"), examples(), ids=[f"{page}-{number}" for number, (page, *_) in enumerate(examples())]
)
def test_an_example_prints_what_the_page_shows(page, command, lines, workplace):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=workplace,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode in (0, 1), result.stderr
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)
    assert re.match(pattern, result.stdout), f"{page}: {command} prints\n{result.stdout[:3000]}"


HOW_TOS = sorted(f"howto/{path.stem}" for path in (ROOT / "docs" / "howto").glob("*.md") if path.stem != "index")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ["../README", "tutorials/first-repair", *HOW_TOS])
def test_the_steps_of_a_how_to_guide_work_in_order(name, tmp_path):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "COLUMNS": "500"}
    done = 0
    for command, lines in shown(ROOT / "docs" / f"{name}.md"):
        shell = ["bash", "-c", 'mqtool() { "$PYTHON" -m mqtool "$@"; }\n' + command]
        result = subprocess.run(
            shell, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert result.returncode in (0, 1), f"{command}: {result.stderr}"
        pattern = "".join(
            r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines
        )
        assert re.match(pattern, result.stdout), f"{name}: {command} prints\n{result.stdout[:3000]}"
        done += command.startswith("mqtool")
    assert done >= 1


def test_every_guide_that_is_there_has_examples():
    pages = {name for name in GUIDES if (ROOT / "docs" / f"{name}.md").exists()}
    assert pages == {page for page, *_ in examples()}


COMMAND = re.compile(r"(?:^|[|;(]|&&|\bdo|--)\s*mqtool ([^|;&>\n]*)", re.MULTILINE)
PLACEHOLDER = re.compile(r"\b(?:PHYSICAL_)?OFFSET\b")


def shown_commands() -> list[tuple[str, str]]:
    """(page, words after `mqtool`) of every command that a page shows to be typed, on a fixture or not."""
    return [
        (page.name, words)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for body in re.findall(r"^```(?:bash|sh)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        for words in COMMAND.findall(body.replace("\\\n", " "))
    ]


def test_every_command_that_a_page_shows_exists_with_its_options():
    import typer.main

    from mqtool.cli.app import app

    commands = shown_commands()
    assert len(commands) > 150
    for page, text in commands:
        name, *words = shlex.split(PLACEHOLDER.sub("0", text), comments=True)
        command = typer.main.get_command(app).commands[name]
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        with contextlib.closing(command.make_context(f"{page}: mqtool {text}", words)):  # a wrong option raises
            pass


PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BETWEEN = re.compile(r"^```\n\n```\w+\n", re.MULTILINE)
"""The end of a block and the start of another directly after it, as where a command and its output follow each other."""
ANY_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@in_parts("page", PAGES, size=200)
def test_no_block_of_commands_ends_with_what_cannot_be_undone(page):
    for block in ANY_BLOCK.findall(BETWEEN.sub("", (ROOT / page).read_text("utf-8"))):
        commands = re.findall(r"^mqtool .*", block, re.MULTILINE)
        assert len(commands) == 1 or not re.search(r"mqtool discard-undo|--no-keep", block), block
        assert not any("--reserved-hours 0" in line for line in commands), block
