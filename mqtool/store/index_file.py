"""The index files of a store, open for reading: header, slots, entries, chains, look-up, the broker's queryMessage.

The numbers of slots and entries are not stored. They follow from where the data ends: entry numbers are known from
the header, and one file length fits slot counts only in steps of five. The chains then prove it: the head of every used
slot must be the newest entry whose hash leads to that slot. All files of a store have one shape, see `shape_of`.
Source: IndexService.queryOffset, DefaultMessageStore.queryMessage (4.9.7, 5.5.0).
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.errors import LayoutError, StoreError
from mqtool.formats import file_names, index_file, java
from mqtool.formats.index_file import ENTRY, HEADER, HEADER_SIZE, SLOT_SIZE, IndexHeader
from mqtool.records.index_chains import Entry, offsets_in_chain, query_offsets
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import ReadFile, list_directory
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.message import Message, from_record

_SMALL = 1 << 20
_PROOF = 4096
"""Entries whose chains are looked at."""
_LIKELY = 256
"""Entries whose chains are looked at in a file that may be damaged."""
_MIN_FIT = 0.75
_SPARSE = 64
_CHAIN_BLOCK = 1024

DEFAULT_MAX_QUERY = 64
"""Default of maxMsgsNumBatch: the broker never returns more."""


class Shape(Struct, frozen=True):
    """The numbers of slots and of places for entries, which all index files of a store have."""

    slots: int  # maxHashSlotNum
    places: int  # maxIndexNum; place 0 is never used

    @property
    def file_size(self) -> int:
        """Bytes of a file."""
        return index_file.file_size(self.slots, self.places)


DEFAULT_SHAPE = Shape(index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES)


class IndexFile:
    """One index file; its header is the first 40 bytes, zeros past the end of a shorter file."""

    def __init__(self, path: Path, slots: int | None = None) -> None:
        """Opens a file; without `slots`, maxHashSlotNum is inferred."""
        self.path = path
        with ReadFile(path) as file:
            self.size = file.size
            self.header: IndexHeader = HEADER.parse_start(file.read(0, HEADER_SIZE))
        self._configured = slots

    def _open(self) -> ReadFile:
        return ReadFile(self.path)

    @property
    def entry_count(self) -> int:
        """Number of entries according to the header, limited by the size of the file."""
        return min(self.header.entry_count, max(0, (self.size - HEADER_SIZE) // ENTRY.size))

    @cached_property
    def slot_count(self) -> int | None:
        """Number of hash slots; None if the file does not show it."""
        room = (self.size - HEADER_SIZE) // SLOT_SIZE
        if self._configured is not None:
            return self._configured if 0 < self._configured <= room else None
        with self._open() as file:
            return next((slots for slots in self._candidates(file) if self._is_proved(file, slots)), None)

    def require_slots(self) -> int:
        """Returns the number of hash slots; raises LayoutError if the file does not show it."""
        if not self.slot_count:
            raise LayoutError(
                "does not state its number of slots; set maxHashSlotNum and maxIndexNum in broker.conf and add "
                "--config broker.conf",
                self.path,
            )
        return self.slot_count

    def covered(self) -> tuple[int, int] | None:
        """Returns the physical offsets of the first and the last record that a look-up in the file can find.

        None if a look-up proves nothing: there are no entries, the number of slots is unknown, or the first and last
        entry name other records than the header. Raises StoreError.
        """
        slots = self.slot_count
        if not slots or self.entry_count <= 0:
            return None
        with self._open() as file:
            ends = [self._read_entries(file, number, 1, slots) for number in (1, self.entry_count)]
        named = tuple(int(entry["physical_offset"][0]) for entry in ends if len(entry))
        stated = (self.header.begin_physical_offset, self.header.end_physical_offset)
        return stated if named == stated and stated[0] <= stated[1] else None

    @property
    def max_entries(self) -> int | None:
        """Number of places for entries, including the unused place 0; None if the file does not show it."""
        slots = self.slot_count
        return None if slots is None else places_of(self.size, slots)

    def _candidates(self, file: ReadFile) -> list[int]:
        """Slot counts that fit the file's length and the end of its data."""
        if self.size == index_file.DEFAULT_FILE_SIZE:
            return [index_file.DEFAULT_SLOTS]
        if self.entry_count <= 0:
            return []
        return possible_slots(self.size, file.used_end(), self.entry_count)

    def _is_proved(self, file: ReadFile, slots: int) -> bool:
        """Whether the chains of the newest entries fit a number of slots."""
        if not self.entry_count:
            return True  # the default: nothing contradicts it, and nothing is to be found
        last = self._reader(file, slots)(self.entry_count)
        if last is None or last[0] < 0 or self._head(file, last[0] % slots) != self.entry_count:
            return False
        return self._fit(file, slots, _PROOF) == 1.0

    def likely_slots(self) -> int | None:
        """Returns the number of slots that most chains of the newest entries fit, None if there is none.

        This is for files that may be damaged: `slot_count` accepts no contradiction.
        """
        with self._open() as file:
            fits = ((self._fit(file, slots, _LIKELY), slots) for slots in self._candidates(file))
            fit, slots = max(fits, key=itemgetter(0), default=(0.0, 0))  # the most likely one comes first
        return slots if fit >= _MIN_FIT else None

    def _fit(self, file: ReadFile, slots: int, count: int) -> float:
        """Returns the fraction of the slots of the newest entries that lead to these."""
        first = max(1, self.entry_count + 1 - count)
        entries = self._read_entries(file, first, self.entry_count + 1 - first, slots)
        numbers = np.arange(first, first + len(entries))
        previous = entries["previous"]
        if not len(entries) or (entries["key_hash"] < 0).any() or (previous < 0).any() or (previous >= numbers).any():
            return 0.0
        slot_of, at = np.unique((entries["key_hash"] % slots)[::-1], return_index=True)
        newest = numbers[::-1][at]
        if len(slot_of) * _SPARSE > slots:
            heads = self._read_slots(file, slots)[slot_of]
        else:
            heads = np.array([self._head(file, slot) for slot in slot_of.tolist()])
        return float((heads == newest).mean())

    def _head(self, file: ReadFile, slot: int) -> int:
        """Returns the number of a slot's newest entry, -1 if the file ends before it."""
        data = file.read(index_file.slot_position(slot), SLOT_SIZE)
        return int(index_file.SLOT.unpack(data)[0]) if len(data) == SLOT_SIZE else -1

    def _read_slots(self, file: ReadFile, slots: int) -> np.ndarray:
        data = file.read(HEADER_SIZE, slots * SLOT_SIZE)
        return np.frombuffer(data, index_file.SLOT_TYPE, len(data) // SLOT_SIZE)

    def _read_entries(self, file: ReadFile, first: int, count: int, slots: int) -> np.ndarray:
        data = file.read(index_file.entry_position(first, slots), ENTRY.size * count)
        return ENTRY.rows(data)

    @cached_property
    def slots(self) -> np.ndarray:
        """Newest entry number of every slot, big-endian i32; empty where the number of slots is unknown."""
        if not self.slot_count:
            return np.empty(0, index_file.SLOT_TYPE)
        with self._open() as file:
            return self._read_slots(file, self.slot_count)

    @cached_property
    def entries(self) -> np.ndarray:
        """All entries in order, a structured array with the layout's field names; item 0 is entry number 1."""
        if not self.slot_count:
            return np.empty(0, ENTRY.dtype)
        with self._open() as file:
            return self._read_entries(file, 1, self.entry_count, self.slot_count)

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Returns physical offsets of entries with a hash and a time in [begin, end], newest first.

        See `records.index_chains` for the broker's rule about where a chain ends.
        """
        slots = self.slot_count
        if not slots or not self.entry_count:
            return []
        with self._open() as file:
            newest, read = self._head(file, key_hash % slots), self._reader(file, slots)
            query = key_hash, begin, end
            return offsets_in_chain(read, newest, self.header, self.entry_count, query, max_num)

    def _reader(self, file: ReadFile, slots: int) -> Callable[[int], Entry | None]:
        """Returns a function that reads entries of a chain by number, newest first; long chains are read in blocks."""
        first, block, count = 0, np.empty(0, ENTRY.dtype), 1

        def read(number: int) -> Entry | None:
            nonlocal first, block, count
            if not first <= number < first + len(block):
                first = max(1, number + 1 - count)
                block = self._read_entries(file, first, number + 1 - first, slots)
                count = min(2 * count, _CHAIN_BLOCK)
                if number >= first + len(block):
                    return None  # the file ends before
            entry: Entry = block[number - first].item()
            return entry

        return read


def configured_shape(config: BrokerConfig) -> Shape | None:
    """Returns the shape that a broker with a configuration gives its files, None if it states neither number.

    One that is not stated has the broker's default then (MessageStoreConfig); numbers below 1 make no usable file and
    count as not stated.
    """
    slots, places = (max(0, config.integer(key) or 0) for key in ("maxHashSlotNum", "maxIndexNum"))
    return Shape(slots or DEFAULT_SHAPE.slots, places or DEFAULT_SHAPE.places) if slots or places else None


def shape_of(files: Sequence[IndexFile], config: BrokerConfig, *, may_be_damaged: bool = False) -> Shape | None:
    """Returns the shape of a store's index files: as configured, the default if they have its length, or as one proves.

    With `may_be_damaged`, a shape that most newest entries fit is taken if no file proves its own. None if nothing
    does.
    """
    configured = configured_shape(config)
    if configured is not None:
        return configured
    lengths = [length for length, _ in Counter(file.size for file in files if file.size).most_common()]
    if lengths and lengths[0] == index_file.DEFAULT_FILE_SIZE:
        return DEFAULT_SHAPE
    ordered = [file for length in lengths for file in files if file.size == length]

    def first_shape(files: Sequence[IndexFile], slots_of: Callable[[IndexFile], int | None]) -> Shape | None:
        for file in files:
            try:
                slots = slots_of(file)
            except StoreError:
                if not may_be_damaged:
                    raise
                continue
            if slots is not None:
                return Shape(slots, places_of(file.size, slots))
        return None

    shape = first_shape(ordered, lambda file: file.slot_count)
    if shape is None and may_be_damaged:
        shape = first_shape([file for file in ordered if file.size == lengths[0]], IndexFile.likely_slots)
    return shape


def places_of(size: int, slots: int) -> int:
    """Returns the number of places for entries, including the unused place 0, in a file of a size."""
    return (size - HEADER_SIZE - slots * SLOT_SIZE) // ENTRY.size


def entries_written(used_end: int, slots: int) -> int:
    """Returns the number of the last entry that is not zero, from the position after the file's last nonzero byte."""
    return max(0, -(-(used_end - index_file.entry_position(1, slots)) // ENTRY.size))


def possible_slots(size: int, data_end: int, entries: int) -> list[int]:
    """Returns the slot counts that fit a file's length and the position after its last nonzero byte, best first."""
    words = (size - HEADER_SIZE) // SLOT_SIZE
    # the last byte that is not zero lies in the last entry, so the slots end within 20 bytes of there
    last = (data_end - HEADER_SIZE - ENTRY.size * entries) // SLOT_SIZE
    counts = [slots for slots in range(max(1, last - 1), last + 8) if (words - slots) % 5 == 0]
    if size <= _SMALL:
        near = set(counts)
        counts += [slots for slots in range(1, words) if (words - slots) % 5 == 0 and slots not in near]
    room = size - HEADER_SIZE - ENTRY.size * (entries + 1)
    return [slots for slots in counts if slots * SLOT_SIZE <= room]


def list_index_files(directory: Path, slots: int | None = None) -> tuple[list[IndexFile], list[Path]]:
    """Returns the index files of a directory, oldest first, and its other files."""
    files, strays = [], []
    for entry in list_directory(directory):
        path = directory / entry.name
        if not file_names.is_index_file_name(entry.name):
            strays.append(path)
            continue
        try:
            files.append(IndexFile(path, slots))
        except StoreError:
            strays.append(path)
    return files, strays


def query_message(
    log: CommitLog,
    files: list[IndexFile],
    topic: str,
    key: str,
    max_num: int = DEFAULT_MAX_QUERY,
    begin: int = 0,
    end: int = java.LONG_MAX,
) -> list[Message]:
    """Returns the messages with a key, by physical offset.

    As in the broker, a hash collision returns a message with another key too: compare `keys` and `unique_key`.
    Records that are missing or damaged are left out. The broker asks up to three times while it finds no message, each
    time the same, since only a message that it finds changes the question.

    Args:
        files: oldest first.
        topic, key: what was indexed; for a tag of 5.5 the key is "T#" and the tag.
        max_num: maximum number of messages; of more the newest are returned.
        begin, end: store times in ms, both inclusive.
    """
    messages = []
    key_hash = index_file.key_hash(index_file.key_text(topic, key))
    for offset in sorted(query_offsets(files, key_hash, max_num, begin, end)):
        with contextlib.suppress(StoreError):
            messages.append(from_record(log.record(offset)))
    return messages
