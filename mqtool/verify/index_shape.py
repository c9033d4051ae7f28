"""Determines the numbers of slots and entries of a store's index files, which the files do not state, and those in use.

All files of a store have the same shape. It is the configured one, the default one if the length matches, or the one
that the entries of some file prove: the newest entries must be the heads of their slots.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import file_names, index_file
from mqtool.formats.index_file import ENTRY, HEADER, HEADER_SIZE, SLOT_SIZE
from mqtool.records.index_build import time_diffs
from mqtool.store.files import ReadFile, list_directory
from mqtool.store.index_file import last_byte, possible_slots

_SAMPLE = 256
_LEAST_PROOF = 0.75


class Shape(Struct, frozen=True):
    """maxHashSlotNum and maxIndexNum."""

    slots: int
    places: int

    @property
    def file_size(self) -> int:
        """Bytes of a file."""
        return index_file.file_size(self.slots, self.places)


class IndexPlan(Struct, frozen=True):
    """The index files of a store, and the begin time of each.

    Attributes:
        files: path and length, oldest first.
        strays: other files in index/.
        shape: of all of them, None if it is unknown.
        starts: physical offset of each file's first entry, int64 ascending; without files that have no entries.
        begins: the begin time in the same file's header.
    """

    files: tuple[tuple[Path, int], ...] = ()
    strays: tuple[Path, ...] = ()
    shape: Shape | None = None
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
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


def plan_index(directory: Path, slots: int | None, places: int | None) -> IndexPlan:
    """Examines a directory of index files; see `find_shape`."""
    files, strays = [], []
    for entry in list_directory(directory):
        is_index = file_names.is_index_file_name(entry.name) and entry.is_file()
        if is_index:
            files.append((Path(entry.path), entry.stat().st_size))
        else:
            strays.append(Path(entry.path))
    shape = find_shape(files, slots, places)
    firsts = sorted(first for path, _ in files if shape and (first := _first_entry(path, shape)))
    columns = np.array(firsts, np.int64).reshape(-1, 2)
    return IndexPlan(tuple(files), tuple(strays), shape, columns[:, 0], columns[:, 1])


def _first_entry(path: Path, shape: Shape) -> tuple[int, int] | None:
    """Returns the physical offset of a file's first entry, and the begin time; None if it has no entries."""
    try:
        with ReadFile(path) as file:
            header = HEADER.parse(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
            data = file.read(index_file.entry_position(1, shape.slots), ENTRY.size)
    except StoreError:
        return None
    if len(data) < ENTRY.size or not any(data):
        return None
    return ENTRY.parse(data).physical_offset, header.begin_timestamp


def find_shape(files: Sequence[tuple[Path, int]], slots: int | None, places: int | None) -> Shape | None:
    """Returns the shape of a store's index files, None if it is unknown.

    Args:
        files: path and length of each.
        slots, places: as configured, None if not.
    """
    if not files:
        return None
    length = Counter(size for _, size in files).most_common(1)[0][0]
    if slots is not None:
        return Shape(slots, places or max(0, length - HEADER_SIZE - slots * SLOT_SIZE) // ENTRY.size)
    if length == index_file.DEFAULT_FILE_SIZE:
        return Shape(index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES)
    best: tuple[float, int] = (0.0, 0)
    for path, size in files:
        if size == length:
            best = max(best, _best_slots(path, size))
        if best[0] == 1.0:
            break
    score, found = best
    return Shape(found, (length - HEADER_SIZE - found * SLOT_SIZE) // ENTRY.size) if score >= _LEAST_PROOF else None


def _best_slots(path: Path, size: int) -> tuple[float, int]:
    """Returns how well the best slot count fits a file, and that count."""
    try:
        with ReadFile(path) as file:
            count = HEADER.parse(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")).entry_count
            if not 0 < count < size // ENTRY.size:
                return 0.0, 0
            end = last_byte(file, file.data_end())
            best = (0.0, 0)
            for slots in possible_slots(size, end, count):
                best = max(best, (_fit(file, slots, count), slots))
                if best[0] == 1.0:  # the most likely counts come first
                    break
            return best
    except StoreError:
        return 0.0, 0


def _fit(file: ReadFile, slots: int, count: int) -> float:
    """Returns the fraction of the newest entries' slots whose heads are correct."""
    first = max(1, count - _SAMPLE + 1)
    data = file.read(index_file.entry_position(first, slots), (count - first + 1) * ENTRY.size)
    entries = np.frombuffer(data, ENTRY.dtype, len(data) // ENTRY.size)
    numbers = np.arange(first, first + len(entries))
    if not len(entries) or (entries["key_hash"] < 0).any() or (entries["previous"] >= numbers).any():
        return 0.0
    newest = dict(zip((entries["key_hash"] % slots).tolist(), numbers.tolist(), strict=True))
    right = sum(
        int.from_bytes(file.read(index_file.slot_position(slot), SLOT_SIZE), "big") == number
        for slot, number in newest.items()
    )
    return right / len(newest)


def entries_written(file: ReadFile, shape: Shape) -> int:
    """Returns the number of the last entry that is not zero, independent of the header's count."""
    start = index_file.entry_position(1, shape.slots)
    end = last_byte(file, file.data_end())
    return max(0, -(-(end - start) // ENTRY.size))
