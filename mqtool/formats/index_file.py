"""IndexFile: a hash index by key text. Header, slots, then entries chained by hash slot.

Docs page: docs/formats/index-file.md. Source: IndexFile, IndexHeader, IndexService (4.9.7, 5.5.0).
"""

import construct as cs
from msgspec import Struct

from mqtool.formats import codec, java
from mqtool.formats.codec import Unit, i32, i64

DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000

TAG_MARK = "T#"
"""Separates `topic#` from a tag in key texts of 5.5.0, which indexes TAGS too."""


class IndexHeader(Struct, frozen=True):
    """The first 40 bytes."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int

    @property
    def entry_count(self) -> int:
        """Number of entries: they are numbered 1 to index_count - 1 (IndexHeader.load reads a count of 0 as 1)."""
        return max(0, self.index_count - 1)

    @property
    def is_empty(self) -> bool:
        """Whether the file has no entry yet; its times and offsets, if any, are then those of the previous file."""
        return self.index_count <= 1

    def after(self, first: "tuple[int, int]", last: "tuple[int, int]", entries: int, fresh: int) -> "IndexHeader":
        """Returns the header after entries were added (IndexFile.putKey), `fresh` of them in slots that were empty.

        `first` and `last` are store timestamp and physical offset of the first and the last of them.
        """
        begin = first if self.is_empty else (self.begin_timestamp, self.begin_physical_offset)
        slots, count = self.hash_slot_count + fresh, self.index_count + entries
        return IndexHeader(begin[0], last[0], begin[1], last[1], slots, count)

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Whether the broker searches the file for a range of store timestamps (IndexFile.isTimeMatched)."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last


class IndexEntry(Struct, frozen=True):
    """One entry; numbers start at 1, entry 0 remains zero."""

    key_hash: int
    physical_offset: int
    time_diff: int
    previous: int


HEADER = Unit(
    "index header",
    IndexHeader,
    i64("begin_timestamp", "store time of the first entry's record, ms"),
    i64("end_timestamp", "store time of the last entry's record, ms"),
    i64("begin_physical_offset", "physical offset of the first entry's record"),
    i64("end_physical_offset", "physical offset of the last entry's record"),
    i32("hash_slot_count", "slots in use, each counted once"),
    i32("index_count", "number of the next entry: entries + 1"),
)

ENTRY = Unit(
    "index entry",
    IndexEntry,
    i32("key_hash", "abs(Java hash of the key text), 0 for the smallest int"),
    i64("physical_offset", "where the record starts in the CommitLog"),
    i32("time_diff", "seconds since begin_timestamp, truncated"),
    i32("previous", "number of the next older entry of the same slot, 0 at the end"),
)

SLOT_LAYOUT = cs.Struct(i32("newest_entry", "number of the slot's newest entry, 0 if there is none"))
SLOT_FIELDS = codec.leading_fields(SLOT_LAYOUT)
SLOT = codec.struct_of(SLOT_FIELDS)
SLOT_TYPE = ">i4"
"""numpy type of a slot."""

HEADER_SIZE = HEADER.size
SLOT_SIZE = SLOT.size
ENTRY_SIZE = ENTRY.size


def header_after(before: IndexHeader | None) -> IndexHeader:
    """Returns the header of a new file after one with a header; zeros for a store's first file.

    Until it has an entry, the new header contains the times and offsets of the previous file, and the first entry's
    time difference is relative to them (IndexFile, constructor).
    """
    time, offset = (max(0, before.end_timestamp), max(0, before.end_physical_offset)) if before else (0, 0)
    return IndexHeader(time, time, offset, offset, 0, 1)


def newest_before(stored: int, number: int) -> int:
    """Returns the entry that a slot refers to before entry `number` is added; 0 if the stored value is invalid."""
    return stored if 0 < stored <= number else 0


def file_size(slots: int, entries: int) -> int:
    """Returns the size in bytes of a file with the given numbers of slots and entries (entry 0 is unused)."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


DEFAULT_FILE_SIZE = file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES)
"""Size in bytes of a file with the broker's default numbers of slots and entries."""


def slot_position(slot: int) -> int:
    """Returns the position of a slot in the file."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_position(number: int, slots: int) -> int:
    """Returns the position of an entry in a file with the given number of slots."""
    return HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE


def key_text(topic: str, key: str) -> str:
    """Returns the text that is hashed for a unique key or a word of KEYS (IndexService.buildKey)."""
    return f"{topic}#{key}"


def tag_key_text(topic: str, tag: str) -> str:
    """Returns the text that is hashed for TAGS; 5.5.0 only."""
    return f"{topic}#{TAG_MARK}{tag}"


def key_hash(text: str) -> int:
    """Returns the hash of a key text; its slot is the remainder by the number of slots."""
    return java.index_hash(text)


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Returns an entry's time in seconds after the header's begin; 0 if the header has none (IndexFile.putKey)."""
    if begin_timestamp <= 0:
        return 0
    return min(max(java.divide(store_timestamp - begin_timestamp, 1000), 0), java.INT_MAX)
