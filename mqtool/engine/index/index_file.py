"""IndexFile: entries put into one file, one by one or many at once, and looked up by key hash.

Header, slots and entries are written through a mapping whose blocks were reserved before. An index that a
crash left half full is dropped and built again, so nothing here is durable before `flush`.
Docs page: docs/engine.md. Source: IndexFile, IndexHeader (4.9.7, 5.5.0).
"""

import numpy as np
from msgspec.structs import replace

from mqtool.engine.disk.files import File
from mqtool.formats import index_file
from mqtool.formats.index_file import ENTRY, HEADER, IndexHeader
from mqtool.records import index_lookup
from mqtool.records.dispatched import IndexKeys
from mqtool.records.index_build import append

_ENTRY = index_file.ENTRY.struct
_SLOT = index_file.SLOT
_STEP = 1 << 22
"""Bytes of entries that are reserved at a time."""


class IndexWriter:
    """One IndexFile. Only the dispatcher puts; any thread may query.

    Attributes:
        file: the file.
        header: as it is in the file.
        slots, entries: capacity; entry 0 is never used.
    """

    def __init__(self, file: File, slots: int, entries: int, header: IndexHeader) -> None:
        """Maps a file of the right length.

        Args:
            file: the file.
            slots, entries: capacity of the file.
            header: its header, or that of a new file.
        """
        self.file = file
        self.slots = slots
        self.entries = entries
        self.header = replace(header, index_count=max(1, header.index_count))
        self._entries_at = index_file.entry_position(0, slots)
        file.reserve(0, min(file.size, self._entries_at + _STEP))
        self._reserved = min(file.size, self._entries_at + _STEP)
        self._map, _ = file.mapping, file.pin  # compiled queries read files that are pinned
        self._populated = 0

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return max(0, self.entries - self.header.index_count)

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        """Adds an entry (IndexFile.putKey).

        Returns:
            False if the file is full: roll, then put it into the next one.

        Raises:
            OSError: the disk is full.
        """
        header = self.header
        number = header.index_count
        if number >= self.entries:
            return False
        self._reserve(number + 1)
        at = index_file.slot_position(key_hash % self.slots)
        newest = index_file.newest_before(_SLOT.unpack_from(self._map, at)[0], number)
        diff = index_file.time_diff(store_timestamp, header.begin_timestamp)
        place = self._entries_at + number * index_file.ENTRY_SIZE
        _ENTRY.pack_into(self._map, place, key_hash, physical_offset, diff, newest)
        _SLOT.pack_into(self._map, at, number)
        bounds = store_timestamp, physical_offset
        self._set_header(header.after(bounds, bounds, 1, newest == 0))
        return True

    def put_many(self, keys: IndexKeys) -> None:
        """Adds entries in order, as repeated calls of `put` would; there must be room for them.

        Raises:
            OSError: the disk is full.
        """
        first, count = self.header.index_count, len(keys)
        if not count:
            return
        self._reserve(first + count)
        if self._populated < self._reserved:  # where entries come in numbers, all of that part will be written
            self.file.populate(self._populated, self._reserved)
            self._populated = self._reserved
        heads = np.frombuffer(self._map, index_file.SLOT_TYPE, self.slots, index_file.HEADER_SIZE)
        entries = np.frombuffer(self._map, ENTRY.dtype, count, self._entries_at + first * ENTRY.size)
        self._set_header(append(self.header, heads, entries, keys))

    def _reserve(self, numbers: int) -> None:
        end = self._entries_at + numbers * index_file.ENTRY_SIZE
        if end > self._reserved:
            until = min(self.file.size, end + _STEP)
            self.file.reserve(self._reserved, until)
            self._reserved = until

    def _set_header(self, header: IndexHeader) -> None:
        self.header = header
        self.write_header()

    def write_header(self) -> None:
        """Writes the header into the mapping."""
        header = self.header
        HEADER.struct.pack_into(
            self._map,
            0,
            header.begin_timestamp,
            header.end_timestamp,
            header.begin_physical_offset,
            header.end_physical_offset,
            header.hash_slot_count,
            header.index_count,
        )

    # -- lookup --------------------------------------------------------------------------------------------------

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Returns physical offsets of entries with a hash and a time in [begin, end], newest first."""
        header = self.header
        if header.is_empty:
            return []
        (newest,) = _SLOT.unpack_from(self._map, index_file.slot_position(key_hash % self.slots))
        query = key_hash, begin, end
        return index_lookup.offsets_in_chain(self._entry, newest, header, header.index_count, query, max_num)

    def _entry(self, number: int) -> index_lookup.Entry:
        return _ENTRY.unpack_from(self._map, self._entries_at + number * index_file.ENTRY_SIZE)

    def flush(self) -> None:
        """Flushes the file to disk. Durable on return.

        Raises:
            OSError: it may be lost.
        """
        self.write_header()
        self.file.sync()

    def close(self) -> None:
        """Closes the file; nothing is flushed."""
        self.file.close()
