"""Creates a backup in an order that recovery tolerates: only new pieces are stored, the manifest is written last.

References are copied before what they refer to, so that nothing in the copy points past the end of its log:

1. The checkpoint: the older it is, the earlier recovery starts scanning, and dispatching twice does no harm.
2. Progress of consumers, delays, timers and pops, in files or in a RocksDB: one that is too old delivers twice, one
   that is too new loses messages. `config/timercheck` and `rocksdbstore` state how far the timer has delivered.
   `kvStore` is copied after the offsets of groups, which pass over popped messages: it has their records. A message
   that is delivered again is written to the log before its record is deleted.
3. Index, queues and everything else: recovery dispatches what is missing in them from the checkpoint on (R8 of
   docs/recovery.md).
4. The end of the log is fixed. Records appended later are not part of the backup.
5. The log, up to the fixed end.
6. Topics and groups: a table that is too new does no harm, one that is too old would hide a topic.

A RocksDB is copied as one state: its manifest names the files that belong together, so it is copied again if the
manifest or the set of files changes meanwhile.

Sources: DefaultMessageStore.recover, CommitLog.recoverAbnormally, ConsumeQueue.truncateDirtyLogicFiles (4.9.7,
5.5.0); TimerMessageStore.recover, TimerMessageRocksDBStore, PopConsumerService.revive (5.5.0).
"""

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from mqtool.errors import RefusedError, StoreError, UnsupportedFormatError, UsageError
from mqtool.formats import file_names
from mqtool.jobs.atomic import claim_mark, create_mark, in_turn, sync_directory, writing
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.repair.backup import snapshots
from mqtool.repair.backup.snapshots import PIECE, FileEntry, Piece, Pieces, Snapshot
from mqtool.repair.journal import check_finished
from mqtool.repair.paths import parents_of
from mqtool.store.config.broker_config import ConfigSource
from mqtool.store.config.metadata import OFFSET_DATABASE, SINGLE_DATABASE
from mqtool.store.layout import files_outside
from mqtool.store.lock import lock_holder
from mqtool.store.paths import is_inside, owner_of, real_path, require_permission
from mqtool.store.queues.rocksdb_queues import has_queue_database
from mqtool.store.store import Store, open_store
from mqtool.store.waiting.popped import POP_DATABASE

_PROGRESS = (
    file_names.CONSUMER_OFFSETS,
    file_names.LMQ_CONSUMER_OFFSETS,
    file_names.DELAY_OFFSETS,
    file_names.TIMER_CHECKPOINT,
)
_PROGRESS_DATABASES = (
    f"{file_names.CONFIG}/{OFFSET_DATABASE}/",
    f"{file_names.CONFIG}/{SINGLE_DATABASE}/",
    f"{POP_DATABASE}/",
    f"{file_names.ROCKSDB_STORE}/",
)
"""RocksDBs with progress, in copying order. `config/metadata` has topics and groups too: a topic that is created during
the copy may be missing in it, which does less harm than a position past the end of its queue."""
_LAST = (file_names.TOPICS, file_names.SUBSCRIPTION_GROUPS)
_LEFT_OUT = (file_names.LOCK, file_names.ASIDE)
_SECRET = f"{file_names.CONFIG}/{file_names.USERS}/"
_ATTEMPTS = 10
"""Copies of a RocksDB; it changes its set of files once in many megabytes of writes."""


class Listing(Struct, frozen=True):
    """The files of a store, grouped by when they are copied. Paths are relative to the root."""

    first: tuple[str, ...]  # checkpoint and progress
    derived: tuple[str, ...]  # files with references to the log, and everything else
    log: tuple[str, ...]  # segments of the CommitLog, after its end is fixed
    last: tuple[str, ...]  # after the log
    directories: tuple[str, ...]  # directories without a file


