"""Checks an EQueue store: headers, footers, frames in both directions, records, and queues against records.

The queue offset of an entry may differ from the one in its message: concurrent sends that overtake each other in the
broker leave such queues, and they are valid (docs/formats/equeue.md).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from mqtool.errors import FormatError, UnreadableError
from mqtool.formats import equeue
from mqtool.formats.equeue import FOOTER, FOOTER_SIZE, HEADER, HEADER_SIZE
from mqtool.records.damage import Damage, DamageKind
from mqtool.siblings.base import MISSING_CHUNK, READ_IT, check_reserved, finding
from mqtool.siblings.equeue import listing
from mqtool.siblings.equeue.chunk import (
    ID_POSITION,
    ChunkFile,
    DictionaryColumn,
    MessageTable,
    ValidRun,
    begins_an_id,
    distinct_bytes,
    stated_in_ids,
)
from mqtool.siblings.equeue.listing import settings_of
from mqtool.siblings.equeue.start import start
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage
from mqtool.siblings.equeue.verify_queues import verify_queues
from mqtool.siblings.frames import Frame, InvalidFrame
from mqtool.verify.findings import Finding, Severity

_SALVAGE = "salvage the store; records after the damage can be read backwards"
_REBUILD = "rebuild the queue from the message chunks"
_NO_CHUNK = "restore the header, or salvage the store, which reads the chunk without it; remove an empty file"
_RENAME = "move files that are not chunks out of the directory"


class _MessageScan(Struct):
    messages: MessageTable = field(default_factory=MessageTable)
    damage: list[Damage] = field(default_factory=list)
    reached: dict[Path, int] = field(default_factory=dict)
    """By chunk: data position up to which there are consecutive valid frames from its start."""


def verify(store: EQueueStore) -> Iterator[Finding]:
    """Yields a finding for each broken invariant."""
    yield from _not_opened(store)
    if not store.unopened.unknown:
        yield from _starts(store)
    yield from _folder(store.chunks, fixed=False)
    yield from _missing_queue_chunks(store)
    scan = _MessageScan(damage=_ranges_not_read(store))
    for item in store.runs():
        if isinstance(item, Damage):
            if item.kind == MISSING_CHUNK:
                scan.damage.append(item)
            elif item.kind == DamageKind.UNREADABLE:
                scan.damage.append(item)
                yield finding("equeue-unreadable", Severity.UNKNOWN, item.path, item.detail, READ_IT, item.position)
            elif item.end > item.start:
                scan.damage.append(item)
                detail = f"forwards: {item.detail}"
                yield finding("equeue-frames", Severity.ERROR, item.path, detail, _SALVAGE, item.position)
            continue
        valid = store.run_of(item) if isinstance(item, StoredMessage) else item
        if valid.run.positions[0] == scan.reached.get(valid.chunk.path, 0):
            scan.reached[valid.chunk.path] = valid.run.end
        yield from _records(store, valid, scan.messages)
    for chunk in store.chunks:
        is_unread = chunk.unread(0, chunk.room) is not None
        if chunk.is_finished and scan.reached.get(chunk.path, 0) != chunk.room and not is_unread:
            yield from _backwards(store, chunk)
    yield from _tail(store)
    for queue in store.queues:
        yield from _folder(store.queue_chunks(queue), fixed=True)
    named = yield from verify_queues(store, scan.messages, scan.damage)
    yield from _missing_chunks(scan.damage, named)
    yield from _names(store)
    yield from _offsets(store)


def _ranges_not_read(store: EQueueStore) -> list[Damage]:
    """Returns the global positions of message chunks whose records are not read: entries may point there."""
    read = {chunk.header.chunk_number for chunk in store.chunks}
    numbers = {path: equeue.named_number(path.name) for path in store.unread if path in store.listing.messages}
    return [
        Damage(number * store.capacity, (number + 1) * store.capacity, "no-chunk", store.unread[path], path, 0)
        for path, number in numbers.items()
        if number is not None and number not in read
    ]


def _not_opened(store: EQueueStore) -> Iterator[Finding]:
    """Reports chunk files that are not read."""
    for queue in store.queues:
        store.queue_chunks(queue)  # also finds those that cannot be read
    yield from store.unopened.findings("equeue", _NO_CHUNK)
    for path, kept in store.duplicates.items():
        number = kept.header.chunk_number
        step = _RENAME if equeue.named_number(path.name) == number else "restore the number in the header"
        detail = f"states chunk number {number}, as {kept.path.name} does; the broker does not start"
        yield finding("equeue-chunk-number", Severity.ERROR, path, detail, step, 0)


def _starts(store: EQueueStore) -> Iterator[Finding]:
    """Reports what the broker would do to the store on startup."""
    try:
        outcome = start(store.path, settings_of(store.path, store.listing), store.shape)
    except UnreadableError as error:
        detail = f"what a start does is unknown: {error.reason}"
        yield finding("equeue-unreadable", Severity.UNKNOWN, Path(str(error.path)), detail, READ_IT)
        return
    outcome.close()
    if outcome.refusal is not None:
        refusal = outcome.refusal
        detail = f"the broker does not start: {refusal.exception}: {refusal.message}"
        yield finding("equeue-start-refused", Severity.ERROR, refusal.path, detail, refusal.remedy)
    for note in outcome.notes:
        severity = Severity.ERROR if outcome.clears_root else Severity.WARNING
        yield finding("equeue-start-notes", severity, store.path, note, "work on a copy")


def _folder(chunks: list[ChunkFile], *, fixed: bool) -> Iterator[Finding]:
    """Checks headers and footers of the chunks of one folder."""
    capacities = Counter(chunk.header.capacity for chunk in chunks)
    common = capacities.most_common(1)[0][0] if capacities else 0
    for chunk in chunks:
        header, place = chunk.header, chunk.size - FOOTER_SIZE
        if header.chunk_number != equeue.named_number(chunk.path.name):
            detail = f"the header states chunk number {header.chunk_number}"
            yield finding("equeue-chunk-number", Severity.ERROR, chunk.path, detail, "restore number or name", 0)
        if header.capacity != common:
            at = HEADER.offset("capacity")
            detail = f"expected a capacity of {common} as in the other chunks, found {header.capacity}"
            yield finding("equeue-capacity", Severity.ERROR, chunk.path, detail, "restore the header", at)
        yield from check_reserved("equeue-reserved", HEADER, header, chunk.path, 0, "header ")
        if chunk.is_finished and chunk.footer is not None:
            yield from check_reserved("equeue-reserved", FOOTER, chunk.footer, chunk.path, place, "footer ")
        if chunk is not chunks[-1] and not chunk.is_finished:
            detail = f"expected a footer that states {place - HEADER_SIZE}, found {chunk.footer_data_size}"
            yield finding("equeue-footer", Severity.ERROR, chunk.path, detail, _SALVAGE, max(place, 0))
        elif fixed and chunk.is_finished and chunk.footer_data_size != header.capacity:
            detail = f"expected a full chunk of {header.capacity} bytes, found {chunk.footer_data_size}"
            yield finding("equeue-footer", Severity.ERROR, chunk.path, detail, _REBUILD, place)
        if chunk is chunks[-1] and not chunk.is_finished and chunk.size != HEADER_SIZE + header.capacity + FOOTER_SIZE:
            full_size = HEADER_SIZE + header.capacity + FOOTER_SIZE
            detail = f"expected {full_size} bytes, found {chunk.size}: each start reads the last 128 bytes as a footer"
            yield finding("equeue-file-size", Severity.ERROR, chunk.path, detail, "lengthen the file with zeros")


def _records(store: EQueueStore, valid: ValidRun, messages: MessageTable) -> Iterator[Finding]:
    """Checks a run as columns, then singly each record for which a column check failed."""
    invalid = (valid.fields.fixed["log_position"] != valid.positions) | (stated_in_ids(valid) != valid.positions)
    heads = distinct_bytes(valid, "message_id", without_end=ID_POSITION)
    invalid |= _wrong(heads, begins_an_id)
    topics, tags = distinct_bytes(valid, "topic"), distinct_bytes(valid, "tag")
    for column in (topics, tags, distinct_bytes(valid, "producer_address")):
        invalid |= _wrong(column, _is_text)
    messages.add(valid, topics, tags)
    for number in np.flatnonzero(invalid).tolist():
        yield from _record(store.message_of(valid, number))


def _wrong(column: DictionaryColumn, is_right: Callable[[bytes], bool]) -> np.ndarray:
    """Returns a bool per row: whether its value fails the test."""
    return np.array([not is_right(value) for value in column.values], bool)[column.codes]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _record(message: StoredMessage) -> Iterator[Finding]:
    record, place = message.record, HEADER_SIZE + message.frame.start
    if record.log_position != message.position:
        detail = f"expected log position {message.position}, found {record.log_position}: a leftover frame?"
        yield finding("equeue-log-position", Severity.ERROR, message.chunk.path, detail, _SALVAGE, place)
    try:
        stated = equeue.parse_id(record.message_id).position
    except FormatError as error:
        yield finding("equeue-message-id", Severity.WARNING, message.chunk.path, str(error), "", place)
    else:
        if stated != message.position:
            detail = f"the message id states position {stated}, expected {message.position}"
            yield finding("equeue-message-id", Severity.WARNING, message.chunk.path, detail, "", place)
    for name in ("topic", "tag", "producer_address"):
        try:
            getattr(record, name).decode()
        except UnicodeDecodeError:
            detail = f"{name} is not UTF-8; the broker reads replacement characters"
            yield finding("equeue-text", Severity.ERROR, message.chunk.path, detail, _SALVAGE, place)


def _backwards(store: EQueueStore, chunk: ChunkFile) -> Iterator[Finding]:
    """Reads a completed chunk backwards from its data end, by the lengths after the records."""
    end = chunk.room
    while end > 0:
        frame: Frame | InvalidFrame = chunk.frame_before(end, 0, store.max_record_size)
        if isinstance(frame, InvalidFrame):
            detail = f"backwards: {frame.detail}"
            place = HEADER_SIZE + end
            yield finding("equeue-frames-backward", Severity.ERROR, chunk.path, detail, _SALVAGE, place)
            return
        end = frame.start


def _tail(store: EQueueStore) -> Iterator[Finding]:
    tail = store.tail
    if tail is not None and tail.kind != "clean":
        chunk = store.chunks[-1]
        detail = f"{tail.length} bytes that are not a record follow the last one: an incomplete write, or an older one"
        place = HEADER_SIZE + tail.end - chunk.start
        yield finding("equeue-leftover", Severity.WARNING, chunk.path, detail, "the broker overwrites them", place)


def _names(store: EQueueStore) -> Iterator[Finding]:
    paths = [*store.listing.messages, *(path for queue in store.queues for path in queue.chunks)]
    prefixes = equeue.MESSAGE_PREFIX, equeue.QUEUE_PREFIX
    for path in paths:
        if not any(equeue.is_plain_name(path.name, prefix) for prefix in prefixes):
            detail = "the broker reads it as a chunk, but does not give chunks such names"
            yield finding("equeue-name", Severity.WARNING, path, detail, _RENAME)
    for path in store.listing.unread_folders:
        detail = f"the broker does not read this folder; it reads or creates that of queue {int(path.name)}"
        yield finding(
            "equeue-queue-folder", Severity.ERROR, path, detail, "give the folder the queue's number as its name"
        )
    for path in store.listing.strays:
        detail = "the next start deletes it" if path.name.endswith(equeue.TEMPORARY_SUFFIX) else "is not a chunk"
        yield finding("equeue-stray", Severity.WARNING, path, detail)


def _missing_chunks(damage: list[Damage], named: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Iterator[Finding]:
    """Reports missing chunks, with the number of queue entries that point into each."""
    for part in damage:
        if part.kind == MISSING_CHUNK:
            entries = int(((named >= part.start) & (named < part.end)).sum())
            detail = f"is missing; {entries} queue entries point to messages in it"
            yield finding("equeue-chunk-missing", Severity.ERROR, part.path, detail, "restore it from a backup")


def _missing_queue_chunks(store: EQueueStore) -> Iterator[Finding]:
    for queue in store.queues:
        for part in store.unread_entries(queue):
            if part.kind == MISSING_CHUNK:
                detail = f"is missing, and with it entries of queue {queue.topic}/{queue.queue_id}"
                yield finding("equeue-chunk-missing", Severity.ERROR, part.path, detail, _REBUILD)


def _offsets(store: EQueueStore) -> Iterator[Finding]:
    for name in (equeue.CONSUME_OFFSETS, equeue.CONSUME_OFFSETS_BACKUP):
        path: Path = store.path / name
        try:
            listing.consume_offsets(path)
        except FormatError as error:
            step = "copy the other one over it"
            yield finding("equeue-consume-offsets", Severity.ERROR, path, error.args[0], step)
