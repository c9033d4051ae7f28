"""The target of an export: a local directory, or an object store through fsspec. Callers do not need to know which.

Paths are relative to the target's root, with `/`. `replace` and `move` are atomic for one file; `commit` makes
changes of several files atomic.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from mqtool.errors import StoreLockedError, UsageError
from mqtool.jobs.atomic import NewFile, replace_file, sync_directory


class Target(Protocol):
    """The operations that an export needs."""

    url: str

    def create(self, path: str) -> IO[bytes]:
        """Opens a new file for writing, creating its directories as needed; its contents are durable after `close`."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes a complete small file, durably; readers see the old contents or the new."""

    def write_new(self, path: str, data: bytes) -> bool:
        """Writes a complete small file, durably, unless one exists; returns whether the file is this one."""

    def read(self, path: str) -> bytes | None:
        """Returns a small file's bytes; None if it does not exist."""

    def open(self, path: str) -> IO[bytes]:
        """Opens a file for reading."""

    def move(self, source: str, to: str) -> bool:
        """Moves a file, unless it was moved before; returns whether it is in its new place."""

    def sizes(self, path: str) -> dict[str, int]:
        """Returns the bytes of each file below a directory, by path; none if it does not exist."""

    def names(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted; none if it does not exist."""

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with its contents, if it exists."""

    def lock(self, path: str) -> AbstractContextManager[bool]:
        """Excludes other exports where the target has locks; its value is whether it does."""


def target_of(url: str) -> Target:
    """Returns the target for a path or URL.

    Raises:
        UsageError: the path is a file.
    """
    if "://" in url and not url.startswith("file://"):
        from mqtool.export.remote_target import RemoteTarget  # noqa: PLC0415 - fsspec is an extra

        return RemoteTarget(url)
    return LocalTarget(url.removeprefix("file://"))


class LocalTarget:
    """A directory of this machine, or one that all workers mount."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._root = Path(url)
        if self._root.exists() and not self._root.is_dir():
            raise UsageError(f"{url}: is a file; give a directory for the export")

    def create(self, path: str) -> IO[bytes]:
        """See `Target`."""
        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        file: Any = NewFile(where)
        return file

    def replace(self, path: str, data: bytes) -> None:
        """See `Target`."""
        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        replace_file(where, data)

    def write_new(self, path: str, data: bytes) -> bool:
        """See `Target`; the lock excludes others between the check and the write."""
        if (self._root / path).exists():
            return False
        self.replace(path, data)
        return True

    def read(self, path: str) -> bytes | None:
        """See `Target`."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        """See `Target`."""
        return (self._root / path).open("rb")

    def move(self, source: str, to: str) -> bool:
        """See `Target`."""
        where = self._root / to
        where.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            (self._root / source).rename(where)
        sync_directory(where.parent)
        return where.exists()

    def sizes(self, path: str) -> dict[str, int]:
        """See `Target`."""
        files = (file for file in (self._root / path).rglob("*") if file.is_file())
        return {file.relative_to(self._root).as_posix(): file.stat().st_size for file in files}

    def names(self, path: str) -> list[str]:
        """See `Target`."""
        try:
            return sorted(entry.name for entry in (self._root / path).iterdir())
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        """See `Target`."""
        where = self._root / path
        if where.is_dir():
            shutil.rmtree(where)
        else:
            where.unlink(missing_ok=True)

    @contextmanager
    def lock(self, path: str) -> Iterator[bool]:
        """See `Target`.

        Raises:
            StoreLockedError: another process exports into the same directory.
        """
        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        with where.open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreLockedError("another export is writing here; wait for it", self._root) from error
            yield True
