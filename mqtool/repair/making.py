"""From a wish to a plan: everything is built aside once, outside of the store, and described."""

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mqtool.errors import RefusedError, UsageError
from mqtool.formats import file_names
from mqtool.repair.building import Built, build
from mqtool.repair.changes import Change
from mqtool.repair.fingerprints import fingerprint, result_of
from mqtool.repair.paths import HOME, inside
from mqtool.repair.plan import Plan, Read, Step
from mqtool.store.real_path import is_inside, real_path
from mqtool.store.store import Store, open_store

_BESIDE = 1 << 20
"""Bytes for the journal and directories."""

_PATH_KEYS = ("storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathRootDir")


def make_plan(
    store: "str | Path",
    changes: "Sequence[Change] | Change",
    *,
    config: "str | Path | Mapping[str, object] | None" = None,
    work_dir: Path | None = None,
) -> Plan:
    """Works out what changes would do to a store; the store is only read.

    Args:
        store: its root.
        changes: one or more, none about a file of another.
        config: broker.conf or its keys, as for `mqtool.open`.
        work_dir: takes what is built meanwhile, which can be as much as `Plan.space`; None for the system's own
            directory for such things.

    Raises:
        UsageError: a change makes no sense here, or there is nothing to change.
        UnsupportedFormatError: a kind of store that is not handled.
        RefusedError: an earlier change is neither finalized nor undone; a symbolic link is in the way.
        StoreError: a file cannot be read or written.
    """
    wanted = [changes] if not isinstance(changes, Sequence) else list(changes)
    root = real_path(Path(store))
    if (root / HOME).exists():
        raise RefusedError(
            "quarantine",
            "an earlier change is neither finalized nor undone: mqtool finalize or mqtool undo",
            root / HOME,
        )
    if work_dir is not None and is_inside(work_dir, root):
        raise UsageError(f"{work_dir}: expected a directory outside of {root}: planning writes nothing into a store")
    with open_store(root, config) as opened, tempfile.TemporaryDirectory(prefix="mqtool-plan-", dir=work_dir) as work:
        built = build(opened, wanted, Path(work))
        plan = _described(opened, wanted, built)
    if not plan.steps:
        raise UsageError(f"{root}: nothing to change: all is as it should be already")
    return plan


def _described(store: Store, wanted: Sequence[Change], built: Built) -> Plan:
    steps = steps_of(built)
    touched = {step.path for step in steps}
    reads = []
    for name, full in sorted(built.reads.items()):
        found = fingerprint(inside(store.path, name), full=full)
        if found is not None and name not in touched:
            reads.append(Read(name, found))
    return Plan(
        str(store.path),
        store.path.stat().st_ino,
        datetime.now(UTC).isoformat(timespec="seconds"),
        store.version.line or "unknown",
        _config_of(store),
        tuple(wanted),
        built.complete,
        tuple(built.notes),
        tuple(reads),
        steps,
        space_of(built, steps),
    )


def steps_of(built: Built) -> tuple[Step, ...]:
    """Returns what becomes of which file; files that are the same already are left out."""
    steps = []
    for name in sorted({*built.files, *built.removed}):
        before = fingerprint(inside(built.root, name), full=name not in built.unhashed)
        after = result_of(built.files[name]) if name in built.files else None
        if before is not None and after is not None and before.fits(after):
            continue
        if before is not None or after is not None:
            steps.append(Step(name, before, after))
    return tuple(steps)


def space_of(built: Built, steps: Sequence[Step]) -> int:
    """Returns the bytes that new files take up, holes not counted, and what goes beside them."""
    made = [built.files[step.path] for step in steps if step.after is not None]
    return sum(path.stat().st_blocks * 512 for path in made) + _BESIDE


def _config_of(store: Store) -> dict[str, str]:
    """Returns the configuration that was given, with paths that do not depend on where it lies."""
    values = dict(store.config.values)
    for key in _PATH_KEYS:
        if key in values:
            values[key] = ",".join(str(path.absolute()) for path in store.config.paths(key))
    return values


def barrier_directory(store: Store) -> str | None:
    """Returns the directory of segments in which a stray file keeps every broker from starting."""
    directories = [path for path in store.layout.commit_log_dirs if path.is_relative_to(store.path)]
    plain = store.path / file_names.COMMIT_LOG
    chosen = plain if plain in directories else next(iter(directories), None)
    return None if chosen is None else chosen.relative_to(store.path).as_posix()
