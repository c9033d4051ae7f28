"""The units in a queue's files as they are on disk, and as a start would leave them.

Reads complete files, never writes: appended units are kept in memory until the plan is carried out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mqtool.formats.codec import Unit
from mqtool.recovery.action_log import ActionLog, StartHung
from mqtool.recovery.mapped_files import Entry, MappedFiles, SimulatedFile
from mqtool.store.files import ReadFile

_LAST_FILES = 3
"""Files of a queue that recovery reads."""


class UnitContent:
    """The units of one file, shared by every list entry that maps it."""

    def __init__(self, path: Path, unit: Unit[Any], size: int, *, is_new: bool) -> None:
        """Takes a file of `size` bytes; a new one is all zeros, whatever is at its path."""
        self.path = path
        self.unit = unit
        self.is_new = is_new
        self.changed_from: int | None = None  # position of the first unit that was written in memory; None if none was
        self._count = size // unit.size
        self._written: np.ndarray | None = None

    def units(self) -> np.ndarray:
        """Returns the units of the complete file, written or not."""
        if self._written is not None:
            return self._written
        return np.zeros(self._count, self.unit.dtype) if self.is_new else self.on_disk()

    def on_disk(self) -> np.ndarray:
        """Returns the units in the file on disk."""
        return self._read(0, self._count)

    def unit_at(self, number: int) -> np.void:
        """Returns one unit, counted from the file's first, without reading the others."""
        if self._written is None and not self.is_new:
            unit: np.void = self._read(number, 1)[0]
        else:
            unit = self.units()[number]
        return unit

    def _read(self, first: int, count: int) -> np.ndarray:
        content = np.zeros(count * self.unit.size, np.uint8)  # takes memory for what is read only
        start = first * self.unit.size
        with ReadFile(self.path) as file:
            filled = max(0, min(file.data_end() - start, len(content)))
            file.read_into(start, content.data[:filled])
        return content.view(self.unit.dtype)

    def write(self, position: int, values: tuple[int, ...]) -> None:
        """Sets the unit at a position."""
        if self._written is None:
            self._written = self.units()
        if self.changed_from is None or position < self.changed_from:
            self.changed_from = position
        self._written[position // self.unit.size] = values

    @property
    def is_changed(self) -> bool:
        """Whether the file's bytes would be different afterwards."""
        return (self.is_new or self._written is not None) and bool((self.units() != self.on_disk()).any())


class QueueFile(SimulatedFile):
    """One file of a queue."""

    def __init__(self, path: Path, base: int, wrote: int, content: UnitContent, *, is_first: bool = False) -> None:
        super().__init__(path, base, wrote, is_new=content.is_new, is_first=is_first)
        self.content = content

    @property
    def changed_from(self) -> int | None:
        """Position of the first unit that was written in memory; None if none was."""
        return self.content.changed_from

    def units(self) -> np.ndarray:
        """Returns the units of the complete file, written or not."""
        return self.content.units()

    def unit_at(self, number: int) -> np.void:
        """Returns one unit, counted from the file's first."""
        return self.content.unit_at(number)

    def append(self, values: tuple[int, ...]) -> None:
        """Appends one unit."""
        self.content.write(self.wrote, values)
        self.wrote += self.content.unit.size


class FileBlocked(Exception):  # noqa: N818 - an obstacle, not an error
    """A file of a queue cannot be created."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path  # of the directory that is there


class QueueFiles(MappedFiles[QueueFile]):
    """The files of one queue."""

    def __init__(self, directory: Path, file_size: int, unit: Unit[Any], actions: ActionLog) -> None:
        super().__init__(directory, file_size, actions)
        self.unit = unit

    def _loaded(self, entry: Entry, base: int) -> QueueFile:
        content = UnitContent(entry.path, self.unit, self.file_size, is_new=False)
        return QueueFile(entry.path, base, self.file_size, content)

    def _new_file(self, path: Path, base: int, *, is_first: bool) -> QueueFile:
        """Creates a file; if a file in the list has its path under another base, both map the same bytes.

        Raises FileBlocked if a directory has its path, which 5.5 ignores when it loads the queue.
        """
        if path.is_dir():
            raise FileBlocked(path)
        shared = next((file.content for file in self.files if file.path == path), None)
        content = shared or UnitContent(path, self.unit, self.file_size, is_new=True)
        return QueueFile(path, base, 0, content, is_first=is_first)

    def follow_units(self, is_unit: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int, np.void | None, np.ndarray]:
        """Follows the units from the third last file on up to the first invalid one, as both kinds of queue recover.

        Returns the number of the file in which they end; how many of its units are valid; the last valid unit, which
        may be of the file before, None if there is none; and the rest of that file's units.
        """
        last: np.void | None = None
        number = max(0, len(self.files) - _LAST_FILES)
        while True:
            units = self.files[number].units()
            run = valid_run(is_unit(units))
            if run:
                last = units[run - 1]
            if run * self.unit.size != self.file_size or number + 1 == len(self.files):
                return number, run, last, units[run:]
            number += 1

    def truncate_units(
        self, physical_offset: int, is_unit: Callable[[np.ndarray], np.ndarray], where: str
    ) -> np.void | None:
        """Drops the units at or past the log's end, as both kinds of queue do (truncateDirtyLogicFiles).

        The first unit of a file is accepted without a check of its size. Returns the last unit that stays, None if no
        file stays. Raises StartHung, which names a class of the broker, if a file has room for one unit only: the
        broker's loop over it never ends.
        """
        while self.files:
            file = self.files[-1]
            units = file.units()
            if int(units["physical_offset"][0]) >= physical_offset:
                self.delete_last()
                continue
            if len(units) == 1:
                raise StartHung(f"load() in {where}.truncateDirtyLogicFiles: files of one unit")
            good = is_unit(units) & (units["physical_offset"] < physical_offset)
            good[0] = True
            run = valid_run(good)
            self.set_position(file, run * self.unit.size)
            last: np.void = units[run - 1]
            return last
        return None


def valid_run(valid: np.ndarray) -> int:
    """Returns the number of true items before the first false one."""
    return len(valid) if valid.all() else int(np.argmin(valid))
