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
COMMANDS = re.findall(r"\| `(mqtool [^`]+)` \|$", README, re.MULTILINE)
REPAIR = (ROOT / "docs" / "repair.md").read_text("utf-8")
LIBRARY = (ROOT / "docs" / "library.md").read_text("utf-8")
ONE_SCREEN = 80
"""Lines of the README at most; a line of a browser's window shows about two of them."""


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


def test_the_readme_is_one_screen_with_five_tasks():
    assert len(COMMANDS) == 5
    assert README.count("\n") <= ONE_SCREEN


def test_the_readme_shows_the_two_commands_for_developers_and_ci_runs_the_second():
    scripts = [line.split() for kind, text in BLOCKS if kind == "sh" for line in text.splitlines() if line[:2] == "./"]
    assert scripts == [["./demo"], ["./check"]]
    ran = re.findall(r"^exec (.+?)(?: <.*)?$", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert ran == ["./check"]


@pytest.mark.slow
def test_the_picture_of_the_readme_is_what_the_command_prints():
    shown = re.findall(r"!\[[^\]]{20,}\]\((\S+)\)", README)  # with a text for those who do not see it
    assert shown == ["docs/pictures/terminal.svg"]
    assert "current" in run(sys.executable, "docs/terminal_picture.py", "--check")
    assert "http" not in (ROOT / shown[0]).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")


def damage_example() -> str:
    [source] = [text for kind, text in BLOCK.findall(LIBRARY) if kind == "python" and "mqtool.Damage)" in text]
    return source


def test_the_example_of_damage_runs_on_an_intact_store():
    assert "k0" in run(sys.executable, "-c", damage_example())


@pytest.mark.slow
def test_the_example_of_damage_survives_a_damaged_store(tmp_path):
    store = copy_store("orders-5.5.0", tmp_path / "fixtures" / "orders-5.5.0")
    segment = store / "commitlog" / f"{0:020}"
    data = bytearray(segment.read_bytes())
    data[100] ^= 1  # in the body of the first record, which the example selects
    segment.write_bytes(data)
    assert "damaged: " in run(sys.executable, "-c", damage_example(), cwd=tmp_path)


@pytest.mark.slow
def test_the_changes_of_the_page_on_repair_can_be_made_and_undone(tmp_path):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    [change] = [text for kind, text in BLOCK.findall(REPAIR) if kind == "sh" and "mqtool undo copy --yes" in text]
    script = 'set -eo pipefail\nmqtool() { $PYTHON -m mqtool "$@"; }\n' + change
    assert "Done: verify now says clean" in run("bash", "-c", script, cwd=tmp_path)


@pytest.mark.slow
def test_the_demo_runs_and_names_the_report_that_it_has_written(tmp_path):
    report = tmp_path / "report.html"
    shown = run("./demo", str(report))
    assert "$ mqtool info" in shown
    assert f"The report is {report}: open it in a browser." in shown
    assert "do not start the broker" in report.read_text("utf-8")


def test_every_link_leads_to_a_file():
    links = [
        (page, link)
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    ]
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []
