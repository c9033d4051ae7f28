"""Manifests: the content of a snapshot as JSON, named after the start time of the backup."""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from mqtool.errors import RefusedError, StoreError
from mqtool.jobs.atomic import replace_file
from mqtool.repair.backup.pieces import PIECE
from mqtool.repair.paths import check_name
from mqtool.store.files import read_file
from mqtool.store.plan_file import digest_of, sealed
from mqtool.values import asdict

SCHEMA = "mqtool.snapshot"
SCHEMA_VERSION = 1
DIRECTORY = "snapshots"
INCOMPLETE = ".incomplete"
LOCK = "lock"
"""File of a destination that is locked while a backup begins."""

_LARGEST_MANIFEST = 1 << 30
_LARGEST_FILE = 1 << 50
_HEX = frozenset("0123456789abcdef")


class Piece(Struct, frozen=True):
    """A part of a file that contains a nonzero byte."""

    position: int  # byte position in the file, a multiple of `PIECE`
    length: int  # bytes
    sha256: str  # of these bytes; also the name of the stored piece


class FileEntry(Struct, frozen=True):
    """One file of a snapshot."""

    path: str  # relative to the root, `/`-separated
    size: int  # bytes, zeros included
    mode: int  # permission bits
    modified_ns: int  # time of the last modification
    sha256: str  # of all bytes
    pieces: tuple[Piece, ...]  # in order; all-zero pieces are left out


class Snapshot(Struct, frozen=True):
    """One backup."""

    name: str  # when it started, `20260102T030405Z`
    store: str  # root of the store
    live: bool  # whether a broker was running on the store
    log_end: int | None  # physical offset up to which the log was copied; None if all of it was
    directories: tuple[str, ...]  # empty ones, relative to the root
    files: tuple[FileEntry, ...]  # in the order in which they were copied
    notes: tuple[str, ...] = ()  # remarks for the reader

    def _body(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self)}

    @property
    def digest(self) -> str:
        """Returns the SHA-256 over all other fields."""
        return digest_of(self._body())

    def write(self, destination: Path) -> Path:
        """Writes the manifest durably and returns its path. The snapshot exists from then on.

        No other backup has this name: the marker reserves it.
        """
        path = destination / DIRECTORY / f"{self.name}.json"
        replace_file(path, sealed(self._body()).encode())
        return path


def snapshots(destination: Path) -> list[str]:
    """Returns the names of all complete snapshots of a destination, oldest first.

    Raises:
        RefusedError: it is not a destination of backups.
    """
    directory = destination / DIRECTORY
    if not directory.is_dir():
        raise RefusedError("backup", f"expected a directory with {DIRECTORY}/: what `mqtool backup` wrote", destination)
    return sorted(path.stem for path in directory.glob("*.json"))


def load(destination: Path, name: str | None = None) -> Snapshot:
    """Reads a manifest.

    Args:
        destination: of backups.
        name: which snapshot; None for the newest.

    Raises:
        RefusedError: there is no such snapshot, or it is incomplete or damaged.
    """
    complete = snapshots(destination)
    directory = destination / DIRECTORY
    if name is None and not complete:
        begun = any(directory.glob(f"*{INCOMPLETE}"))
        raise RefusedError(
            "incomplete",
            "the backup was begun and never finished; run mqtool backup again"
            if begun
            else "expected a snapshot, found none",
            directory,
        )
    if name is not None and name not in complete:
        if (directory / f"{name}{INCOMPLETE}").exists():
            raise RefusedError("incomplete", "this backup was begun and never finished", directory / name)
        raise RefusedError(
            "backup", f"expected one of {', '.join(complete[-5:]) or 'no snapshots'}, found {name!r}", destination
        )
    return _read(directory / f"{name or complete[-1]}.json")


def _read(path: Path) -> Snapshot:
    try:
        document = json.loads(read_file(path, _LARGEST_MANIFEST))
        stated = document.pop("digest")
        if document.pop("schema") != SCHEMA or document.pop("schema_version") != SCHEMA_VERSION:
            raise RefusedError("backup-version", f"expected schema {SCHEMA}, version {SCHEMA_VERSION}", path)
        snapshot = _snapshot_of(document, path)
    except (OSError, StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RefusedError("backup-damaged", f"the manifest cannot be read: {error}", path) from error
    if stated != snapshot.digest:
        raise RefusedError("backup-damaged", "the manifest is not as it was written: its digest differs", path)
    return snapshot


def _snapshot_of(document: dict[str, Any], path: Path) -> Snapshot:
    files = tuple(_file_of(item, path) for item in document.pop("files"))
    names = tuple(check_name(item, path) for item in document.pop("directories"))
    if len({file.path for file in files}) != len(files):
        raise ValueError("two files of one name")
    return Snapshot(files=files, directories=names, notes=tuple(document.pop("notes")), **document)


def _file_of(document: dict[str, Any], path: Path) -> FileEntry:
    pieces = tuple(Piece(**piece) for piece in document.pop("pieces"))
    file = FileEntry(pieces=pieces, **document)
    check_name(file.path, path)
    numbers = [file.size, file.modified_ns, *(number for piece in pieces for number in (piece.position, piece.length))]
    if any(type(number) is not int for number in numbers) or file.mode not in range(0o1000):
        raise ValueError(f"{file.path}: no size, mode or time")
    at = 0
    for piece in pieces:
        if piece.position < at or piece.position % PIECE or not 0 < piece.length <= PIECE:
            raise ValueError(f"{file.path}: a piece out of place")
        if len(piece.sha256) != 64 or not _HEX.issuperset(piece.sha256):
            raise ValueError(f"{file.path}: no SHA-256")
        at = piece.position + piece.length
    if not at <= file.size <= _LARGEST_FILE:
        raise ValueError(f"{file.path}: pieces beyond its end")
    return file
