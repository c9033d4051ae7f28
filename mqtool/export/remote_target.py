"""An object store as the target of an export, through fsspec (s3://, gs://, hdfs://, memory:// …).

Errors of the driver become StoreErrors. An object appears completely or not at all, so `replace` is one write.
`move` is a copy and a removal, and is safe to repeat.
"""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from mqtool.errors import ExportError
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

    def read(self, path: str) -> bytes | None:
        """See `Target`."""
        try:
            return bytes(answer(self.url, lambda: self._fs.cat_file(self._path(path))))
        except FileNotFoundError:
            return None

    def move(self, source: str, to: str) -> None:
        """See `Target`."""

        def moved() -> None:
            if self._fs.exists(self._path(source)):
                self._fs.makedirs(posixpath.dirname(self._path(to)), exist_ok=True)
                self._fs.copy(self._path(source), self._path(to))
                self._fs.rm_file(self._path(source))

        answer(self.url, moved)

    def names(self, path: str) -> list[str]:
        """See `Target`."""
        self._fs.invalidate_cache()
        try:
            found: list[Any] = answer(self.url, lambda: self._fs.ls(self._path(path), detail=False))
        except FileNotFoundError:
            return []
        return sorted({posixpath.basename(one.rstrip("/")) for one in found} - {""})

    def remove(self, path: str) -> None:
        """See `Target`."""

        def removed() -> None:
            self._fs.invalidate_cache()
            if self._fs.exists(self._path(path)):
                self._fs.rm(self._path(path), recursive=True)

        answer(self.url, removed)

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:  # noqa: ARG002 - part of the protocol
        """Does nothing, as object stores have no locks. The manifest's name keeps two runs from both committing."""
        if answer(self.url, lambda: self._fs.isfile(self._root)):
            raise ExportError("is an object; give a prefix for the export", self.url)
        yield
