"""Makes a plan: runs the builder of each change once, outside of the store, and describes the result."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mqtool.commands import Opened
from mqtool.errors import NothingToChangeError, RefusedError, StoreLockedError, UsageError
from mqtool.formats import file_names
from mqtool.recovery.proof import read_once
from mqtool.repair.changes import Change, MoveOffsets, Purge, Trim, Truncate, verb_of
from mqtool.repair.derived import rebuild_index, rebuild_metadata, rebuild_queues, rebuild_timer, undelete
from mqtool.repair.files import fingerprint, is_left_out, result_of
from mqtool.repair.log_files import pad, record_losses, rename_segments, set_aside, trim, trimmed, truncate
from mqtool.repair.offsets import move_offsets
from mqtool.repair.outlook import IntendedLog, Outlook, Preview
from mqtool.repair.paths import HOME, earlier_change, inside
from mqtool.repair.plan import Forecast, Plan, Read, Step
from mqtool.repair.purge import purge, redact
from mqtool.repair.recovering import recover
from mqtool.repair.staged_files import Builder, StagedFiles, check_layout
from mqtool.store.config.broker_config import PATH_KEYS, BrokerConfig
from mqtool.store.groups.unread import ADVICE, combined, first_needed, needed_by_segment
from mqtool.store.lock import lock_holder
from mqtool.store.paths import is_inside, real_path
from mqtool.store.store import Store, open_store
from mqtool.store.topics import purgeable_topics

_BESIDE = 1 << 20
"""Bytes for the journal and directories."""

_NOT_MESSAGES = (
    f"{file_names.INDEX}/",
    f"{file_names.TIMER_LOG}/",
    file_names.TIMER_WHEEL,
    f"{file_names.CONFIG}/{file_names.CONSUMER_OFFSETS}",
    f"{file_names.CONFIG}/{file_names.LMQ_CONSUMER_OFFSETS}",
    file_names.KNOWN_LOSSES,
)
"""Files on which it does not depend which messages a start of the broker keeps."""
_BUILDERS: dict[str, Builder] = {
    "rebuild-consumequeue": rebuild_queues,
    "rebuild-index": rebuild_index,
    "rebuild-metadata": rebuild_metadata,
    "rebuild-timer": rebuild_timer,
    "undelete": undelete,
    "truncate": truncate,
    "redact": redact,
    "trim": trim,
    "purge": purge,
    "set-aside": set_aside,
    "rename-segments": rename_segments,
    "pad": pad,
    "record-losses": record_losses,
    "offsets": move_offsets,
    "recover": recover,
}
"""By the names of changes in plans."""


def make_plan(
    store: "str | Path",
    changes: "Sequence[Change] | Change",
    *,
    config: "str | Path | Mapping[str, object] | None" = None,
    work_dir: Path | None = None,
    broker: str | None = None,
    must_repair: bool = False,
    allow_unread: bool = True,
    inspect: Callable[[Path, BrokerConfig], None] | None = None,
) -> Plan:
    """Builds the plan of changes to a store. The store is only read.

    Args:
        store: its root.
        changes: one or more; no two concern the same file.
        config: broker.conf or its keys, as for `mqtool.open`.
        work_dir: for the built files, which may need as much space as `Plan.space`; None for the system's temporary
            directory.
        broker: release that will be started on the result; None for the one that wrote the store.
        must_repair: refuse changes after which a start still loses messages that the store holds, even if the
            changes make nothing worse.
        allow_unread: whether messages may be deleted that somebody still needs, see `store.groups.unread`.
        inspect: called with the root of a tree of links that looks like the store after the changes, and the broker
            keys to open it with; not called if no such tree can be made.

    Raises:
        UsageError: a change does not apply here.
        NothingToChangeError: every file is already as the plan would make it.
        UnsupportedFormatError: the kind of store is not supported.
        RefusedError: the undo data of an earlier change is still there; a symbolic link is in the way; a start
            would lose messages that the store still holds; or somebody needs what would be deleted.
        StoreError: a file cannot be read or written.
    """
    requested = [changes] if not isinstance(changes, Sequence) else list(changes)
    root = real_path(Path(store))
    if (root / HOME).exists():
        raise earlier_change(root / HOME)
    if work_dir is not None and is_inside(work_dir, root):
        raise UsageError(f"{work_dir}: expected a directory outside of {root}: planning writes nothing into a store")
    with open_store(root, config) as opened, tempfile.TemporaryDirectory(prefix="mqtool-plan-", dir=work_dir) as work:
        if not allow_unread:
            _check_needed(opened, requested)
        staged = build(opened, requested, Path(work))
        steps = steps_of(staged)
        forecast = forecast_of(opened, requested, staged, steps, broker, must_repair=must_repair)
        plan = _described(opened, requested, staged, steps, forecast, broker)
        if inspect is not None:
            _show(opened, staged, inspect)
    if not plan.steps:
        raise NothingToChangeError(
            f"{store}: nothing to change: every file already has the content that the plan would write"
        )
    return plan


def _check_needed(store: Store, requested: Sequence[Change]) -> None:
    """Raises RefusedError if somebody still needs messages that changes delete, or if that is unknown."""
    for change in requested:
        if not isinstance(change, Trim | Purge):
            continue
        names = purgeable_topics([store], change.topics) if isinstance(change, Purge) else None
        needed = needed_by_segment(store, names)
        if isinstance(change, Trim):
            needed = needed[: len(trimmed(store, change))]
        count, first = first_needed(store, needed, names)
        if first:
            words = combined([first, *needed[:count], *needed[count + 1 :]]).words
            less = f"--before {store.commit_log.segments[count].base} deletes only messages that nobody needs"
            hint = f"{less}; {ADVICE}" if count and names is None else ADVICE
            raise RefusedError("unread", f"of the messages to be deleted, {words}: {hint}", store.path)


def _show(store: Store, staged: StagedFiles, inspect: Callable[[Path, BrokerConfig], None]) -> None:
    with contextlib.suppress(OSError), Preview(store).tree(staged.files, staged.removed) as (root, config):
        inspect(root, config)


def forecast_of(
    store: Store,
    requested: Sequence[Change],
    staged: StagedFiles,
    steps: Sequence[Step],
    broker: str | None = None,
    *,
    must_repair: bool = False,
    planned: Forecast | None = None,
) -> Forecast | None:
    """Predicts what a start loses before and after changes; None if that is unknown, or no message depends on them.

    The forecast of a plan that is applied, `planned`, is returned if the start after the changes has the same outcome;
    the start before them is then not predicted again. Raises RefusedError if a start would lose messages that the store
    still holds; StoreLockedError if so, while a broker is running.
    """
    names = {step.path for step in steps}
    no_messages = all(name.startswith(_NOT_MESSAGES) for name in names)
    if not names or (no_messages and not must_repair):
        return None
    files = {name: path for name, path in staged.files.items() if name in names}
    preview = Preview(store, broker)
    with read_once():
        if planned is not None:
            after = preview.after(files, staged.removed)
            if isinstance(after, Outlook) and after.digest == planned.outcome:
                return planned
        if no_messages and isinstance(preview.before, Outlook) and preview.before.starts:
            comparison = preview.unchanged
        else:
            comparison = preview.compare(files, staged.removed, intended_log(store, requested, staged))
    if isinstance(comparison, str):
        staged.notes.append(f"what a start would lose afterwards is unknown: {comparison}")
        return None
    if comparison.loses_messages or (must_repair and not comparison.is_repaired):
        if lock_holder(store.path) not in (None, os.getpid()):
            reason = "a broker is running, and what a start loses depends on how it stops; stop it first, then plan"
            raise StoreLockedError(reason, store.path)
        raise comparison.refusal(Opened(store.path, store.config.file, broker))
    return comparison.forecast


def intended_log(store: Store, requested: Sequence[Change], staged: StagedFiles) -> IntendedLog:
    """Returns which part of the log the changes are meant to keep, and where."""
    log = store.commit_log
    start, end = 0, log.max_offset
    for change in requested:
        if isinstance(change, Trim):
            start = max([start, *(segment.end for segment in trimmed(store, change))])
        elif isinstance(change, Truncate):
            end = min(end, change.at)
    cut = {} if end == log.max_offset else {"end": end}
    return IntendedLog(start, **cut, purged=staged.purged, moves=staged.moves)


def _described(
    store: Store,
    requested: Sequence[Change],
    staged: StagedFiles,
    steps: tuple[Step, ...],
    forecast: Forecast | None,
    broker: str | None,
) -> Plan:
    touched = {step.path for step in steps}
    reads = []
    for name, full in sorted(staged.reads.items()):
        state = fingerprint(inside(store.path, name), full=full)
        if state is not None and name not in touched:
            reads.append(Read(name, state))
    fingerprints = [*((step.path, step.before) for step in steps), *((read.path, read.fingerprint) for read in reads)]
    staged.notes.extend(
        f"{name}: {state.size} bytes, more than any file of a broker: its contents are not read, so mqtool notices "
        "changes only by size and time"
        for name, state in fingerprints
        if state is not None and is_left_out(state)
    )
    return Plan(
        str(store.path),
        store.path.stat().st_ino,
        datetime.now(UTC).isoformat(timespec="seconds"),
        store.version.line or "unknown",
        _config_of(store),
        tuple(requested),
        staged.complete,
        tuple(dict.fromkeys(staged.notes)),  # queues and index name the same damage
        tuple(reads),
        steps,
        space_of(staged, steps),
        forecast,
        None if store.config.file is None else str(store.config.file.absolute()),
        broker,
    )


def steps_of(staged: StagedFiles) -> tuple[Step, ...]:
    """Returns the change of each file; files that do not change are left out."""
    steps = []
    for name in sorted({*staged.files, *staged.removed}):
        before = fingerprint(inside(staged.root, name), full=name not in staged.unhashed)
        after = result_of(staged.files[name]) if name in staged.files else None
        if before is not None and after is not None and before.sha256 is not None and before.fits(after):
            continue
        if before is not None or after is not None:
            steps.append(Step(name, before, after))
    return tuple(steps) if any(step.path != file_names.KNOWN_LOSSES for step in steps) else ()  # it repairs nothing


def space_of(staged: StagedFiles, steps: Sequence[Step]) -> int:
    """Returns the disk space in bytes that the new files need, holes not counted."""
    created = [staged.files[step.path] for step in steps if step.after is not None]
    return sum(path.stat().st_blocks * 512 for path in created) + _BESIDE


def _config_of(store: Store) -> dict[str, str]:
    """Returns the configuration that was given, with paths that do not depend on the working directory."""
    values = dict(store.config.values)
    for key in PATH_KEYS:
        if key in values:
            values[key] = ",".join(str(path.absolute()) for path in store.config.paths(key))
    return values


def barrier_directory(store: Store) -> str | None:
    """Returns a directory of segments in which a stray file keeps every broker from starting."""
    directories = [path for path in store.layout.commit_log_dirs if path.is_relative_to(store.path)]
    plain = store.path / file_names.COMMIT_LOG
    chosen = plain if plain in directories else next(iter(directories), None)
    return None if chosen is None else chosen.relative_to(store.path).as_posix()


def build(store: Store, requested: Sequence[Change], out: Path) -> StagedFiles:
    """Builds the result of changes in an empty directory, on the store's file system if files are to move into it."""
    if any(not isinstance(change, MoveOffsets) for change in requested):
        check_layout(store)
    if len(requested) > 1 and any(isinstance(change, Purge) for change in requested):
        raise UsageError("a purge moves every record of the log: apply it by itself")
    staged = StagedFiles(store.path)
    for number, change in enumerate(requested):
        own = out / str(number)
        own.mkdir()
        _BUILDERS[verb_of(change)](store, change, own, staged)
    for name in (*staged.files, *staged.removed):
        staged.reads.pop(name, None)
    return staged
