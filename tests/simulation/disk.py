"""A disk that fails, fills up, or ends the process at a chosen operation."""

import errno
import os
import random
from pathlib import Path
from typing import Any

from mqtool.engine.disk.files import File
from tests.support.engine_faults import LossyFiles


class Killed(SystemExit):
    """The process is killed here: nothing after this point is executed. No `except Exception` catches it."""


class SimulatedFile(File):
    """A file whose every change is an operation of the disk."""

    def __init__(self, path: Path, size: int, disk: "SimulatedDisk") -> None:
        super().__init__(path, size)
        self._disk = disk

    def _pwrite(self, data: Any, position: int) -> int:
        if self._disk.operation("write", self.path) and len(data) > 1:
            return super()._pwrite(memoryview(data)[: len(data) // 2], position)
        return super()._pwrite(data, position)

    def reserve(self, start: int, end: int) -> None:
        self._disk.operation("reserve", self.path)
        super().reserve(start, end)

    def sync(self) -> None:
        self._disk.operation("sync", self.path)
        super().sync()
        self._disk.note_synced(self.path)


class SimulatedDisk(LossyFiles):
    """Counts operations; what happens at which of them is decided before.

    Attributes:
        operations: how many there were.
        kill_at: number of the operation at which the process is killed, before it; None for never.
        full: no space is left: whatever needs some reports ENOSPC.
        error_rate: share of the operations that report EIO.
        short_rate: share of the writes that take only half of what they are given.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.operations = 0
        self.kill_at: int | None = None
        self.full = False
        self.error_rate = self.short_rate = 0.0
        self.errors = 0

    def operation(self, kind: str, path: Path) -> bool:
        """Counts an operation and lets the planned fault happen; returns whether a write is to be short.

        Raises:
            Killed: the process ends here.
            OSError: the disk is full or broken.
        """
        self.operations += 1
        if self.operations == self.kill_at:
            raise Killed
        if self.full and kind in {"create", "reserve"}:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if self.error_rate and self._chance.random() < self.error_rate:
            self.errors += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return kind == "write" and self._chance.random() < self.short_rate

    def open(self, path: Path, size: int) -> File:
        super().open(path, size)  # notes what of it is on the disk
        return SimulatedFile(path, size, self)

    def create(self, path: Path, size: int) -> File:
        self.operation("create", path)
        return super().create(path, size)

    def write_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        self.operation("create", path)
        super().write_file(path, data, sync=sync)

    def rename(self, path: Path, target: Path) -> None:
        self.operation("rename", path)
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        self.operation("remove", path)
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self.operation("sync", path)
        super().sync_directory(path)

    def heal(self) -> None:
        """Ends all faults: the disk works again, and a new process begins."""
        self.kill_at, self.full, self.error_rate, self.short_rate = None, False, 0.0, 0.0

    def used_ratio(self, path: Path) -> float:
        return 0.99 if self.full else 0.3