def list_files(
    root: Path, log_directories: Iterable[str] = (file_names.COMMIT_LOG,), *, redact: bool = False
) -> Listing:
    """Lists the files of a store in copying order; `redact` leaves out users, whose passwords are stored in plain text.

    Raises RefusedError if the tree contains a symbolic link, a socket or another special file.
    """
    logs = tuple(f"{directory}/" for directory in log_directories)
    phases: dict[int, list[str]] = {phase: [] for phase in range(4)}
    directories: list[str] = []
    for name, is_directory in _walk(root, ""):
        if redact and f"{name}/".startswith(_SECRET):
            continue
        if is_directory:
            directories.append(name)
        else:
            phases[_phase(name, logs)].append(name)
    used = {parent for names in phases.values() for name in names for parent in parents_of(name)}
    empty = tuple(name for name in directories if name not in used)
    first = sorted(phases[0], key=lambda name: (name != file_names.CHECKPOINT, name))
    derived, log, last = (tuple(sorted(phases[phase])) for phase in (1, 2, 3))
    return Listing(tuple(first), derived, log, last, empty)


class DatabaseState(Struct, frozen=True):
    """A state of an open RocksDB. Only its newest write-ahead log can grow without changing the state."""

    names: tuple[str, ...]  # files below the root in copying order: manifest and tables before the write-ahead logs
    current: bytes  # content of CURRENT, which names the manifest
    manifests: tuple[int, ...]  # content of each manifest; every flush and compaction appends to it


_CURRENT = "CURRENT"
_MANIFEST = "MANIFEST-"
_WAL = ".log"
_OWN_LOG = "LOG"
"""RocksDB's text log; it says nothing about the data."""


