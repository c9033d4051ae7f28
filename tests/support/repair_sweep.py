"""Every damaged store by every automatic way to repair it: what a start loses before and after, counted.

`python -m tests.support.repair_sweep ROWS.jsonl [PART OF A CASE'S ID]…` computes the figures of docs/repair.md over all cases of `fixtures/damage`, and
of the further ones of `tests.support.damage`.
"""

import contextlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from mqtool.errors import MqtoolError, NotAStoreError, UsageError
from mqtool.repair import Purge, apply, make_plan, undo
from mqtool.repair.outlook import Comparison, Outlook, compare, outlook
from mqtool.repair.plans import diagnose
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from mqtool.repair.runbooks.model import Case
from mqtool.repair.salvage import salvage
from mqtool.store import Message
from mqtool.store.store import open_store
from mqtool.store.topics import purgeable_topics
from mqtool.verify import State, verify
from tests.support.damage import CASES, MADE, damage_case
from tests.support.stores import tree_digest

WAYS = ("repair", "runbook", "salvage", "purge")
COPIES = ("RB-12", "RB-16", "RB-22")
"""Runbooks that copy a store or replay its messages, whatever its state: they repair nothing."""


@dataclass(frozen=True)
class Row:
    """What one way made of one store.

    Attributes:
        case: id of the damaged store.
        way: repair, runbook, salvage or purge.
        book: id of the runbook, else "".
        result: applied, refused, or why it ended otherwise.
        claims_success: it said that all is repaired.
        is_undone: the store is byte-identical after undo, or was not changed; None where there is nothing to undo.
        state: what verify says afterwards, "" where nothing was changed.
        known, present: messages that are known, and those whose intact records are there.
        before, after: messages that consumers get by a start; -1 where the broker does not start.
        gone: messages that are lost already.
        lost_after: messages that a start loses afterwards; None where nothing was changed or nothing starts.
        harm: more is lost than was lost already, and success is claimed or it got worse.
    """

    case: str
    way: str
    book: str
    result: str
    claims_success: bool
    is_undone: bool | None
    state: str
    known: int
    present: int
    before: int
    after: int
    gone: int
    lost_after: int | None
    harm: bool

    @property
    def is_violation(self) -> bool:
        """Whether it was carried out, and a start then loses more than what was lost already, or does not run."""
        more = self.known > 0 and (self.lost_after is None or self.lost_after > self.gone)
        return self.is_undone is False or self.harm or (self.result == "applied" and more)


def release_of_case(case: str) -> str:
    """Returns the release that wrote a case's base."""
    return case.partition("@")[2][:3]


_Kept = tuple[str, int, int, bytes, str | None]


def _without(root: Path, topic: str) -> set[_Kept]:
    """Topic, queue, queue offset, body and unique key of every intact message but those of a topic."""
    with open_store(root) as store:
        return {
            (one.topic, one.queue_id, one.queue_offset, one.body, one.unique_key)
            for one in store.messages()
            if isinstance(one, Message) and one.topic != topic
        }


