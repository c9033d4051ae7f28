"""Applies a plan: checks the gates, builds new files aside, swaps files in journalled steps, verifies the result."""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from mqtool.commands import Opened
from mqtool.errors import MqtoolError, RefusedError
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.repair import gates
from mqtool.repair.files import Places, RepairFiles, fingerprint, make_like_parent, remove_tree
from mqtool.repair.journal import APPLIED, BEGIN, DISCARD_UNDO, RESTORED, STEP, SWAP, UNDO, Begin, Journal
from mqtool.repair.paths import (
    BARRIER,
    BUILDING,
    HOME,
    QUARANTINE,
    STAGING,
    earlier_change,
    home_of,
    inside,
    parents_of,
)
from mqtool.repair.plan import Plan, Step
from mqtool.repair.plan_builder import barrier_directory, build, forecast_of, steps_of
from mqtool.repair.staged_files import StagedFiles
from mqtool.repair.undo_executor import changed_file, remove_barrier, restore_all
from mqtool.store.store import Store, open_store
from mqtool.verify import Options, Verification, verify

_WARNING = b"mqtool was interrupted while it changed this store: mqtool apply PLAN or mqtool undo STORE\n"


class ApplyResult(Struct, frozen=True):
    """Result of applying a plan."""

    store: Path  # root
    journal: Path | None  # path of the journal; None for a dry run
    quarantine: Path | None  # directory with the old files; None for a dry run
    steps: tuple[Step, ...]  # changes of files
    opened: Opened  # the store with the options of the plan, for printed commands
    already: bool = False  # whether the plan had been applied before; nothing was done now
    verification: Verification | None = None  # result of `verify` on the changed store; None if it was not requested

    @property
    def errors(self) -> int | None:
        """Number of errors in the changed store and of checks that could not run; None if it was not verified."""
        return None if self.verification is None else self.verification.serious


def apply(
    plan: Plan,
    *,
    backup_acknowledged: bool = False,
    verify_after: bool = True,
    dry_run: bool = False,
    files: RepairFiles | None = None,
    on_progress: OnProgress = ignore,
) -> ApplyResult:
    """Applies a plan, or finishes what an earlier call began.

    Every gate is checked before anything is written. New files are built below `.mqtool/` in the store; if one does
    not have the checksum that the plan states, nothing is changed. Old files move to the quarantine. If the system
    reports an error half way, everything is undone.

    Args:
        plan: from `make_plan` or `Plan.from_json`.
        backup_acknowledged: the user has confirmed that there is a backup, or that none is needed.
        verify_after: verify the whole store at the end.
        dry_run: check all gates but building and the lock, write nothing.
        files: the file system.
        on_progress: called with the number of swapped files, after each.

    Returns:
        The result. All of it is durable, and every file has the checksum that the plan states.

    Raises:
        RefusedError, StoreLockedError: a gate does not hold; nothing was changed.
        StoreError: the system reported an error; everything was undone, or the message states what is left to do.
    """
    used = files or RepairFiles()
    root = gates.store_of(plan)
    gates.check_places(root, plan)
    if dry_run:
        _check(root, plan, used)
        return ApplyResult(root, None, None, plan.steps, plan.opened_at(root))
    gates.check_backup(root, acknowledged=backup_acknowledged)
    gates.check_writable(root, [step.path for step in plan.steps])
    with gates.locked(root) as root_time:
        run = _Run(root, plan, used, root_time, on_progress)
        already = run.run()
    verification = _verified(root, plan) if verify_after else None
    return ApplyResult(root, run.journal.path, run.quarantine, plan.steps, plan.opened_at(root), already, verification)


def _verified(root: Path, plan: Plan) -> Verification:
    with open_store(root, plan.config) as store:
        return verify(store, Options(broker=plan.release))


