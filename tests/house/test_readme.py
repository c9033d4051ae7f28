"""What the README shows works as shown."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.modules import ROOT
from tests.support.stores import copy_store

README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [match.groups() for match in BLOCK.finditer(README)]
COMMANDS = [
    line.removeprefix("$ ")
    for kind, text in BLOCKS
    if kind == "console"
    for line in text.splitlines()
    if line.startswith("$ mqtool ")
]


def run(*command: str, cwd: Path = ROOT) -> str:
    result = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_prints_something(command, tmp_path):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")  # what a command makes goes to the working directory
    assert run(sys.executable, "-m", *shlex.split(command), cwd=tmp_path).strip()


def test_the_readme_shows_commands_and_library_use():
    assert len(COMMANDS) >= 5
    assert [kind for kind, _ in BLOCKS].count("python") == 1


def test_the_library_example_of_the_readme_runs():
    source = next(text for kind, text in BLOCKS if kind == "python")
    printed = run(sys.executable, "-c", source)
    assert "FOUND 4\n" in printed


@pytest.mark.slow
def test_the_library_example_of_the_readme_survives_a_damaged_store(tmp_path):
    store = copy_store("orders-5.5.0", tmp_path / "fixtures" / "orders-5.5.0")
    segment = store / "commitlog" / f"{0:020}"
    data = bytearray(segment.read_bytes())
    data[100] ^= 1  # in the body of the first record, which the example selects
    segment.write_bytes(data)
    source = next(text for kind, text in BLOCKS if kind == "python")
    assert "damaged: " in run(sys.executable, "-c", source, cwd=tmp_path)


@pytest.mark.slow
def test_the_changes_of_the_readme_can_be_made_and_taken_back(tmp_path):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    changes = [text for kind, text in BLOCKS if kind == "sh" and ("mqtool append" in text or "mqtool undo" in text)]
    assert len(changes) == 2
    script = 'set -eo pipefail\nmqtool() { $PYTHON -m mqtool "$@"; }\n' + "".join(changes)
    assert re.search(r"^present +yes$", run("bash", "-c", script, cwd=tmp_path), re.MULTILINE)


@pytest.mark.slow
def test_the_demo_runs():
    assert "$ mqtool info" in run("./demo")


def test_every_link_leads_to_a_file():
    links = [
        (page, link)
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    ]
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []
