"""How a consumer decodes the bytes that the broker delivers for a unit.

Source: MessageDecoder.decode, MessageVersion (4.9.7, 5.5.0); 4.9 does not check the magic code.
"""

import struct
from enum import StrEnum

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import commit_log, hosts, java, properties
from mqtool.formats.commit_log import Record
from mqtool.formats.release import Release

_HIGHEST_PORT = 0xFFFF


class Delivery(StrEnum):
    """Result of a pull at a queue offset. The names are stable: they appear in output."""

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
    NOT_COMPACTED = "not-compacted"
    """Nothing: the topic is compacted, and its own log ends before the message."""
    ERROR = "error"
    """The pull ends with an exception in the broker."""


class Decoded(Struct, frozen=True):
    """Result of decoding: its state, and the place that the record states."""

    delivery: Delivery
    queue_offset: int = 0


def decode(raw: bytes, topic: str, queue_id: int, *, release: Release) -> Decoded:
    """Decodes the bytes of one unit as a client does.

    Args:
        raw: as many bytes as the unit's size states.
        topic, queue_id: of the queue that was pulled.
        release: of the client.
    """
    if not any(raw):
        return Decoded(Delivery.ZEROS)
    try:
        record = _parse(raw, release)
    except (struct.error, FormatError):
        return Decoded(Delivery.UNDECODABLE)
    offset: int | None = record.queue_offset
    if java.decode_utf8(record.topic) != topic:
        offset = _offset_in(topic, properties.decode(record.properties))
        if offset is None:
            return Decoded(Delivery.OTHER_TOPIC)
    elif record.queue_id != queue_id:
        return Decoded(Delivery.OTHER_QUEUE)
    if record.body and commit_log.body_crc(record.body) != record.body_crc:
        return Decoded(Delivery.BAD_CRC)
    return Decoded(Delivery.OK, offset or 0)


def _offset_in(topic: str, values: dict[str, str]) -> int | None:
    """Returns the queue offset of a record in a further queue, None if the record does not name that queue."""
    names = java.split_drop_trailing(values.get(properties.INNER_MULTI_DISPATCH, ""), ",")
    offsets = java.split_drop_trailing(values.get(properties.INNER_MULTI_QUEUE_OFFSET, ""), ",")
    stated = dict(zip(names, offsets, strict=False)).get(topic)
    try:
        return java.parse_long(stated or "")
    except FormatError:
        return None


def _parse(raw: bytes, release: Release) -> Record:
    """Reads the record; the client checks neither its size nor, in 4.9, its magic code."""
    is_5 = release >= (5, 5)
    magic_code = commit_log.magic_code(raw)
    record = commit_log.read_fields(raw, is_v2=is_5 and magic_code == commit_log.MAGIC_V2)
    if is_5 and magic_code not in commit_log.RECORD_MAGICS:
        raise FormatError("no magic code", layout="record")
    for host in (record.born_host, record.store_host):
        if not 0 <= hosts.parse(host).port <= _HIGHEST_PORT:
            raise FormatError("no port", layout="record")
    if len(record.properties) != max(0, record.properties_length):
        raise FormatError("the bytes end", layout="record")
    return record
