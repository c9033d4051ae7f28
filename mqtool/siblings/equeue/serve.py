"""Models what the broker returns to consumers after a start: follows entries to messages, with the broker's errors.

If a read fails in the chunk that is being written to, and the chunk was not flushed since the start, the broker returns
nothing; in a completed chunk it throws an exception. Source: ChunkReader, Chunk.TryReadAt (ECommon 2.6.5).
"""

from collections.abc import Iterator

from msgspec import Struct

from mqtool.errors import FormatError, UnreadableError
from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE
from mqtool.formats.equeue_message import MessageRecord, Shape
from mqtool.siblings.equeue.chunk import ChunkFile, InvalidFrame
from mqtool.siblings.equeue.runs import is_decodable
from mqtool.siblings.equeue.settings import EQueueSettings
from mqtool.siblings.equeue.start import LoadedChunk, LoadedQueue, Start


class UnservedEntry(Struct, frozen=True):
    """An entry that leads to no message, or to a message of another queue or queue offset.

    Attributes:
        queue_offset: queue offset of the entry.
        message_position: global position that the entry states; None if the entry cannot be read.
        step: where it failed: "queue" or "message".
        exception: name of the .NET exception; None if the broker finds nothing without an exception.
        message: text of the exception, or a description.
        is_unknown: the system cannot read the entry or the message, so it is unknown whether the broker serves it.
    """

    queue_offset: int
    message_position: int | None
    step: str
    exception: str | None
    message: str
    is_unknown: bool = False


