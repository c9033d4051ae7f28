"""EventStore's TFChunk files: header, footers, position map, checkpoints, names. Records are in `tfchunk_records`.

Everything is little-endian. Docs page: docs/formats/tfchunk.md. Source: ChunkHeader, ChunkFooter, PosMap,
VersionedPatternFileNamingStrategy, FileCheckpoint (EventStore 5.0.8, 3.9.4).
"""

import re
import uuid

from msgspec import Struct
from msgspec.structs import replace

from mqtool.formats.codec import Buffer, Unit
from mqtool.formats.fields import le32, le64, raw, u8

CHUNK_FILE_TYPE = 2
ALIGNMENT = 4096
MAX_RECORD_SIZE = 16 << 20
MD5_SIZE = 16
UNALIGNED, ALIGNED, TRANSFORMED = 2, 3, 4
IDENTITY = 0
NO_POSITION = -1

_COMPLETED, _WIDE_MAP = 1, 2


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

CHECKPOINTS = ("writer.chk", "chaser.chk", "epoch.chk", "truncate.chk", "proposal.chk")
"""Names of checkpoint files; the first four are there since 3.x."""

_NAME = re.compile(r"chunk-(\d{6})\.(\d{6})")


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
    """Parses a footer in the layout that its own flags state.

    Raises:
        TruncatedError: fewer than 128 bytes are available.
    """
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
