"""Publishes an export: all files of a run or none, however the run ends.

```
_mqtool/staging-00000002-…/…    tasks write here; nobody reads it; each run has its own
_mqtool/commit-00000002.json    the commit point: once this file exists, the run is committed
messages/…                      files are moved here afterwards; then files that the commit undoes are removed
```

A run that ends before the commit point leaves only staging files. A later run takes over finished tasks, see
`task_result`, and removes the rest. A run that ends after it leaves files to be moved, which the next run moves first.
Both are safe to repeat. Readers ignore names that begin with `_`. While files are being moved, a reader may see some of
them.

A lock excludes other runs where the target has locks. Elsewhere two runs may work at once. The one that writes the
manifest of a number first commits; the other one fails. A run removes staging files of others, and finished tasks of
its own, only if no manifest can refer to them any more; so a run takes over tasks for a commit of its own number only.
"""

import json
import posixpath
import re
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import ConfigFileError, ExportError, StoreLockedError, WorkerError
from mqtool.export.parquet import FileEntry
from mqtool.export.schema import Table
from mqtool.export.state import State, parse_state, state_from_json
from mqtool.export.target import AT_ONCE, Target, target_of
from mqtool.jobs.pool import thread_pool
from mqtool.values import asdict

META = "_mqtool"
_COMMIT = re.compile(r"commit-(\d{8})\.json")
_STAGING = re.compile(r"staging-(\d{8})(-.*)?")


class Manifest(Struct, frozen=True):
    """One commit."""

    state: State  # after the commit
    incremental: bool  # whether later runs may add to it
    stores: dict[str, dict[str, Any]]  # by broker, the physical offsets that it covers
    files: list[FileEntry] = field(default_factory=list)  # that it publishes
    totals: dict[str, Any] = field(default_factory=dict)  # rows, by table, topic and class; damaged bytes
    removed: list[str] = field(default_factory=list)  # paths of files of earlier commits that it undoes

    @property
    def name(self) -> str:
        """Path of the manifest file."""
        return commit_name(self.state.sequence)

    @property
    def stagings(self) -> set[str]:
        """Names of the directories from which the files are moved: that of the run, and those of earlier runs."""
        return {entry.staged.split("/")[1] for entry in self.files}

    def to_bytes(self) -> bytes:
        """Returns the contents of the manifest file."""
        data = {
            "state": self.state.to_json(),
            "incremental": self.incremental,
            "stores": self.stores,
            "totals": self.totals,
            "removed": self.removed,
            "files": [asdict(entry) for entry in self.files],
        }
        return json.dumps(data, indent=1).encode()


def commit_name(sequence: int) -> str:
    """Returns the path of a commit's manifest."""
    return f"{META}/commit-{sequence:08d}.json"


