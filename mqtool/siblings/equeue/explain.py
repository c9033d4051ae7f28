"""Predicts what EQueue's broker does to a store on startup, and what it then returns to consumers.

The model follows entries to messages, with the broker's errors. If a read fails in the chunk that is being written to,
and the chunk was not flushed since the start, the broker returns nothing; in a completed chunk it throws an exception.
Source: ChunkReader, Chunk.TryReadAt (ECommon 2.6.5).
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.errors import FormatError, UnreadableError
from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, FOOTER_SIZE, HEADER_SIZE, MessageRecord, Shape
from mqtool.formats.topics import TopicQueue
from mqtool.records.damage import Damage, DamageKind
from mqtool.siblings.equeue.chunk import ChunkFile, is_decodable
from mqtool.siblings.equeue.listing import EQueueSettings, settings_of
from mqtool.siblings.equeue.start import LoadedChunk, LoadedQueue, Refusal, Start, start
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.frames import InvalidFrame
from mqtool.store.log.readable_parts import UnreadableParts

MAX_UNSERVED = 10_000
"""Maximum number of unserved entries listed for one queue; a damaged header can claim any number of them."""


class UnservedEntry(Struct, frozen=True):
    """An entry that leads to no message, or to a message of another queue or queue offset."""

    queue_offset: int  # queue offset of the entry
    message_position: int | None  # global position that the entry states; None if the entry cannot be read
    step: str  # where it failed: "queue" or "message"
    exception: str | None  # name of the .NET exception; None if the broker finds nothing without an exception
    message: str  # text of the exception, or a description
    # the system cannot read the entry or the message, so it is unknown whether the broker serves it
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
        position, step = None, "queue"
        try:
            entry = _entry(queue, offset, settings)
            if entry is None:
                yield UnservedEntry(offset, None, "queue", None, "no entry")
                continue
            position, step = entry.message_position, "message"
            record = message(start, position, settings, shape)
        except ServeError as error:
            yield UnservedEntry(offset, position, step, error.name, str(error))
            continue
        except UnreadableError as error:
            yield UnservedEntry(offset, position, step, None, str(error), is_unknown=True)
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

    Raises ServeError if the broker throws an exception, UnreadableError if the system cannot read the message.
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
    """How far the broker can read the records of a chunk in sequence."""

    number: int  # number of the chunk
    records: int  # number of records read
    end: int  # data position after the last record
    error: str | None  # text of the exception that ended the reading early; None if there was none


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


class Explanation(Struct):
    """The predicted result of a broker start."""

    refusal: Refusal | None = None  # why the broker does not start; None if it starts
    clears_root: bool = False  # whether the broker deletes everything below the root
    # global position at which the broker continues to write; None if it does not start
    write_position: int | None = None
    # global positions of valid messages after the data end that the broker finds. They are lost, and the broker reports
    # no error.
    overwritten: list[int] = field(default_factory=list)
    # file names of missing message chunks whose existence later chunks or queue entries prove, and of chunks whose
    # header states another number than their records. The messages are lost. If the newest chunk is missing, entries
    # will point to messages that are written later.
    missing: list[str] = field(default_factory=list)
    # by (topic, queue id), the entries that lead consumers to no message, or to a message of another queue or queue
    # offset. At most `MAX_UNSERVED` are checked; the last one stands for the rest.
    unserved: dict[TopicQueue, list[UnservedEntry]] = field(default_factory=dict)
    # by (topic, queue id), queue offsets of the entries after an unwritten one in the last chunk. The queue ends before
    # them (Chunk.TryReadFixedSizeRecord): their messages are not served, and new ones take their offsets. For a queue
    # in `without_chunks`, the queue offsets that its messages state.
    cut: dict[TopicQueue, list[int]] = field(default_factory=dict)
    # queues with a folder and messages, but without a chunk file. The broker makes an empty chunk 0.
    without_chunks: set[TopicQueue] = field(default_factory=set)
    # descriptions of what the broker does without logging or reporting an error
    silent: list[str] = field(default_factory=list)
    # what the system cannot read, so that it is unknown what becomes of it
    unknown: list[str] = field(default_factory=list)

    @property
    def starts(self) -> bool | None:
        """Whether the broker starts; None if that is unknown."""
        if self.refusal is not None:
            return False
        return True if self.clears_root or self.write_position is not None else None

    @property
    def is_harmless(self) -> bool:
        """Whether it is certain that the broker starts, no message chunk is missing, and the start loses nothing."""
        wrong = self.refusal, self.clears_root, self.overwritten, self.missing, self.cut
        return not (any(wrong) or self.unknown)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.refusal is not None:
            refusal = f"{self.refusal.exception}: {self.refusal.path}: {self.refusal.message}"
            return f"does not start ({refusal}); {self.refusal.remedy}"
        if self.starts is None:
            return f"unknown: {self.unknown[0]}"
        if self.clears_root:
            return f"starts, and {self.silent[-1]}"
        losses = [f"{len(self.overwritten)} valid message(s) after it are lost"] if self.overwritten else []
        losses += [self._cut_words(queue, offsets) for queue, offsets in self.cut.items()]
        if self.missing:
            losses.append(
                f"the messages of {', '.join(self.missing)} are lost: the file is missing or has another number"
            )
        if self.unknown:
            losses.append(f"the fate of messages that cannot be read is unknown: {self.unknown[0]}")
        return f"starts and continues at position {self.write_position}; {'; '.join(losses) or 'nothing is lost'}"

    def _cut_words(self, queue: TopicQueue, offsets: list[int]) -> str:
        name = "{}/{}".format(*queue)
        if queue in self.without_chunks:
            return f"queue {name} has no chunk and restarts at 0: its {len(offsets)} message(s) are not served"
        beginning = f"queue {name} ends before {len(offsets)} written entries, from queue offset {offsets[0]} on"
        return f"{beginning}: their messages are not served"


def explain(root: Path, settings: EQueueSettings | None = None) -> Explanation:
    """Predicts a start of the broker on a store; nothing is written.

    The settings of the broker are by default those of the majority of the chunk headers. Raises NotAStoreError,
    UnsupportedFormatError or StoreError if the store cannot be read.
    """
    with EQueueStore(root, unreadable=UnreadableParts()) as store:
        chosen = settings or settings_of(root, store.listing)
        shape = store.shape
        missing = [chunk.file_name for chunk in store.missing_chunks()]
        missing += [chunk.path.name for chunk in store.misnumbered]
        try:
            outcome = start(root, chosen, shape)
        except UnreadableError as error:
            return Explanation(missing=missing, unknown=[str(error)])
        answer = Explanation(outcome.refusal, outcome.clears_root, missing=missing, silent=outcome.notes)
        try:
            if outcome.current is not None and outcome.refusal is None and not outcome.clears_root:
                answer.write_position = outcome.current.global_end
                answer.cut = {key: cut for key, queue in outcome.queues.items() if (cut := _cut(queue.current))}
                _messages(store, outcome, outcome.current, answer)
                for key, queue in outcome.queues.items():
                    entries = _listed(unserved_entries(outcome, queue, chosen, shape))
                    answer.unserved[key] = entries
                    answer.unknown += _unknown_entries(key, [chunk.message for chunk in entries if chunk.is_unknown])
        finally:
            outcome.close()
    return answer


def _unknown_entries(queue: TopicQueue, reasons: list[str]) -> list[str]:
    """Describes the entries of a queue that cannot be read, or whose messages cannot be."""
    name = "{}/{}".format(*queue)
    return [f"{len(reasons)} entries of queue {name}, or their messages: {reasons[0]}"] if reasons else []


def _listed(unserved: Iterator[UnservedEntry]) -> list[UnservedEntry]:
    """Returns at most `MAX_UNSERVED` entries; the last one states that the rest was not checked."""
    entries = list(islice(unserved, MAX_UNSERVED))
    if len(entries) == MAX_UNSERVED:
        detail = "this entry and later ones were not checked: too many point to no message"
        entries[-1] = UnservedEntry(entries[-1].queue_offset, None, "queue", None, detail)
    return entries


def _cut(current: LoadedChunk) -> list[int]:
    """Returns queue offsets of the written entries after the data end that the broker finds in a queue's last chunk."""
    if current.file is None:
        return []
    count = max(0, current.file.size - FOOTER_SIZE - HEADER_SIZE) // ENTRY_SIZE
    written = np.flatnonzero(current.file.entries(count)["position_plus_one"] > 0)
    first = current.start // ENTRY_SIZE
    return [first + number for number in written.tolist() if number * ENTRY_SIZE >= current.data_end]


def _messages(store: EQueueStore, outcome: Start, current: LoadedChunk, answer: Explanation) -> None:
    """Adds messages after the data end that the broker finds, or whose queue has no chunk, and what is unreadable."""
    empty = {key for key, queue in outcome.queues.items() if queue.current.file is None}
    listed = {(queue.topic, queue.queue_id) for queue in store.queues}
    without_folder: Counter[TopicQueue] = Counter()
    for message in store.messages():
        if isinstance(message, Damage):
            if message.kind == DamageKind.UNREADABLE:
                answer.unknown.append(str(message))
            continue
        number = message.chunk.header.chunk_number
        queue = message.record.topic.decode("utf-8", "replace"), message.record.queue_id
        if number > current.number or (number == current.number and message.frame.start >= current.data_end):
            answer.overwritten.append(message.position)
        elif queue in empty:
            answer.without_chunks.add(queue)
            answer.cut.setdefault(queue, []).append(message.record.queue_offset)
        elif queue not in listed:
            without_folder[queue] += 1
    for (topic, queue_id), count in without_folder.items():
        where = f"{count} message(s) of {topic}/{queue_id} are not served: the queue has no folder"
        answer.silent.append(f"{where}; it was deleted after they were consumed, or is lost")
