"""The index files of a store, opened for reading: header, slots, entries, chains, look-up.

The number of slots and entries is not stored. It follows from where the data ends: entry numbers are
known from the header, and one file length fits slot counts only in steps of five. The chains then
prove it: every used slot's head must be the newest entry whose hash leads to that slot.
"""

from functools import cached_property
from pathlib import Path

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import file_names, index_file
from mqtool.formats.index_file import ENTRY, HEADER, HEADER_SIZE, SLOT_SIZE, IndexHeader
from mqtool.store.files import ReadFile, list_directory


class IndexFile:
    """One index file.

    Attributes:
        path: where it is.
        size: its bytes.
        header: the first 40 bytes; zeros where the file is shorter.
    """

    def __init__(self, path: Path, slots: int | None = None) -> None:
        """Opens a file.

        Args:
            slots: maxHashSlotNum, if the configuration says so; else it is worked out.
        """
        self.path = path
        with ReadFile(path) as file:
            self.size = file.size
            self._data_end = file.data_end()
            self.header: IndexHeader = HEADER.parse(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
        self._configured = slots

    @property
    def entry_count(self) -> int:
        """Entries that the header counts, as far as the file has room for them."""
        return min(self.header.entry_count, max(0, (self.size - HEADER_SIZE) // ENTRY.size))

    @cached_property
    def slot_count(self) -> int | None:
        """Number of hash slots; None where the file cannot tell."""
        if self._configured is not None:
            return self._configured
        candidates = self._candidates()
        return next((slots for slots in candidates if self._is_proved(slots)), None)

    @property
    def max_entries(self) -> int | None:
        """Places for entries, place 0 unused; None where the file cannot tell."""
        slots = self.slot_count
        return None if slots is None else (self.size - HEADER_SIZE - slots * SLOT_SIZE) // ENTRY.size

    def _candidates(self) -> list[int]:
        """Slot counts that the file's length and the end of its data allow."""
        if self.size == index_file.file_size(index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES):
            return [index_file.DEFAULT_SLOTS]
        if not self.entry_count:
            return []
        words = (self.size - HEADER_SIZE) // SLOT_SIZE
        with ReadFile(self.path) as file:
            end = _last_byte(file, self._data_end)
        # the last byte that is not zero lies in the last entry, so the slots end within 20 bytes of there
        last = (end - HEADER_SIZE - ENTRY.size * self.entry_count) // SLOT_SIZE
        near = [slots for slots in range(max(1, last - 1), last + 8) if (words - slots) % 5 == 0]
        if self.size <= 1 << 20:
            near += [slots for slots in range(1, words) if (words - slots) % 5 == 0 and slots not in near]
        room = self.size - HEADER_SIZE - ENTRY.size * (self.entry_count + 1)
        return [slots for slots in near if slots * SLOT_SIZE <= room]

    def _is_proved(self, slots: int) -> bool:
        entries = self._read_entries(slots)
        if not len(entries) or (entries["key_hash"] < 0).any():
            return False
        numbers = np.arange(1, len(entries) + 1)
        if (entries["previous"] >= numbers).any() or (entries["previous"] < 0).any():
            return False
        heads = self._read_slots(slots)
        newest = np.zeros(slots, np.int64)
        newest[entries["key_hash"] % slots] = numbers
        return bool((heads == newest).all())

    def _read_slots(self, slots: int) -> np.ndarray:
        with ReadFile(self.path) as file:
            data = file.read(HEADER_SIZE, slots * SLOT_SIZE)
        return np.frombuffer(data[: len(data) // SLOT_SIZE * SLOT_SIZE], ">i4")

    def _read_entries(self, slots: int) -> np.ndarray:
        with ReadFile(self.path) as file:
            data = file.read(index_file.entry_position(1, slots), ENTRY.size * self.entry_count)
        return np.frombuffer(data, ENTRY.dtype, len(data) // ENTRY.size)

    @cached_property
    def slots(self) -> np.ndarray:
        """Newest entry number of every slot, big-endian i32; empty where the number of slots is unknown."""
        return self._read_slots(self.slot_count) if self.slot_count else np.empty(0, ">i4")

    @cached_property
    def entries(self) -> np.ndarray:
        """All entries in order, a structured array with the layout's field names; item 0 is entry number 1."""
        return self._read_entries(self.slot_count) if self.slot_count else np.empty(0, ENTRY.dtype)

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Returns physical offsets of entries with a hash and a time in [begin, end], newest first.

        The stop rules are the broker's (IndexFile.selectPhyOffset): a chain ends at a negative time, at an entry older
        than `begin`, at 0, beyond the count or at itself.
        """
        if not self.slot_count or not len(self.entries):
            return []
        found: list[int] = []
        count = self.header.index_count
        slot = key_hash % self.slot_count
        number = int(self.slots[slot]) if slot < len(self.slots) else 0
        if number <= 0 or number > count or count <= 1:
            return found
        for _ in range(len(self.entries)):
            if len(found) >= max_num or number > len(self.entries):
                break
            stored_hash, physical_offset, time_diff, previous = self.entries[number - 1].tolist()
            if time_diff < 0:
                break
            time = self.header.begin_timestamp + time_diff * 1000
            if stored_hash == key_hash and begin <= time <= end:
                found.append(physical_offset)
            if previous <= 0 or previous > count or previous == number or time < begin:
                break
            number = previous
        return found

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether the broker would search this file for a time range (IndexFile.isTimeMatched)."""
        first, last = self.header.begin_timestamp, self.header.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def _last_byte(file: ReadFile, data_end: int) -> int:
    """Returns the position after the last byte that is not zero."""
    at = data_end
    while at > 0:
        start = max(0, at - (1 << 20))
        block = file.read(start, at - start).rstrip(b"\0")
        if block:
            return start + len(block)
        at = start
    return 0


def list_index_files(directory: Path, slots: int | None = None) -> tuple[list[IndexFile], list[Path]]:
    """Returns the index files of a directory, oldest first, and what else lies there."""
    found, strays = [], []
    for entry in list_directory(directory):
        path = directory / entry.name
        if not file_names.is_index_file_name(entry.name):
            strays.append(path)
            continue
        try:
            found.append(IndexFile(path, slots))
        except StoreError:
            strays.append(path)
    return found, strays
