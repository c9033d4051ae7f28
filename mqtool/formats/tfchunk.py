"""EventStore's TFChunk files: header, footers, position map, checkpoints, names, and the records of the log.

Everything is little-endian. A record (prepare, commit, system) is stored between two lengths, as in EQueue's chunks.
Version 0 (up to 3.x) stores two event numbers in 32 bits, version 1 in 64. Docs page: docs/formats/tfchunk.md. Source:
ChunkHeader, ChunkFooter, PosMap, VersionedPatternFileNamingStrategy, FileCheckpoint, LogRecord, PrepareLogRecord,
CommitLogRecord, SystemLogRecord (EventStore 5.0.8, 3.9.4).
"""

import enum
import re
import uuid
from typing import Any

import construct as cs
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import BadMagicError, FormatError
from mqtool.formats.codec import Buffer, Sequence, Unit, bytes32, bytes_leb, le16u, le32, le64, raw, u8
from mqtool.formats.equeue import MAX_TICKS

CHUNK_FILE_TYPE = 2
ALIGNMENT = 4096
MAX_RECORD_SIZE = 16 << 20
MD5_SIZE = 16
UNALIGNED, ALIGNED, TRANSFORMED = 2, 3, 4
IDENTITY = 0
NO_POSITION = -1

_COMPLETED, _WIDE_MAP = 1, 2

CHECKPOINTS = ("writer.chk", "chaser.chk", "epoch.chk", "truncate.chk", "proposal.chk")
"""Names of checkpoint files; the first four are there since 3.x."""

_NAME = re.compile(r"chunk-(\d{6})\.(\d{6})")

_HEAD = (
    u8("record_type", "0 prepare, 1 commit, 2 system"),
    u8("version", "0 up to 3.x, 1 since 4.0; system records stay 0"),
    le64("log_position", "of this record's frame, also after a scavenge"),
)

_EXPECTED = "number of the stream's last event before this one"
_FIRST = "number of the first event"

_TIME = {"time": (0, MAX_TICKS)}


class ChunkHeader(Struct, frozen=True):
    """First 128 bytes of a chunk file."""

    file_type: int
    lowest_version: int
    chunk_size: int
    start_number: int
    end_number: int
    is_scavenged: int
    chunk_id: bytes
    own_version: int
    transform: int
    reserved: bytes

    @property
    def version(self) -> int:
        """The effective version; since 24.6 it has a separate byte."""
        return self.own_version or self.lowest_version

    @property
    def uuid(self) -> str:
        """The chunk's id as .NET prints it."""
        return str(uuid.UUID(bytes_le=self.chunk_id))

    @property
    def start(self) -> int:
        """Log position of the chunk's first record."""
        return self.start_number * self.chunk_size

    @property
    def end(self) -> int:
        """Log position after the chunk."""
        return (self.end_number + 1) * self.chunk_size


class ChunkFooter(Struct, frozen=True):
    """Last 128 bytes of a chunk file; zeros while the chunk is being written."""

    flags: int
    physical_size: int
    logical_size: int
    map_size: int
    reserved: bytes
    md5: bytes

    @property
    def is_completed(self) -> bool:
        """Whether the chunk is full, or was produced by a scavenge."""
        return bool(self.flags & _COMPLETED)

    @property
    def map_unit(self) -> "Unit[MapEntry]":
        """Layout of the position map's entries."""
        return MAP_ENTRY if self.flags & _WIDE_MAP else NARROW_MAP_ENTRY


class MapEntry(Struct, frozen=True):
    """The actual position of a record that kept its log position."""

    actual: int  # bytes after the header
    logical: int  # log position - the chunk's start


class Checkpoint(Struct, frozen=True):
    """The number in a checkpoint file."""

    position: int


HEADER = Unit(
    "TFChunk header",
    ChunkHeader,
    u8("file_type", "2"),
    u8("lowest_version", "2, 3 or 4: up to 24.2 the version, since then the lowest one that can read the file"),
    le32("chunk_size", "bytes of log positions in one chunk"),
    le32("start_number", "number of the first chunk in the file"),
    le32("end_number", "number of the last one, another after a merge"),
    le32("is_scavenged", "above 0: records may be missing, the position map contains the places of the others"),
    raw("chunk_id", 16, "GUID, mixed-endian"),
    u8("own_version", "the version from 4 on; 0: lowest_version is it"),
    u8("transform", "from version 4 on: 0 none, 1 AES-GCM"),
    raw("reserved", 92, "zeros"),
)

