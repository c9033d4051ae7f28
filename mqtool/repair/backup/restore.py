"""Restores a snapshot into a new directory; every byte is checked against its SHA-256 before the directory appears."""

import hashlib
import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import RefusedError
from mqtool.jobs.atomic import staged_directory
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.repair.backup.snapshots import PIECE, FileEntry, Pieces, Snapshot, load
from mqtool.store.config.broker_config import ConfigSource
from mqtool.store.config.broker_config import load as load_config
from mqtool.store.store import open_store
from mqtool.verify import verify


class RestoreResult(Struct, frozen=True):
    """Result of a restore."""

    snapshot: Snapshot  # the snapshot that was restored
    target: Path | None  # new root; None if the snapshot was only checked
    bytes: int  # sum of the files' sizes
    verify: str | None  # state of the new store according to `mqtool verify`; None if it was only checked


def restore(
    destination: Path,
    target: Path | None,
    name: str | None = None,
    on_progress: OnProgress = ignore,
    config: ConfigSource = None,
) -> RestoreResult:
    """Restores a snapshot into a new store.

    Args:
        destination: of backups.
        target: new root, which must not exist; it appears when it is complete and on disk. None only checks.
        name: which snapshot; None for the newest.
        on_progress: called with bytes of files.
        config: broker keys of the store, which say where its log is.

    Raises:
        RefusedError: the snapshot is incomplete or damaged, or the target exists; nothing was created.
        StoreError: a file cannot be read or written.
    """
    snapshot = load(destination, name)
    pieces = Pieces(destination)
    total = sum(file.size for file in snapshot.files)
    if target is None:
        done = 0
        for file in snapshot.files:
            _check(pieces, file)
            done += file.size
            on_progress(done, total)
        return RestoreResult(snapshot, None, total, None)
    with staged_directory(target) as work:
        _write(snapshot, pieces, work / "store", on_progress)
        known = load_config(config)
        known = replace(known, values={"storePathRootDir": snapshot.store, **known.values})
        with open_store(work / "store", known.for_copy(work / "store")) as restored:
            state = verify(restored).state.value
    return RestoreResult(snapshot, target, total, state)


def _check(pieces: Pieces, file: FileEntry) -> None:
    """Raises RefusedError if a file cannot be restored byte for byte."""
    digest, at = hashlib.sha256(), 0
    for piece in file.pieces:
        _add_zeros(digest, piece.position - at)
        digest.update(pieces.read(piece.sha256, piece.length))
        at = piece.position + piece.length
    _add_zeros(digest, file.size - at)
    _compare(digest.hexdigest(), file)


def _write(snapshot: Snapshot, pieces: Pieces, root: Path, on_progress: OnProgress) -> None:
    done, total = 0, sum(file.size for file in snapshot.files)
    for name in snapshot.directories:
        (root / name).mkdir(parents=True, exist_ok=True)
    for file in snapshot.files:
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            for piece in file.pieces:
                target.seek(piece.position)
                target.write(pieces.read(piece.sha256, piece.length))
            target.truncate(file.size)
        with path.open("rb") as written:
            _compare(hashlib.file_digest(written, "sha256").hexdigest(), file)
        path.chmod(file.mode)
        os.utime(path, ns=(file.modified_ns, file.modified_ns))
        done += file.size
        on_progress(done, total)


def _compare(actual: str, file: FileEntry) -> None:
    if actual != file.sha256:
        raise RefusedError("backup-damaged", f"expected SHA-256 {file.sha256}, found {actual}", file.path)


def _add_zeros(data: "hashlib._Hash", count: int) -> None:
    while count > 0:
        part = min(count, PIECE)
        data.update(bytes(part))
        count -= part
