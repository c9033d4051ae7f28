"""What a consumer makes of the bytes that the broker hands it for a unit.

Source: MessageDecoder.decode, MessageVersion (4.9.7, 5.5.0); 4.9 does not look at the magic code.
"""

import struct
from dataclasses import dataclass
from enum import StrEnum

from mqtool.errors import FormatError
from mqtool.formats import codec, commit_log, hosts, java, properties
from mqtool.formats.release import Release

_HEADS = tuple(codec.struct_of(head) for head in commit_log.HEADS)
_NAMES = tuple(tuple(field.name for field in head) for head in commit_log.HEADS)
_SYS_FLAG = _NAMES[0].index("sys_flag")
_HIGHEST_PORT = 0xFFFF


class Delivery(StrEnum):
    """What a pull at a queue offset gives. Stable names: they appear in output."""

    OK = "ok"
    SKIPPED = "skipped"
    """A pull here delivers a later record."""
    BAD_CRC = "bad-crc"
    """Delivered, with a body that is not what was written."""
    ZEROS = "zeros"
    """Delivered: zero bytes."""
    UNDECODABLE = "undecodable"
    """Delivered: bytes that no client can decode."""
    OTHER_TOPIC = "other-topic"
    """Delivered: a message of another topic."""
    OTHER_QUEUE = "other-queue"
    """Delivered: a message of another queue."""
    REMOVED = "MESSAGE_WAS_REMOVING"
    """Nothing: the log has no bytes there, nor a later record in this queue file."""
    NO_FILE = "OFFSET_FOUND_NULL"
    """Nothing: the queue file is missing."""
    ERROR = "error"
    """The pull ends with an exception in the broker."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the consumer sees: how it is, and where the record says it belongs."""

    delivery: Delivery
    queue_offset: int = 0


def decode(raw: bytes, topic: str, queue_id: int, *, release: Release) -> Decoded:
    """Decodes the bytes of one unit as a client does.

    Args:
        raw: as many bytes as the unit's size says.
        topic, queue_id: of the queue that was pulled.
        release: of the client.
    """
    if not any(raw):
        return Decoded(Delivery.ZEROS)
    try:
        fields, body, found, stored = _parse(raw, release)
    except (struct.error, FormatError):
        return Decoded(Delivery.UNDECODABLE)
    offset: int | None = fields["queue_offset"]
    if java.decode_utf8(found) != topic:
        offset = _offset_in(topic, properties.decode(stored))
        if offset is None:
            return Decoded(Delivery.OTHER_TOPIC)
    elif fields["queue_id"] != queue_id:
        return Decoded(Delivery.OTHER_QUEUE)
    if body and commit_log.body_crc(body) != fields["body_crc"]:
        return Decoded(Delivery.BAD_CRC)
    return Decoded(Delivery.OK, offset or 0)


def _offset_in(topic: str, found: dict[str, str]) -> int | None:
    """Returns the queue offset of a record in a further queue that it names, None if it does not name it."""
    names = java.split_drop_trailing(found.get(properties.INNER_MULTI_DISPATCH, ""), ",")
    offsets = java.split_drop_trailing(found.get(properties.INNER_MULTI_QUEUE_OFFSET, ""), ",")
    stated = dict(zip(names, offsets, strict=False)).get(topic)
    return int(stated) if stated and stated.isascii() and stated.isdigit() else None


def _parse(raw: bytes, release: Release) -> tuple[dict[str, int], bytes, bytes, bytes]:
    """Returns the fixed fields, body, topic and properties."""
    shape = (_HEADS[0].unpack_from(raw)[_SYS_FLAG] >> 4) & 3
    values = _HEADS[shape].unpack_from(raw)
    fields = dict(zip(_NAMES[shape], values, strict=True))
    is_v2 = release >= (5, 5) and fields["magic_code"] == commit_log.MAGIC_V2
    if release >= (5, 5) and not is_v2 and fields["magic_code"] != commit_log.MAGIC_V1:
        raise FormatError("no magic code", layout="record")
    for name in ("born_host", "store_host"):
        if not 0 <= hosts.parse(fields[name]).port <= _HIGHEST_PORT:
            raise FormatError("no port", layout="record")
    at = _HEADS[shape].size
    body = _take(raw, at, max(0, fields["body_length"]))
    at += len(body)
    length = commit_log.TOPIC_LENGTH_V2 if is_v2 else commit_log.TOPIC_LENGTH_V1
    (topic_length,) = length.unpack_from(raw, at)
    topic = _take(raw, at + length.size, topic_length)
    at += length.size + len(topic)
    (properties_length,) = commit_log.PROPERTIES_LENGTH.unpack_from(raw, at)
    stored = _take(raw, at + commit_log.PROPERTIES_LENGTH.size, max(0, properties_length))
    return fields, body, topic, stored


def _take(raw: bytes, at: int, count: int) -> bytes:
    if count < 0 or at + count > len(raw):
        raise FormatError("the bytes end", layout="record")
    return raw[at : at + count]
