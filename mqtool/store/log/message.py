"""A message as the user of a store sees it: decoded text, decompressed body."""

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import commit_log, compression, hosts, message_batch, properties
from mqtool.formats.commit_log import Record
from mqtool.formats.java import decode_utf8
from mqtool.records.frames import Frames
from mqtool.values import repr_without


class Message(Struct, frozen=True):
    """One message of the CommitLog."""

    physical_offset: int  # byte address of its record
    store_size: int  # bytes of the record
    topic: str  # and queue_id, queue_offset: which message of which queue; 0 as offset of prepared and rolled-back ones
    queue_id: int
    queue_offset: int
    flag: int  # the application's integer
    sys_flag: int  # the broker's bits (formats.commit_log.SysFlag)
    born_timestamp: int  # and store_timestamp: ms since epoch, producer's and broker's clock
    store_timestamp: int
    born_host: str  # and store_host: "1.2.3.4:5" or "[::1]:5"
    store_host: str
    reconsume_times: int  # how often a consumer sent it back
    prepared_transaction_offset: int  # of a committed message, where its half message is
    properties: dict[str, str]  # name to value, in stored order
    body_crc: int  # as stored, of the stored body
    body: bytes  # as the producer gave it, decompressed
    offset_message_id: str  # store host and physical offset, in hexadecimal digits
    raw_body: bytes  # as stored
    magic_code: int  # version of the record
    batch_index: int | None = None  # place in an inner batch, None for a message of its own
    body_problem: str = ""  # why `body` is only the stored bytes, "" if it is decoded

    __repr__ = repr_without("raw_body")

    @property
    def tags(self) -> str | None:
        """The TAGS property."""
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The words of KEYS."""
        return properties.keys_of(self.properties)

    @property
    def unique_key(self) -> str | None:
        """The id that the client generated."""
        return self.properties.get(properties.UNIQUE_KEY)

    @property
    def sharding_key(self) -> str | None:
        """The ordering key of a FIFO message."""
        return self.properties.get(properties.SHARDING_KEY)


def from_record(record: Record) -> Message:
    """Returns the message of a record; a body that cannot be decompressed is left as stored, with the reason."""
    body, problem = record.body, ""
    try:
        body = compression.decode(record.body, record.sys_flag)
    except FormatError as error:
        problem = str(error)
    return Message(
        physical_offset=record.physical_offset,
        store_size=record.total_size,
        topic=_topic(record.topic),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        store_timestamp=record.store_timestamp,
        born_host=hosts.text_of(record.born_host),
        store_host=hosts.text_of(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        properties=properties.decode(record.properties),
        body_crc=record.body_crc,
        body=body,
        offset_message_id=hosts.format_offset_id(record.store_host, record.physical_offset),
        raw_body=record.body,
        magic_code=record.magic_code,
        batch_index=None,
        body_problem=problem,
    )


def messages_of(frames: Frames) -> Iterator[Message]:
    """Yields the messages of valid frames."""
    for position in frames.positions.tolist():
        yield from_record(commit_log.parse_record(frames.view, position))


@lru_cache(maxsize=4096)
def _topic(data: bytes) -> str:
    return decode_utf8(data)


def is_batch(message: Message) -> bool:
    """Whether a message is the record of an inner batch, and not yet one of its messages."""
    return message.batch_index is None and message_batch.is_inner_batch(message.sys_flag)


def parts_of(message: Message) -> list[Message]:
    """Returns the messages of an inner batch; any other message, or a malformed batch, unchanged."""
    try:
        return explode(message) if is_batch(message) else [message]
    except FormatError:
        return [message]


def explode(message: Message) -> list[Message]:
    """Returns an inner batch's messages with their own queue offsets, others unchanged; raises FormatError."""
    if not message_batch.is_inner_batch(message.sys_flag):
        return [message]
    return [
        replace(
            message,
            queue_offset=queue_offset,
            flag=part.flag,
            body=part.body,
            raw_body=part.body,
            batch_index=index,
            properties=properties.decode(part.properties),
        )
        for index, (queue_offset, part) in enumerate(message_batch.unwrap(message.body, message.queue_offset))
    ]