def _check(root: Path, plan: Plan, files: RepairFiles) -> None:
    """Checks every gate that needs no writing."""
    if (root / HOME).exists():
        raise earlier_change(root / HOME)
    gates.check_writable(root, [step.path for step in plan.steps])
    gates.check_nobody_writes(root)
    gates.check_space(root, plan.space, files)
    check_fingerprints(root, plan)


def check_fingerprints(root: Path, plan: Plan) -> None:
    """Raises RefusedError if a file has changed since the plan was made."""
    name = changed_file(root, [(step.path, step.before) for step in plan.steps], plan)
    if name is not None:
        raise RefusedError(
            "plan-stale", "this file has changed since the plan was made; run `mqtool plan` again", root / name
        )


class _Run:
    """One call of `apply`, under the lock."""

    def __init__(self, root: Path, plan: Plan, files: RepairFiles, root_time: int, on_progress: OnProgress) -> None:
        self.journal = Journal(root, files)
        self.quarantine = Path()
        self._root = root
        self._plan = plan
        self._files = files
        self._root_time = root_time
        self._on_progress = on_progress

    def run(self) -> bool:
        """Does the remaining steps; returns whether none remained."""
        kind = self._state()
        gates.check_nobody_writes(self._root)
        if kind is None:
            self._begin()
        begin = self.journal.begin
        assert begin is not None
        places = Places(self._root, begin.time, self._files)
        self.quarantine = places.home / QUARANTINE / begin.time
        if kind in (None, BEGIN):
            try:
                if kind == BEGIN:
                    check_fingerprints(self._root, self._plan)
                self._build(places)
            except (OSError, MqtoolError):
                self._discard(begin)
                raise
        elif kind != APPLIED:
            self._check_unfinished(places)
        if kind != APPLIED:
            self._swap(begin, places)
        self._clear(begin, places)
        return kind == APPLIED

    def _state(self) -> str | None:
        """Returns the last step that an earlier call journalled, None if this is the first call."""
        home, journal = home_of(self._root), self.journal
        if journal.begin is None:
            leftovers = [name for name in (QUARANTINE, STAGING, BUILDING) if (home / name).exists()]
            if leftovers:
                raise RefusedError(
                    "quarantine",
                    "there is no journal that describes this; inspect it, then move it out of the store",
                    home / leftovers[0],
                )
            remove_tree(home, self._files)
            return None
        if journal.begin.plan.digest != self._plan.digest:
            raise earlier_change(home)
        if journal.kind in (UNDO, RESTORED, DISCARD_UNDO):
            begun = DISCARD_UNDO if journal.kind == DISCARD_UNDO else UNDO
            raise RefusedError("journal", f"{begun} was begun: let mqtool {begun} finish it", home)
        return journal.kind

    def _begin(self) -> None:
        """Checks the gates and writes the first line of the journal."""
        root, plan, files = self._root, self._plan, self._files
        gates.check_space(root, plan.space, files)
        check_fingerprints(root, plan)
        with open_store(root, plan.config) as store:
            directory = barrier_directory(store)
        barrier = None if directory is None else f"{directory}/{BARRIER}"
        names = [step.path for step in plan.steps] + ([barrier] if barrier else [])
        parents = sorted({parent for name in names for parent in parents_of(name)})
        times = {name: (root / name).stat().st_mtime_ns for name in parents if (root / name).exists()}
        times[""] = self._root_time
        created = tuple(name for name in parents if not (root / name).exists())
        time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        home = home_of(root)
        try:
            make_like_parent(home, files)
            self.journal.write_begin(Begin(plan, time, times, created, barrier))
        except OSError:
            remove_tree(home, files)
            files.set_times(root, self._root_time)
            raise

    def _build(self, places: Places) -> None:
        """Builds all new files and makes them durable in the staging directory."""
        building = places.home / BUILDING
        for left in (building, places.home / STAGING):
            remove_tree(left, self._files)
        self._files.make_directory(building)
        with open_store(self._root, self._plan.config) as store:
            staged = build(store, self._plan.changes, building)
            steps = self._compare(store, staged)
            known = self._plan.forecast
            forecast_of(store, self._plan.changes, staged, steps, known.release if known else None, planned=known)
        for step in self._plan.steps:
            if step.after is not None:
                self._stage(step, staged, places)
        for directory in sorted({places.staged(step).parent for step in self._plan.steps if step.after is not None}):
            self._files.sync_directory(directory)
        remove_tree(building, self._files)

    def _compare(self, store: Store, staged: StagedFiles) -> tuple[Step, ...]:
        steps = steps_of(staged)
        same = len(steps) == len(self._plan.steps) and all(
            step.path == other.path and step.after == other.after and step.action == other.action
            for step, other in zip(steps, self._plan.steps, strict=True)
        )
        if not same:
            raise RefusedError("plan-stale", "the result would differ from the plan; plan again", store.path)
        return steps

    def _stage(self, step: Step, staged: StagedFiles, places: Places) -> None:
        file, path, target = staged.files[step.path], places.staged(step), places.target(step)
        self._files.make_directory(path.parent)
        self._files.rename(file, path)
        if target.exists():
            self._files.imitate(path, target)
            if step.path in staged.keeps_time:
                self._files.set_times(path, target.stat().st_mtime_ns)
        else:
            self._files.own(path, self._root)
        self._files.sync(path)

    def _check_unfinished(self, places: Places) -> None:
        """Raises RefusedError if a file was written to since an earlier call began to swap files.

        A broker can have run if that call died before it created the barrier.
        """
        foreign = next((step.path for step in self._plan.steps if places.is_foreign(step)), None)
        name = foreign or changed_file(self._root, [], self._plan)
        if name is not None:
            raise RefusedError(
                "plan-stale",
                "this file has changed since the plan was made; run `mqtool undo`, then `mqtool plan` again",
                self._root / name,
            )

    def _discard(self, begin: Begin) -> None:
        """Removes mqtool's own files; no file of the store has been touched yet."""
        remove_tree(home_of(self._root), self._files)
        self._files.set_times(self._root, begin.directories[""])

    def _swap(self, begin: Begin, places: Places) -> None:
        """Swaps the files; undoes all swaps if the system reports an error."""
        try:
            self._steps(begin, places)
        except (OSError, MqtoolError) as error:
            try:
                restore_all(self._root, self.journal, begin, self._files, any_content=True)
                self._discard(begin)
            except OSError as second:
                raise RefusedError(
                    "half-way", f"{error}; undoing failed too ({second}): run mqtool undo", self._root
                ) from error
            raise

    def _steps(self, begin: Begin, places: Places) -> None:
        if self.journal.kind == BEGIN:
            self.journal.write(SWAP)
        if begin.barrier is not None:
            barrier = inside(self._root, begin.barrier)
            self._files.write_file(barrier, _WARNING)
            self._files.sync_directory(barrier.parent)
        for name in begin.created:
            make_like_parent(self._root / name, self._files)
        kept = {places.kept(step).parent for step in self._plan.steps if step.before is not None}
        for directory in sorted({self.quarantine, *kept}):  # even an empty one shows that files were swapped
            self._files.make_directory(directory)
        for number, step in enumerate(self._plan.steps):
            self.journal.write(STEP, step=number, action=step.action, path=step.path)
            places.swap_in(step)
            self._on_progress(number + 1, len(self._plan.steps))
        for step in self._plan.steps:
            state = fingerprint(places.target(step))
            if (step.after is None) != (state is None) or (step.after is not None and not step.after.fits(state)):
                raise RefusedError("result", "this file does not have the planned contents", places.target(step))
        self.journal.write(APPLIED)

    def _clear(self, begin: Begin, places: Places) -> None:
        remove_barrier(self._root, begin, self._files)
        remove_tree(places.home / STAGING, self._files)
