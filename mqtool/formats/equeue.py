"""EQueue's chunk files: header and footer, the frame of a message record, queue entries, file names.

The message records themselves are in `equeue_message`. Everything is little-endian. Docs page: docs/formats/equeue.md.
Source: ECommon.Storage (ChunkHeader, ChunkFooter, Chunk, DefaultFileNamingStrategy; ECommon 2.6.5),
QueueLogRecord, StringExtensions.GetHashcode2 (EQueue 2.6.3, 2.2.0).
"""

import re

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats.codec import Buffer, Unit
from mqtool.formats.fields import le32, le64, raw

MESSAGE_CHUNKS = "message-chunks"
QUEUE_CHUNKS = "queue-chunks"
QUEUE_SETTING = "queue.setting"
CONSUME_OFFSETS = "consume-offsets.json"
CONSUME_OFFSETS_BACKUP = "consume-offsets-backup.json"
MESSAGE_PREFIX = "message-chunk-"
QUEUE_PREFIX = "queue-chunk-"
TEMPORARY_SUFFIX = ".tmp"

MAX_RECORD_SIZE = 5 << 20
"""BrokerSetting: larger records are refused when written and end the scan of the last chunk when read."""


class ChunkHeader(Struct, frozen=True):
    """First 128 bytes of a chunk file."""

    chunk_number: int
    capacity: int
    reserved: bytes = bytes(120)

    @property
    def start(self) -> int:
        """Global position of the chunk's first data byte, computed from the chunk's own capacity."""
        return self.chunk_number * self.capacity

    @property
    def is_valid(self) -> bool:
        """Whether ChunkHeader's constructor accepts the header."""
        return self.chunk_number >= 0 and self.capacity > 0


class ChunkFooter(Struct, frozen=True):
    """Last 128 bytes of a completed chunk's file."""

    data_size: int
    reserved: bytes = bytes(124)


class QueueEntry(Struct, frozen=True):
    """One entry of a queue; entry i of chunk n is that of queue offset n · count + i."""

    position_plus_one: int
    tag_code: int

    @property
    def is_valid(self) -> bool:
        """Whether the broker accepts the entry; 0 means never written."""
        return self.position_plus_one > 0

    @property
    def message_position(self) -> int:
        """Global position of the message's frame."""
        return self.position_plus_one - 1


HEADER = Unit(
    "EQueue chunk header",
    ChunkHeader,
    le32("chunk_number", "number of the chunk; the file's name is not compared with it"),
    le32("capacity", "bytes of data that the chunk can hold"),
    raw("reserved", 120, "zeros, never read"),
)

FOOTER = Unit(
    "EQueue chunk footer",
    ChunkFooter,
    le32("data_size", "bytes of data that the chunk holds"),
    raw("reserved", 124, "zeros, never read"),
)

QUEUE_ENTRY = Unit(
    "EQueue queue entry",
    QueueEntry,
    le64("position_plus_one", "global position of the message's frame, plus 1; 0 for a place that was never written"),
    le32("tag_code", "hash of the message's tag, 0 for none"),
)


class Length(Struct, frozen=True):
    """The word before and after each message record."""

    length: int


LENGTH = Unit("EQueue frame length", Length, le32("length", "bytes of the record, the two lengths excluded"))

HEADER_SIZE = HEADER.size
FOOTER_SIZE = FOOTER.size
ENTRY_SIZE = QUEUE_ENTRY.size
FRAME_OVERHEAD = 2 * LENGTH.size


def chunk_name(prefix: str, number: int) -> str:
    """Returns the name of a chunk's file."""
    return f"{prefix}{number:09}"


def is_chunk_name(name: str, prefix: str) -> bool:
    """Whether the broker accepts a file as a chunk: six digits suffice, and anything may follow them."""
    return re.match(f"{prefix}[0-9]{{6}}", name) is not None


def is_plain_name(name: str, prefix: str) -> bool:
    """Whether the broker itself would create a file with this name."""
    return re.fullmatch(f"{prefix}[0-9]{{9}}", name) is not None


def named_number(name: str) -> int | None:
    """Returns the number in a chunk file's name."""
    match = re.match("(?:message|queue)-chunk-([0-9]{6,})", name)
    return int(match[1]) if match else None


def data_size(data: Buffer) -> int | None:
    """Returns the data size of a completed chunk's file; None if the chunk is not completed.

    A chunk is completed if the footer at the end of its file matches the file's length.
    """
    if len(data) < HEADER_SIZE + FOOTER_SIZE:
        return None
    size = FOOTER.parse(data, len(data) - FOOTER_SIZE).data_size
    return size if size >= 0 and HEADER_SIZE + size + FOOTER_SIZE == len(data) else None


def build_frame(record: bytes) -> bytes:
    """Returns a record between its two lengths."""
    length = LENGTH.build(Length(len(record)))
    return length + record + length


def tag_code(tag: str) -> int:
    """Returns the hash of a tag as stored in queue entries.

    Raises:
        FormatError: the hash is the smallest int, which has no absolute value; the broker fails on it too.
    """
    if not tag:
        return 0
    code = 23
    units = tag.encode("utf-16-le", "surrogatepass")
    for place in range(0, len(units), 2):
        code = (code * 31 + units[place] + (units[place + 1] << 8)) & 0xFFFFFFFF
    if code == 1 << 31:
        raise FormatError("its hash has no absolute value", layout="tag")
    return code if code < 1 << 31 else (1 << 32) - code
