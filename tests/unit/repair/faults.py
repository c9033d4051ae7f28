"""File systems on which a change dies: killed before a call, losing what was not synced, reporting errors."""

import errno
import os
import random
from pathlib import Path

from mqtool.repair.files import RepairFiles

CHANGING = (
    "append",
    "create",
    "cut",
    "imitate",
    "keep",
    "make_directory",
    "own",
    "remove",
    "remove_directory",
    "rename",
    "set_times",
    "sync",
    "sync_directory",
    "write_file",
)
"""Calls that change what is on disk, or make it stay."""


class Killed(BaseException):
    """The process is gone: nothing that catches exceptions may run."""


class DyingFiles(RepairFiles):
    """Dies just before a call; without a number it only counts.

    Attributes:
        calls: how many there were.
    """

    def __init__(self, dies_at=None):
        self.calls = 0
        self._dies_at = dies_at

    def _count(self, name, path):
        if self.calls == self._dies_at:
            raise Killed(name, path)
        self.calls += 1


class FailingFiles(DyingFiles):
    """Reports an error at a call, and goes on after it.

    Attributes:
        failed: what failed.
    """

    def __init__(self, fails_at=None, code=errno.ENOSPC, names=CHANGING):
        super().__init__(fails_at)
        self.failed = None
        self._code = code
        self._names = names

    def _count(self, name, path):
        if name not in self._names:
            return
        if self.calls == self._dies_at:
            self.failed = (name, path)
            self.calls += 1
            raise OSError(self._code, os.strerror(self._code), str(path))
        self.calls += 1


class BrokenFiles(DyingFiles):
    """The disk breaks at a call: this one and all later ones report an error."""

    def _count(self, name, path):
        self.calls += 1
        if self.calls > self._dies_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def _counted(name):
    def call(self, path, *arguments, **named):
        self._count(name, path)
        return getattr(RepairFiles, name)(self, path, *arguments, **named)

    return call


for _name in CHANGING:
    setattr(DyingFiles, _name, _counted(_name))


class LossyFiles(DyingFiles):
    """Dies as in a power cut: data and names that no sync covered are lost, or not.

    A name is on disk once its directory was synced; of later ones the first so many are, for a journal keeps their
    order. Data is on disk once its file was synced, whoever wrote it.
    """

    def __init__(self, root: Path, dies_at=None):
        super().__init__(dies_at)
        self._root = root
        self._durable: set[int] = {path.stat().st_ino for path in root.rglob("*") if path.is_file()}
        self._names: list[tuple[str, Path, Path | None]] = []

    def append(self, path, data):
        fresh = not path.exists()
        super().append(path, data)
        self._synced(path, fresh)

    def write_file(self, path, data):
        fresh = not path.exists()
        super().write_file(path, data)
        self._synced(path, fresh)

    def _synced(self, path, fresh):
        self._durable.add(path.stat().st_ino)
        if fresh:
            self._names.append(("made", path, None))

    def sync(self, path):
        super().sync(path)
        self._durable.add(path.stat().st_ino)

    def keep(self, path, target):
        super().keep(path, target)
        self._names.append(("made", target, None))

    def rename(self, path, target):
        spare = self._spare(target) if target.exists() else None
        super().rename(path, target)
        self._names.append(("moved", path, target))
        if spare is not None:
            self._names.append(("hid", target, spare))

    def remove(self, path):
        spare = self._spare(path) if path.exists() and not path.is_symlink() else None
        super().remove(path)
        if spare is not None:
            self._names.append(("hid", path, spare))

    def _spare(self, path):
        spare = self._root.parent / f"spare-{len(self._names)}-{self.calls}"
        os.link(path, spare)
        return spare

    def sync_directory(self, path):
        super().sync_directory(path)
        self._names.clear()  # a journal writes what came before, too

    def power_cut(self, chance: random.Random):
        """Makes the store what a power cut might leave of it."""
        kept = chance.randint(0, len(self._names))
        for kind, path, other in reversed(self._names[kept:]):
            if kind == "made":
                path.unlink(missing_ok=True)
            elif kind == "hid":
                if not path.parent.exists():
                    path.parent.mkdir(parents=True)
                if not path.exists():
                    os.link(other, path)
            elif other.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                other.rename(path)
        for path in self._root.rglob("*"):
            if path.is_file() and path.stat().st_ino not in self._durable:
                data = path.read_bytes()
                path.write_bytes(bytes(len(data)) if chance.random() < 0.5 else data[: len(data) // 2])
        for spare in self._root.parent.glob("spare-*"):
            spare.unlink()
