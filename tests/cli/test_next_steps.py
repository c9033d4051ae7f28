"""Every command that mqtool prints for its user to type runs as it was printed."""

import html
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer.main

import mqtool as library
from mqtool.cli import verify_run
from mqtool.cli.app import app
from mqtool.cli.exits import ExitCode
from mqtool.cli.verify_steps import next_steps
from mqtool.report import report
from mqtool.verify import CATALOGUE, Severity
from mqtool.verify.notebook import Notebook
from tests.golden.verify_expected import expected
from tests.support.damage import CASES, DamageCase, damage_case
from tests.support.stores import tree_digest
from tests.support.tiers import night

RUNS = (ExitCode.OK, ExitCode.NO)
"""How a command may end that did what it says: done, or the answer is no."""
READABLE = [case for case in CASES.values() if case.kind != "store-empty" and not case.locked]


def one_case_of_each_code() -> list[DamageCase]:
    """First cases that have every code and severity of the damage cases."""
    chosen, seen = [], set()
    for case in READABLE:
        if expected(case) - seen:
            chosen.append(case)
            seen |= expected(case)
    return chosen


@pytest.fixture
def place(in_memory, monkeypatch):
    """A working directory; stores in it are named with a blank."""
    monkeypatch.chdir(in_memory)
    return in_memory


def kind_of(line: str) -> str:
    """A command without what differs from case to case: numbers and names."""
    return re.sub(r"--(topic|file|queue|offset) (\S+)", r"--\1 …", re.sub(r"\d{3,}", "N", line))


def printed(store: Path) -> set[str]:
    """The commands that verify prints about a store: in JSON, and the same in text and on the page of the report."""
    with library.open(store) as opened:
        page, found = report(opened)
        first = next_steps(opened, found)
    steps = {row["next_step"] for row in verify_run.document(found)["findings"] if row["next_step"]}
    text = verify_run.render(found, "wide", ExitCode.NO, first).decode()
    shown = {html.unescape(line) for line in re.findall(r'<p class="step"><code>(.*?)</code>', page)}
    assert set(re.findall(r"^  next: (.*)$", text, re.MULTILINE)) == steps
    assert shown <= steps
    assert tuple(re.findall(r"^next: (.*)$", text, re.MULTILINE)) == first
    return steps | set(first)


def run(mqtool, line: str) -> list[str]:
    """Runs a command and returns what it prints to type next."""
    words = shlex.split(line)
    assert words[0] == "mqtool", line
    found = mqtool(*words[1:], *([] if "--format" in words else ["--format", "json"]))
    if found.code == ExitCode.REFUSED:  # a start would lose messages after it: the way that loses none is named
        assert re.search(r"losses: .* mqtool salvage \S", found.stderr), (line, found.stderr)
        return []
    assert found.code in RUNS, (line, found.stderr)
    document = found.document if "--format" not in words else {}
    return list(document.get("next_steps") or filter(None, [document.get("next_step")]))


def carry_out(mqtool, line: str) -> None:
    """Runs a command that may change the store or make a directory, and all that it prints next, and undoes it."""
    steps = run(mqtool, line)
    for step in steps:
        if not step.startswith(("mqtool finalize", "mqtool runbook match")):
            run(mqtool, step)
    for made in Path().glob("*.new"):
        shutil.rmtree(made)


@pytest.mark.parametrize(
    "cases", [pytest.param(one_case_of_each_code(), id="each code"), night(READABLE, id="every case")]
)
def test_next_steps_of_findings_run_as_printed_by_a_relative_and_an_absolute_name(mqtool, cases, place):
    tried: dict[bool, set[str]] = {True: set(), False: set()}
    for number, case in enumerate(cases):
        absolute = number % 2 == 1
        made = damage_case(case, place / "made").rename(place / "a store")
        before = tree_digest(made)
        for line in sorted(printed(made if absolute else Path(made.name))):
            if kind_of(line) not in tried[absolute]:
                tried[absolute].add(kind_of(line))
                for step in run(mqtool, line):
                    if kind_of(step) not in tried[absolute]:
                        tried[absolute].add(kind_of(step))
                        carry_out(mqtool, step)
                (place / "plan.json").unlink(missing_ok=True)
        assert tree_digest(made) == before, case
        shutil.rmtree(made)
    assert all(len(lines) >= 9 for lines in tried.values())


def test_every_next_step_of_the_catalogue_is_a_command_with_options_that_exist():
    group = typer.main.get_command(app)
    for code, check in CATALOGUE.items():
        book = Notebook(Path("-a store"), Path("broker conf"))
        book.add(code, "-a store/commitlog/0", "", span=(1, 2), queue=("a[b]", 3))
        words = shlex.split(book.findings()[0].next_step)
        if check.severity is Severity.NOTE and not words:
            continue
        assert words[0] == "mqtool", check
        assert not any("{" in word for word in words), check
        _, command, rest = group.resolve_command(group.make_context("mqtool", words[1:]), words[1:])
        while hasattr(command, "resolve_command"):
            _, command, rest = command.resolve_command(command.make_context("x", rest), rest)
        command.make_context("x", rest)
