"""Undoes a change byte for byte, modification times included; or discards its undo data."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from mqtool.commands import Opened
from mqtool.errors import RefusedError
from mqtool.jobs.atomic import create_file, writing
from mqtool.repair import gates
from mqtool.repair.changes import Purge, SetAside, Trim
from mqtool.repair.files import Places, RepairFiles, fingerprint, remove_tree
from mqtool.repair.journal import (
    APPLIED,
    BEGIN,
    DISCARD_UNDO,
    RESTORED,
    STEP,
    UNDO,
    Begin,
    Journal,
    open_journal,
    root_of,
)
from mqtool.repair.log_files import sole_records
from mqtool.repair.paths import JOURNAL, QUARANTINE, home_of, inside
from mqtool.repair.plan import Fingerprint, Plan, Step
from mqtool.store.paths import is_inside
from mqtool.store.store import open_store


class UndoResult(Struct, frozen=True):
    """Result of an undo, or of discarding the undo data."""

    store: Path  # root
    files: int  # number of restored files, or of deleted old ones
    bytes: int  # disk space that was freed
    opened: Opened  # the store with the options of the change, for printed commands
    final: tuple[str, ...] = ()  # of discarding: which messages the change deleted


def undo(path: "str | Path", *, dry_run: bool = False, files: RepairFiles | None = None) -> UndoResult:
    """Undoes a finished or unfinished change, or finishes an undo, given the root of the store or its journal.

    The old files themselves move back to their places, with their times. No file of mqtool stays in the store but the
    lock file, if it was missing before. A dry run checks all gates and writes nothing.

    Raises:
        RefusedError: there is no journal, or it is incomplete or of another store; old files are already being
            deleted; or the store has been written to since, and those writes would be lost.
        StoreLockedError: another process holds the store.
        StoreError: the system reported an error; call again.
    """
    used = files or RepairFiles()
    root = root_of(Path(path))
    if dry_run:
        journal, begin = open_journal(root, used)
        _check_undo(root, journal, begin)
        return UndoResult(root, len(begin.plan.steps), 0, begin.plan.opened_at(root))
    with gates.locked(root), gates.exclusive(home_of(root)):
        if Journal(root, used).begin is None:
            return _clean_up(root, used)
        journal, begin = open_journal(root, used)
        _check_undo(root, journal, begin)
        if journal.kind != BEGIN:
            restore_all(root, journal, begin, used)
        freed = remove_own_files(root, begin, used)
    return UndoResult(root, len(begin.plan.steps), freed, begin.plan.opened_at(root))


def _clean_up(root: Path, files: RepairFiles) -> UndoResult:
    """Removes what a killed call left before its change began or after it ended."""
    home = home_of(root)
    if (home / QUARANTINE).exists():
        raise RefusedError(
            "journal",
            "expected a journal next to the quarantine; nothing was changed. Move the "
            "quarantine out of the store after inspecting it",
            home,
        )
    return UndoResult(root, 0, remove_tree(home, files), Opened(root))


def _check_undo(root: Path, journal: Journal, begin: Begin) -> None:
    if journal.kind == DISCARD_UNDO:
        raise RefusedError("journal", "the old files are already being deleted: run mqtool discard-undo", journal.path)
    gates.check_nobody_writes(root)
    gates.check_writable(root, [step.path for step in begin.plan.steps])
    if journal.kind == APPLIED:
        check_unchanged(root, begin)
    places = Places(root, begin.time, RepairFiles())
    for step in begin.plan.steps:
        places.target(step)
        if step.before is not None and journal.kind == APPLIED and not places.kept(step).is_file():
            raise RefusedError("quarantine", "an old file is missing; nothing was changed", places.kept(step))
    if journal.kind in (STEP, UNDO):
        _check_unfinished(places, begin.plan.steps)


def _check_unfinished(places: Places, steps: Sequence[Step]) -> None:
    """Raises RefusedError if an old file would replace one that was written to while the change was unfinished.

    No broker starts then, unless somebody deleted the barrier. If no old file is left, all that can still be undone
    are new files, and `Places.swap_out` keeps those that were written to.
    """
    if not any(places.kept(step).exists() for step in steps):
        return
    for step in steps:
        if places.is_swapped(step) and places.is_foreign(step):
            raise RefusedError(
                "written-since",
                "this file was written to while the change was unfinished; undoing would lose that. Move it out of the "
                "store to keep it, then run mqtool undo again",
                places.target(step),
            )


def check_unchanged(root: Path, begin: Begin) -> None:
    """Raises RefusedError if the store has been written to since a plan was applied."""
    name = changed_file(root, [(step.path, step.after) for step in begin.plan.steps], begin.plan)
    if name is not None:
        raise RefusedError(
            "written-since",
            "this file was written to after the change; undoing would lose that. Run mqtool discard-undo to keep "
            "the change and discard the undo data",
            root / name,
        )


def changed_file(root: Path, files: list[tuple[str, Fingerprint | None]], plan: Plan) -> str | None:
    """Returns the first file that differs from its fingerprint, None for a missing one, or that the plan read."""
    for name, expected in [*files, *((read.path, read.fingerprint) for read in plan.reads)]:
        state = fingerprint(inside(root, name), full=expected is None or expected.sha256 is not None)
        if (expected is None) != (state is None) or (expected is not None and not expected.fits(state)):
            return name
    return None


def restore_all(root: Path, journal: Journal, begin: Begin, files: RepairFiles, *, any_content: bool = False) -> None:
    """Moves every old file back to its place, then allows brokers to start; `any_content` as for `Places.swap_out`.

    The barrier is there from before the first file moves until the journal states that all are back. So a call after an
    interruption either finds that no broker has run since, or moves nothing.
    """
    if journal.kind != RESTORED:
        if begin.barrier is not None:
            barrier = inside(root, begin.barrier)
            if barrier.parent.is_dir() and not barrier.exists():
                files.write_file(barrier, b"mqtool undo STORE was interrupted: run it again\n")
                files.sync_directory(barrier.parent)
        if journal.kind != UNDO:
            journal.write(UNDO)
        places = Places(root, begin.time, files)
        for step in reversed(begin.plan.steps):
            places.swap_out(step, any_content=any_content)
        for name in reversed(begin.created):
            directory = root / name
            files.remove_directory(directory)
            if directory.parent.is_dir():
                files.sync_directory(directory.parent)
        journal.write(RESTORED)
    remove_barrier(root, begin, files)
    for name, time in sorted(begin.directories.items(), reverse=True):
        if name:
            files.set_times(root / name, time)


def remove_barrier(root: Path, begin: Begin, files: RepairFiles) -> None:
    """Allows brokers to start again."""
    if begin.barrier is not None:
        barrier = inside(root, begin.barrier)
        if barrier.exists():
            files.remove(barrier)
            files.sync_directory(barrier.parent)


def remove_own_files(root: Path, begin: Begin, files: RepairFiles) -> int:
    """Removes all files of mqtool from the store, the journal last; returns the freed bytes."""
    home = home_of(root)
    freed = 0
    for entry in sorted(home.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            freed += remove_tree(entry, files)
    files.remove(home / JOURNAL)
    freed += remove_tree(home, files)
    files.sync_directory(root)
    files.set_times(root, begin.directories[""])
    return freed


def discard_undo(
    path: "str | Path", *, keep_journal: Path | None = None, dry_run: bool = False, files: RepairFiles | None = None
) -> UndoResult:
    """Discards the undo data of a change and deletes all files of mqtool. A broker may be running meanwhile.

    The journal is kept in a new file outside of the store if one is named. A dry run states in `bytes` what would be
    freed.

    Raises:
        RefusedError: there is no journal, or it is incomplete or of another store; the change is not finished; or a
            file that was set aside holds records that the store does not.
        StoreLockedError: another mqtool process is undoing the change or discarding its undo data.
        StoreError: the journal cannot be kept.
    """
    used = files or RepairFiles()
    root = root_of(Path(path))
    with gates.exclusive(home_of(root)):
        if Journal(root, used).begin is None and not dry_run:
            return _clean_up(root, used)
        return _discard_undo(root, keep_journal, used, dry_run=dry_run)


def _discard_undo(root: Path, keep_journal: Path | None, used: RepairFiles, *, dry_run: bool) -> UndoResult:
    journal, begin = open_journal(root, used)
    if journal.kind not in (APPLIED, DISCARD_UNDO):
        todo = "mqtool undo" if journal.kind in (UNDO, RESTORED) else "mqtool apply PLAN or mqtool undo"
        raise RefusedError("journal", f"the change is not finished: {todo}", journal.path)
    _check_sole_records(root, journal, begin)
    deletes = any(isinstance(change, Trim | Purge) for change in begin.plan.changes)
    final = begin.plan.notes if deletes else ()
    if dry_run:
        kept = [path for path in (home_of(root) / QUARANTINE).rglob("*") if path.is_file()]
        freed = sum(path.stat().st_blocks * 512 for path in kept)
        return UndoResult(root, len(kept), freed, begin.plan.opened_at(root), final)
    if keep_journal is not None:
        _keep(journal.path, keep_journal, root)
    count = sum(1 for step in begin.plan.steps if step.before is not None)
    if journal.kind != DISCARD_UNDO:
        journal.write(DISCARD_UNDO)
    remove_barrier(root, begin, used)
    time = root.stat().st_mtime_ns
    freed = remove_own_files(root, begin, used)
    used.set_times(root, time)
    return UndoResult(root, count, freed, begin.plan.opened_at(root), final)


def _check_sole_records(root: Path, journal: Journal, begin: Begin) -> None:
    """Raises RefusedError if a file that was set aside holds records that the store does not."""
    if journal.kind == DISCARD_UNDO:
        return
    names = {name for change in begin.plan.changes if isinstance(change, SetAside) for name in change.files}
    places = Places(root, begin.time, RepairFiles())
    kept = [path for step in begin.plan.steps if step.path in names and (path := places.kept(step)).is_file()]
    if not kept:
        return
    with open_store(root, begin.plan.config) as store:
        for path in kept:
            records = sole_records(store, path)
            if records is not None:
                raise RefusedError(
                    "sole-records",
                    f"this file holds {records}, and deleting it would lose them: run mqtool undo, and mqtool verify "
                    "for the repair; or move the file out of the store to keep it, then run mqtool discard-undo again",
                    path,
                )


def _keep(journal: Path, target: Path, root: Path) -> None:
    if is_inside(target, root):
        raise RefusedError("path", f"expected a file outside of the store {root}", target)
    with writing(target):
        create_file(target, journal.read_bytes())
