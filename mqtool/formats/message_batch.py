"""Batches: the body of a client's batch request, which is also the body of an inner batch.

It is a sequence of small records without header or padding. A broker splits it into ordinary records or, in a topic
whose queues are BatchCQ, stores it unchanged in one record. Docs page: docs/formats/message-batch.md. Source:
MessageDecoder.encodeMessage/decodeMessage, SendMessageProcessor.sendBatchMessage (4.9.7, 5.5.0).
"""

from collections.abc import Iterator

import construct as cs
from msgspec import Struct, structs

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec
from mqtool.formats.codec import Buffer, i16, i32, sized
from mqtool.formats.commit_log import SysFlag

BATCHED_MESSAGE = cs.Struct(
    i32("total_size", "bytes of this message, this field included"),
    i32("magic_code", "0; not read"),
    i32("body_crc", "0; not read"),
    i32("flag", "the application's own integer"),
    i32("body_length", "bytes of the body"),
    sized("body", "body_length", "the body"),
    i16("properties_length", "bytes of the properties"),
    sized("properties", "properties_length", "name 0x01 value 0x02 …, UTF-8 (see properties)"),
)

_HEAD = codec.struct_of(codec.leading_fields(BATCHED_MESSAGE))
_PROPERTIES_LENGTH = codec.struct_of(codec.leading_fields(cs.Struct(i16("properties_length", ""))))

MIN_SIZE = _HEAD.size + _PROPERTIES_LENGTH.size
"""Bytes of a message without body and properties."""

_NAME = "batched message"


class BatchedMessage(Struct, frozen=True):
    """One message of a batch, field by field as stored."""

    total_size: int
    magic_code: int
    body_crc: int
    flag: int
    body_length: int
    body: bytes
    properties_length: int
    properties: bytes


def parse(data: Buffer, position: int = 0) -> BatchedMessage:
    """Reads the message at a position of a batch.

    Raises TruncatedError if it does not end inside `data`, FormatError if a length is negative or does not fit the
    others.
    """
    view = memoryview(data)
    _require(view, position, _HEAD.size, position)
    total_size, magic_code, crc, flag, body_length = _HEAD.unpack_from(view, position)
    body_at = position + _HEAD.size
    _check_length("body_length", body_length, position)
    _require(view, body_at, body_length + _PROPERTIES_LENGTH.size, position)
    body = bytes(view[body_at : body_at + body_length])
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(view, body_at + body_length)
    properties_at = body_at + body_length + _PROPERTIES_LENGTH.size
    _check_length("properties_length", properties_length, position)
    _require(view, properties_at, properties_length, position)
    properties = bytes(view[properties_at : properties_at + properties_length])
    taken = properties_at + properties_length - position
    if taken != total_size:
        raise FormatError(f"total_size is {total_size}, the fields take {taken}", layout=_NAME, position=position)
    return BatchedMessage(total_size, magic_code, crc, flag, body_length, body, properties_length, properties)


def build(message: BatchedMessage) -> bytes:
    """Returns the bytes of one message exactly as its fields state; raises FormatError if one does not fit."""
    return codec.build(BATCHED_MESSAGE, structs.asdict(message), name=_NAME)


def make(body: bytes, properties: bytes, flag: int = 0) -> BatchedMessage:
    """Returns a message as a client encodes it (MessageDecoder.encodeMessage)."""
    total_size = MIN_SIZE + len(body) + len(properties)
    return BatchedMessage(total_size, 0, 0, flag, len(body), body, len(properties), properties)


def split(body: Buffer) -> Iterator[BatchedMessage]:
    """Yields the messages of a batch until its bytes end; raises as `parse`."""
    position = 0
    while position < len(body):
        message = parse(body, position)
        yield message
        position += message.total_size


def is_inner_batch(sys_flag: int) -> bool:
    """Whether a record contains an inner batch."""
    return bool(sys_flag & SysFlag.INNER_BATCH)


def unwrap(body: Buffer, queue_offset: int) -> Iterator[tuple[int, BatchedMessage]]:
    """Yields the messages of an inner batch with their queue offsets (MessageDecoder.decodeMessage).

    All other fields (hosts, timestamps, physical offset) are the record's, of which this is the decompressed body.
    """
    for index, message in enumerate(split(body)):
        yield queue_offset + index, message


def _check_length(field: str, length: int, position: int) -> None:
    if length < 0:
        raise FormatError(f"expected a length, found {length}", layout=_NAME, field=field, position=position)


def _require(view: memoryview, start: int, size: int, position: int) -> None:
    if start + size > len(view):
        available = max(0, len(view) - start)
        raise TruncatedError(f"expected {size} more bytes, found {available}", layout=_NAME, position=position)