class _Sweep:
    def __init__(self, case: str, root: Path, scratch: Path) -> None:
        self.case, self.root, self.scratch = case, root, scratch
        self.release = release_of_case(case)
        found = outlook(root, self.release)
        self.before = found if isinstance(found, Outlook) else None
        self.reason = "" if isinstance(found, Outlook) else found

    def rows(self, ways: Iterable[str]) -> Iterator[Row]:
        if "repair" in ways:
            yield self._repair()
        if "runbook" in ways:
            with contextlib.suppress(NotAStoreError):  # nothing is left that a runbook could look at
                yield from self._runbooks()
        if "salvage" in ways:
            yield self._salvage()
        if "purge" in ways:
            yield self._purge()

    def _row(
        self, way: str, book: str, result: str, *, success: bool, undone: bool | None, state: str, root: Path | None
    ) -> Row:
        if self.before is None:
            return Row(
                self.case, way, book, f"{result}; no prediction", success, undone, state, 0, 0, -1, -1, 0, None, False
            )
        after = outlook(root, self.release) if root is not None else None
        found = compare(self.before, after, self.release) if isinstance(after, Outlook) else None
        same = compare(self.before, self.before, self.release)
        gone = same.already_lost
        known = len(set(self.before.present.tolist()) | set(self.before.served.tolist())) + gone
        lost_after = found.lost_after if found else None
        served_after = -1 if lost_after is None else known - lost_after
        return Row(
            self.case,
            way,
            book,
            result,
            success,
            undone,
            state,
            known,
            known - gone,
            -1 if same.lost_before is None else known - same.lost_before,
            served_after,
            gone,
            lost_after,
            found is not None and self._harms(found, success=success),
        )

    def _harms(self, found: Comparison, *, success: bool) -> bool:
        return found.loses_messages or (success and not found.is_repaired)

    def _repair(self) -> Row:
        """Does what `mqtool repair` does: the plan, or with `-o` a new store where it says that there is none."""
        digest = tree_digest(self.root)
        try:
            diagnosis = diagnose(self.root, None, self.release)
            if diagnosis.plan is None:
                return self._salvage("repair") if diagnosis.reason else self._nothing("nothing to repair")
            done = apply(diagnosis.plan.plan, backup_acknowledged=True, verify_after=True)
        except MqtoolError as error:
            return self._nothing(f"refused: {error}", undone=tree_digest(self.root) == digest)
        assert done.verification is not None
        success = not any(finding.severity.is_serious for finding in done.verification.findings)
        state = done.verification.state.value
        row = self._row("repair", "", "applied", success=success, undone=True, state=state, root=self.root)
        undo(self.root)
        return Row(**{**asdict(row), "is_undone": tree_digest(self.root) == digest})

    def _nothing(self, result: str, *, undone: bool | None = None) -> Row:
        return self._row("repair", "", result, success=False, undone=undone, state="", root=None)

    def _runbooks(self) -> Iterator[Row]:
        with open_store(self.root) as store:
            case = Case(store, Request(broker=self.release))
            present = []
            for book in RUNBOOKS.values():
                try:
                    if book.id not in COPIES and book.detect(case).present:
                        present.append(book)
                except UsageError:
                    pass
        for book in present:
            yield self._runbook(book.id)

    def _runbook(self, book: str) -> Row:
        digest = tree_digest(self.root)
        target = self.scratch / f"{book}-made"
        request = Request(apply=True, backup_acknowledged=True, broker=self.release, to=target)
        try:
            found = run(RUNBOOKS[book], self.root, request)
        except MqtoolError as error:
            same = tree_digest(self.root) == digest
            return self._row("runbook", book, f"refused: {error}", success=False, undone=same, state="", root=None)
        made = found.new_directory
        if not found.applied:
            words = next((one.summary for one in found.steps if one.status == "refused"), found.steps[-1].summary)
            same = tree_digest(self.root) == digest
            return self._row("runbook", book, words, success=False, undone=same, state="", root=None)
        root = made or self.root
        with open_store(root) as store:
            state = verify(store).state.value
        row = self._row("runbook", book, "applied", success=bool(found.repaired), undone=True, state=state, root=root)
        if made is None:
            undo(self.root)
        else:
            shutil.rmtree(made)
        return Row(**{**asdict(row), "is_undone": tree_digest(self.root) == digest})

    def _salvage(self, way: str = "salvage") -> Row:
        digest, target = tree_digest(self.root), self.scratch / "salvaged"
        try:
            found = salvage(self.root, target)
        except MqtoolError as error:
            same = tree_digest(self.root) == digest
            return self._row(way, "", f"refused: {error}", success=False, undone=same, state="", root=None)
        success = found.is_complete and found.verify != State.CORRUPT.value
        row = self._row(way, "", "applied", success=success, undone=True, state=found.verify, root=target)
        shutil.rmtree(target)
        return Row(**{**asdict(row), "is_undone": tree_digest(self.root) == digest})

    def _purge(self) -> Row:
        """Purges the topic with the most messages; what is counted are the messages of all others."""
        digest = tree_digest(self.root)
        kept: set[_Kept] = set()
        try:
            with open_store(self.root) as store:
                counts = Counter(one.topic for one in store.messages() if isinstance(one, Message))
                topic = max(purgeable_topics([store], ["*"]), key=lambda name: counts[name])
            kept = _without(self.root, topic)
            plan = make_plan(self.root, Purge((topic,)))
            done = apply(plan, backup_acknowledged=True, verify_after=True)
        except MqtoolError as error:
            same = tree_digest(self.root) == digest
            return self._purged(f"refused: {error}", kept, None, state="", undone=same)
        left = _without(self.root, "")
        state = done.verification.state.value if done.verification else ""
        undo(self.root)
        return self._purged("applied", kept, left, state=state, undone=tree_digest(self.root) == digest)

    def _purged(self, result: str, kept: set[_Kept], left: set[_Kept] | None, *, state: str, undone: bool) -> Row:
        count, after = len(kept), -1 if left is None else len(left)
        lost = None if left is None else len(kept ^ left)
        numbers = (count, count, count, after, 0, lost)
        return Row(self.case, "purge", "", result, left is not None, undone, state, *numbers, harm=bool(lost))


def sweep(case: str, ways: Iterable[str] = WAYS) -> list[Row]:
    """Returns what every way makes of one damaged store."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        root = damage_case(case, Path(scratch))
        return list(_Sweep(case, root, Path(scratch)).rows(ways))


def table(rows: Sequence[Row]) -> str:
    """Returns the counts of all ways as Markdown; messages are those of the stores on which a way did something."""
    lines = [
        "| Way | Cases | Applied | Intact before | Served before | Served after | Violations | Undo byte-identical |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ways = sorted({(WAYS.index(row.way), row.book) for row in rows})
    for number, book in ways:
        mine = [row for row in rows if (WAYS.index(row.way), row.book) == (number, book)]
        done = [row for row in mine if row.result == "applied" and row.known]
        undone = [row for row in mine if row.is_undone is not None]
        lines.append(
            f"| {WAYS[number]} {book} | {len(mine)} | {len(done)} | {sum(row.present for row in done)} "
            f"| {sum(max(0, row.before) for row in done)} | {sum(max(0, row.after) for row in done)} "
            f"| {sum(row.is_violation for row in mine)} | {sum(row.is_undone is True for row in undone)} "
            f"of {len(undone)} |"
        )
    return "\n".join(lines)


def main(target: Path, parts: Sequence[str]) -> None:
    """Sweeps all cases whose ids contain some words; writes every row as JSON and prints the table."""
    first = ("4.9.7-clean", "5.5.0-crash")
    names = sorted(
        (name for name in CASES | MADE if all(part in name for part in parts)),
        key=lambda name: not name.endswith(first),
    )
    rows: list[Row] = []
    with ProcessPoolExecutor(2) as pool, target.open("w", encoding="utf-8") as out:
        for found in pool.map(sweep, names):
            rows += found
            out.writelines(json.dumps(asdict(row)) + "\n" for row in found)
            out.flush()
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
