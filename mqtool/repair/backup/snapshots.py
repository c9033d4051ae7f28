"""Snapshots in a backup destination: their manifests, the pieces of files that they share, and their restore.

A manifest is the content of a snapshot as JSON, named after the start time of the backup. A piece is stored once under
the SHA-256 of its bytes, compressed with zstandard. A restored directory appears after every byte is checked against
its SHA-256.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import zstandard
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import RefusedError, StoreError
from mqtool.jobs.atomic import PART, replace_file, staged_directory, sync_directory, writing
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.repair.paths import check_name
from mqtool.store.config.broker_config import ConfigSource
from mqtool.store.config.broker_config import load as load_config
from mqtool.store.files import read_file
from mqtool.store.plan_file import digest_of, sealed
from mqtool.store.store import open_store
from mqtool.values import asdict
from mqtool.verify import verify

SCHEMA = "mqtool.snapshot"
SCHEMA_VERSION = 1
DIRECTORY = "snapshots"
INCOMPLETE = ".incomplete"
LOCK = "lock"
"""File of a destination that is locked while a backup begins."""

_LARGEST_MANIFEST = 1 << 30
_LARGEST_FILE = 1 << 50
_HEX = frozenset("0123456789abcdef")
PIECE = 4 << 20
"""Maximum bytes of a piece; files are cut at multiples of it."""
_PIECES = "pieces"
_LEVEL = 3
_SHA256 = hashlib.sha256


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
    owner: str = ""  # owner and group of the root, `rocketmq:rocketmq`; "" in manifests that do not state it

    def _body(self) -> dict[str, Any]:
        body = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self)}
        return body if self.owner else {name: value for name, value in body.items() if name != "owner"}

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
    """Returns the names of all complete snapshots of a destination, oldest first."""
    directory = destination / DIRECTORY
    if not directory.is_dir():
        raise RefusedError("backup", f"expected a directory with {DIRECTORY}/: what `mqtool backup` wrote", destination)
    return sorted(path.stem for path in directory.glob("*.json"))


def load(destination: Path, name: str | None = None) -> Snapshot:
    """Reads a manifest, of the newest snapshot if no name is given."""
    complete = snapshots(destination)
    directory = destination / DIRECTORY
    if name is None and not complete:
        begun = any(directory.glob(f"*{INCOMPLETE}"))
        raise RefusedError(
            "incomplete",
            "the backup was started but never finished; run mqtool backup again"
            if begun
            else "expected a snapshot, found none",
            directory,
        )
    if name is not None and name not in complete:
        if (directory / f"{name}{INCOMPLETE}").exists():
            raise RefusedError("incomplete", "this backup was started but never finished", directory / name)
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
        raise RefusedError("backup-damaged", "the manifest has changed since it was written: its digest differs", path)
    return snapshot


def _snapshot_of(document: dict[str, Any], path: Path) -> Snapshot:
    files = tuple(_file_of(item, path) for item in document.pop("files"))
    names = tuple(check_name(item, path) for item in document.pop("directories"))
    if not isinstance(document.get("owner", ""), str):
        raise TypeError("owner: expected a text")
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
            raise ValueError(f"{file.path}: a piece in the wrong place")
        if len(piece.sha256) != 64 or not _HEX.issuperset(piece.sha256):
            raise ValueError(f"{file.path}: no SHA-256")
        at = piece.position + piece.length
    if not at <= file.size <= _LARGEST_FILE:
        raise ValueError(f"{file.path}: pieces past its end")
    return file


class Pieces:
    """The pieces in one backup destination."""

    def __init__(self, destination: Path) -> None:
        self.written = 0  # number of pieces added by this object
        self.replaced = 0  # how many of these replaced a damaged one
        self.stored = 0  # compressed bytes of these
        self._root = destination / _PIECES
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._known: set[str] = set()
        self._touched: set[Path] = set()

    def path(self, digest: str) -> Path:
        """Returns the path at which a piece is stored."""
        return self._root / digest[:2] / f"{digest}.zst"

    def add(self, data: bytes) -> str:
        """Stores a piece if it is new or the stored one is damaged, and returns its SHA-256. Durable after `sync`."""
        digest = _SHA256(data).hexdigest()
        if digest in self._known:
            return digest
        path = self.path(digest)
        self._touched.add(path.parent)  # also of a piece that is there: a run that was killed may not have synced it
        exists = path.exists()
        if exists and _is_intact(path, data):
            self._known.add(digest)
            return digest
        packed = self._compressor.compress(data)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, packed, sync_name=False)
        self._known.add(digest)
        self.written += 1
        self.replaced += exists
        self.stored += len(packed)
        return digest

    def sync(self) -> None:
        """Makes the directory entries of all added pieces durable."""
        for directory in sorted(self._touched):
            sync_directory(directory)
        if self._touched:
            sync_directory(self._root)

    def read(self, digest: str, length: int) -> bytes:
        """Reads a piece of at most `PIECE` bytes; raises RefusedError if it is missing, or its SHA-256 differs."""
        path = self.path(digest)
        try:
            data = _unpacked(path)
        except StoreError as error:
            reason = f"this piece cannot be read: {error.reason}"
            if not path.exists():
                reason = "this piece of the backup is missing"
            raise RefusedError("backup-damaged", reason, path) from error
        except zstandard.ZstdError as error:
            raise RefusedError("backup-damaged", f"this piece cannot be decompressed: {error}", path) from error
        if len(data) != length or _SHA256(data).hexdigest() != digest:
            raise RefusedError(
                "backup-damaged", "this piece has changed since it was stored: its SHA-256 differs", path
            )
        return data

    def remove_leftovers(self) -> None:
        """Deletes the temporary files of interrupted runs, if no run is in progress."""
        names = (f"*/.*{PART}", "*/*.incomplete")  # the second one: of earlier versions
        left = [path for name in names for path in self._root.glob(name)] if self._root.is_dir() else []
        for path in left:
            path.unlink(missing_ok=True)


def _is_intact(path: Path, data: bytes) -> bool:
    """Whether the stored piece is `data`; False also if it cannot be read."""
    try:
        return _unpacked(path) == data
    except (StoreError, zstandard.ZstdError):
        return False


def _unpacked(path: Path) -> bytes:
    """Returns the bytes of a stored piece, unchecked; raises StoreError or ZstdError."""
    packed = read_file(path, 2 * PIECE)
    size = zstandard.frame_content_size(packed)
    if size > PIECE:  # the library would reserve this much memory
        raise zstandard.ZstdError(f"expected at most {PIECE} bytes, found {size}")
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=PIECE)


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
    """Restores a snapshot, by default the newest one, into a new store; without a target only checks it.

    The new store must not exist; it appears when it is complete and on disk. The configuration says where its log is.
    Raises RefusedError if the snapshot is incomplete or damaged, or the target exists; nothing was created. Raises
    StoreError.
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