def new_staging(sequence: int) -> str:
    """Returns the path of a new directory for the files of a commit until it publishes them."""
    return f"{META}/staging-{sequence:08d}-{secrets.token_hex(4)}"


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Parses a manifest; raises ConfigFileError if it is not valid."""
    try:
        document = json.loads(data)
        files = [FileEntry(**entry) for entry in document["files"]]
        state = state_from_json(document["state"], where)
        removed = [str(path) for path in document["removed"]]
        return Manifest(
            state, bool(document["incremental"]), dict(document["stores"]), files, dict(document["totals"]), removed
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConfigFileError(
            f"is not the manifest of an export: {error!r}; choose another directory", where
        ) from error


def all_manifests(target: Target, after: int = 0) -> list[Manifest]:
    """Returns the commits of an export directory, those after a sequence number, oldest first."""
    names = [name for name in _commit_names(target) if int(_COMMIT.sub(r"\1", name)) > after]
    with thread_pool(AT_ONCE) as (threads, _):
        return list(threads.map(partial(_manifest, target), names))


class MessageCommit(Struct, frozen=True):
    """What a commit did to the table of messages."""

    manifest: Manifest  # of the commit
    files: list[FileEntry]  # that it published and no later commit undoes
    removed: list[str]  # paths of files of earlier commits that it undoes


def message_commits(target: Target, after: int = 0) -> list[MessageCommit]:
    """Returns the commits of an export directory, those after a sequence number, oldest first."""
    manifests = all_manifests(target, after)
    removed = {path for manifest in manifests for path in manifest.removed}
    return [
        MessageCommit(
            manifest,
            [entry for entry in manifest.files if entry.table == Table.MESSAGES and entry.path not in removed],
            [path for path in manifest.removed if path.startswith(f"{Table.MESSAGES}/")],
        )
        for manifest in manifests
    ]


def last_manifest(target: Target) -> Manifest | None:
    """Returns the newest commit of an export directory; None if there is none."""
    names = _commit_names(target)
    return _manifest(target, names[-1]) if names else None


def _commit_names(target: Target) -> list[str]:
    return [name for name in target.names(META) if _COMMIT.fullmatch(name)]


def _manifest(target: Target, name: str) -> Manifest:
    return parse_manifest(target.read(f"{META}/{name}") or b"", f"{target.url}/{META}/{name}")


def recover(target: Target, update_table: Callable[[], object] = lambda: None) -> tuple[Manifest | None, bool]:
    """Brings an export directory to the state after its last commit.

    For `update_table` see `publish`. Returns the last commit, or None; and whether its publication had to be completed.
    Raises ExportError if the directory contains something other than an export.
    """
    last = last_manifest(target)
    finished = last is not None and not is_published(target, last)
    if last is not None and finished:
        publish(target, last, update_table)
    _remove_staging(target, 0 if last is None else last.state.sequence)
    strangers = [name for name in target.names("") if name != META]
    if last is None and strangers:
        raise ExportError(f"contains {strangers[0]!r} and no export; give a new or empty directory", target.url)
    return last, finished


def is_published(target: Target, manifest: Manifest) -> bool:
    """Whether all files of the last commit are in place, and those that it undoes are removed."""
    if not manifest.stagings.isdisjoint(target.names(META)):
        return False
    directories = {posixpath.dirname(path) for path in manifest.removed}
    present = {f"{directory}/{name}" for directory in directories for name in target.names(directory)}
    return present.isdisjoint(manifest.removed)


def stagings(target: Target) -> dict[str, int]:
    """Returns the directories of staging files, with the sequence number of the commit that they are for."""
    matches = {f"{META}/{name}": _STAGING.fullmatch(name) for name in target.names(META)}
    return {path: int(match[1]) for path, match in matches.items() if match is not None}


def is_taken_over(target: Target, staging: str, sequence: int) -> bool:
    """Whether the commit of this number, which another run has made, publishes files of a run's staging directory."""
    name = posixpath.basename(commit_name(sequence))
    return name in _commit_names(target) and posixpath.basename(staging) in _manifest(target, name).stagings


def _remove_staging(target: Target, last: int) -> None:
    """Removes the staging files of commits up to a sequence number."""
    for path, sequence in stagings(target).items():
        if sequence <= last:
            target.remove(path)


def publish(target: Target, manifest: Manifest, update_table: Callable[[], object]) -> None:
    """Moves a commit's files into place, and removes the files that it undoes. Safe to repeat.

    `update_table` brings a Delta or Iceberg table, if there is one, up to the commit; it refers to the files that are
    removed until then. Raises ExportError if a file of the commit is lost.
    """
    if manifest.files and (lost := target.move({entry.staged: entry.path for entry in manifest.files})):
        raise ExportError(
            f"{lost[0]}: the last commit contains this file, but it is neither staged nor published, so its rows are "
            "lost; export into a new directory, with a new state",
            target.url,
        )
    update_table()
    for path in manifest.removed:
        target.remove(path)
    _remove_staging(target, manifest.state.sequence)


