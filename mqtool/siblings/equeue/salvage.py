"""Salvages records of a damaged message chunk.

It reads forwards by the length before each record, and backwards by the length after it.
"""

import filecmp
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from mqtool.errors import FormatError, MessageRejectedError
from mqtool.formats import equeue
from mqtool.formats.equeue import FOOTER_SIZE, HEADER_SIZE, ChunkHeader, QueueEntry
from mqtool.formats.topics import TopicQueue
from mqtool.siblings import Row
from mqtool.siblings.equeue.chunk import ChunkFile, tag_code
from mqtool.siblings.equeue.listing import EQueueSettings, consume_offsets
from mqtool.siblings.equeue.rebuild import QueuePlan, offset_limit, stated_places, write_queue
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage
from mqtool.siblings.equeue.writer import EQueueWriter, write_offsets, write_setting
from mqtool.siblings.frames import Frame, SalvagedChunk, salvage_row
from mqtool.store.log.readable_parts import UnreadableParts

_NOWHERE = "no message states this position, and the length of neither neighbour leads to one"


Salvaged = SalvagedChunk[ChunkFile, StoredMessage]
_Place = tuple[Path, int]


def salvage_chunk(store: EQueueStore, chunk: ChunkFile) -> Salvaged:
    """Scans a chunk for messages from both ends, then in between.

    The data end is known only for a chunk with a footer. In other chunks the scan ends after the last message that
    states its own position; what follows in a completed chunk is damage.
    """
    result = Salvaged(chunk)
    result.forwards = list(_forwards(store, chunk))
    start = result.forwards[-1].frame.end if result.forwards else 0
    stating = [at for at in chunk.candidates(start, chunk.room) if isinstance(store.read(chunk, at), StoredMessage)]
    end = chunk.room
    if not chunk.is_finished:
        last = store.read(chunk, stating[-1]) if stating else None
        end = last.frame.end if isinstance(last, StoredMessage) else start
    result.backwards = list(_backwards(store, chunk, start, end))[::-1]
    stop = result.backwards[0].frame.start if result.backwards else end
    at = start
    for place in stating:
        if place < at or place >= stop:
            continue
        message = store.read(chunk, place)
        if isinstance(message, StoredMessage):
            result.between.append(message)
            at = message.frame.end
    result.damage = list(result.gaps(max(stop, end), _NOWHERE))
    if (lost := store.lost_end(chunk, end)) is not None:
        result.damage.append(result.lost(end, lost.end - chunk.start, lost.detail))
    return result


def _forwards(store: EQueueStore, chunk: ChunkFile) -> Iterator[StoredMessage]:
    at = 0
    while isinstance(message := store.read(chunk, at), StoredMessage):
        yield message
        at = message.frame.end


def _backwards(store: EQueueStore, chunk: ChunkFile, start: int, end: int) -> Iterator[StoredMessage]:
    while isinstance(frame := chunk.frame_before(end, start, store.max_record_size), Frame):
        message = store.decode(chunk, frame)
        if not isinstance(message, StoredMessage):
            return
        yield message
        end = frame.start


def scan(store: EQueueStore) -> list[Salvaged]:
    """Scans all message chunks, in the order of their numbers; see `salvage_chunk`.

    A chunk whose header is invalid, or states the number of another chunk, is read at the place that its first record
    states, or else its name.
    """
    reports = [salvage_chunk(store, chunk) for chunk in store.chunks]
    for path in store.unread:
        if path not in store.listing.messages or path in store.unopened.unknown:
            continue
        try:
            chunk = store.opened(path)
        except FormatError:
            continue  # shorter than a header
        try:
            chunk.assume(_implied_header(store, chunk))
            if chunk.start not in {report.chunk.start for report in reports}:
                reports.append(salvage_chunk(store, chunk))
        finally:
            chunk.close()
    return sorted(reports, key=lambda report: report.chunk.header.chunk_number)


def _implied_header(store: EQueueStore, chunk: ChunkFile) -> ChunkHeader:
    capacity = store.capacity or chunk.header.capacity
    if capacity <= 0:
        capacity = max(1, chunk.size - HEADER_SIZE - FOOTER_SIZE)  # that of a chunk that is not completed
    chunk.assume(ChunkHeader(equeue.named_number(chunk.path.name) or 0, capacity))
    first = store.read(chunk, 0)
    if isinstance(first, StoredMessage):
        number, local = divmod(first.record.log_position, capacity)
        if local == 0 and number >= 0:
            return ChunkHeader(number, capacity)
    return chunk.header


