"""Queue entries against message records."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mqtool.equeue.listing import QueueFiles
from mqtool.equeue.store import EQueueStore
from mqtool.errors import FormatError
from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, HEADER_SIZE, QueueEntry
from mqtool.kinds.base import Damage, Finding, Severity

_REBUILD = "rebuild the queue from the message chunks"


@dataclass(frozen=True, slots=True)
class Known:
    """What an entry has to agree with: a message of the log; its tag code is None where the tag has none."""

    topic: str
    queue_id: int
    tag_code: int | None


@lru_cache(maxsize=4096)
def tag_code(tag: bytes) -> int | None:
    """Returns the code of a tag, None for the one in four thousand million that has none."""
    try:
        return equeue.tag_code(tag.decode("utf-8", "replace"))
    except FormatError:
        return None


def verify_queues(store: EQueueStore, messages: dict[int, Known], damage: list[Damage]) -> Iterator[Finding]:
    """Yields what does not agree between queues and messages.

    Args:
        store: whose queues.
        messages: every sound message by its global position.
        damage: ranges of the log without a message; entries that lead there are not the queue's fault.
    """
    named: Counter[int] = Counter()
    for queue in store.queues:
        yield from _folder(queue)
        for offset, entry in store.entries(queue):
            named[entry.message_position] += 1
            yield from _entry(store, queue, offset, entry, messages, damage)
    yield from _missing(store, messages, named)


def _folder(queue: QueueFiles) -> Iterator[Finding]:
    if not queue.chunks:
        yield Finding("equeue-queue-empty", Severity.WARNING, queue.directory, "has no chunk; the broker makes one")


def _entry(
    store: EQueueStore, queue: QueueFiles, offset: int, entry: QueueEntry, messages: dict[int, Known],
    damage: list[Damage],
) -> Iterator[Finding]:  # fmt: skip
    message = messages.get(entry.message_position)
    if entry.is_valid and message is not None and _agrees(queue, entry, message):
        return
    path, place = _file_of(store, queue, offset)
    where = f"entry {offset} of {queue.topic}/{queue.queue_id}"
    if not entry.is_valid:
        detail = f"{where}: expected a position, found {entry.position_plus_one}"
        yield Finding("equeue-entry-empty", Severity.ERROR, path, detail, _REBUILD, place)
        return
    if message is None:
        template = Finding("", Severity.ERROR, path, where, _REBUILD, place)
        yield from _nowhere(store, template, entry.message_position, damage)
        return
    if (message.topic, message.queue_id) != (queue.topic, queue.queue_id):
        detail = f"{where} leads to a message of {message.topic}/{message.queue_id}"
        yield Finding("equeue-entry-queue", Severity.ERROR, path, detail, _REBUILD, place)
    if message.tag_code not in (None, entry.tag_code):
        detail = f"{where}: expected tag code {message.tag_code}, found {entry.tag_code}"
        yield Finding("equeue-entry-tag", Severity.ERROR, path, detail, _REBUILD, place)


def _agrees(queue: QueueFiles, entry: QueueEntry, message: Known) -> bool:
    same_queue = message.topic == queue.topic and message.queue_id == queue.queue_id
    return same_queue and message.tag_code in (None, entry.tag_code)


def _nowhere(store: EQueueStore, template: Finding, position: int, damage: list[Damage]) -> Iterator[Finding]:
    """An entry that leads to no message: deleted, damaged, never written, or wrong."""
    log_start = min((chunk.start for chunk in store.chunks), default=0)
    log_end = store.tail.end if store.tail is not None else max(
        (chunk.start + chunk.room for chunk in store.chunks), default=0)  # fmt: skip
    if position < log_start or any(one.start <= position < one.end for one in damage):
        return
    behind = position >= log_end
    code = "equeue-entry-ahead" if behind else "equeue-entry-nowhere"
    severity = Severity.WARNING if behind else Severity.ERROR
    reason = "which was never written, or lost" if behind else "where no message begins"
    detail = f"{template.detail} leads to position {position}, {reason}"
    yield Finding(code, severity, template.path, detail, template.next_step, template.position)


def _missing(store: EQueueStore, messages: dict[int, Known], named: Counter[int]) -> Iterator[Finding]:
    """Messages that no entry names, or several do."""
    unnamed: Counter[tuple[str, int]] = Counter()
    deleted = {(queue.topic, queue.queue_id) for queue in store.queues if not queue.chunks}
    for position, message in messages.items():
        if not named[position]:
            unnamed[message.topic, message.queue_id] += 1
    for (topic, queue_id), count in unnamed.items():
        path = store.path / equeue.QUEUE_CHUNKS / topic / str(queue_id)
        if (topic, queue_id) not in deleted:
            detail = f"{count} message(s) of {topic}/{queue_id} have no entry: consumers do not get them"
            yield Finding("equeue-entry-missing", Severity.ERROR, path, detail, _REBUILD)
    twice = [position for position, count in named.items() if count > 1 and position in messages]
    for position in twice:
        message = messages[position]
        path = store.path / equeue.QUEUE_CHUNKS / message.topic / str(message.queue_id)
        detail = f"the message at {position} has {named[position]} entries"
        yield Finding("equeue-entry-twice", Severity.ERROR, path, detail, _REBUILD)


def _file_of(store: EQueueStore, queue: QueueFiles, offset: int) -> tuple[Path, int | None]:
    for chunk in store.queue_chunks(queue):
        count = chunk.header.capacity // ENTRY_SIZE
        if count and chunk.header.chunk_number == offset // count:
            return chunk.path, HEADER_SIZE + offset % count * ENTRY_SIZE
    return queue.directory, None