class ServeError(Exception):
    """An exception of the broker, identified by its name; it does not leave this package."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def unserved_entries(
    start: Start, queue: LoadedQueue, settings: EQueueSettings, shape: Shape
) -> Iterator[UnservedEntry]:
    """Yields the entries of a queue, from min offset to next offset, that lead to no message or to a wrong one."""
    for offset in range(max(queue.min_offset, 0), queue.next_offset):
        try:
            entry = _entry(queue, offset, settings)
        except ServeError as error:
            yield UnservedEntry(offset, None, "queue", error.name, str(error))
            continue
        except UnreadableError as error:
            yield UnservedEntry(offset, None, "queue", None, str(error), is_unknown=True)
            continue
        if entry is None:
            yield UnservedEntry(offset, None, "queue", None, "no entry")
            continue
        position = entry.message_position
        try:
            record = message(start, position, settings, shape)
        except ServeError as error:
            yield UnservedEntry(offset, position, "message", error.name, str(error))
            continue
        except UnreadableError as error:
            yield UnservedEntry(offset, position, "message", None, str(error), is_unknown=True)
            continue
        if record is None:
            yield UnservedEntry(offset, position, "message", None, "no message")
            continue
        topic = record.topic.decode("utf-8", "replace")
        if (topic, record.queue_id, record.queue_offset) != (queue.topic, queue.queue_id, offset):
            reason = f"another message: {topic}/{record.queue_id}/{record.queue_offset}"
            yield UnservedEntry(offset, position, "message", None, reason)


def message(start: Start, position: int, settings: EQueueSettings, shape: Shape) -> MessageRecord | None:
    """Returns the message at a global position as the broker reads it; None if the broker finds nothing there.

    Raises:
        ServeError: the broker throws an exception.
        UnreadableError: the system cannot read the message.
    """
    if start.current is None or position >= start.current.global_end:
        return None
    chunk, local = _located(start.messages, position, settings.message_chunk_size)
    if local >= chunk.data_end or chunk.file is None:
        return None
    frame = chunk.file.frame_at(local, chunk.data_end, settings.max_record_size)
    if isinstance(frame, InvalidFrame):
        if unread := chunk.file.unread_at(local, frame):
            raise UnreadableError(unread.detail, chunk.file.path)
        if not chunk.completed:
            return None
        raise ServeError("ChunkReadException", _words(frame, local, chunk, settings))
    if not is_decodable(frame.record, shape):
        raise ServeError("ArgumentException", "the record cannot be decoded")
    return shape.parse(frame.record)[0]


class ChunkWalk(Struct, frozen=True):
    """How far the broker can read the records of a chunk in sequence.

    Attributes:
        number: number of the chunk.
        records: number of records read.
        end: data position after the last record.
        error: text of the exception that ended the reading early; None if there was none.
    """

    number: int
    records: int
    end: int
    error: str | None


def walk(chunk: LoadedChunk, settings: EQueueSettings) -> ChunkWalk:
    """Reads a message chunk frame after frame up to its data end."""
    at = records = 0
    while chunk.file is not None and at < chunk.data_end:
        frame = chunk.file.frame_at(at, chunk.data_end, settings.max_record_size)
        if isinstance(frame, InvalidFrame):
            return ChunkWalk(chunk.number, records, at, _words(frame, at, chunk, settings))
        at = frame.end
        records += 1
    return ChunkWalk(chunk.number, records, at, None)


def _entry(queue: LoadedQueue, offset: int, settings: EQueueSettings) -> equeue.QueueEntry | None:
    if offset * ENTRY_SIZE >= queue.current.global_end:
        return None
    chunk, local = _located(queue.chunks, offset * ENTRY_SIZE, settings.queue_chunk_size)
    if local >= chunk.data_end or chunk.file is None:
        return None
    entry = _read_entry(chunk.file, local)
    if unread := chunk.file.unread(local, local + ENTRY_SIZE):
        raise UnreadableError(unread.detail, chunk.file.path)
    if entry is None or not entry.is_valid:
        if not chunk.completed:
            return None
        name = f"(QueueChunk-{queue.topic}@{queue.queue_id}-#{chunk.number})"
        raise ServeError(
            "ChunkReadException",
            f"Read fixed record from data position: {local} failed, max data position: {chunk.data_end}. "
            f"Something is seriously wrong in chunk {name}",
        )
    return entry


def _read_entry(file: ChunkFile, local: int) -> equeue.QueueEntry | None:
    try:
        return equeue.QUEUE_ENTRY.parse(file.read(local, ENTRY_SIZE))
    except FormatError:
        return None


def _located(chunks: dict[int, LoadedChunk], position: int, size: int) -> tuple[LoadedChunk, int]:
    """Returns the chunk of a global position, and the data position in it.

    As in the broker, the configured chunk size determines the chunk, and the size in its header the data position.
    """
    number = position // size
    chunk = chunks.get(number)
    if chunk is None:
        raise ServeError("ChunkNotExistException", f"Chunk not exist, position: {position}, chunkNum: {number}")
    end = chunk.start + chunk.capacity
    if not chunk.start <= position <= end:
        message = f"globalDataPosition {position} is out of chunk data positions [{chunk.start}, {end}]."
        raise ServeError("Exception", message)
    return chunk, position - chunk.start


def _words(frame: InvalidFrame, local: int, chunk: LoadedChunk, settings: EQueueSettings) -> str:
    """Returns the text of the exception that Chunk.TryReadForwardInternal throws."""
    name = f"(MessageChunk-#{chunk.number})"
    match frame.kind:
        case "no-room":
            return (
                f"No enough space even for length prefix and suffix, data position: {local}, "
                f"max data position: {chunk.data_end}, chunk: {name}"
            )
        case "length":
            return f"Log record at data position {local} has non-positive length: {frame.length} in chunk {name}"
        case "too-long":
            return (
                f"Log record at data position {local} has too large length: {frame.length} bytes, "
                f"while limit is {settings.max_record_size} bytes, in chunk {name}"
            )
        case "past-end":
            return (
                f"There is not enough space to read full record (length prefix: {frame.length}), "
                f"data position: {local}, max data position: {chunk.data_end}, chunk: {name}"
            )
    return (
        f"Prefix/suffix length inconsistency: prefix length({frame.length}) != suffix length ({frame.end_length}), "
        f"data position: {local}. Something is seriously wrong in chunk {name}."
    )
