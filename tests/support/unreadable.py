"""Files and directories that the system does not let be read, for tests that run as a user who may read all."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqtool.errors import UnreadableError
from mqtool.store import files


def denied(_path: Path) -> int:
    raise UnreadableError("cannot be opened: Permission denied", _path)


@contextmanager
def unreadable(
    monkeypatch: pytest.MonkeyPatch, path: Path, *, from_position: int | None = None, until: int = 1 << 62
) -> Iterator[None]:
    """A file that cannot be opened, or whose bytes from a position on, until another, cannot be read."""
    opened, read, read_into = files.open_regular, files._LocalBytes.read, files._LocalBytes.read_into

    def opens(asked: Path, flags: int) -> int:
        return denied(asked) if asked == path and from_position is None else opened(asked, flags)

    def fails(self: Any, position: int, count: int) -> bool:
        is_there = from_position is not None and position < until and position + count > from_position
        return self._path == path and is_there

    def reads(self: Any, position: int, count: int) -> bytes:
        if fails(self, position, min(count, self.size - position)):
            raise UnreadableError(f"cannot be read at position {position}: {os.strerror(5)}", path)
        return read(self, position, count)

    def reads_into(self: Any, position: int, target: memoryview) -> int:
        if fails(self, position, min(len(target), self.size - position)):
            raise UnreadableError(f"cannot be read at position {position}: {os.strerror(5)}", path)
        return read_into(self, position, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_regular", opens)
        patch.setattr(files._LocalBytes, "read", reads)
        patch.setattr(files._LocalBytes, "read_into", reads_into)
        yield


@contextmanager
def unlistable(monkeypatch: pytest.MonkeyPatch, directory: Path, code: int = errno.EACCES) -> Iterator[None]:
    """A directory that cannot be listed; with EACCES no path below it can be looked at, as after `chmod 000`."""

    def guarded(call: Callable[..., Any], *, itself: bool) -> Callable[..., Any]:
        def asks(path: Any = ".", *args: Any, **options: Any) -> Any:
            where = Path(path) if isinstance(path, str | Path) else Path()
            is_below = code == errno.EACCES and directory in where.parents
            if is_below or (itself and where == directory):
                raise OSError(code, os.strerror(code), str(path))
            return call(path, *args, **options)

        return asks

    with monkeypatch.context() as patch:
        for name, itself in (("scandir", True), ("listdir", True), ("stat", False), ("open", False)):
            patch.setattr(os, name, guarded(getattr(os, name), itself=itself))
        yield
