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
        stored: compressed bytes of these.
    """

    def __init__(self, destination: Path) -> None:
        self.written = 0
        self.stored = 0
        self._root = destination / DIRECTORY
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._touched: set[Path] = set()

    def path(self, digest: str) -> Path:
        """Returns the path at which a piece is stored."""
        return self._root / digest[:2] / f"{digest}.zst"

    def add(self, data: bytes) -> str:
        """Stores a piece if it is new and returns its SHA-256. Durable after `sync`.

        Raises:
            StoreError: the system refuses.
        """
        digest = _SHA256(data).hexdigest()
        path = self.path(digest)
        self._touched.add(path.parent)  # also of a piece that is there: a run that was killed may not have synced it
        if path.exists():
            return digest
        packed = self._compressor.compress(data)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, packed, sync_name=False)
        self.written += 1
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
            packed = read_file(path, 2 * PIECE)
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=PIECE)
        except StoreError as error:
            words = f"this piece cannot be read: {error.reason}"
            if not path.exists():
                words = "this piece of the backup is missing"
            raise RefusedError("backup-damaged", words, path) from error
        except zstandard.ZstdError as error:
            raise RefusedError("backup-damaged", f"this piece cannot be unpacked: {error}", path) from error
        if len(data) != length or _SHA256(data).hexdigest() != digest:
            raise RefusedError("backup-damaged", "this piece is not what was stored: its SHA-256 differs", path)
        return data

    def remove_leftovers(self) -> int:
        """Deletes temporary files of an interrupted run; returns how many."""
        names = (f"*/.*{PART}", "*/*.incomplete")  # the second one: of earlier versions
        left = [path for name in names for path in self._root.glob(name)] if self._root.is_dir() else []
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)
