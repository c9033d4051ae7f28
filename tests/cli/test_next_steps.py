"""Every command that mqtool prints for its user to type runs as it was printed."""

import contextlib
import html
import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer.main

import mqtool as library
from mqtool.cli.app import app
from mqtool.cli.commands import verify
from mqtool.cli.exits import ExitCode
from mqtool.cli.verification_formats import _steps_for, next_steps
from mqtool.repair import RebuildIndex, apply, make_plan, undo
from mqtool.repair.from_findings import RepairProposal
from mqtool.report import report
from mqtool.verify import CATALOGUE, Severity
from mqtool.verify import verify as library_verify
from mqtool.verify.finding_collector import FindingCollector
from tests.cli.conftest import Mqtool
from tests.golden.verify_expected import expected
from tests.support.damage import CASES, DamageCase, damage_case
from tests.support.permissions import without_rights
from tests.support.stores import copy_store, tree_digest
from tests.unit.repair.faults import DyingFiles, Killed

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
    steps = {row["next_step"] for row in verify.document(found)["findings"] if row["next_step"]}
    text = verify.render(found, verify.VerifyFormat.WIDE, ExitCode.NO, first).decode()
    shown = {html.unescape(line) for line in re.findall(r'<p class="step"><code>(.*?)</code>', page)}
    assert set(re.findall(r"^  next: (.*)$", text, re.MULTILINE)) == (set() if first else steps)
    assert shown <= steps
    assert tuple(re.findall(r"^next: (.*)$", text, re.MULTILINE)) == first
    return steps | set(first)


@dataclass
class Trial:
    """Runs every command that verify prints about stores, and what those print.

    Attributes:
        mqtool: runs the program.
        each: run each command of each store; else only one of a kind.
        kinds: of commands that were run.
        kept: kinds of commands whose result was finalized.
        count: commands that were run.
    """

    mqtool: Mqtool
    each: bool = True
    kinds: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    count: int = 0

    def of_store(self, store: Path) -> str | None:
        """Tries all commands; returns one whose result is still to be finalized, None if there is none."""
        done: set[str] = set()
        keep = None
        for line in sorted(printed(store)):
            if not self._is_new(line):
                continue
            follow = self.run(line)
            steps = planned_steps()
            if not steps or steps not in done:  # another plan of the same store may be the same
                done.add(steps)
                for step in filter(self._is_new, follow):
                    self._carry_out(step)
                if steps and kind_of(line) not in self.kept:
                    keep = line
            self.kinds |= {kind_of(line), *map(kind_of, follow)}
            Path("plan.json").unlink(missing_ok=True)
        return keep

    def discard_undo(self, line: str) -> None:
        """Carries a plan out and gives the way back up."""
        self.kept.add(kind_of(line))
        for words in ("mqtool apply", "mqtool undo"):
            line = next(step for step in self.run(line) if step.startswith(words))
        self.run(line.replace("mqtool undo", "mqtool discard-undo"))
        Path("plan.json").unlink()

    def run(self, line: str) -> list[str]:
        """Runs a command and returns what it prints to type next, and to undo it."""
        self.count += 1
        words = shlex.split(line)
        assert words[0] == "mqtool", line
        found = self.mqtool(*words[1:], *([] if "--format" in words else ["--format", "json"]))
        if found.code == ExitCode.REFUSED and "add --yes" in found.stderr:  # a terminal would be asked
            return list(found.document["next_steps"])
        if found.code == ExitCode.REFUSED:  # a start would lose messages after it: the way that loses none is named
            assert re.search(r"losses: .* mqtool repair \S", found.stderr), (line, found.stderr)
            return []
        assert found.code in RUNS, (line, found.stderr)
        document = found.document if "--format" not in words else {}
        steps = document.get("next_steps") or [document.get("next_step")]
        return [step for step in [*steps, document.get("undo")] if step]

    def _is_new(self, line: str) -> bool:
        return self.each or kind_of(line) not in self.kinds

    def _carry_out(self, line: str) -> None:
        """Runs a command that may change the store or make a directory, and what it prints next but `mv`; it ends undone."""
        for step in self.run(line):
            if step.startswith("mqtool ") and not step.startswith("mqtool discard-undo"):
                self.run(step)
        for made in Path().glob("*.new"):
            shutil.rmtree(made)


def planned_steps() -> str:
    """What the plan that was just made does, "" if none was."""
    path = Path("plan.json")
    return json.dumps(json.loads(path.read_text())["steps"]) if path.exists() else ""


def made_in(place: Path, case: DamageCase) -> Path:
    """Builds the store of a case; its name has a blank."""
    return damage_case(case, place / "made").rename(place / "a store")


