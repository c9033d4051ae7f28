"""Recovers a store as a broker does: the engine works on a scratch copy, and the files that differ are the change.

The files of the scratch copy are links until they are written to.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mqtool.engine import Compat, RecoveryMode
from mqtool.engine.disk.files import File, Files
from mqtool.engine.options import StoreOptions
from mqtool.engine.start.detect import options_for
from mqtool.engine.store import open_store
from mqtool.errors import RefusedError, StoreError
from mqtool.formats import file_names
from mqtool.formats.codec import Buffer
from mqtool.repair.changes import Recover
from mqtool.repair.paths import HOME
from mqtool.repair.staged_files import StagedFiles, check_queues
from mqtool.store.files import copy_file
from mqtool.store.store import Store

_OWN = (file_names.LOCK, HOME)
"""Names below the root that the scratch copy does not take over."""


def link_tree(root: Path, scratch: Path) -> None:
    """Fills a scratch copy with links to every file of a store; its directories must not be symbolic links."""
    for directory, names, files in os.walk(root):
        here = Path(directory)
        target = scratch / here.relative_to(root)
        target.mkdir(parents=True, exist_ok=True)
        if here == root:
            names[:] = [name for name in names if name not in _OWN]
        for name in names:
            if (here / name).is_symlink():
                raise RefusedError("path", "a symbolic link: changes do not follow links", here / name)
        for name in files:
            if here != root or name not in _OWN:
                (target / name).symlink_to(here / name)


class ScratchFiles(Files):
    """The file system of one scratch copy: a write turns a link into a file first. Nothing needs to be durable."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def own(self, path: Path) -> None:
        """Turns a link into a copy of its file; raises OSError if the path is outside of the scratch copy."""
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


class _FixedClock:
    """The time at which the plan was made, so that `apply` builds the same bytes."""

    def __init__(self, time: int) -> None:
        self._time = time

    def now(self) -> int:
        return self._time

    def sleep(self, seconds: float) -> None:
        pass


def recover(store: Store, change: Recover, out: Path, staged: StagedFiles) -> None:
    """Opens and closes a scratch copy with the engine, and takes every file that differs afterwards.

    Raises LayoutError, in the broker's words, if it would refuse the store.
    """
    check_queues(store)
    mode = RecoveryMode(change.mode)
    options = options_for(store.path, store.config, Compat(change.release), recovery=mode)
    files = ScratchFiles(out)
    link_tree(store.path, out)
    with _named_as(store.path, out):
        options = _moved(options, store.path, out)
        open_store(out, options, background=False, clock=_FixedClock(change.time), files=files).close()
    _collect(store.path, out, files, staged)
    staged.read_log(store, full=False)
    staged.read_settings(store)


def _moved(options: StoreOptions, root: Path, scratch: Path) -> StoreOptions:
    """Returns options with the directories of the scratch copy; `check_layout` has refused other layouts."""

    def below(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(scratch / path.relative_to(root) for path in paths)

    return replace(
        options, commit_log_dirs=below(options.commit_log_dirs), read_only_dirs=below(options.read_only_dirs)
    )


@contextmanager
def _named_as(root: Path, scratch: Path) -> Iterator[None]:
    """Replaces paths of the scratch copy in errors by those of the store."""
    try:
        yield
    except StoreError as error:
        if error.path.is_relative_to(scratch):
            error.path = root / error.path.relative_to(scratch)
        error.args = tuple(str(word).replace(str(scratch), str(root)) for word in error.args)
        raise


def _collect(root: Path, scratch: Path, files: ScratchFiles, staged: StagedFiles) -> None:
    present = set()
    for path in sorted(scratch.rglob("*")):
        name = path.relative_to(scratch).as_posix()
        if path.is_symlink():
            if path.readlink() == root / name:
                present.add(name)
                continue
            files.own(path)  # a file that was moved to the engine's quarantine
        if path.is_file() and name != file_names.LOCK:
            present.add(name)
            staged.put(name, path)
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file() and name not in present and name.partition("/")[0] not in _OWN:
            staged.remove(path)