def commit(
    target: Target,
    manifest: Manifest,
    last: Manifest | None,
    state_url: str | None,
    update_table: Callable[[], object],
) -> None:
    """Commits a run: writes the manifest, moves the files, saves the state, in this order.

    `last` is the commit of the target when the run began, if there was one; `state_url` is where to save the state,
    None for an export that is not incremental. Raises, before anything is published, WorkerError if a file that a task
    reported is not in the target, StoreLockedError if another run has committed since then.
    """
    newest = _commit_names(target)[-1:]
    is_newest = newest == ([] if last is None else [posixpath.basename(last.name)])
    if is_newest:  # otherwise that run may have published files of this one
        _require_staged(target, manifest)
    if not is_newest or not target.write_new(manifest.name, manifest.to_bytes()):
        raise StoreLockedError("another export has committed here since this one began; run this one again", target.url)
    publish(target, manifest, update_table)
    if state_url is not None:
        save_state(state_url, manifest.state)


def _require_staged(target: Target, manifest: Manifest) -> None:
    """Checks that this process finds what the tasks wrote, because they may have run on machines with other disks."""
    sizes = target.sizes(META) if manifest.files else {}
    missing = [entry for entry in manifest.files if sizes.get(entry.staged) != entry.size]
    if missing:
        size = sizes.get(missing[0].staged)
        raise WorkerError(
            f"{target.url}: {len(missing)} of {len(manifest.files)} files that the tasks wrote are not here: expected "
            f"{missing[0].size} bytes in {missing[0].staged}, found {'no file' if size is None else size}. Nothing was "
            "published; all workers must reach the target under this path, on one file system"
        )


def load_state(url: str) -> State | None:
    """Returns the state in a file; None if the file does not exist."""
    target, name = _state_file(url)
    data = target.read(name)
    return None if data is None else parse_state(data, url)


def save_state(url: str, state: State) -> None:
    """Replaces the state in a file."""
    target, name = _state_file(url)
    target.replace(name, state.to_bytes())


def _state_file(url: str) -> tuple[Target, str]:
    directory, _, name = url.rpartition("/")
    return target_of(directory or ("/" if url.startswith("/") else ".")), name


def starting_state(last: Manifest | None, saved: State | None, state_url: str | None, url: str) -> State:
    """Returns the state from which a run continues: that of the directory's last commit, or a new one.

    The commit is written first, so a run that ended between the two is not lost. If the state file names a later
    commit, the directory is an older copy and lacks rows. They are exported again, under a later sequence number: a
    table's catalogue outside the directory may know the lost one. Raises ExportError if there is an export but no state
    was requested, or the state is that of another export, or of one that is not there.
    """
    if last is None and saved is not None:
        raise ExportError(
            f"contains no export, but the state {state_url} continues one of {saved.sequence} run(s); name its "
            "directory, which keeps _mqtool/, or export everything again with another --state",
            url,
        )
    if last is None:
        return State(secrets.token_hex(8), 0, {})
    if state_url is None:
        raise ExportError(
            "contains an export already; add --state to append new messages to it, or choose another directory", url
        )
    if not last.incremental:
        raise ExportError(
            "contains an export that was written without --state and cannot be extended; choose another directory", url
        )
    if saved is not None and saved.export_id != last.state.export_id:
        raise ExportError(
            f"does not belong to the state {state_url}; give the state of this export, or a new directory", url
        )
    sequence = last.state.sequence if saved is None else max(saved.sequence, last.state.sequence)
    return replace(last.state, sequence=sequence)


def check_shape(state: State, shape: dict[str, Any], url: str) -> None:
    """Raises ExportError if something changed that must be the same in all runs of one export.

    Columns may be added, by a newer release or on request: earlier files lack them, and readers get null.
    """
    for name, value in shape.items():
        was = state.shape.get(name) if state.shape else value
        if was == value or (name == "columns" and set(was or ()) < set(value)):
            continue
        raise ExportError(f"{name} was {was!r} and is now {value!r}; export to a new directory", url)


def totals_of(files: Iterable[FileEntry]) -> dict[str, int]:
    """Returns the number of rows of each table."""
    totals = dict.fromkeys((str(table) for table in Table), 0)
    for entry in files:
        totals[entry.table] += entry.rows
    return totals