def try_cases(cases: list[DamageCase], trials: list[Trial], place: Path) -> None:
    """Tries the commands about every case, by turns with a relative and an absolute name."""
    for number, case in enumerate(cases):
        trial = trials[number % 2]
        store = made_in(place, case)
        before = tree_digest(store)
        keep = trial.of_store(store if number % 2 else Path(store.name))
        assert tree_digest(store) == before, case
        if keep is not None:
            trial.discard_undo(keep)
        shutil.rmtree(store)


@pytest.mark.long
def test_next_steps_of_each_code_run_as_printed_by_a_relative_and_an_absolute_name(mqtool, place):
    trials = [Trial(mqtool, each=False), Trial(mqtool, each=False)]
    try_cases(one_case_of_each_code(), trials, place)
    assert all(len(trial.kinds) >= 9 for trial in trials)


@pytest.mark.night
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("base", sorted({case.base for case in READABLE}))
def test_every_next_step_of_every_case_runs_as_printed(mqtool, base, place):
    trials = [Trial(mqtool), Trial(mqtool)]
    try_cases([case for case in READABLE if case.base == base], trials, place)
    assert all(trial.count > 150 for trial in trials)


def test_every_next_step_of_the_catalogue_is_a_command_with_options_that_exist():
    group = typer.main.get_command(app)
    for code, check in CATALOGUE.items():
        book = FindingCollector(Path("-a store"), Path("broker conf"))
        book.add(code, "-a store/commitlog/0", "", span=(1, 2), queue=("a[b]", 3), group="-g")
        words = shlex.split(book.findings()[0].next_step)
        words = words[1:] if words[:1] == ["sudo"] else words
        if not words:
            assert check.severity is Severity.NOTE or code in ("abort-present", "lint-size", "lint-legacy-key"), (
                "they state the line to write, or that nothing is to be done"
            )
            continue
        if code == "owner-denied":
            assert words[0] == "chown"
            continue
        assert words[0] == "mqtool", check
        assert not any("{" in word for word in words), check
        _, command, rest = group.resolve_command(group.make_context("mqtool", words[1:]), words[1:])
        while hasattr(command, "resolve_command"):
            _, command, rest = command.resolve_command(command.make_context("x", rest), rest)
        command.make_context("x", rest)


def test_a_plan_that_would_change_nothing_is_not_suggested(tmp_path):
    """The findings that it leaves name the way instead."""
    root = damage_case("flip-body@4.9.7-clean", tmp_path)
    with library.open(root) as store:
        found = library_verify(store)
        steps = _steps_for(store, RepairProposal((), found.findings), found)
    assert steps
    assert not [step for step in steps if step.startswith("mqtool repair") and " -o " not in step]


@pytest.fixture
def half_repaired(place):
    """A store with a missing queue and a damaged index file, and a plan that repairs the index."""
    root = copy_store("rollover-5.5.0", place)
    shutil.rmtree(root / "consumequeue" / "Roll" / "0")
    first = min((root / "index").iterdir())
    first.write_bytes(bytes(first.stat().st_size))
    return root, make_plan(root, RebuildIndex())


def first_step(mqtool, root):
    """The first command that verify names, as the program gets it."""
    return shlex.split(mqtool("verify", root, "--format", "json").document["next_steps"][0])[1:]


def test_after_an_apply_that_was_killed_at_any_point_verify_names_undo_or_what_ends_the_change(mqtool, half_repaired):
    root, plan = half_repaired
    named = set()
    for call in range(0, 60, 7):
        with contextlib.suppress(Killed):
            apply(plan, backup_acknowledged=True, verify_after=False, files=DyingFiles(call))
        words = first_step(mqtool, root)
        named.add(words[0])
        assert mqtool(*words).code == (4 if words[0] == "repair" else 0), words
        Path("plan.json").unlink(missing_ok=True)
        if (root / ".mqtool").exists():
            undo(root)
    assert named == {"repair", "undo", "discard-undo"}


def test_after_a_change_that_left_findings_verify_leads_to_the_next_plan(mqtool, half_repaired):
    root, plan = half_repaired
    apply(plan, backup_acknowledged=True, verify_after=False)
    words = first_step(mqtool, root)
    assert words == ["discard-undo", str(root), "--dry-run"]
    (words,) = map(shlex.split, mqtool(*words, "--format", "json").document["next_steps"])
    assert mqtool(*words[1:]).code == 0
    assert first_step(mqtool, root) == ["repair", str(root)]


