"""Chains of entries in index files: built from keys, byte for byte as IndexService and IndexFile do, and followed.

A chunk of keys is one pass of array operations: the heads of the slots before the chunk are the predecessors of its
entries, except where two keys of the chunk share a slot; only those are sorted. So a key costs the same in a file of
twenty million entries as in a small one, and memory is that of the slots. Source: IndexFile.putKey,
IndexService.buildIndex, getAndCreateLastIndexFile, queryOffset, IndexFile.selectPhyOffset (4.9.7, 5.5.0). Docs page:
docs/formats/index-file.md.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.formats import index_file, java
from mqtool.formats.index_file import ENTRY, SLOT_TYPE, IndexHeader
from mqtool.records.dispatch import IndexKeys
from mqtool.records.number_sets import stable_order

CHUNK = 1 << 14
"""Keys per pass: the slots that it touches stay in the cache."""


Entry = tuple[int, int, int, int]
"""Key hash, physical offset, time difference and previous entry, as in `formats.index_file.ENTRY`."""


class GrowingFile(Protocol):
    """An index file to which entries are added."""

    @property
    def header(self) -> IndexHeader:
        """The header after the last entry."""

    @property
    def room(self) -> int:
        """How many more entries fit."""


F = TypeVar("F", bound=GrowingFile)


def spread(current: Callable[[], F], keys: IndexKeys, records: int) -> Iterator[tuple[F, IndexKeys]]:
    """Yields the files that take the keys of some records, each with its keys, before it takes them.

    Every record looks for the current file, so one without keys begins a new file, too. A record that starts before the
    last one indexed is left out, so that one itself is indexed twice if it comes twice (IndexService.buildIndex).

    Args:
        current: returns the last file of the index, or a new one if that is full or there is none
            (IndexService.getAndCreateLastIndexFile).
        keys, records: of the records, and their number, at least one; `row` of a key is the number of its record.
    """
    file, done = current(), 0
    if len(keys):
        highest = np.maximum.accumulate(keys.physical_offset)
        is_taken = (keys.physical_offset == highest) & (highest >= file.header.end_physical_offset)
        keys = keys if is_taken.all() else keys.select(is_taken)
    while True:
        part = keys.select(slice(done, done + file.room))
        yield file, part
        done += len(part)
        if done == len(keys):
            break
        file = current()
    if len(keys) and keys.row[-1] < records - 1:
        yield current(), keys.select(slice(0, 0))


class Entries(Struct, frozen=True):
    """Consecutive entries of one file."""

    first: int  # number of the first of them
    entries: np.ndarray  # structured array of `index_file.ENTRY.dtype`, big-endian as in the file


class IndexFileBuilder:
    """An index file under construction.

    Attributes:
        slots: maxHashSlotNum.
        capacity: maxIndexNum; entry 0 is never used.
        heads: int32 per slot, number of its newest entry.
        header: after the last entry.
    """

    def __init__(self, slots: int, capacity: int, before: IndexHeader | None = None) -> None:
        """Starts an empty file, after one with a header if there is one; see `index_file.header_after`."""
        self.slots = slots
        self.capacity = capacity
        self.heads = np.zeros(slots, np.int32)
        self.header = index_file.header_after(before)

    @classmethod
    def resumed(cls, header: IndexHeader, heads: np.ndarray, capacity: int) -> "IndexFileBuilder":
        """Continues an existing file with a header and slots."""
        builder = cls(len(heads), capacity)
        builder.heads = heads.astype(np.int32)
        builder.header = replace(header, index_count=max(1, header.index_count))
        return builder

    @property
    def room(self) -> int:
        """How many more entries fit; a further key needs a new file."""
        return max(0, self.capacity - self.header.index_count)

    def add(self, keys: IndexKeys) -> Entries:
        """Adds keys until the file is full; returns an entry for each key that was added."""
        first = self.header.index_count
        part = keys.select(slice(0, self.room))
        entries = np.empty(len(part), ENTRY.dtype)
        self.header = append(self.header, self.heads, entries, part)
        return Entries(first, entries)

    def slot_bytes(self) -> bytes:
        """Returns the slots as the file stores them."""
        return self.heads.astype(SLOT_TYPE).tobytes()


def append(header: IndexHeader, heads: np.ndarray, entries: np.ndarray, keys: IndexKeys) -> IndexHeader:
    """Appends entries to a file that has room for them, like as many calls of IndexFile.putKey; returns its new header.

    `heads` has the number of the newest entry of each slot, of any integer type, and is updated; `entries` is filled,
    one of `ENTRY.dtype` for each key.
    """
    for start in range(0, len(keys), CHUNK):
        part = slice(start, start + CHUNK)
        header = _append_chunk(header, heads, entries[part], keys.select(part))
    return header


def _append_chunk(header: IndexHeader, heads: np.ndarray, entries: np.ndarray, keys: IndexKeys) -> IndexHeader:
    hashes, offsets, timestamps = keys.key_hash, keys.physical_offset, keys.store_timestamp
    entries["key_hash"] = hashes
    entries["physical_offset"] = offsets
    first, last = (int(timestamps[0]), int(offsets[0])), (int(timestamps[-1]), int(offsets[-1]))
    begin = first[0] if header.is_empty else header.begin_timestamp
    entries["time_diff"] = time_diffs(timestamps, begin)
    entries["time_diff"][0] = index_file.time_diff(first[0], header.begin_timestamp)
    previous = chain(heads, hashes % np.int32(len(heads)), header.index_count)
    entries["previous"] = previous
    return header.after(first, last, len(hashes), int((previous == 0).sum()))


def chain(heads: np.ndarray, slots: np.ndarray, first: int) -> np.ndarray:
    """Makes entries first, first + 1, … the heads of their slots.

    `heads` has the number of the newest entry of each slot, of any integer type, and is updated; `slots` is the slot of
    each entry. Returns the previous entry in the slot of each, 0 for none: int32.
    """
    numbers = np.arange(first, first + len(slots), dtype=np.int32)
    previous = heads[slots].astype(np.int32, copy=False)
    heads[slots] = numbers  # of equal slots the last one stays
    newest = heads[slots]
    is_shared = newest != numbers
    passed = np.flatnonzero(is_shared)
    if len(passed):
        is_shared[newest[passed] - first] = True
        shared = np.flatnonzero(is_shared)
        rows = shared[stable_order(slots[shared])]
        same = np.flatnonzero(slots[rows[1:]] == slots[rows[:-1]])
        previous[rows[same + 1]] = numbers[rows[same]]
    wrong = previous.view(np.uint32) > numbers.view(np.uint32)  # as `index_file.newest_before`: too large, or negative
    if wrong.any():
        previous[wrong] = 0
    return previous


def time_diffs(timestamps: np.ndarray, begin: "int | np.ndarray") -> np.ndarray:
    """Returns the time differences that entries store, int64 seconds; the columnar form of `index_file.time_diff`.

    `begin` is the begin timestamp (ms) of their files' headers, one for all or one for each.
    """
    # negative ones become 0, so rounding down is as good as Java's rounding towards 0
    seconds = np.clip((timestamps - begin) // 1000, 0, java.INT_MAX)
    if isinstance(begin, np.ndarray):
        return np.where(begin > 0, seconds, 0)
    return seconds if begin > 0 else np.zeros_like(seconds)


class IndexBuilder:
    """Builds one index file after another.

    Attributes:
        file: the file that is being filled, at first the last existing one; None before the first record.
    """

    def __init__(self, slots: int, capacity: int, file: IndexFileBuilder | None = None) -> None:
        self._slots = slots
        self._capacity = capacity
        self.file = file

    def add(self, keys: IndexKeys, records: int) -> Iterator[tuple[IndexFileBuilder, Entries]]:
        """Indexes the keys of records that follow the previous ones; see `spread`.

        Yields each file and its new entries, possibly none. A file is complete when the next one is yielded.
        """
        for file, part in spread(self.current, keys, records):
            yield file, file.add(part)

    def current(self) -> IndexFileBuilder:
        """Returns the file for the next key, a new one if the last is full."""
        if self.file is None or not self.file.room:
            before = None if self.file is None else self.file.header
            self.file = IndexFileBuilder(self._slots, self._capacity, before)
        return self.file


class KeyFile(Protocol):
    """An index file that the engine writes, or one on disk."""

    @property
    def header(self) -> IndexHeader:
        """Header of the file."""

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> list[int]:
        """Returns physical offsets of entries with a hash and a time in [begin, end], newest first."""


def query_offsets(files: Sequence[KeyFile], key_hash: int, max_num: int, begin: int, end: int) -> list[int]:
    """Returns physical offsets of entries with a key hash, newest first, from files oldest first.

    Store timestamps are from `begin` to `end`, both inclusive, ms.
    """
    offsets: list[int] = []
    for file in reversed(files):
        if file.header.is_time_matched(begin, end):
            offsets.extend(file.lookup(key_hash, begin, end, max_num - len(offsets)))
        if file.header.begin_timestamp < begin or len(offsets) >= max_num:
            break
    return offsets


def offsets_in_chain(
    read: Callable[[int], Entry | None],
    newest: int,
    header: IndexHeader,
    highest: int,
    matches: tuple[int, int, int],
    max_num: int,
) -> list[int]:
    """Returns physical offsets of the entries in a slot's chain that match a key hash and a time range, newest first.

    Times of entries are rounded down to seconds. An older entry has a smaller number; none is above `highest`. The
    chain ends at a negative time and at an entry older than the range. The broker trusts that chains end; this function
    also ends at an entry that points forward, and where `read` returns None because the file ends before it. `matches`
    are key hash and store timestamps (ms), both inclusive.
    """
    (key_hash, begin, end), number = matches, newest
    file_begin = header.begin_timestamp
    offsets: list[int] = []
    while 0 < number <= highest and len(offsets) < max_num:
        entry = read(number)
        if entry is None:
            break
        stored_hash, physical_offset, time_diff, previous = entry
        time = file_begin + time_diff * 1000
        if time_diff < 0:
            break
        if stored_hash == key_hash and begin <= time <= end:
            offsets.append(physical_offset)
        if time < begin or previous >= number:
            break
        number = previous
    return offsets
