"""The page about one message: its fields, its properties, and the start of its body."""

from typing import NamedTuple

from msgspec import Struct

from mqtool import words
from mqtool.errors import FormatError
from mqtool.formats import commit_log, compression, hosts, message_batch, message_id
from mqtool.formats import properties as property_format
from mqtool.server.admin.lookup import keys_of
from mqtool.server.admin.snapshot import Snapshot
from mqtool.server.broker.parsed_record import ParsedRecord

MAX_CHARACTERS = 8192
MAX_HEX_BYTES = 512
_HEX_ROW = 16
_MAX_BODY = 8 << 20
"""Maximum size of a decompressed body in bytes; by default a broker accepts bodies of 4 MiB."""
_TAB = "    "
_TRANSACTIONS = {0: "", 4: "prepared", 8: "committed", 12: "rolled back"}


class Body(NamedTuple):
    """A body in readable form.

    Attributes:
        kind: "text" or "bytes".
        text: the text, with codes for invisible characters; or lines of hexadecimal digits.
        size: size of the decompressed body in bytes.
        is_cut: whether only the start of the body is shown.
        problem: why the body is shown as stored; "" if it was decompressed.
    """

    kind: str
    text: str
    size: int
    is_cut: bool
    problem: str


class GroupPosition(NamedTuple):
    """A consumer group that reads the topic: its offset in the queue, and whether that is after the message."""

    group: str
    consumer_offset: int
    is_past: bool


class MessageDetails(Struct, frozen=True):
    """Content of the page about a message: (name, value) rows, properties, body and consumer groups."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    rows: list[tuple[str, str]]
    properties: list[tuple[str, str]]
    body: Body
    groups: list[GroupPosition]
    is_valid: bool


class Hit(NamedTuple):
    """A message in a list of results."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    stored_at: str
    tags: str
    keys: str
    unique_key: str


def hit(message: ParsedRecord) -> Hit:
    """Converts a message to a row of the list of results."""
    record = message.record
    return Hit(
        record.physical_offset,
        message.topic,
        record.queue_id,
        record.queue_offset,
        words.moment(record.store_timestamp),
        message.properties.get(property_format.TAGS, ""),
        " ".join(keys_of(message)),
        message.unique_key,
    )


def details_of(message: ParsedRecord, snapshot: Snapshot) -> MessageDetails:
    """Returns the fields, properties, body and consumer groups of a message."""
    record = message.record
    transaction = _TRANSACTIONS[commit_log.transaction_type(record.sys_flag)]
    rows = [
        ("Tags", message.properties.get(property_format.TAGS, "")),
        ("Keys", " ".join(keys_of(message))),
        ("Unique key", message.unique_key),
        ("Offset message id", message_id.format_offset_id(record.store_host, record.physical_offset)),
        ("Stored", f"{words.moment(record.store_timestamp)} UTC"),
        ("Born", f"{words.moment(record.born_timestamp)} UTC"),
        ("Born host", hosts.text_of(record.born_host)),
        ("Physical offset", str(record.physical_offset)),
        ("Size of the record", words.size(record.total_size)),
        ("Consumed again", words.counted(record.reconsume_times, "time")),
        ("Transaction", transaction),
        ("Flag", str(record.flag)),
    ]
    groups = [
        GroupPosition(group, committed[record.queue_id], committed[record.queue_id] > record.queue_offset)
        for (topic, group), committed in sorted(snapshot.committed.items())
        if topic == message.topic and record.queue_id in committed
    ]
    return MessageDetails(
        message.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        [row for row in rows if row[1]],
        list(message.properties.items()),
        body_of(record.body, record.sys_flag),
        groups,
        commit_log.body_crc(record.body) == record.body_crc,
    )


def body_of(body: bytes, sys_flag: int) -> Body:
    """Returns a body in readable form: as text if it is text, otherwise its first bytes.

    Args:
        body: the body as stored.
        sys_flag: sys flag of the record, which states the compression.
    """
    problem = ""
    try:
        body = compression.decode(body, sys_flag, _MAX_BODY)
    except FormatError as error:
        problem = str(error)
    text = None if problem or message_batch.is_inner_batch(sys_flag) else _text(body)
    if text is None:
        return Body("bytes", _hex(body[:MAX_HEX_BYTES]), len(body), len(body) > MAX_HEX_BYTES, problem)
    cut = text[:MAX_CHARACTERS]
    return Body("text", "\n".join(map(_line, cut.split("\n"))), len(body), len(text) > MAX_CHARACTERS, problem)


def _text(body: bytes) -> str | None:
    """Returns the start of a body as text, slightly more than is shown; None if the body is not text."""
    piece = body[: 4 * MAX_CHARACTERS + 4]
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        is_text = len(piece) == len(body) or error.start < len(piece) - 3
        return None if is_text else piece[: error.start].decode()


def _line(line: str) -> str:
    line = line.removesuffix("\r").replace("\t", _TAB)
    starts = range(0, len(line), words.LONGEST)
    return "".join(words.visible(line[start : start + words.LONGEST]) for start in starts)


def _hex(data: bytes) -> str:
    rows = (data[start : start + _HEX_ROW] for start in range(0, len(data), _HEX_ROW))
    return "\n".join(f"{number * _HEX_ROW:04x}  {row.hex(' ')}" for number, row in enumerate(rows))