class Walk:
    """Follows the commands that are printed about a store, each as far as the first one that changes or writes it.

    Attributes:
        mqtool: runs the program.
        steps: what every command that was run prints to type next.
        findings: the commands that verify prints about single findings.
    """

    def __init__(self, mqtool: Mqtool) -> None:
        self.mqtool = mqtool
        self.steps: dict[str, list[str]] = {}
        self.findings: set[str] = set()

    def changes(self, *starts: str) -> set[str]:
        """Commands that change or write something, in which some others end."""
        return {line for start in starts for line in self._ends(start, ()) if is_change(line)}

    def _ends(self, line: str, before: tuple[str, ...]) -> set[str]:
        path = (*before, line)
        assert line not in before, f"a circle: {path}"
        assert len(path) <= 4, f"too many commands: {path}"
        if line not in self.steps:
            self.steps[line] = [] if is_change(line) else self._printed_by(shlex.split(line))
        return {end for step in self.steps[line] for end in self._ends(step, path)} or {line}

    def _printed_by(self, words: list[str]) -> list[str]:
        result = self.mqtool(*words[1:], *([] if "--format" in words else ["--format", "json"]))
        Path("plan.json").unlink(missing_ok=True)
        assert result.code in (*RUNS, ExitCode.REFUSED), (words, result.stderr)
        if "--format" in words or not result.stdout:
            return []
        if words[1:3] == ["runbook", "match"]:
            return [row["next_step"] for row in result.document.get("rows", [])]
        if words[1] == "verify":
            self.findings |= {row["next_step"] for row in result.document["findings"]} - {""}
        return list(result.document.get("next_steps") or filter(None, [result.document.get("next_step")]))


def is_change(line: str) -> bool:
    """Whether a command changes a store or writes a new one; `sudo` runs it as somebody else, who gets other answers."""
    words = shlex.split(line)
    return words[0] == "sudo" or "--yes" in words or words[1] in ("apply", "salvage")


def check_walk(mqtool: Mqtool, store: Path) -> None:
    """From every command and finding, what is printed leads to the one recommendation, or nowhere, and never back."""
    walk, name = Walk(mqtool), shlex.quote(store.name)
    recommended = walk.changes(f"mqtool verify {name}")
    assert len(recommended) <= 1, recommended
    assert walk.changes(f"mqtool explain-start {name}") <= recommended
    assert walk.changes(f"mqtool repair {name}") <= recommended
    walk.changes(*walk.findings)
    if recommended:
        assert walk.changes(f"mqtool runbook match {name}") <= recommended
        shown = mqtool("verify", store.name).text
        assert [line for line in shown.splitlines() if line.lstrip().startswith("next: ")] == [
            f"next: {walk.steps[f'mqtool verify {name}'][0]}"
        ], "one recommendation, whatever was found"


WALKED = (
    "none@4.9.7-crash",
    "tail-torn@4.9.7-clean",
    "tail-page-hole@4.9.7-crash",
    "flip-body@4.9.7-clean",
    "flip-property-separator@4.9.7-crash",
    "segment-missing-middle@4.9.7-clean",
    "timestamp-backwards@4.9.7-clean",
)


@pytest.mark.parametrize("case", WALKED)
def test_what_is_printed_about_a_damaged_store_leads_to_one_recommendation(mqtool, place, case):
    check_walk(mqtool, made_in(place, CASES[case]))


@pytest.mark.night
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("base", sorted({case.base for case in READABLE}))
def test_what_is_printed_about_every_damaged_store_leads_to_one_recommendation(mqtool, place, base):
    for case in READABLE:
        if case.base == base:
            store = made_in(place, case)
            check_walk(mqtool, store)
            shutil.rmtree(store)


def wrong_size(store: Path) -> None:
    (store.parent / "broker.conf").write_text("mappedFileSizeCommitLog=1073741824\n", "utf-8")


def wrong_size_of_a_damaged_store(store: Path) -> None:
    wrong_size(store)
    shutil.rmtree(store / "consumequeue" / "Orders" / "2")


def short_segment(store: Path) -> None:
    os.truncate(store / "commitlog" / f"{131072:020}", 70_000)


def short_last_segment(store: Path) -> None:
    os.truncate(max((store / "commitlog").iterdir()), 4_096)


def several_kinds(store: Path) -> None:
    short_last_segment(store)
    shutil.rmtree(store / "consumequeue" / "Orders" / "2")
    (store / "config" / "topics.json").write_text("{", "utf-8")
    (store / "config" / "topics.json.bak").unlink(missing_ok=True)


def no_index(store: Path) -> None:
    shutil.rmtree(store / "index")


@pytest.mark.parametrize(
    "harm", [wrong_size, wrong_size_of_a_damaged_store, short_segment, short_last_segment, several_kinds, no_index]
)
def test_what_is_printed_about_a_store_that_was_harmed_leads_to_one_recommendation(mqtool, place, harm):
    store = copy_store("orders-5.5.0", place)
    harm(store)
    check_walk(mqtool, store)


@pytest.mark.parametrize("directory", ["consumequeue/Orders/0", "index", "config", "commitlog"])
def test_what_is_printed_about_an_unreadable_directory_leads_to_its_owner(mqtool, place, directory):
    store = copy_store("orders-5.5.0", place)
    (store / directory).chmod(0)
    try:
        with without_rights():
            check_walk(mqtool, store)
    finally:
        (store / directory).chmod(0o755)
