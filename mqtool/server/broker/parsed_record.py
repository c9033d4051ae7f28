"""Parses stored messages, and builds messages that repeat them in another topic."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.formats import commit_log, java, properties
from mqtool.formats.commit_log import Record


class ParsedRecord(NamedTuple):
    """A record of the log with its parsed properties."""

    record: Record
    properties: dict[str, str]

    @property
    def topic(self) -> str:
        """Topic of the record."""
        return java.decode_utf8(self.record.topic)

    @property
    def unique_key(self) -> str:
        """Unique key; "" if there is none."""
        return self.properties.get(properties.UNIQUE_KEY, "")


def parsed_record(data: "memoryview | bytes") -> ParsedRecord:
    """Parses a record and its properties.

    Raises:
        FormatError: the bytes are not a record.
    """
    record = commit_log.parse_record(data)
    return ParsedRecord(record, properties.decode(record.properties))


def parsed_records(data: "memoryview | bytes") -> Iterator[ParsedRecord]:
    """Yields the records of an answer's body, which are one after the other."""
    view = memoryview(data)
    while view:
        message = parsed_record(view)
        yield message
        view = view[message.record.total_size :]


def requeued(
    message: ParsedRecord, topic: str, queue_id: int, changed: dict[str, str], store_host: bytes
) -> OutgoingMessage:
    """Returns a message that repeats a stored one.

    Args:
        message: the stored message.
        topic, queue_id: the destination.
        changed: properties of the new message.
        store_host: store host of the broker.
    """
    record = message.record
    return OutgoingMessage(
        topic,
        queue_id,
        record.body,
        properties.encode(changed.items()),
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        store_host,
        record.reconsume_times,
    )


def with_place(message: ParsedRecord, topic: str, queue_id: int, queue_offset: int, encoded: bytes) -> bytes:
    """Returns a record with another topic, queue id, queue offset and other properties, to be sent to a client."""
    name = java.encode_utf8(topic)
    record = message.record
    grown = len(name) - len(record.topic) + len(encoded) - len(record.properties)
    fields = structs.asdict(record)
    fields |= {
        "total_size": record.total_size + grown,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "topic": name,
        "topic_length": len(name),
        "properties": encoded,
        "properties_length": len(encoded),
    }
    return commit_log.build_record(Record(**fields))
