"""Compares queue entries with message records, as columns; pairs that do not agree are then checked one by one."""

from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
from msgspec.structs import astuple, replace

from mqtool.errors import FormatError
from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, HEADER_SIZE, QueueEntry
from mqtool.formats.topics import TopicQueue
from mqtool.records.damage import Damage
from mqtool.siblings.base import READ_IT, finding
from mqtool.siblings.equeue.chunk import NO_CODE, ExpectedMessage, MessageTable
from mqtool.siblings.equeue.listing import QueueFiles, setting, settings_of
from mqtool.siblings.equeue.rebuild import filled_after
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.verify.findings import Finding, Severity

_REBUILD = "rebuild the queue from the message chunks"
_UNKNOWN_END = 1 << 62
"""End of a queue whose last chunk the system refuses to read: no message can state a queue offset after it."""
_SALVAGE = "salvage the store: that puts the entry of each message at the queue offset that it states"


def verify_queues(
    store: EQueueStore, messages: MessageTable, damage: list[Damage]
) -> Generator[Finding, None, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """Yields findings about entries and messages that do not agree; returns the global positions in all entries.

    Entries that point into damage are not reported.
    """
    comparison = _Comparison(messages)
    unread: dict[TopicQueue, int] = {}
    for queue in store.queues:
        yield from _folder(queue)
        next_offset, fillers = 0, 0
        parts = []
        unread[queue.topic, queue.queue_id] = _entries_not_opened(store, queue)
        for item in store.entry_arrays(queue):
            if isinstance(item, Damage):
                yield finding("equeue-unreadable", Severity.UNKNOWN, item.path, item.detail, READ_IT, item.position)
                unread[queue.topic, queue.queue_id] += (item.end - item.start) // ENTRY_SIZE
                next_offset = item.end // ENTRY_SIZE
                continue
            first, entries = item
            next_offset = first + len(entries)
            parts.append(entries["position_plus_one"] - 1)
            for number in comparison.mismatches(queue, entries):
                entry = QueueEntry(*entries[number].item())
                known = comparison.message_at(entry.message_position)
                if known is None and comparison.is_filler(entry):
                    fillers += 1
                else:
                    yield from _entry(store, queue, first + number, entry, known, damage)
        if fillers:
            detail = f"{fillers} entries of {queue.topic}/{queue.queue_id} mark lost messages; consumers skip them"
            yield finding("equeue-entry-filler", Severity.NOTE, queue.directory, detail)
        if queue.chunks and queue.chunks[-1] in store.unopened.unknown:
            next_offset = _UNKNOWN_END
        if parts and len(comparison.positions):
            yield from _offsets(queue, comparison.stated_offsets(queue, np.concatenate(parts)), next_offset)
    yield from _missing(store, comparison, unread)
    return comparison.entry_positions


def _entries_not_opened(store: EQueueStore, queue: QueueFiles) -> int:
    """Returns the number of entries that the chunks of a queue have which the system refuses to read."""
    count = sum(path in store.unopened.unknown for path in queue.chunks)
    return count and count * settings_of(store.path, store.listing).queue_chunk_entries


class _Comparison:
    """Compares messages with the entries that point to them.

    The arrays are ascending by position, see `MessageArrays`; `names` are (topic, queue id) by queue number.
    """

    def __init__(self, messages: MessageTable) -> None:
        self.positions, self.queues, self.codes, self.offsets = astuple(messages.arrays())
        self.names = list(messages.queues)
        self._numbers = messages.queues
        self._named: list[np.ndarray] = []

    def mismatches(self, queue: QueueFiles, entries: np.ndarray) -> list[int]:
        """Returns the indexes of entries that do not lead to a message of their queue with their tag code."""
        positions = entries["position_plus_one"] - 1
        self._named.append(positions)
        if not len(self.positions):
            return list(range(len(entries)))
        row, agrees = self._rows(queue, positions)
        code = self.codes[row]
        return np.flatnonzero(~(agrees & ((code == NO_CODE) | (code == entries["tag_code"])))).tolist()

    def stated_offsets(self, queue: QueueFiles, entry_positions: np.ndarray) -> np.ndarray:
        """Returns the queue offsets that messages state to which entries of their queue point, each message once."""
        rows, is_message = self._rows(queue, entry_positions)
        return self.offsets[np.unique(rows[is_message])]

    def is_filler(self, entry: QueueEntry) -> bool:
        """Whether an entry without a message was written in the place of a lost one."""
        position = filled_after(entry)
        return position is not None and self.message_at(position) is not None

    def _rows(self, queue: QueueFiles, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns for each global position the index of a message, and whether one of the queue begins there."""
        row = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
        mine = self._numbers.get((queue.topic, queue.queue_id), -1)
        return row, (positions >= 0) & (self.positions[row] == positions) & (self.queues[row] == mine)

    def message_at(self, position: int) -> ExpectedMessage | None:
        """Returns the message at a global position; None if there is none."""
        row = int(np.searchsorted(self.positions, position))
        if row >= len(self.positions) or self.positions[row] != position:
            return None
        code = int(self.codes[row])
        topic, queue_id = self.names[int(self.queues[row])]
        return ExpectedMessage(topic, queue_id, None if code == NO_CODE else code)

    def without_entry(self) -> list[tuple[tuple[str, int], int]]:
        """Returns ((topic, queue id), number of messages without an entry), in the order of the first such message."""
        mine = self.queues[~np.isin(self.positions, self.entry_positions)]
        numbers, first, counts = np.unique(mine, return_index=True, return_counts=True)
        order = np.argsort(first)
        return [
            (self.names[number], int(count))
            for number, count in zip(numbers[order].tolist(), counts[order].tolist(), strict=True)
        ]

    def with_several_entries(self) -> list[tuple[int, int]]:
        """Returns (global position, number of entries) of messages that have several entries."""
        positions, counts = np.unique(self.entry_positions, return_counts=True)
        several = (counts > 1) & np.isin(positions, self.positions)
        return list(zip(positions[several].tolist(), counts[several].tolist(), strict=True))

    @property
    def entry_positions(self) -> np.ndarray:
        """The global positions in all entries."""
        return np.concatenate([np.empty(0, np.int64), *self._named])


def _folder(queue: QueueFiles) -> Iterator[Finding]:
    if not queue.chunks:
        yield finding("equeue-queue-empty", Severity.WARNING, queue.directory, "has no chunk; the broker creates one")


def _offsets(queue: QueueFiles, stated: np.ndarray, next_offset: int) -> Iterator[Finding]:
    """Reports messages after which a consumer would not continue with the next entry.

    It continues after the queue offset that the last message of a pull states (PullMessageService, EQueue 2.6.3). Sends
    that overtake each other change the order of these queue offsets, but each is one of the queue, and occurs once.
    """
    where = f"{queue.topic}/{queue.queue_id}"
    after = int((stated >= next_offset).sum())
    if after:
        detail = (
            f"{after} message(s) of {where} state a queue offset after the queue's end at {next_offset}: "
            "consumers continue there and skip messages"
        )
        yield finding("equeue-entry-offset", Severity.ERROR, queue.directory, detail, _SALVAGE)
    repeated = len(stated) - len(np.unique(stated))
    if repeated:
        detail = (
            f"{repeated} message(s) of {where} state the queue offset of another one: "
            "consumers get messages again, without end"
        )
        yield finding("equeue-entry-offset", Severity.ERROR, queue.directory, detail, _SALVAGE)


def _entry(
    store: EQueueStore,
    queue: QueueFiles,
    offset: int,
    entry: QueueEntry,
    message: ExpectedMessage | None,
    damage: list[Damage],
) -> Iterator[Finding]:
    path, place = _file_of(store, queue, offset)
    where = f"entry {offset} of {queue.topic}/{queue.queue_id}"
    if not entry.is_valid:
        detail = f"{where}: expected a position, found {entry.position_plus_one}"
        yield finding("equeue-entry-empty", Severity.ERROR, path, detail, _REBUILD, place)
        return
    if message is None:
        template = finding("", Severity.ERROR, path, where, _REBUILD, place)
        yield from _dangling_entry(store, template, entry.message_position, damage)
        return
    if (message.topic, message.queue_id) != (queue.topic, queue.queue_id):
        detail = f"{where} leads to a message of {message.topic}/{message.queue_id}"
        yield finding("equeue-entry-queue", Severity.ERROR, path, detail, _REBUILD, place)
    if message.tag_code not in (None, entry.tag_code):
        detail = f"{where}: expected tag code {message.tag_code}, found {entry.tag_code}"
        yield finding("equeue-entry-tag", Severity.ERROR, path, detail, _REBUILD, place)


def _dangling_entry(store: EQueueStore, template: Finding, position: int, damage: list[Damage]) -> Iterator[Finding]:
    """Yields a finding about an entry that leads to no message, unless the message was deleted or is damaged."""
    log_start = min((chunk.start for chunk in store.chunks), default=0)
    log_end = (
        store.tail.end
        if store.tail is not None
        else max((chunk.start + chunk.room for chunk in store.chunks), default=0)
    )
    if position < log_start or any(part.start <= position < part.end for part in damage):
        return
    is_past_end = position >= log_end
    code = "equeue-entry-ahead" if is_past_end else "equeue-entry-nowhere"
    severity = Severity.WARNING if is_past_end else Severity.ERROR
    reason = "which was never written, or lost" if is_past_end else "where no message begins"
    detail = f"{template.evidence} leads to position {position}, {reason}"
    yield replace(template, code=code, severity=severity, evidence=detail)


def _missing(store: EQueueStore, comparison: _Comparison, unread: dict[TopicQueue, int]) -> Iterator[Finding]:
    """Yields findings about messages that have no entry or several.

    The broker deletes a queue whose messages were all consumed: it marks it in queue.setting, then removes its folder
    (Queue.Delete). The messages stay in the log. `unread` is the number of entries of each queue that the system cannot
    read; messages may have theirs there.
    """
    folders = {(queue.topic, queue.queue_id): queue for queue in store.queues}
    for (topic, queue_id), count in comparison.without_entry():
        path = store.path / equeue.QUEUE_CHUNKS / topic / str(queue_id)
        queue = folders.get((topic, queue_id))
        detail = f"{count} message(s) of {topic}/{queue_id} have no entry"
        if queue is None:
            detail += ", and the queue has no folder: it was deleted after they were consumed, or is lost"
            yield finding("equeue-entry-missing", Severity.WARNING, path, detail, _REBUILD)
        elif not _is_deleted(queue):
            unknown = unread[topic, queue_id]
            if count <= unknown:
                detail += " in the part of the queue that can be read"
                yield finding("equeue-entry-missing", Severity.UNKNOWN, path, detail, READ_IT)
                continue
            if unknown:
                detail = f"at least {count - unknown} message(s) of {topic}/{queue_id} have no entry"
            detail += ": consumers do not get them"
            yield finding("equeue-entry-missing", Severity.ERROR, path, detail, _REBUILD)
    for position, count in comparison.with_several_entries():
        message = comparison.message_at(position)
        assert message is not None
        path = store.path / equeue.QUEUE_CHUNKS / message.topic / str(message.queue_id)
        detail = f"the message at {position} has {count} entries"
        yield finding("equeue-entry-twice", Severity.ERROR, path, detail, _REBUILD)


def _is_deleted(queue: QueueFiles) -> bool:
    try:
        return setting(queue.directory).is_deleted
    except FormatError:  # the broker does not start with it
        return False


def _file_of(store: EQueueStore, queue: QueueFiles, offset: int) -> tuple[Path, int | None]:
    for chunk in store.queue_chunks(queue):
        count = chunk.header.capacity // ENTRY_SIZE
        if count and chunk.header.chunk_number == offset // count:
            return chunk.path, HEADER_SIZE + offset % count * ENTRY_SIZE
    return queue.directory, None