def databases_of(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the directories of all RocksDBs among the files of a store."""
    return tuple(sorted({name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == _CURRENT}))


def state_of(root: Path, directory: str) -> DatabaseState:
    """Returns the current state of a RocksDB; raises OSError if a file cannot be read, or was removed meanwhile."""
    with os.scandir(root / directory) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    own = sorted(name for name in names if not name.startswith(_OWN_LOG) or name == "LOCK")
    own.sort(key=lambda name: (name.endswith(_WAL), name))
    manifests = [root / directory / name for name in own if name.startswith(_MANIFEST)]
    return DatabaseState(
        tuple(f"{directory}/{name}" for name in own),
        (root / directory / _CURRENT).read_bytes(),
        tuple(path.stat().st_size for path in manifests),
    )


def _phase(name: str, logs: tuple[str, ...]) -> int:
    top, _, rest = name.partition("/")
    base = rest.removesuffix(file_names.BACKUP_SUFFIX)
    has_progress = (top == file_names.CONFIG and base in _PROGRESS) or name.startswith(_PROGRESS_DATABASES)
    if name == file_names.CHECKPOINT or has_progress:
        return 0
    if name.startswith(logs) or top.startswith(file_names.DLEDGER_PREFIX):
        return 2
    return 3 if top == file_names.CONFIG and base in _LAST else 1


def _walk(root: Path, below: str) -> Iterator[tuple[str, bool]]:
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except FileNotFoundError:  # retention removes queues
        return
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", root / below) from error
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if name in _LEFT_OUT:
            continue
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode):
            yield name, True
            yield from _walk(root, name)
        elif stat.S_ISREG(mode):
            yield name, False
        else:
            raise RefusedError(
                "path",
                "neither a file nor a directory: backups do not follow links; back up the link's target",
                root / name,
            )


class BackupResult(Struct, frozen=True):
    """Result of a backup."""

    snapshot: Snapshot  # its manifest
    manifest: Path  # path of the manifest
    resumed: bool  # whether it continued an interrupted run
    read: int  # bytes read from files
    pieces: int  # and new_pieces: number of pieces in the snapshot, and of those newly stored
    new_pieces: int
    stored: int  # bytes of the new pieces, compressed


def backup(
    root: Path,
    destination: Path,
    config: ConfigSource = None,
    on_progress: OnProgress = ignore,
    *,
    redact: bool = False,
) -> BackupResult:
    """Takes a snapshot of a store, which is only read. Safe while a broker is running.

    The destination is a new directory, or one with earlier snapshots: only new pieces are stored. Progress is in bytes
    of files that are there at the start. `redact` leaves out users, whose passwords are in plain text.

    Raises:
        RefusedError: a broker is running on a kind of store that cannot be copied meanwhile; a change of the store
            is unfinished; the tree contains links; the destination is not a backup.
        UnsupportedFormatError: parts of the store are outside of its root.
        StoreError: a file cannot be read or written; run the backup again to continue it.
    """
    if is_inside(destination, root):
        raise UsageError(f"{destination}: expected a directory outside of {root}")
    with open_store(root, config) as store:
        _check(store)
        marker, descriptor, interrupted = _begin(destination)
        try:
            with writing(destination):
                for directory in (marker.parent, destination, destination.parent):
                    sync_directory(directory)
            writer = _SnapshotWriter(store, destination, on_progress, redact=redact)
            snapshot = writer.run(marker.name.removesuffix(snapshots.INCOMPLETE))
            manifest = snapshot.write(destination)
            for left in (marker, *interrupted):
                left.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
    count, pieces = sum(len(file.pieces) for file in snapshot.files), writer.pieces
    return BackupResult(snapshot, manifest, bool(interrupted), writer.read, count, pieces.written, pieces.stored)


def _check(store: Store) -> None:
    check_finished(store.path)
    require_permission(store.path, *store.layout.log_dirs)
    for directory in store.layout.log_dirs:
        if not is_inside(directory, store.path):
            raise UnsupportedFormatError(
                f"{directory}: this log is outside of {store.path}; a backup includes only files below the root"
            )
    if lock_holder(store.path) is None:
        return
    if store.layout.dledger_dirs or has_queue_database(store.path, store.config):
        what = "a DLedger log" if store.layout.dledger_dirs else "queues in RocksDB"
        raise RefusedError(
            "live",
            f"a broker is running on it, and {what} cannot be copied meanwhile: stop the broker, or "
            "back up a snapshot of the disk",
            store.path,
        )


def _begin(destination: Path) -> tuple[Path, int, list[Path]]:
    """Creates the destination and marks the backup as started.

    Returns the marker, which reserves the snapshot's name; its descriptor, which shows others that this backup is
    running until it is closed; and the markers of interrupted runs.
    """
    directory = destination / snapshots.DIRECTORY
    with writing(destination):
        if destination.exists() and not directory.is_dir() and any(destination.iterdir()):
            raise RefusedError("backup", "expected a new directory, or one that `mqtool backup` created", destination)
        directory.mkdir(parents=True, exist_ok=True)
        with in_turn(destination / snapshots.LOCK):
            markers = list(directory.glob(f"*{snapshots.INCOMPLETE}"))
            interrupted = [marker for marker in markers if _is_interrupted(marker)]
            if len(interrupted) == len(markers):
                Pieces(destination).remove_leftovers()
            marker, descriptor = _mark(directory)
    return marker, descriptor, interrupted


def _is_interrupted(marker: Path) -> bool:
    descriptor = claim_mark(marker)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def _mark(directory: Path) -> tuple[Path, int]:
    """Creates and locks the marker of a snapshot with a name of its own; returns its path and descriptor."""
    begun = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = itertools.chain([begun], (f"{begun}-{number}" for number in itertools.count(2)))
    while True:
        name = next(names)
        marker = directory / f"{name}{snapshots.INCOMPLETE}"
        with contextlib.suppress(FileExistsError):
            descriptor = create_mark(marker)
            # looked at after the marker was created: a run that ends writes its manifest before it deletes its marker
            if not (directory / f"{name}.json").exists():
                return marker, descriptor
            marker.unlink()
            os.close(descriptor)


class _SnapshotWriter:
    """Writes one snapshot."""

    def __init__(self, store: Store, destination: Path, on_progress: OnProgress, *, redact: bool) -> None:
        self.pieces = Pieces(destination)
        self.read = 0
        self._store = store
        self._root = store.path
        self._on_progress = on_progress
        self._total = 0
        self._redact = redact
        root = real_path(store.path)
        self._logs = [real_path(directory).relative_to(root).as_posix() for directory in store.layout.log_dirs]
        self._notes: list[str] = ["users are left out (--without-users)"] if redact else []
        self._notes += [
            f"{path} ({key}) is outside of {store.path} and is not in the backup: copy it yourself"
            for key, path in files_outside(store.path, store.config)
        ]

    def run(self, name: str) -> Snapshot:
        """Copies everything but the manifest."""
        is_live = lock_holder(self._root) is not None
        listed = self._listed()
        names = (*listed.first, *listed.derived, *listed.log, *listed.last)
        self._total = sum(size_of(self._root / name) for name in names)
        files = self._with_databases(listed.first)
        listed = self._listed() if is_live else listed
        files += self._with_databases(listed.derived)
        end = self._end() if is_live else None
        listed = self._listed() if is_live else listed
        files += self._copied(listed.log, end)
        files += self._copied(listed.last, None)
        self.pieces.sync()
        if self.pieces.replaced:
            note = f"{self.pieces.replaced} piece(s) in the destination were damaged and are stored again"
            self._notes.append(f"{note}: check its disk; earlier snapshots may have other damaged pieces")
        owner = owner_of(self._root)
        notes = tuple(self._notes)
        return Snapshot(name, str(self._root), is_live, end, listed.directories, tuple(files), notes, owner)

    def _listed(self) -> Listing:
        return list_files(self._root, self._logs, redact=self._redact)

    def _end(self) -> int:
        """Returns the current end of the log."""
        with open_store(self._root, self._store.config) as now:
            return now.commit_log.max_offset

    def _with_databases(self, names: tuple[str, ...]) -> list[FileEntry]:
        """Copies files one by one, and then each RocksDB among them in one state."""
        databases = databases_of(names)
        files = [*self._copied(tuple(name for name in names if name.rpartition("/")[0] not in databases), None)]
        for directory in databases:
            files += self._copy_database(directory)
        return files

    def _copy_database(self, directory: str) -> list[FileEntry]:
        """Copies a RocksDB in one consistent state, even while a broker has it open: starts over if files change."""
        for _ in range(_ATTEMPTS):
            try:
                before = state_of(self._root, directory)
                copied = [self._copy(name, None) for name in before.names]
                if state_of(self._root, directory) == before:
                    return copied
            except FileNotFoundError:  # compaction removes files
                continue
            except OSError as error:
                raise StoreError(f"cannot be read: {error.strerror}", self._root / directory) from error
        raise RefusedError(
            "live",
            f"this RocksDB was written to during each of {_ATTEMPTS} copies: run the backup again when the broker is "
            "less busy, stop the broker, or back up a snapshot of the disk",
            self._root / directory,
        )

    def _copied(self, names: tuple[str, ...], end: int | None) -> Iterator[FileEntry]:
        for name in names:
            limit = None
            if end is not None:
                base = _base(name)
                if base is not None and base >= end:
                    continue  # made ahead, or after the end was noted
                limit = None if base is None else end - base
            try:
                yield self._copy(name, limit)
            except FileNotFoundError:
                self._notes.append(f"{name} was removed meanwhile, as retention does with the oldest")
            except OSError as error:
                raise StoreError(f"cannot be read: {error.strerror}", self._root / name) from error

    def _copy(self, name: str, limit: int | None) -> FileEntry:
        """Stores one file. Bytes at or after `limit` are stored as zeros."""
        digest, pieces = hashlib.sha256(), []
        descriptor = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            for position in range(0, status.st_size, PIECE):
                length = min(PIECE, status.st_size - position)
                data = _read(descriptor, position, length, limit)
                digest.update(data)
                if data.count(0) != length:
                    used = data.rstrip(b"\0")
                    pieces.append(Piece(position, len(used), self.pieces.add(used)))
                self.read += length
                self._on_progress(min(self.read, self._total), self._total)
        finally:
            os.close(descriptor)
        mode = status.st_mode & 0o777
        return FileEntry(name, status.st_size, mode, status.st_mtime_ns, digest.hexdigest(), tuple(pieces))


def _read(descriptor: int, position: int, length: int, limit: int | None) -> bytes:
    """Reads bytes of a file; positions past its end or at or after `limit` read as zeros."""
    size = length if limit is None else max(0, min(length, limit - position))
    parts, have = [], 0
    while have < size:
        part = os.pread(descriptor, size - have, position + have)
        if not part:
            break
        parts.append(part)
        have += len(part)
    return b"".join(parts).ljust(length, b"\0")


def size_of(path: Path) -> int:
    """Returns the size of a file, or 0 if it was removed meanwhile or cannot be looked at."""
    try:
        return path.lstat().st_size
    except OSError:  # its copy will say what is wrong
        return 0


def _base(name: str) -> int | None:
    """Returns the physical offset of a segment's first byte, None for another file."""
    base = name.rpartition("/")[2]
    return int(base) if base.isascii() and base.isdigit() and len(base) == file_names.MAPPED_FILE_NAME_DIGITS else None
