"""The broker's list of fixed-size files in one directory, with positions, during a start.

A model of MappedFileQueue: nothing is mapped, created or deleted; the action log notes what would be. Source:
MappedFileQueue, MappedFile (4.9.7); MappedFileQueue, DefaultMappedFile (5.5.0).
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import file_names, java
from mqtool.formats.codec import Unit
from mqtool.formats.release import Release
from mqtool.recovery.action_log import Action, ActionLog, StartHung, load_fails
from mqtool.store.files import ReadFile, is_absent, unreadable

LENGTH_NOT_MATCHED = "length not matched message store config value, please check it manually"
"""How the broker refuses a file of another length."""


_LAST_FILES = 3
"""Files of a queue that recovery reads."""


class Entry(Struct, frozen=True):
    """One name in a directory, as java.io.File sees it."""

    path: Path  # and size, is_directory: of what it leads to; 0 bytes and no directory if that is nothing
    size: int
    is_directory: bool
    problem: str = ""  # why it cannot be opened for writing; "" if it can

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name


def list_entries(directory: Path) -> list[Entry] | None:
    """Lists a directory in the order of the system, like File.listFiles; None if that returns null.

    Java treats a path with a NUL as one that does not exist. Raises UnreadableError if it cannot be listed: whether the
    broker could list it is unknown.
    """
    try:
        with os.scandir(directory) as entries:
            return [entry_of(Path(item.path)) for item in entries]
    except ValueError:
        return None
    except OSError as error:
        if is_absent(error) or error.errno == errno.ENAMETOOLONG:
            return None
        raise unreadable("cannot be listed", error, directory) from error


def entry_of(path: Path) -> Entry:
    """Returns what java.io.File sees at a path."""
    try:
        status = path.stat()
    except OSError as error:  # a link that leads nowhere: java.io.File says length 0, no directory
        if not is_absent(error):
            raise
        is_made = error.errno == errno.ENOENT and Path(os.path.realpath(path)).parent.is_dir()
        return Entry(path, 0, is_directory=False, problem="" if is_made else error.strerror or str(error))
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, status.st_size, is_directory=True, problem="Is a directory")
    return Entry(path, status.st_size, is_directory=False)


def obstacle(directory: Path) -> Path | None:
    """Returns the path that prevents a directory from being created; None if nothing does."""
    existing = next((path for path in (directory, *directory.parents) if os.path.lexists(path)), None)
    return None if existing is None or existing.is_dir() else existing


def base_of(name: str) -> int:
    """Returns file_from_offset by the broker's own rule, Long.parseLong; raises FormatError as it throws."""
    return java.parse_long(name)


def stated_base(entry: Entry) -> int:
    """Returns file_from_offset of a file; raises StartFailed if its name is not a number to the broker."""
    try:
        return base_of(entry.name)
    except FormatError:
        reason = f'load exception java.lang.NumberFormatException: For input string: "{entry.name}"'
        raise load_fails(reason) from None


def is_a_directory(path: Path) -> str:
    """Returns Java's message for opening a directory as a file."""
    return not_opened(path, "Is a directory")


def not_opened(path: Path, problem: str) -> str:
    """Returns Java's message for a file that cannot be opened."""
    return f"java.io.FileNotFoundException: {path} ({problem})"


class SimulatedFile:
    """One file of a list.

    Attributes:
        entries: each record in it is the body of a DLedger entry.
    """

    entries = False

    def __init__(self, path: Path, base: int, wrote: int, *, is_new: bool = False, is_first: bool = False) -> None:
        self.path = path  # of the existing or future file
        self.base = base  # file_from_offset
        self.wrote = wrote  # number of bytes that count as written; what follows is not read
        self.is_new = is_new  # created by this start, filled with zeros
        self.is_first = is_first  # created while the list was empty


F = TypeVar("F", bound=SimulatedFile)


