"""The units of queues: ConsumeQueue, BatchConsumeQueue, ConsumeQueueExt, and ConsumeQueues in RocksDB.

Docs pages: docs/formats/consume-queue.md, batch-consume-queue.md, consume-queue-ext.md, rocksdb-queue.md. Source:
ConsumeQueue, MessageExtBrokerInner.tagsString2tagsCode, ConsumeQueueExt, BitsArray (4.9.7, 5.5.0),
BatchConsumeQueue, SparseConsumeQueue, RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable,
AbstractRocksDBStorage (5.5.0).
"""

import struct

import construct as cs
from msgspec import Struct, structs

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec, java, topics
from mqtool.formats.codec import Buffer, Unit, i16, i32, i64, sized

PRE_BLANK_SIZE_FIELD = java.INT_MAX

MAX_EXT_ADDRESS = java.INT_MIN - 1
"""A tags code up to here is an address; above it is the hash of a tag."""

EXT_END_BLANK_SIZE = 4
"""Bytes that stay free at the end of a file: a unit needs `size <= file size - position - 4`."""

END_OF_EXT_FILE = -1
"""Size field that closes a file to its end."""

DEFAULT_EXT_FILE_SIZE = 48 * 1024 * 1024

EXT_UNIT = cs.Struct(
    i16("size", "bytes of the unit, this field included: 20 + bit_map_size; -1 closes the file"),
    i64("tags_code", "Java hash of TAGS, which the address displaced in the ConsumeQueue unit"),
    i64("store_timestamp", "ms since epoch, the record's"),
    i16("bit_map_size", "bytes of the bit map"),
    sized("bit_map", "bit_map_size", "Bloom filter of the consumer filters that accept the message, LSB first"),
)

EXT_HEAD = codec.leading_fields(EXT_UNIT)
_EXT_HEAD = codec.struct_of(EXT_HEAD)
_EXT_SIZE = codec.struct_of(EXT_HEAD[:1])
EXT_HEAD_SIZE = _EXT_HEAD.size

LONGEST_EXT_UNIT = (1 << 15) - 1
"""The size of a unit is a Java short."""

ROCKS_UNITS = "default"
ROCKS_BOUNDS = "offset"
CHECKPOINT_TOPIC = topics.CHECKPOINT_TOPIC.encode()
ROCKS_MAX, ROCKS_MIN = b"max", b"min"

_SEPARATOR = b"\x01"
_I32 = struct.Struct(">i")
_TAIL = struct.Struct(">cicq")
_LAYOUT = "RocksDB queue key"


class ConsumeQueueUnit(Struct, frozen=True):
    """One unit; unit n of a queue starts at byte 20 · n, counted over all files of the queue."""

    physical_offset: int
    size: int
    tags_code: int


CONSUME_QUEUE_UNIT = Unit(
    "ConsumeQueue unit",
    ConsumeQueueUnit,
    i64("physical_offset", "where the record starts in the CommitLog"),
    i32("size", "bytes of the complete record"),
    i64("tags_code", "Java hash of TAGS; deliver time in ms for the schedule topic; or an extension address"),
)

UNIT_SIZE = CONSUME_QUEUE_UNIT.size
DEFAULT_FILE_SIZE = 300_000 * UNIT_SIZE
PRE_BLANK = ConsumeQueueUnit(0, PRE_BLANK_SIZE_FIELD, 0)


