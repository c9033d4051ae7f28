"""Determines the numbers of slots and entries of a store's index files, which the files do not state, and those in use.

See `store.index.index_file.shape_of` for the rule.
"""

from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import file_names, index_file
from mqtool.formats.index_file import ENTRY, HEADER, HEADER_SIZE
from mqtool.records.index_build import time_diffs
from mqtool.store.files import ReadFile, is_regular, list_directory
from mqtool.store.index.index_file import Shape, shape_of
from mqtool.store.store import Store


class IndexPlan(Struct, frozen=True):
    """The index files of a store, and the begin time of each."""

    files: tuple[tuple[Path, int], ...] = ()  # path and length, oldest first
    strays: tuple[Path, ...] = ()  # other files in index/
    shape: Shape | None = None  # of all of them, None if it is unknown
    # Physical offset of each file's first entry, int64 ascending; without files that have no entries.
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    # The begin time in the same file's header.
    begins: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def times(self, physical: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Returns the seconds that entries state (IndexFile.putKey).

        Args:
            physical: of the records, ascending.
            stored: their store timestamps.
        """
        if not len(physical) or not len(self.starts):
            return np.zeros(len(physical), np.int64)
        low, high = np.searchsorted(self.starts, physical[[0, -1]], side="right") - 1
        at = low if low == high else np.searchsorted(self.starts, physical, side="right") - 1
        begin = self.begins[np.maximum(at, 0)]
        return time_diffs(stored, begin)


def plan_index(store: Store) -> IndexPlan:
    """Examines the index files of a store.

    A shape that most newest entries of some file fit is taken, too: a damaged file is to be compared with the log as
    well as the others.
    """
    files, strays = [], []
    directory = store.path / file_names.INDEX
    for entry in list_directory(directory):
        is_index = file_names.is_index_file_name(entry.name) and is_regular(entry)
        if is_index:
            files.append((directory / entry.name, entry.stat().st_size))
        else:
            strays.append(directory / entry.name)
    shape = shape_of(store.disk_index_files(), store.config, may_be_damaged=True) if files else None
    firsts = sorted(first for path, _ in files if shape and (first := _first_entry(path, shape)))
    columns = np.array(firsts, np.int64).reshape(-1, 2)
    return IndexPlan(tuple(files), tuple(strays), shape, columns[:, 0], columns[:, 1])


def _first_entry(path: Path, shape: Shape) -> tuple[int, int] | None:
    """Returns the physical offset of a file's first entry, and the begin time; None if it has no entries."""
    try:
        with ReadFile(path) as file:
            header = HEADER.parse_start(file.read(0, HEADER_SIZE))
            data = file.read(index_file.entry_position(1, shape.slots), ENTRY.size)
    except StoreError:
        return None
    if len(data) < ENTRY.size or not any(data):
        return None
    return ENTRY.parse(data).physical_offset, header.begin_timestamp
