"""ConsumeQueues in RocksDB (`storeType=defaultRocksDB`): keys and values of the two column families.

The database is in `consumequeue/`. Docs page: docs/formats/rocksdb-queue.md. Source: RocksDBConsumeQueueTable,
RocksDBConsumeQueueOffsetTable, AbstractRocksDBStorage (5.5.0).
"""

import struct

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import topics
from mqtool.formats.codec import Unit
from mqtool.formats.fields import i32, i64

UNITS = "default"
BOUNDS = "offset"
CHECKPOINT_TOPIC = topics.CHECKPOINT_TOPIC.encode()
MAX, MIN = b"max", b"min"

_SEPARATOR = b"\x01"
_I32 = struct.Struct(">i")
_TAIL = struct.Struct(">cicq")
_LAYOUT = "RocksDB queue key"


class RocksUnit(Struct, frozen=True):
    """The value for a queue offset: where its record is."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int


class RocksBound(Struct, frozen=True):
    """The first or the last unit of a queue."""

    physical_offset: int
    queue_offset: int


ROCKS_UNIT = Unit(
    "RocksDB queue unit",
    RocksUnit,
    i64("physical_offset", "where the record starts in the CommitLog"),
    i32("size", "bytes of the complete record"),
    i64("tags_code", "as in a ConsumeQueue's unit"),
    i64("store_timestamp", "of the record, ms"),
)

ROCKS_BOUND = Unit(
    "RocksDB queue bound",
    RocksBound,
    i64("physical_offset", "of the record of the first or the last unit"),
    i64("queue_offset", "of the first or the last unit: max is not one past it"),
)


def queue_prefix(topic: bytes, queue_id: int) -> bytes:
    """Returns the common prefix of the keys of a queue's units."""
    return _I32.pack(len(topic)) + _SEPARATOR + topic + _SEPARATOR + _I32.pack(queue_id) + _SEPARATOR


def unit_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    """Returns the key of a unit; the keys of one queue sort by queue offset."""
    return queue_prefix(topic, queue_id) + struct.pack(">q", queue_offset)


def parse_unit_key(key: bytes) -> tuple[bytes, int, int]:
    """Returns topic, queue id and queue offset of a unit's key.

    Raises:
        FormatError: it is not the key of a unit.
    """
    topic = _topic_of(key)
    tail = key[_I32.size + 1 + len(topic) :]
    if len(tail) != _TAIL.size:
        raise FormatError(f"expected {_TAIL.size} bytes after the topic, found {len(tail)}", layout=_LAYOUT)
    before, queue_id, after, queue_offset = _TAIL.unpack(tail)
    if before != _SEPARATOR or after != _SEPARATOR:
        raise FormatError("expected 0x01 around the queue id", layout=_LAYOUT)
    return topic, queue_id, queue_offset


def bound_key(topic: bytes, queue_id: int, which: bytes) -> bytes:
    """Returns the key of a queue's first (`MIN`) or last (`MAX`) unit."""
    parts = (_I32.pack(len(topic)), topic, which, _I32.pack(queue_id))
    return _SEPARATOR.join(parts)


def parse_bound_key(key: bytes) -> tuple[bytes, int, bytes]:
    """Returns topic, queue id, and `MIN` or `MAX`, of a bound's key.

    Raises:
        FormatError: it is not the key of a bound.
    """
    topic = _topic_of(key)
    tail = key[_I32.size + 1 + len(topic) :]
    which = tail[1:4]
    if len(tail) != len(MAX) + 2 + _I32.size or which not in (MIN, MAX):
        raise FormatError("expected min or max and a queue id after the topic", layout=_LAYOUT)
    return topic, _I32.unpack(tail[-_I32.size :])[0], which


def _topic_of(key: bytes) -> bytes:
    if len(key) < _I32.size + 1 or key[_I32.size : _I32.size + 1] != _SEPARATOR:
        raise FormatError("expected a length and 0x01 before the topic", layout=_LAYOUT)
    length = _I32.unpack_from(key)[0]
    topic = key[_I32.size + 1 : _I32.size + 1 + max(0, length)]
    if len(topic) != length:
        raise FormatError(f"expected a topic of {length} bytes, found {len(topic)}", layout=_LAYOUT)
    return topic
