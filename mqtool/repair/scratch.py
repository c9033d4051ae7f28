"""A scratch copy of a store for the engine: its files are links until they are written to."""

import errno
import os
from pathlib import Path
from typing import Any

from mqtool.engine.disk.files import File, Files
from mqtool.errors import RefusedError
from mqtool.formats import file_names
from mqtool.formats.codec import Buffer
from mqtool.repair.paths import HOME
from mqtool.store.copies import copy_file

_OWN = (file_names.LOCK, HOME)
"""Names below the root that the scratch copy does not take over."""


def link_tree(root: Path, scratch: Path) -> None:
    """Fills a scratch copy with links to every file of a store.

    Raises:
        RefusedError: a directory of the store is a symbolic link, so that its files could be changed through it.
    """
    for directory, names, files in os.walk(root):
        here = Path(directory)
        target = scratch / here.relative_to(root)
        target.mkdir(parents=True, exist_ok=True)
        if here == root:
            names[:] = [name for name in names if name not in _OWN]
        for name in names:
            if (here / name).is_symlink():
                raise RefusedError("path", "a symbolic link: a change follows none", here / name)
        for name in files:
            if here != root or name not in _OWN:
                (target / name).symlink_to(here / name)


class ScratchFiles(Files):
    """The file system of one scratch copy: a write turns a link into a file first. Nothing needs to be durable."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def own(self, path: Path) -> None:
        """Turns a link into a copy of its file.

        Raises:
            OSError: the path is outside of the scratch copy.
        """
        if not path.is_relative_to(self._scratch):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        if path.is_symlink():
            source = path.readlink()
            path.unlink()
            copy_file(source, path)

    def create(self, path: Path, size: int) -> File:
        """Like the engine's files."""
        self.own(path)
        super().create(path, size).close()
        return self.open(path, size)

    def open(self, path: Path, size: int) -> File:
        """Like the engine's files."""
        return _ScratchFile(self, path, size)

    def write_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:  # noqa: ARG002
        """Like the engine's files."""
        self.own(path)
        super().write_file(path, data, sync=False)

    def sync_directory(self, path: Path) -> None:
        """Does nothing."""

    def sync_file(self, path: Path) -> None:
        """Does nothing."""


class _ScratchFile(File):
    """A file that is read through its link until it is written to."""

    def __init__(self, files: ScratchFiles, path: Path, size: int) -> None:
        super().__init__(path, size)
        self._files = files

    def _open(self) -> int:
        flags = os.O_RDONLY if self.path.is_symlink() else os.O_RDWR
        return os.open(self.path, flags | os.O_CLOEXEC)

    def _own(self) -> None:
        if self.path.is_symlink():
            self._files.own(self.path)
            self._release()

    def _make_mapping(self) -> Any:
        self._own()
        return super()._make_mapping()

    def _pwrite(self, data: Buffer, position: int) -> int:
        self._own()
        return super()._pwrite(data, position)

    def reserve(self, start: int, end: int) -> None:
        self._own()
        super().reserve(start, end)

    def sync(self) -> None:
        pass