FOOTER = Unit(
    "TFChunk footer",
    ChunkFooter,
    u8("flags", "1 completed, 2 entries of the map have 12 bytes"),
    le32("physical_size", "bytes of records in the file"),
    le64("logical_size", "log positions that they cover"),
    le32("map_size", "bytes of the position map"),
    raw("reserved", 95, "zeros"),
    raw("md5", 16, "MD5 of all bytes of the file before it"),
)

NARROW_FOOTER = Unit(
    "TFChunk footer with a narrow map",
    ChunkFooter,
    u8("flags", "1 completed"),
    le32("physical_size", "bytes of records in the file"),
    le32("logical_size", "log positions that they cover"),
    le32("map_size", "bytes of the position map"),
    raw("reserved", 99, "zeros"),
    raw("md5", 16, "MD5 of all bytes of the file before it"),
)

MAP_ENTRY = Unit(
    "TFChunk map entry",
    MapEntry,
    le32("actual", "where the frame is, bytes after the header"),
    le64("logical", "log position of the record - the chunk's start"),
)

NARROW_MAP_ENTRY = Unit(
    "TFChunk narrow map entry",
    MapEntry,
    le32("actual", "where the frame is, bytes after the header"),
    le32("logical", "log position of the record - the chunk's start"),
)

CHECKPOINT = Unit("EventStore checkpoint", Checkpoint, le64("position", "log position, -1 for none"))

HEADER_SIZE = HEADER.size
FOOTER_SIZE = FOOTER.size


class ChunkName(Struct, frozen=True):
    """The contents of a chunk file's name."""

    number: int
    version: int

    def __str__(self) -> str:
        return f"chunk-{self.number:06}.{self.version:06}"


def parse_name(name: str) -> ChunkName | None:
    """Parses a chunk file's name; None if it is not one."""
    match = _NAME.fullmatch(name)
    return ChunkName(int(match[1]), int(match[2])) if match else None


def parse_footer(data: Buffer, position: int = 0) -> ChunkFooter:
    """Parses a footer in the layout that its own flags state; TruncatedError if fewer than 128 bytes are available."""
    footer = FOOTER.parse(data, position)
    return footer if footer.flags & _WIDE_MAP else NARROW_FOOTER.parse(data, position)


def build_footer(footer: ChunkFooter) -> bytes:
    """Returns the bytes of a footer; reserved bytes are truncated or padded with zeros to their length."""
    unit = FOOTER if footer.flags & _WIDE_MAP else NARROW_FOOTER
    size = unit.fields[-2].size
    return unit.build(replace(footer, reserved=footer.reserved[:size].ljust(size, b"\0")))


