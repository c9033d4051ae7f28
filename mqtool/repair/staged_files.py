"""The built result of changes, the new places of moved records, and the checks that a store can be changed at all."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from mqtool.errors import LayoutError, UnsupportedFormatError, UsageError
from mqtool.formats import file_names
from mqtool.repair.paths import check_name, inside
from mqtool.store.config.metadata import require_readable
from mqtool.store.config.rocksdb import is_database
from mqtool.store.files import list_directory
from mqtool.store.paths import is_inside
from mqtool.store.queues.rocksdb_queues import queue_database
from mqtool.store.store import Store


class Moves:
    """Ranges of a log that moved, each by one distance, ascending in both logs; bytes outside of them are left out.

    A range takes 24 bytes: where kept and purged records alternate there is one for each record.
    """

    def __init__(self, start: int = 0) -> None:
        """Starts without a range."""
        self.start = start  # physical offset at which the new log begins
        self._old, self._new, self._length = array("q"), array("q"), array("q")

    def add(self, old: int, new: int, length: int) -> None:
        """Adds a range after all others, or extends the last one if both move by the same distance without a gap."""
        if self._old:
            moved = self._length[-1]
            if self._old[-1] + moved == old and self._new[-1] + moved == new:
                self._length[-1] = moved + length
                return
        self._old.append(old)
        self._new.append(new)
        self._length.append(length)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yields (old, new, length) of each range."""
        return zip(self._old, self._new, self._length, strict=True)

    def records(self, physical: np.ndarray) -> np.ndarray:
        """Returns the new physical offsets of records, int64; -1 for records that are left out."""
        if not self._old:
            return np.full(len(physical), -1, np.int64)
        old, new, length = (np.frombuffer(column, np.int64) for column in (self._old, self._new, self._length))
        number = np.maximum(np.searchsorted(old, physical, side="right") - 1, 0)
        shift = physical - old[number]
        return np.where((shift >= 0) & (shift < length[number]), new[number] + shift, -1)

    def position(self, physical: int) -> int:
        """Returns the new end of what is kept before an old physical offset."""
        number = bisect_right(self._old, physical) - 1
        if number < 0:
            return self.start
        return self._new[number] + min(physical - self._old[number], self._length[number])

    def origin(self, physical: int) -> int | None:
        """Returns the old offset of the last byte before a new physical offset; None if there is none."""
        number = bisect_right(self._new, physical - 1) - 1
        if number < 0:
            return None
        return self._old[number] + min(physical - self._new[number], self._length[number]) - 1


class StagedFiles(Struct):
    """The result of changes, before it is compared with the store. Paths are relative to the root."""

    root: Path  # root of the store
    files: dict[str, Path] = field(default_factory=dict)  # new files, by path
    removed: set[str] = field(default_factory=set)  # paths of files that are removed without a replacement
    # Paths that the result depends on, and whether it depends on every byte.
    reads: dict[str, bool] = field(default_factory=dict)
    unhashed: set[str] = field(default_factory=set)  # removed paths that are compared by size and time only
    keeps_time: set[str] = field(default_factory=set)  # paths whose new file gets the modification time of the old one
    notes: list[str] = field(default_factory=list)  # remarks for the reader of the plan
    complete: bool = True  # False if damage prevented a rebuild or repair
    moves: Moves | None = None  # new places of the records of the log; None if no record moves
    # int64, ascending: physical offsets of records that are removed on request.
    purged: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def name(self, path: Path) -> str:
        """Returns the path of a file of the store as plans write it; refuses one that a symbolic link leads to."""
        name = path.relative_to(self.root).as_posix()
        inside(self.root, name)
        return name

    def put(self, name: str, path: Path, *, keep_time: bool = False) -> None:
        """Adds a new file; raises UsageError if an earlier change concerns the same file."""
        if name in self.files or name in self.removed:
            raise UsageError(f"two changes affect {name}: apply one after the other")
        self.files[check_name(name, self.root)] = path
        if keep_time:
            self.keeps_time.add(name)

    def put_tree(self, out: Path) -> list[str]:
        """Adds every file below a directory and returns their names."""
        names = [path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if path.is_file()]
        for name in names:
            self.put(name, out / name)
        return names

    def remove(self, path: Path) -> None:
        """Marks a file of the store as removed."""
        name = self.name(path)
        if name in self.files:
            raise UsageError(f"two changes affect {name}: apply one after the other")
        self.removed.add(name)

    def read_log(self, store: Store, *, full: bool = True) -> None:
        """Notes that the result depends on the whole log."""
        for segment in store.commit_log.segments:
            name = self.name(segment.path)
            self.reads[name] = full or self.reads.get(name, False)

    def read_settings(self, store: Store) -> None:
        """Notes that the result depends on configuration and checkpoint, which determine the release and its rules."""
        entries = [entry.name for entry in list_directory(store.path / file_names.CONFIG) if entry.is_file()]
        names = [f"{file_names.CONFIG}/{name}" for name in entries if name.endswith(".json")]
        if (store.path / file_names.CHECKPOINT).is_file():
            names.append(file_names.CHECKPOINT)
        for name in names:
            self.reads.setdefault(name, True)


Builder = Callable[[Store, Any, Path, StagedFiles], None]
"""`builder(store, change, out, built)`: makes what a change asks for below an empty directory, and says so."""


def check_layout(store: Store) -> None:
    """Checks that a store has a plain CommitLog below its root."""
    layout = store.layout
    if layout.dledger_dirs:
        raise UnsupportedFormatError(f"{layout.dledger_dirs[0]}: a DLedger log; only plain CommitLogs can be changed")
    for directory in layout.commit_log_dirs:
        if not is_inside(directory, store.path):
            raise UnsupportedFormatError(
                f"{directory}: this CommitLog is outside of {store.path}; move it below the root, then run this again"
            )
    if not store.commit_log.segments:
        raise LayoutError("expected a CommitLog, found no segment; restore it from a replica or a backup", store.path)


def check_queues(store: Store) -> None:
    """Raises UnsupportedFormatError if the queues are not in files."""
    queues = queue_database(store.path, store.config)
    if is_database(queues) or store.config.text("storeType") == "defaultRocksDB":
        raise UnsupportedFormatError(f"{queues}: queues in RocksDB; only queues in files can be changed")


def check_configuration(store: Store) -> None:
    """Raises UnsupportedFormatError if the configuration is not in files."""
    advice = "only configuration in files can be changed"
    require_readable(store.path / file_names.CONFIG, store.config, advice)
    topics = store.path / file_names.CONFIG / "topics"
    if topics.is_dir():
        raise UnsupportedFormatError(f"{topics}: configuration in RocksDB; {advice}")
