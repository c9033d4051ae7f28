"""Deduplicated pieces of files, each stored once under the SHA-256 of its bytes and compressed with zstandard."""

import hashlib
from pathlib import Path

import zstandard

from mqtool.errors import RefusedError, StoreError
from mqtool.jobs.atomic import PART, replace_file, sync_directory, writing
from mqtool.store.files import read_file

PIECE = 4 << 20
"""Maximum bytes of a piece; files are cut at multiples of it."""

DIRECTORY = "pieces"
_LEVEL = 3
_SHA256 = hashlib.sha256


class Pieces:
    """The pieces in one backup destination.

    Attributes:
        written: number of pieces added by this object.
        replaced: how many of these replaced a damaged one.
        stored: compressed bytes of these.
    """

    def __init__(self, destination: Path) -> None:
        self.written = 0
        self.replaced = 0
        self.stored = 0
        self._root = destination / DIRECTORY
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._known: set[str] = set()
        self._touched: set[Path] = set()

    def path(self, digest: str) -> Path:
        """Returns the path at which a piece is stored."""
        return self._root / digest[:2] / f"{digest}.zst"

    def add(self, data: bytes) -> str:
        """Stores a piece if it is new or the stored one is damaged, and returns its SHA-256. Durable after `sync`.

        Raises:
            StoreError: the system refuses.
        """
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
        """Reads a piece and checks its SHA-256.

        Args:
            digest: its SHA-256.
            length: bytes; at most `PIECE`.

        Raises:
            RefusedError: it is missing or damaged.
        """
        path = self.path(digest)
        try:
            data = _unpacked(path)
        except StoreError as error:
            reason = f"this piece cannot be read: {error.reason}"
            if not path.exists():
                reason = "this piece of the backup is missing"
            raise RefusedError("backup-damaged", reason, path) from error
        except zstandard.ZstdError as error:
            raise RefusedError("backup-damaged", f"this piece cannot be unpacked: {error}", path) from error
        if len(data) != length or _SHA256(data).hexdigest() != digest:
            raise RefusedError("backup-damaged", "this piece is not what was stored: its SHA-256 differs", path)
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
    """Returns the bytes of a stored piece, unchecked.

    Raises:
        StoreError: it cannot be read.
        zstandard.ZstdError: it cannot be unpacked.
    """
    packed = read_file(path, 2 * PIECE)
    size = zstandard.frame_content_size(packed)
    if size > PIECE:  # the library would reserve this much memory
        raise zstandard.ZstdError(f"expected at most {PIECE} bytes, found {size}")
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=PIECE)