class MappedFiles(ABC, Generic[F]):
    """Files in the order of their names; subclasses define their content."""

    def __init__(self, directory: Path, file_size: int, actions: ActionLog) -> None:
        self.directory = directory  # where new files are created
        self.file_size = file_size  # configured size in bytes
        self.files: list[F] = []  # the present list
        self._actions = actions

    def load(self, entries: Iterable[Entry], *, release: Release) -> None:
        """Loads the files of a directory (MappedFileQueue.doLoad); raises StartFailed if the broker refuses one."""
        ordered = sorted(entries, key=lambda entry: java.utf16_units(entry.name))
        for number, entry in enumerate(ordered):
            if release >= (5, 0) and entry.is_directory:
                continue
            if release >= (5, 0) and entry.size == 0 and number == len(ordered) - 1:
                self._actions.do(Action.DELETE, entry.path)
                self._actions.log_reason(
                    "an empty file that is the last by name is deleted (MappedFileQueue.doLoad, 5.5)"
                )
                continue
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        if entry.size != self.file_size:
            raise load_fails(f"{entry.path} {entry.size} {LENGTH_NOT_MATCHED}")
        base = stated_base(entry)
        if entry.problem:
            raise load_fails(f"load file {entry.path} error {not_opened(entry.path, entry.problem)}")
        self.files.append(self._loaded(entry, base))

    @abstractmethod
    def _loaded(self, entry: Entry, base: int) -> F:
        """Returns the model of an existing file."""

    @abstractmethod
    def _new_file(self, path: Path, base: int, *, is_first: bool) -> F:
        """Returns the model of a new file."""

    @property
    def last(self) -> F | None:
        """The last file by name."""
        return self.files[-1] if self.files else None

    @property
    def min_offset(self) -> int:
        """Base of the first file, -1 if there is none (CommitLog.getMinOffset)."""
        return self.files[0].base if self.files else -1

    @property
    def max_offset(self) -> int:
        """End of the last file's written bytes, 0 if there is no file (MappedFileQueue.getMaxOffset)."""
        return self.files[-1].base + self.files[-1].wrote if self.files else 0

    def find(self, offset: int, *, or_first: bool = False) -> F | None:
        """Returns the file with an offset, by name order (MappedFileQueue.findMappedFileByOffset).

        The index of the file is computed from the first file's base; then the list is searched. With equal or
        irregular bases the computed index decides.
        """
        if not self.files:
            return None
        first, size = self.files[0], self.file_size
        if first.base <= offset < self.files[-1].base + size:
            guess = java.divide(offset, size) - java.divide(first.base, size)
            if 0 <= guess < len(self.files) and self._covers(self.files[guess], offset):
                return self.files[guess]
            match = next((file for file in self.files if self._covers(file, offset)), None)
            if match is not None:
                return match
        return first if or_first else None

    def _covers(self, file: F, offset: int) -> bool:
        return file.base <= offset < file.base + self.file_size

    def truncate_dirty(self, offset: int) -> None:
        """Cuts the file with an offset and deletes those after it (MappedFileQueue.truncateDirtyFiles)."""
        kept = []
        for file in self.files:
            if file.base + self.file_size > offset:
                if offset < file.base:
                    self._actions.do(Action.DELETE, file.path)
                    continue
                self.set_position(file, self.remainder(offset))
            kept.append(file)
        self.files = kept

    def set_position(self, file: F, position: int) -> None:
        """Sets the end of a file's data."""
        if file.wrote != position:
            self._actions.do(Action.TRUNCATE, file.path, position)
        file.wrote = position

    def delete_last(self) -> None:
        """Deletes the last file (MappedFileQueue.deleteLastMappedFile)."""
        self._actions.do(Action.DELETE, self.files.pop().path)

    def destroy(self) -> None:
        """Deletes every file."""
        for file in self.files:
            self._actions.do(Action.DELETE, file.path)
        self.files = []

    def last_for_append(self, start_offset: int) -> F:
        """Returns the last file, or a new one if there is none or it is full (MappedFileQueue.getLastMappedFile).

        The offset decides the base of the very first file only.
        """
        last = self.last
        if last is not None and last.wrote != self.file_size:
            return last
        base = start_offset - self.remainder(start_offset) if last is None else last.base + self.file_size
        path = self.directory / _file_name(base)
        new_file = self._new_file(path, base, is_first=last is None)
        if all(file.path != path for file in self.files):
            self._actions.do(Action.CREATE, path, self.file_size)
        self.files.append(new_file)
        return new_file

    def remainder(self, offset: int) -> int:
        """Returns Java's `offset % file_size`, which has the sign of the offset."""
        return offset - java.divide(offset, self.file_size) * self.file_size


class Segments(MappedFiles[SimulatedFile]):
    """The files of the CommitLog, of the timer log, or of a queue's extension."""

    def _loaded(self, entry: Entry, base: int) -> SimulatedFile:
        return SimulatedFile(entry.path, base, self.file_size)

    def _new_file(self, path: Path, base: int, *, is_first: bool) -> SimulatedFile:
        return SimulatedFile(path, base, 0, is_new=True, is_first=is_first)


def _file_name(base: int) -> str:
    digits = file_names.MAPPED_FILE_NAME_DIGITS
    return f"{base:0{digits}d}" if base >= 0 else f"-{-base:0{digits}d}"


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
