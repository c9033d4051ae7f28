"""File systems that lose power or report errors, and stores that end without closing."""

import errno
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from mqtool.engine import MessageStore
from mqtool.engine.disk.files import File, Files

SECTOR = 512
SHARED_MEMORY = Path("/dev/shm")


def fast_directory() -> Path:
    """A new directory in memory, where there is one: these tests sync a great deal."""
    where = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="mqtool-", dir=where))


def kill(store: MessageStore) -> None:
    """Ends a store as kill -9 does: nothing more is written, what was written stays."""
    parts = store._components
    parts.queues.close()
    if parts.index is not None:
        parts.index.close()
    parts.log.queue.close()
    parts.lock.release()
    store._closed = True


class _LossyFile(File):
    """A file that knows what of it is on disk."""

    def __init__(self, path: Path, size: int, files: "LossyFiles") -> None:
        super().__init__(path, size)
        self._files = files

    def sync(self) -> None:
        super().sync()
        self._files.note_synced(self.path)


class LossyFiles(Files):
    """Loses at a power cut what was not synced: sector by sector, and names that no directory sync has covered.

    What was on disk before it was made counts as synced.
    """

    def __init__(self) -> None:
        self._synced: dict[Path, bytes] = {}
        self._names: list[tuple[str, Path, bytes | None]] = []
        self._boots = 0

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def note_synced(self, path: Path) -> None:
        self._synced[path] = path.read_bytes()

    def open(self, path: Path, size: int) -> File:
        if path not in self._synced:
            self._synced[path] = path.read_bytes() if not self._is_new(path) else bytes(size)
        return _LossyFile(path, size, self)

    def create(self, path: Path, size: int) -> File:
        if not path.exists():
            self._names.append(("create", path, None))
            self._synced[path] = bytes(size)
        return super().create(path, size)

    def _is_new(self, path: Path) -> bool:
        return any(kind == "create" and made == path for kind, made, _ in self._names)

    def write_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        if not path.exists():
            self._names.append(("create", path, None))
        super().write_file(path, data, sync=sync)
        self._synced[path] = data if sync else b""

    def rename(self, path: Path, target: Path) -> None:
        self._synced[target] = self._synced.pop(path, path.read_bytes())
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        if path.exists():
            self._names.append(("remove", path, self._synced.pop(path, path.read_bytes())))
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self._names.clear()  # a journal writes what came before, too

    def power_cut(self, chance: random.Random) -> None:
        """Makes the directory what a power cut might leave of it."""
        self._boots += 1
        kept = chance.randint(0, len(self._names))
        for kind, path, data in reversed(self._names[kept:]):
            if kind == "create":
                path.unlink(missing_ok=True)
                self._synced.pop(path, None)
            else:
                path.write_bytes(data or b"")
                self._synced[path] = data or b""
        self._names.clear()
        for path, synced in self._synced.items():
            if path.exists():
                current = path.read_bytes()
                if current != synced:
                    path.write_bytes(_mixed(current, synced, chance))


def _mixed(current: bytes, synced: bytes, chance: random.Random) -> bytes:
    """Each sector as it was synced, as it is, or torn in the middle."""
    old = synced.ljust(len(current), b"\0")
    bias, pieces = chance.random(), []
    for at in range(0, len(current), SECTOR):
        new_part, old_part = current[at : at + SECTOR], old[at : at + SECTOR]
        if new_part == old_part or chance.random() < bias:
            pieces.append(new_part)
        elif chance.random() < 0.2:
            cut = chance.randrange(len(new_part))
            pieces.append(new_part[:cut] + old_part[cut:])
        else:
            pieces.append(old_part)
    return b"".join(pieces)


class FailingFiles(Files):
    """Reports errors when told to.

    Attributes:
        errors: errno by operation: "create", "reserve", "write", "sync"; absent for none.
        short_writes: every write takes only half of what it is given.
        only: substring of the paths that are concerned.
    """

    def __init__(self, only: str = "") -> None:
        self.errors: dict[str, int] = {}
        self.short_writes = False
        self.only = only

    def fail(self, operation: str, path: Path) -> None:
        code = self.errors.get(operation)
        if code is not None and self.only in str(path):
            raise OSError(code, os.strerror(code), str(path))

    def create(self, path: Path, size: int) -> File:
        self.fail("create", path)
        return super().create(path, size)

    def open(self, path: Path, size: int) -> File:
        return _FailingFile(path, size, self)


class _FailingFile(File):
    def __init__(self, path: Path, size: int, files: FailingFiles) -> None:
        super().__init__(path, size)
        self._files = files

    def write(self, position: int, data: Any) -> None:
        self._files.fail("write", self.path)
        super().write(position, data)

    def _pwrite(self, data: Any, position: int) -> int:
        if self._files.short_writes and len(data) > 1:
            return super()._pwrite(memoryview(data)[: len(data) // 2], position)
        return super()._pwrite(data, position)

    def reserve(self, start: int, end: int) -> None:
        self._files.fail("reserve", self.path)
        super().reserve(start, end)

    def sync(self) -> None:
        self._files.fail("sync", self.path)
        super().sync()


NO_SPACE, BAD_DISK = errno.ENOSPC, errno.EIO


def remove(directory: Path) -> None:
    """Removes a directory made by `fast_directory`."""
    shutil.rmtree(directory, ignore_errors=True)