def rows_without_records(store: EQueueStore, reports: list[Salvaged]) -> list[Row]:
    """Returns a row for each message chunk that is missing or was not scanned.

    All of its bytes count as damaged. Those of a file that equals the one that was scanned instead do not.
    """
    scanned = {report.chunk.path for report in reports}
    starts = {report.chunk.start for report in reports}
    rows = [
        salvage_row(chunk.path, 0, 0, 0, chunk.end - chunk.start)
        for chunk in store.missing_chunks()
        if chunk.start not in starts or chunk.end - chunk.start > store.capacity
    ]
    for path in store.unread:
        if path in scanned or path not in store.listing.messages:
            continue
        kept = store.duplicates.get(path)
        if kept is None:
            rows.append(salvage_row(path, 0, 0, 0, store.capacity or max(1, path.stat().st_size)))
        else:
            is_copy = filecmp.cmp(path, kept.path, shallow=False)
            rows.append(salvage_row(path, 0, 0, 0, 0 if is_copy else path.stat().st_size))
    return rows


def salvage(root: Path, target: Path, settings: EQueueSettings) -> list[Salvaged]:
    """Copies all messages that can be found to a new store, in order, with rebuilt queues.

    Messages keep their times, and their queue offset if it is plausible and no earlier message of the queue states it.
    They get new positions, and new ids, which contain the position. The entry of a message is at its queue offset,
    because a consumer continues after the queue offset that its last message states (PullMessageService, EQueue 2.6.3).
    Consumed offsets are copied. Returns the result for each chunk; the chunk files are closed.
    """
    with EQueueStore(root, settings.max_record_size, UnreadableParts()) as store:
        reports = scan(store)
        places = _places([message for report in reports for message in report.records], offset_limit(settings))
        plans: dict[TopicQueue, QueuePlan] = {}
        with EQueueWriter(target, settings, store.shape) as writer:
            for report in reports:
                _write(writer, report, places, plans)
            writer.flush()
    for plan in plans.values():
        directory = target / equeue.QUEUE_CHUNKS / plan.topic / str(plan.queue_id)
        write_queue(plan, directory, settings, log_start=0)
        write_setting(directory)
    if offsets := _offsets(root, plans):
        write_offsets(target, offsets)
    return reports


def _offsets(root: Path, plans: dict[TopicQueue, QueuePlan]) -> dict[str, dict[str, dict[str, int]]]:
    """Returns the consumed offsets of the queues of the new store, from the first of the two files that has any.

    Without them, consumers continue at the end of a queue (ConsumerSetting, EQueue 2.6.3: ConsumeFromWhere.LastOffset).
    An offset after the end of a queue becomes that of its last message, as consumers would skip the next ones.
    """
    offsets: dict[str, dict[str, dict[str, int]]] = {}
    for name in (equeue.CONSUME_OFFSETS, equeue.CONSUME_OFFSETS_BACKUP):
        with suppress(FormatError):
            offsets = offsets or consume_offsets(root / name) or {}
    ends = {(topic, str(queue_id)): plan.next_offset for (topic, queue_id), plan in plans.items()}
    return {
        group: {
            topic: {
                queue: min(offset, ends[topic, queue] - 1) for queue, offset in queues.items() if (topic, queue) in ends
            }
            for topic, queues in topics.items()
        }
        for group, topics in offsets.items()
    }


def _queue_of(message: StoredMessage) -> TopicQueue:
    return message.record.topic.decode("utf-8", "replace"), message.record.queue_id


def _place_of(message: StoredMessage) -> _Place:
    """Returns what identifies a message of the old store; damaged headers can give two messages one global position."""
    return message.chunk.path, message.frame.start


def _places(messages: list[StoredMessage], limit: int) -> dict[_Place, int]:
    """Returns the queue offset in the new store for each message."""
    queues: dict[TopicQueue, list[StoredMessage]] = {}
    for message in messages:
        queues.setdefault(_queue_of(message), []).append(message)
    return {
        _place_of(message): place
        for of_queue in queues.values()
        for message, place in zip(
            of_queue, stated_places([message.record.queue_offset for message in of_queue], limit), strict=True
        )
    }


def _write(
    writer: EQueueWriter, report: Salvaged, places: dict[_Place, int], plans: dict[TopicQueue, QueuePlan]
) -> None:
    """Writes the messages found in a chunk; a message that the new store rejects counts as lost."""
    for message in tuple(report.records):
        place = places[_place_of(message)]
        try:
            stored = writer.append(replace(message.record, queue_offset=place), entry=False)
        except MessageRejectedError as error:
            report.discard(message, str(error))
            continue
        key = _queue_of(message)
        entry = QueueEntry(stored.position + 1, tag_code(message.record.tag) or 0)
        plans.setdefault(key, QueuePlan(*key)).entries[place] = entry
