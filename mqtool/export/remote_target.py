"""An object store as the target of an export, through fsspec (s3://, gs://, hdfs://, memory:// …).

Errors of the driver become StoreErrors. An object appears completely or not at all, so `replace` is one write.
`move` is a copy and a removal, and is safe to repeat, also by two runs at once.
"""

import errno
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import signature
from typing import IO, Any

from mqtool.errors import ExportError, StoreError
from mqtool.store.remote import answer, file_system


class RemoteTarget:
    """A prefix in an object store."""

    def __init__(self, url: str) -> None:
        """Opens the file system.

        Raises:
            UsageError: no driver is installed for this kind of URL.
        """
        self.url = url
        self._fs, self._root = file_system(url)

    def _path(self, path: str) -> str:
        return posixpath.join(self._root, path) if path else self._root

    def create(self, path: str) -> IO[bytes]:
        """See `Target`."""

        def made() -> IO[bytes]:
            self._fs.makedirs(posixpath.dirname(self._path(path)), exist_ok=True)
            opened: IO[bytes] = self._fs.open(self._path(path), "wb")
            return opened

        return answer(self.url, made)

    def replace(self, path: str, data: bytes) -> None:
        """See `Target`."""

        def replaced() -> None:
            self._fs.makedirs(posixpath.dirname(self._path(path)), exist_ok=True)
            self._fs.pipe_file(self._path(path), data)

        answer(self.url, replaced)

    def write_new(self, path: str, data: bytes) -> bool:
        """See `Target`.

        Whoever writes first wins, by a conditional write. For drivers and services without conditional writes (s3fs
        before 2024.12, for example) two writes within the same moment may both seem to win.
        """

        def written() -> None:
            where = self._path(path)
            self._fs.makedirs(posixpath.dirname(where), exist_ok=True)
            if not self._create(where, data) and not self._fs.exists(where):
                self._fs.pipe_file(where, data)

        try:
            answer(self.url, written)
        except (StoreError, FileNotFoundError):
            if self.read(path) is None:
                raise
        return self.read(path) == data  # also if a driver repeated a request whose answer was lost

    def _create(self, where: str, data: bytes) -> bool:
        """Writes an object that must not exist; returns False if driver or service has no conditional writes."""
        if "mode" not in signature(self._fs.pipe_file).parameters:
            return False
        try:
            self._fs.pipe_file(where, data, mode="create")
        except OSError as error:
            if error.errno == errno.ENOSYS:
                return False
            raise
        return True

    def read(self, path: str) -> bytes | None:
        """See `Target`."""
        try:
            return bytes(answer(self.url, lambda: self._fs.cat_file(self._path(path))))
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        """See `Target`."""
        opened: IO[bytes] = answer(self.url, lambda: self._fs.open(self._path(path), "rb"))
        return opened

    def move(self, source: str, to: str) -> bool:
        """See `Target`."""

        def moved() -> bool:
            if not self._fs.exists(self._path(source)):
                return bool(self._fs.exists(self._path(to)))
            self._fs.makedirs(posixpath.dirname(self._path(to)), exist_ok=True)
            self._fs.copy(self._path(source), self._path(to))
            self._fs.rm_file(self._path(source))
            return True

        try:
            return answer(self.url, moved)
        except FileNotFoundError:  # another run moved it in the meantime
            return True

    def sizes(self, path: str) -> dict[str, int]:
        """See `Target`."""
        self._fs.invalidate_cache()
        try:
            entries: dict[str, Any] = answer(self.url, lambda: self._fs.find(self._path(path), detail=True))
        except FileNotFoundError:
            return {}
        return {posixpath.relpath(name, self._root): int(entry["size"]) for name, entry in entries.items()}

    def names(self, path: str) -> list[str]:
        """See `Target`."""
        self._fs.invalidate_cache()
        try:
            entries: list[Any] = answer(self.url, lambda: self._fs.ls(self._path(path), detail=False))
        except FileNotFoundError:
            return []
        return sorted({posixpath.basename(name.rstrip("/")) for name in entries} - {""})

    def remove(self, path: str) -> None:
        """See `Target`."""

        def removed() -> None:
            self._fs.invalidate_cache()
            if self._fs.exists(self._path(path)):
                self._fs.rm(self._path(path), recursive=True)

        with suppress(FileNotFoundError):  # another run removed it in the meantime
            answer(self.url, removed)

    @contextmanager
    def lock(self, path: str) -> Iterator[bool]:  # noqa: ARG002 - part of the protocol
        """Excludes nobody, because object stores have no locks; `write_new` lets only one of two runs commit."""
        if answer(self.url, lambda: self._fs.isfile(self._root)):
            raise ExportError("is an object; give a prefix for the export", self.url)
        yield False
