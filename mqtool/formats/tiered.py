"""Tiered storage, POSIX provider: names of segment files, and the compacted index file.

Segments of type COMMIT_LOG contain records as in `commit_log`, those of type CONSUME_QUEUE units as in
`consume_queue`, both with offsets of the tier. Docs page: docs/formats/tiered.md. Source: PosixFileSegment,
MessageStoreUtil, IndexStoreFile, IndexItem (tieredstore of 5.5.0).
"""

import hashlib
import re

from msgspec import Struct

from mqtool.formats.codec import Unit, i32, i64

COMMIT_LOG = "COMMIT_LOG"
CONSUME_QUEUE = "CONSUME_QUEUE"
INDEX = "INDEX"
METADATA = "tieredStoreMetadata.json"
MAGIC_FULL = -1127939451
MAGIC_OPEN = -1127939447
OPEN_INDEX = "tiered_index_file"
"""Directory next to the tier's with the index files that are still written to."""

_SEGMENT = re.compile("([0-9a-f]{8})([0-9]{20})")
_CLUSTER = re.compile("([0-9a-f]{8})_(.+)")

_ITEM = (
    i32("key_hash", "as in an index file, of topic#key"),
    i32("topic_id", "of the topic, by the metadata"),
    i32("queue_id", "of the queue"),
    i64("offset", "where the record starts in the queue's COMMIT_LOG"),
    i32("size", "bytes of the record"),
    i32("time_diff", "seconds since begin_timestamp"),
)


class TieredIndexHeader(Struct, frozen=True):
    """Header of an index file."""

    magic: int
    begin_timestamp: int
    end_timestamp: int
    used_slots: int
    index_count: int


class TieredIndexSlot(Struct, frozen=True):
    """Position of the entries of a slot; zeros for an unused slot."""

    position: int
    length: int


class TieredIndexItem(Struct, frozen=True):
    """One key of one message."""

    key_hash: int
    topic_id: int
    queue_id: int
    offset: int
    size: int
    time_diff: int


class TieredIndexNode(Struct, frozen=True):
    """One key of one message in a file that is still being written, in which the entries of a slot form a chain."""

    key_hash: int
    topic_id: int
    queue_id: int
    offset: int
    size: int
    time_diff: int
    previous: int


INDEX_HEADER = Unit(
    "tiered index header",
    TieredIndexHeader,
    i32("magic", "0xBCC50285: compacted, or full and still to be compacted; 0xBCC50289: still written to"),
    i64("begin_timestamp", "store time that entries count from, ms"),
    i64("end_timestamp", "store time of the last entry, ms"),
    i32("used_slots", "slots with entries"),
    i32("index_count", "entries"),
)

INDEX_SLOT = Unit(
    "tiered index slot",
    TieredIndexSlot,
    i32("position", "in the file, of the slot's first entry"),
    i32("length", "bytes of the slot's entries"),
)


INDEX_ITEM = Unit("tiered index item", TieredIndexItem, *_ITEM)

INDEX_NODE = Unit(
    "tiered index node",
    TieredIndexNode,
    *_ITEM,
    i32("previous", "number of the slot's entry before this one, 0 for none"),
)


def hash_of(text: str) -> str:
    """Returns the 8 digits that names begin with (MessageStoreUtil.getHash)."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8]


def parse_segment_name(name: str) -> tuple[str, int] | None:
    """Returns hash and base from a segment's name, None if the name is not a segment's."""
    match = _SEGMENT.fullmatch(name)
    return (match[1], int(match[2])) if match and int(match[2]) < 1 << 63 else None


def segment_name(base: int) -> str:
    """Returns the name of a segment (PosixFileSegment)."""
    return f"{hash_of(str(base))}{base:020}"


def parse_cluster_name(name: str) -> tuple[str, str] | None:
    """Returns hash and cluster from a directory's name, None if it has neither."""
    match = _CLUSTER.fullmatch(name)
    return (match[1], match[2]) if match else None
