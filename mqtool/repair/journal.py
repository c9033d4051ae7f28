"""The journal of one change: each step is recorded durably before it is taken.

It is JSON Lines. Each line has a checksum over itself and the line before, so that a torn, edited or shuffled
journal is recognised. An incomplete last line was being written when the machine stopped; the step that it announces
was not begun. Docs page: docs/repair.md.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from mqtool.errors import NotAStoreError, RefusedError, StoreError
from mqtool.repair.files import RepairFiles
from mqtool.repair.paths import BARRIER, HOME, JOURNAL, check_name, home_of, inside
from mqtool.repair.plan import LARGEST, Plan
from mqtool.store.files import read_file
from mqtool.store.paths import real_path

SCHEMA = "mqtool.journal"
SCHEMA_VERSION = 1
_TIME = re.compile(r"\d{8}T\d{6}Z")
_SUM = 16

BEGIN = "begin"
"""A plan is going to be carried out; everything is built aside after this."""
SWAP = "swap"
"""All is built and on disk: files begin to change places."""
STEP = "step"
"""One file is about to change places."""
APPLIED = "applied"
"""All is done and checked; a broker may start."""
UNDO = "undo"
"""Files begin to go back; there is no way but back from here."""
RESTORED = "restored"
"""All files are back; only files of mqtool are still to be deleted, and a broker may start."""
DISCARD_UNDO = "discard-undo"
"""Deletion of the old files begins; from here on the change cannot be undone."""

_KINDS = (BEGIN, SWAP, STEP, APPLIED, UNDO, RESTORED, DISCARD_UNDO)


class Begin(Struct, frozen=True):
    """The first line."""

    plan: Plan  # the plan that is applied
    time: str  # names the quarantine, e.g. "20261121T031500Z".
    # Modification times of the directories that will change, by path relative to the root; "" is the root.
    directories: dict[str, int]
    created: tuple[str, ...]  # directories that will be created, parents first
    barrier: str | None  # file that keeps a broker from starting during the swap; None if there is none


class Journal:
    """The journal of a store."""

    def __init__(self, root: Path, files: RepairFiles) -> None:
        """Reads the journal, if there is one; raises RefusedError if it is not a journal, or incomplete."""
        self.path = home_of(root) / JOURNAL
        self.begin: Begin | None = None  # the first line; None if it is missing or incomplete
        self.kind: str | None = None  # kind of the last complete line; None if there is none
        self._files = files
        self._chain = ""
        self._count = 0
        self._whole = 0
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        try:
            data = read_file(self.path, LARGEST)
        except StoreError as error:
            raise RefusedError("journal", f"cannot be read: {error.reason}", self.path) from error
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                if data.endswith(b"\n"):
                    raise self._broken("a line has no end")
                break
            self._take(line)
            self._whole += len(line)

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            stated = entry.pop("sum")
            number, kind = entry["n"], entry["kind"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._broken("is not a line of a journal") from error
        if stated != _sum(self._chain, entry):
            raise self._broken("has changed since it was written: its checksum differs")
        if number != self._count or kind not in _KINDS or (kind == BEGIN) != (number == 0):
            raise self._broken("is out of order")
        if kind == BEGIN:
            self.begin = self._begin(entry)
        self.kind, self._chain, self._count = kind, stated, number + 1

    def _broken(self, what: str) -> RefusedError:
        after = "nothing was changed. Keep the quarantine, and restore the journal from a backup"
        return RefusedError("journal", f"line {self._count + 1} {what}; {after}", self.path)

    def _begin(self, document: dict[str, Any]) -> Begin:
        try:
            if document["schema"] != SCHEMA or document["schema_version"] != SCHEMA_VERSION:
                raise self._broken("was written by an unknown release of mqtool")
            plan = Plan.from_json(json.dumps(document["plan"]), self.path)
            directories = {_directory(name, self.path): int(time) for name, time in document["directories"].items()}
            created = tuple(check_name(name, self.path) for name in document["made"])
            barrier = None if document["barrier"] is None else check_name(document["barrier"], self.path)
            proper = bool(_TIME.fullmatch(document["time"])) and (barrier is None or Path(barrier).name == BARRIER)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._broken(f"has no {error}") from error
        if not proper or "" not in directories:
            raise self._broken("has no valid time, barrier or root")
        return Begin(plan, document["time"], directories, created, barrier)

    def write_begin(self, begin: Begin) -> None:
        """Writes the first line, durably."""
        self.write(
            BEGIN,
            schema=SCHEMA,
            schema_version=SCHEMA_VERSION,
            time=begin.time,
            directories=begin.directories,
            made=list(begin.created),
            barrier=begin.barrier,
            plan=json.loads(begin.plan.to_json()),
        )
        self.begin = begin

    def write(self, kind: str, **values: Any) -> None:
        """Writes a line, durably."""
        if self.path.exists() and self.path.stat().st_size > self._whole:
            self._files.cut(self.path, self._whole)
        entry = {"n": self._count, "kind": kind, **values}
        total = _sum(self._chain, entry)
        line = json.dumps({**entry, "sum": total}).encode() + b"\n"
        is_new = self._whole == 0
        self._files.append(self.path, line)
        if is_new:
            self._files.sync_directory(self.path.parent)
        self.kind, self._chain, self._count, self._whole = kind, total, self._count + 1, self._whole + len(line)


def _directory(name: object, where: Path) -> str:
    return "" if name == "" else check_name(name, where)


def _sum(chain: str, document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{chain}{text}".encode()).hexdigest()[:_SUM]


def root_of(path: Path) -> Path:
    """Returns the root of a store with a change on record, given the root or the journal."""
    path = Path(path)
    if path.name == JOURNAL and path.parent.name == HOME:
        path = path.parent.parent
    root = real_path(path)
    if not root.is_dir():
        raise NotAStoreError("no such directory; give the root of the store that was changed", path)
    if not (root / HOME).is_dir():
        raise RefusedError("journal", f"expected {HOME}/{JOURNAL}: this store has no recorded change", root)
    return root


def open_journal(root: Path, files: RepairFiles) -> tuple[Journal, Begin]:
    """Returns the journal of a store with a change; refuses a missing or incomplete one, and one of another store."""
    journal = Journal(root, files)
    if journal.begin is None:
        raise RefusedError("journal", "expected a journal, found none that records a change", journal.path)
    begin = journal.begin
    if begin.plan.inode != root.stat().st_ino:  # a directory that was moved keeps its number, a copy has another one
        reason = (
            f"the change was made to {begin.plan.store}, but this is another directory: undo it there. If this is a "
            f"copy to keep as it is, move {home_of(root)} out of it"
        )
        raise RefusedError("store", reason, journal.path)
    for name in (*(step.path for step in begin.plan.steps), *([begin.barrier] if begin.barrier else [])):
        inside(root, name)
    for name in (*begin.created, *begin.directories):
        inside(root, f"{name}/{JOURNAL}" if name else JOURNAL)
    return journal, begin


def is_unfinished(root: Path) -> bool:
    """Whether files of a store are partly those from before a change and partly those from after it.

    Raises RefusedError if there is a journal that cannot be read.
    """
    return _is_unfinished(root, Journal(real_path(root), RepairFiles()))


def _is_unfinished(root: Path, journal: Journal) -> bool:
    if journal.begin is None:
        return False
    barrier = journal.begin.barrier
    return journal.kind in (SWAP, STEP, UNDO) or (barrier is not None and (root / barrier).exists())


def ending_command(root: Path) -> str:
    """Returns the command that ends the change on record, `undo` or `discard-undo`; "" if there is none.

    Raises RefusedError if there is a journal that cannot be read.
    """
    if not home_of(real_path(root)).exists():
        return ""
    journal = Journal(real_path(root), RepairFiles())
    is_done = journal.kind == DISCARD_UNDO or (journal.kind == APPLIED and not _is_unfinished(root, journal))
    return "discard-undo" if is_done else "undo"


def check_finished(root: Path) -> None:
    """Raises RefusedError if a change of a store is unfinished, or its journal cannot be read."""
    if is_unfinished(root):
        raise RefusedError(
            "unfinished",
            "a change of this store was interrupted, so old and new files are mixed: finish it with mqtool apply PLAN, "
            "or run mqtool undo; if neither is possible, move .mqtool out of the store",
            root,
        )
