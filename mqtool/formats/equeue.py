"""EQueue's chunk files: header and footer, message records between two lengths, queue entries, message ids, file names.

Everything is little-endian. Message records have two known layouts. No file states the layout: a store uses one, and
`detect` infers it from its records. Docs page: docs/formats/equeue.md. Source: ECommon.Storage (ChunkHeader,
ChunkFooter, Chunk, DefaultFileNamingStrategy; ECommon 2.6.5), QueueLogRecord, StringExtensions.GetHashcode2,
MessageLogRecord, QueueMessage, MessageIdUtil (EQueue 2.6.3, 2.2.0).
"""

import re
import socket

from msgspec import Struct, structs
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats.codec import Buffer, Sequence, Unit, bytes32, le32, le64, raw

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

EPOCH_TICKS = 621_355_968_000_000_000
"""Ticks of 100 ns from 0001-01-01 to 1970-01-01."""

MAX_TICKS = 3_155_378_975_999_999_999
"""DateTime.MaxValue; the decoder fails beyond it, and below 0."""

_FIRST = (
    le64("log_position", "global position of this record's frame"),
    bytes32("message_id", "hexadecimal text, see below"),
    bytes32("topic", "UTF-8"),
    bytes32("tag", "UTF-8, may be empty"),
)
_PRODUCER = bytes32("producer_address", "UTF-8, may be empty; since 2016-09-24")
_LAST = (
    le32("code", "the application's own number for the kind of message"),
    bytes32("body", "may be empty"),
    le32("queue_id", "queue of the topic"),
    le64("queue_offset", "ordinal in the queue, from 0"),
    le64("created_time", "ticks, the producer's local time"),
    le64("stored_time", "ticks, the broker's local time"),
)


class ChunkHeader(Struct, frozen=True):
    """First 128 bytes of a chunk file."""

    chunk_number: int
    capacity: int
    reserved: bytes = b""  # filled up with zeros

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
    reserved: bytes = b""  # filled up with zeros


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

    Raises FormatError for the smallest int, which has no absolute value; the broker fails on it too.
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


class MessageRecord(Struct, frozen=True):
    """One record as stored; bytes are not decoded, so `build` restores them exactly."""

    log_position: int
    message_id: bytes
    topic: bytes
    tag: bytes
    producer_address: bytes
    code: int
    body: bytes
    queue_id: int
    queue_offset: int
    created_time: int
    stored_time: int

    @property
    def is_decodable(self) -> bool:
        """Whether the broker can decode the message: both times are within the range of DateTime."""
        return 0 <= self.created_time <= MAX_TICKS and 0 <= self.stored_time <= MAX_TICKS


class _OldRecord(Struct, frozen=True):
    log_position: int
    message_id: bytes
    topic: bytes
    tag: bytes
    code: int
    body: bytes
    queue_id: int
    queue_offset: int
    created_time: int
    stored_time: int


RECORD = Sequence("EQueue message record", MessageRecord, *_FIRST, _PRODUCER, *_LAST)
OLD_RECORD = Sequence("EQueue message record before 2016-09", _OldRecord, *_FIRST, *_LAST)


class Shape:
    """Parses and builds one layout of the record; its name is "2.6" or "2.2"."""

    def __init__(self, name: str, *, producer: bool) -> None:
        self.name = name
        self.sequence: Sequence[MessageRecord] | Sequence[_OldRecord] = RECORD if producer else OLD_RECORD
        self._producer = producer

    def parse(self, data: Buffer, position: int = 0, end: int | None = None) -> tuple[MessageRecord, int]:
        """Returns a record and the position after it; bytes after that, up to `end`, are ignored as by the broker.

        Raises TruncatedError if it does not end before `end`.
        """
        if self._producer:
            return RECORD.parse(data, position, end)
        old, after = OLD_RECORD.parse(data, position, end)
        values = structs.asdict(old)
        return MessageRecord(producer_address=b"", **values), after

    def build(self, record: MessageRecord) -> bytes:
        """Returns the bytes of a record without its lengths."""
        if self._producer:
            return RECORD.build(record)
        return OLD_RECORD.build(_OldRecord(*(getattr(record, name) for name in _OldRecord.__struct_fields__)))


CURRENT = Shape("2.6", producer=True)
OLD = Shape("2.2", producer=False)
SHAPES = (CURRENT, OLD)


def detect(record: Buffer, position: int) -> Shape | None:
    """Returns the shape that the bytes between two lengths, at a global position, fit exactly; None without one."""
    for shape in SHAPES:
        try:
            parsed, after = shape.parse(record)
            for text in (parsed.message_id, parsed.topic, parsed.tag, parsed.producer_address):
                text.decode()
        except (FormatError, UnicodeDecodeError):
            continue
        if after == len(record) and parsed.log_position == position and parsed.is_decodable:
            return shape
    return None


class MessageId(Struct, frozen=True):
    """The contents of a message id."""

    broker: str  # name of the broker, or its address as `ip:port` in ids from before 2020-06
    position: int  # global position of the frame
    by_address: bool = False  # whether `broker` is an address


class _AddressId(Struct, frozen=True):
    address: bytes
    port: int
    position: int


_ADDRESS_ID = Unit(
    "EQueue message id by address",
    _AddressId,
    raw("address", 4, "IPv4"),
    le32("port", "of the broker"),
    le64("position", "of the frame"),
)


class _NameId(Struct, frozen=True):
    broker: bytes
    position: int


_NAME_ID = Sequence(
    "EQueue message id by name",
    _NameId,
    bytes32("broker", "name of the broker, UTF-8"),
    le64("position", "global position of the message's frame"),
)

ID_LAYOUTS = {"equeue-id": _NAME_ID.layout, "equeue-id-address": _ADDRESS_ID.layout}


def parse_id(text: bytes | str) -> MessageId:
    """Reads a message id; raises FormatError if it is neither of the two kinds."""
    try:
        data = bytes.fromhex(text if isinstance(text, str) else text.decode("ascii"))
    except ValueError as error:
        raise FormatError("expected hexadecimal digits", layout="EQueue message id") from error
    try:
        named, after = _NAME_ID.parse(data)
        if after == len(data):
            return MessageId(named.broker.decode(), named.position)
    except (FormatError, UnicodeDecodeError):
        pass
    if len(data) != _ADDRESS_ID.size:
        reason = f"expected 16 bytes, or a name and a position, found {len(data)} bytes"
        raise FormatError(reason, layout="EQueue message id")
    parsed = _ADDRESS_ID.parse(data)
    return MessageId(f"{socket.inet_ntoa(parsed.address)}:{parsed.port}", parsed.position, by_address=True)


def build_id(message_id: MessageId) -> bytes:
    """Returns the text of a message id, as a record holds it."""
    if not message_id.by_address:
        return _NAME_ID.build(_NameId(message_id.broker.encode(), message_id.position)).hex().encode()
    address, _, port = message_id.broker.rpartition(":")
    return _ADDRESS_ID.build(_AddressId(socket.inet_aton(address), int(port), message_id.position)).hex().encode()


def moved(record: MessageRecord, position: int) -> MessageRecord:
    """Returns a record with another position: its own field, and the one in its id if the id is valid."""
    try:
        message_id = build_id(replace(parse_id(record.message_id), position=position))
    except FormatError:
        message_id = record.message_id
    return replace(record, log_position=position, message_id=message_id)


def ticks_to_millis(ticks: int) -> int:
    """Converts ticks to ms since 1970; local time, as EQueue stores it, gives ms of that local time."""
    return (ticks - EPOCH_TICKS) // 10_000
