"""Creates a backup in an order that recovery tolerates: only new pieces are stored, the manifest is written last."""

import contextlib
import hashlib
import itertools
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from mqtool.errors import RefusedError, StoreError, UnsupportedFormatError, UsageError
from mqtool.formats import file_names
from mqtool.jobs.atomic import claim_mark, create_mark, in_turn, sync_directory, writing
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.repair.backup import snapshots
from mqtool.repair.backup.order import Listing, databases_of, list_files, state_of
from mqtool.repair.backup.pieces import PIECE, Pieces
from mqtool.repair.backup.snapshots import FileEntry, Piece, Snapshot
from mqtool.repair.journal import check_finished
from mqtool.store.config.broker_config import ConfigSource
from mqtool.store.config.configured_place import files_outside
from mqtool.store.lock import lock_holder
from mqtool.store.named_files import is_inside, real_path
from mqtool.store.permissions import require_permission
from mqtool.store.queues.rocksdb_queues import has_queue_database
from mqtool.store.store import Store, open_store

_ATTEMPTS = 10
"""Copies of a RocksDB; it changes its set of files once in many megabytes of writes."""


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
    """Takes a snapshot of a store. Safe while a broker is running.

    Args:
        root: of the store; only read.
        destination: new directory, or one with earlier snapshots: only new pieces are stored.
        config: broker keys.
        on_progress: called with bytes of files, of those that are there at the start.
        redact: leaves out users, whose passwords are in plain text.

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
                f"{directory}: this log is outside of {store.path}; a backup only includes what is below the root"
            )
    if lock_holder(store.path) is None:
        return
    if store.layout.dledger_dirs or has_queue_database(store.path, store.config):
        what = "a DLedger log" if store.layout.dledger_dirs else "queues in RocksDB"
        raise RefusedError(
            "live",
            f"a broker runs on it, and {what} cannot be copied meanwhile: stop the broker, or "
            "back up a snapshot of the disk",
            store.path,
        )


def _begin(destination: Path) -> tuple[Path, int, list[Path]]:
    """Creates the destination and marks the backup as started.

    Returns:
        The marker, which reserves the snapshot's name; its descriptor, which shows others that this backup is running
        until it is closed; and the markers of interrupted runs.
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
        return Snapshot(name, str(self._root), is_live, end, listed.directories, tuple(files), tuple(self._notes))

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
            f"this RocksDB was written to during each of {_ATTEMPTS} copies: run the backup again when the broker has "
            "less to do, stop the broker, or back up a snapshot of the disk",
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