def round_up_file_size(configured: int) -> int:
    """Returns the size of a queue's files: the configured one, rounded up to a multiple of the unit size."""
    return -(-configured // UNIT_SIZE) * UNIT_SIZE


def tags_code(tags: str | None) -> int:
    """Returns the Java hash of the whole TAGS value, 0 if it is absent or empty."""
    return java.string_hash(tags) if tags else 0


class BatchConsumeQueueUnit(Struct, frozen=True):
    """One unit: refers to a record that contains `batch_size` messages."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_queue_offset: int
    batch_size: int
    compacted_offset: int = -1
    reserved: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether the broker's recovery accepts the unit (BatchConsumeQueue.recover)."""
        return self.physical_offset >= 0 and self.size > 0 and self.base_queue_offset >= 0 and self.batch_size > 0


BATCH_CONSUME_QUEUE_UNIT = Unit(
    "BatchConsumeQueue unit",
    BatchConsumeQueueUnit,
    i64("physical_offset", "where the record starts in the CommitLog (in the compaction log, if compacted)"),
    i32("size", "bytes of the complete record"),
    i64("tags_code", "Java hash of the record's TAGS; 0 for an inner batch"),
    i64("store_timestamp", "ms since epoch, the record's"),
    i64("base_queue_offset", "queue offset of the record's first message"),
    i16("batch_size", "messages in the record, 1 for a plain one"),
    i32("compacted_offset", "-1"),
    i32("reserved", "0"),
)

BATCH_UNIT_SIZE = BATCH_CONSUME_QUEUE_UNIT.size
DEFAULT_BATCH_FILE_SIZE = 300_000 * BATCH_UNIT_SIZE

SPARSE_END_UNIT = BatchConsumeQueueUnit(-1, 0, 0, 0, 0, 0, -1, 0)
"""Closes a file of a compacted queue (SparseConsumeQueue.putEndPositionInfo)."""


class ConsumeQueueExtUnit(Struct, frozen=True):
    """One unit of the extension."""

    size: int
    tags_code: int
    store_timestamp: int
    bit_map_size: int
    bit_map: bytes


def parse_ext_unit(data: Buffer, position: int = 0) -> ConsumeQueueExtUnit | None:
    """Parses the unit at a position of a file; None at the end of its data: a size of 0 (not written) or below.

    Raises TruncatedError if the unit does not end inside `data`, FormatError if its size and that of its bit map do not
    agree.
    """
    view = memoryview(data)
    _require(view, position, _EXT_SIZE.size)
    (size,) = _EXT_SIZE.unpack_from(view, position)
    if size <= 0:
        return None
    if size < EXT_HEAD_SIZE:
        raise FormatError(f"size {size} is below {EXT_HEAD_SIZE}", layout="ext unit", field="size", position=position)
    _require(view, position, size)
    _, tags_code, store_timestamp, bit_map_size = _EXT_HEAD.unpack_from(view, position)
    taken = EXT_HEAD_SIZE + max(0, bit_map_size)
    if taken != size:
        raise FormatError(f"size is {size}, the fields take {taken} bytes", layout="ext unit", position=position)
    bit_map = bytes(view[position + EXT_HEAD_SIZE : position + size])
    return ConsumeQueueExtUnit(size, tags_code, store_timestamp, bit_map_size, bit_map)


def _require(view: memoryview, position: int, size: int) -> None:
    if position + size > len(view):
        available = max(0, len(view) - position)
        raise TruncatedError(f"expected {size} bytes, found {available}", layout="ext unit", position=position)


def build_ext_unit(unit: ConsumeQueueExtUnit) -> bytes:
    """Returns the bytes of a unit exactly as its fields state; raises FormatError if a value does not fit its field."""
    return codec.build(EXT_UNIT, structs.asdict(unit), name="ext unit")


def make_ext_unit(tags_code: int, store_timestamp: int, bit_map: bytes) -> ConsumeQueueExtUnit:
    """Returns a unit whose sizes fit its bit map."""
    return ConsumeQueueExtUnit(EXT_HEAD_SIZE + len(bit_map), tags_code, store_timestamp, len(bit_map), bit_map)


def is_ext_address(tags_code: int) -> bool:
    """Whether a ConsumeQueue unit's tags code is an address in the extension."""
    return tags_code <= MAX_EXT_ADDRESS


def ext_offset(address: int) -> int:
    """Returns the byte offset of an address, counted over all files of the extension."""
    return address - java.LONG_MIN if is_ext_address(address) else address


def ext_address(offset: int) -> int:
    """Returns the address that a ConsumeQueue unit stores for an offset."""
    return offset if is_ext_address(offset) else offset + java.LONG_MIN


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
    """Returns topic, queue id and queue offset of a unit's key; raises FormatError if it is not one."""
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
    """Returns topic, queue id, `ROCKS_MIN` or `ROCKS_MAX` of a bound's key; raises FormatError if it is not one."""
    topic = _topic_of(key)
    tail = key[_I32.size + 1 + len(topic) :]
    which = tail[1:4]
    if len(tail) != len(ROCKS_MAX) + 2 + _I32.size or which not in (ROCKS_MIN, ROCKS_MAX):
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