def file_size(header: ChunkHeader, footer: ChunkFooter) -> int:
    """Returns the required length of a completed chunk's file."""
    needed = HEADER_SIZE + footer.physical_size + footer.map_size + FOOTER_SIZE
    return needed if header.version == UNALIGNED else -(-needed // ALIGNMENT) * ALIGNMENT


class RecordType(enum.IntEnum):
    """First byte of a record."""

    PREPARE = 0
    COMMIT = 1
    SYSTEM = 2


class RecordHead(Struct, frozen=True):
    """The common head of all records."""

    record_type: int
    version: int
    log_position: int


class Prepare(Struct, frozen=True):
    """An event that a client wrote."""

    record_type: int
    version: int
    log_position: int
    flags: int
    transaction_position: int
    transaction_offset: int
    expected_version: int
    event_stream_id: bytes
    event_id: bytes
    correlation_id: bytes
    time: int
    event_type: bytes
    data: bytes
    metadata: bytes


class Commit(Struct, frozen=True):
    """Commits the events of a transaction."""

    record_type: int
    version: int
    log_position: int
    transaction_position: int
    first_event_number: int
    sort_key: int
    correlation_id: bytes
    time: int


class System(Struct, frozen=True):
    """The server's own records, e.g. of epochs."""

    record_type: int
    version: int
    log_position: int
    time: int
    system_type: int
    serialization: int
    reserved: int
    data: bytes


Record = Prepare | Commit | System


HEAD = Unit("EventStore record head", RecordHead, *_HEAD)


def _prepare(name: str, number: cs.Construct) -> Sequence[Prepare]:
    return Sequence(
        name,
        Prepare,
        *_HEAD,
        le16u("flags", "1 data, 2 begin, 4 end, 8 delete, 0x20 committed, 0x100 JSON, 0x200 redacted"),
        le64("transaction_position", "of the transaction's first record"),
        le32("transaction_offset", "ordinal in the transaction, -1 for its begin and end"),
        number,
        bytes_leb("event_stream_id", "UTF-8"),
        raw("event_id", 16, "GUID, mixed-endian"),
        raw("correlation_id", 16, "GUID, mixed-endian"),
        le64("time", "ticks of 100 ns since 0001-01-01, UTC"),
        bytes_leb("event_type", "UTF-8"),
        bytes32("data", "the event"),
        bytes32("metadata", "of the event"),
    )


def _commit(name: str, number: cs.Construct) -> Sequence[Commit]:
    return Sequence(
        name,
        Commit,
        *_HEAD,
        le64("transaction_position", "of the transaction's first record"),
        number,
        le64("sort_key", "= log_position"),
        raw("correlation_id", 16, "GUID, mixed-endian"),
        le64("time", "ticks of 100 ns since 0001-01-01, UTC"),
    )


PREPARE = _prepare("EventStore prepare", le64("expected_version", _EXPECTED))
PREPARE_V0 = _prepare("EventStore prepare of version 0", le32("expected_version", _EXPECTED))
COMMIT = _commit("EventStore commit", le64("first_event_number", _FIRST))
COMMIT_V0 = _commit("EventStore commit of version 0", le32("first_event_number", _FIRST))
SYSTEM = Sequence(
    "EventStore system record",
    System,
    *_HEAD,
    le64("time", "ticks of 100 ns since 0001-01-01, UTC"),
    u8("system_type", "1 epoch"),
    u8("serialization", "1 binary, 2 JSON, 3 BSON"),
    le64("reserved", "0"),
    bytes32("data", "an epoch: its id, number, previous epoch's position, time"),
)

LAYOUTS: dict[tuple[int, int], Sequence[Any]] = {
    (RecordType.PREPARE, 0): PREPARE_V0,
    (RecordType.PREPARE, 1): PREPARE,
    (RecordType.COMMIT, 0): COMMIT_V0,
    (RecordType.COMMIT, 1): COMMIT,
    (RecordType.SYSTEM, 0): SYSTEM,
}

LAST_OF_VERSION_0 = {
    RecordType.PREPARE: ("expected_version", (1 << 31) - 2),
    RecordType.COMMIT: ("first_event_number", (1 << 31) - 1),
}
"""Numbers in version 0 that mean the greatest one, so that a deleted stream stays deleted in version 1."""


BOUNDS: dict[int, dict[str, tuple[int, int]]] = {
    RecordType.PREPARE: _TIME,
    RecordType.COMMIT: _TIME,
    RecordType.SYSTEM: _TIME | {"system_type": (1, 255), "serialization": (1, 255)},
}
"""Lowest and highest values of fields that the reading constructors accept: others make them throw (5.0.8)."""


def parse_record(data: Buffer, position: int = 0) -> Record:
    """Parses one record without its lengths, from a position to the end of the data.

    The server expects the length after the last field (TFChunkReadSide.TryReadForwardInternal), so a record fills its
    frame. Raises BadMagicError for another type or version, FormatError if it does not fit, does not fill the data, or
    has a value with which the server does not read it.
    """
    head = HEAD.parse(data, position)
    layout = LAYOUTS.get((head.record_type, head.version))
    if layout is None:
        reason = f"expected type 0, 1 or 2 of version 0 or 1, found type {head.record_type} version {head.version}"
        raise BadMagicError(reason, layout="EventStore record", field="record_type", position=position)
    record, after = layout.parse(data, position)
    if after != len(data):
        reason = f"expected a record that fills {len(data) - position} bytes, found one of {after - position}"
        raise FormatError(reason, layout=layout.name, position=position)
    for name, (minimum, maximum) in BOUNDS[head.record_type].items():
        if not minimum <= getattr(record, name) <= maximum:
            reason = f"expected {name} from {minimum} to {maximum}, found {getattr(record, name)}"
            raise FormatError(reason, layout=layout.name, position=position)
    return record


def build_record(record: Record) -> bytes:
    """Returns the bytes of a record without its lengths; raises FormatError if a value does not fit its field."""
    layout = LAYOUTS.get((record.record_type, record.version))
    if layout is None:
        raise FormatError(f"no type {record.record_type} of version {record.version}", layout="EventStore record")
    return layout.build(record)


def event_number(record: Prepare | Commit) -> int:
    """Returns expected_version or first_event_number as version 1 would store it."""
    kind = RecordType(record.record_type)
    name, last = LAST_OF_VERSION_0[kind]
    value = int(getattr(record, name))
    if record.version == 0 and value == last:
        return (1 << 63) - 1 - (kind is RecordType.PREPARE)
    return value


def guid(data: bytes) -> str:
    """Returns a GUID as .NET prints it."""
    return str(uuid.UUID(bytes_le=data))
