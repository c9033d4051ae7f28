"""Rebuilds queue chunks from message chunks.

The log contains all messages of a queue, but not always in the order in which the broker's threads wrote the queue
entries: concurrent sends may be in the reverse order. Valid existing entries therefore keep their queue offsets;
without them the order of the log is used.

Entries without a message fill the gaps that lost messages leave. The broker skips an entry if reading its message
throws ChunkReadException or ChunkNotExistException. If the broker finds nothing, or if the record cannot be decoded,
it stops at the entry: consumers would get no further message. Source: PullMessageRequestHandler.PullMessages (EQueue
2.6.3), Chunk.TryReadForwardInternal (ECommon 2.6.5).
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import equeue, file_names
from mqtool.formats.equeue import ENTRY_SIZE, QueueEntry
from mqtool.formats.topics import TopicQueue
from mqtool.records.damage import Damage
from mqtool.siblings.equeue.chunk import tag_code
from mqtool.siblings.equeue.listing import EQueueSettings, QueueFiles, settings_of
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage
from mqtool.siblings.equeue.writer import ChunkAppender
from mqtool.store.files import list_directory

_INSIDE = 13
"""Distance from the start of a frame at which no frame begins: a length there consists of the upper three bytes of the
message id's length and the first digit of the id, so it is larger than any record."""

_LONGEST_GAP = 1_000_000
"""Maximum gap between the queue offsets of two messages; a larger one comes from a damaged number, not from loss."""


def filler(message_position: int) -> QueueEntry:
    """Returns a filler that points into the frame of a message.

    It is to follow the entry of this message, so that the broker keeps the queue chunk as long as the message.
    """
    return QueueEntry(message_position + _INSIDE + 1, 0)


def first_filler(log_start: int) -> QueueEntry:
    """Returns a filler for the start of a queue: it points before the oldest message chunk, or into its first frame."""
    return QueueEntry(log_start, 0) if log_start > 0 else filler(0)


def filled_after(entry: QueueEntry) -> int | None:
    """Returns the position of the message into whose frame an entry points if it is a filler; None if it is not."""
    return entry.message_position - _INSIDE if entry.tag_code == 0 else None


class QueuePlan(Struct):
    """The entries of a rebuilt queue."""

    # topic, queue_id: the queue
    topic: str
    queue_id: int
    entries: dict[int, QueueEntry] = field(default_factory=dict)  # entries by queue offset
    kept: int = 0  # number of entries that keep their queue offset
    placed: int = 0  # number of entries placed in the order of the log
    filled: int = 0  # number of entries that lead to no message, because the message is lost
    # queue offset after the last existing entry, whose message may be lost: consumers may have got this far
    end: int = 0

    @property
    def next_offset(self) -> int:
        """Queue offset after the last entry."""
        return max(self.end, max(self.entries, default=-1) + 1)


class _LoggedMessage(Struct, frozen=True):
    position: int
    tag_code: int
    queue_offset: int

    @property
    def entry(self) -> QueueEntry:
        return QueueEntry(self.position + 1, self.tag_code)


def plan_queues(
    store: EQueueStore, settings: EQueueSettings | None = None, on_damage: Callable[[Damage], None] | None = None
) -> list[QueuePlan]:
    """Computes the entries of every queue.

    The message chunks determine them. Valid existing entries keep their queue offsets, and entries of deleted messages
    are kept. The settings are by default those of the majority of the chunk headers. `on_damage` is called with each
    damaged range of the message chunks, and each unreadable one of the queue chunks: the messages of entries there are
    placed like those without an entry.
    """
    limit = offset_limit(settings or settings_of(store.path, store.listing))
    logged: dict[TopicQueue, list[_LoggedMessage]] = {}
    for item in store.messages():
        if isinstance(item, StoredMessage):
            key = item.record.topic.decode("utf-8", "replace"), item.record.queue_id
            code = tag_code(item.record.tag) or 0
            logged.setdefault(key, []).append(_LoggedMessage(item.position, code, item.record.queue_offset))
        elif on_damage is not None:
            on_damage(item)
    existing = {(queue.topic, queue.queue_id): _entries(store, queue, on_damage) for queue in store.queues}
    log_end = max((chunk.start + chunk.room for chunk in store.chunks), default=0)
    log = range(_log_start(store), store.tail.end if store.tail is not None else log_end)
    keys = sorted(logged.keys() | existing.keys())
    return [_plan(key, logged.get(key, []), existing.get(key, {}), log, limit) for key in keys]


def _entries(
    store: EQueueStore, queue: QueueFiles, on_damage: Callable[[Damage], None] | None
) -> dict[int, QueueEntry]:
    """Returns the readable entries of a queue by queue offset."""
    entries: dict[int, QueueEntry] = {}
    for item in store.entries(queue):
        if not isinstance(item, Damage):
            offset, entry = item
            entries[offset] = entry
        elif on_damage is not None:
            on_damage(item)
    return entries


def _log_start(store: EQueueStore) -> int:
    return min((chunk.start for chunk in store.chunks), default=0)


def offset_limit(settings: EQueueSettings) -> int:
    """Returns one past the highest queue offset for which a chunk can exist: chunk numbers have 31 bits."""
    return settings.queue_chunk_entries << 31


def _plan(
    key: TopicQueue, logged: list[_LoggedMessage], existing: dict[int, QueueEntry], log: range, limit: int
) -> QueuePlan:
    plan = QueuePlan(*key)
    by_position = {message.position: message for message in logged}
    believed = _plausible_range([*existing, *(message.queue_offset for message in logged)], limit)
    for offset, entry in existing.items():
        message = by_position.get(entry.message_position)
        if offset not in believed:
            continue
        if message is not None and message.tag_code == entry.tag_code:
            plan.entries[offset] = entry
            del by_position[message.position]
            plan.kept += 1
        elif entry.is_valid and entry.message_position < log.start:
            plan.entries[offset] = entry
            plan.kept += 1
        elif entry.is_valid and entry.message_position < log.stop:  # after it are messages that were never written
            plan.end = max(plan.end, offset + 1)
    rest = [message for message in logged if message.position in by_position]
    for offset, message in zip(_free(plan, rest, believed), rest, strict=True):
        plan.entries[offset] = message.entry
        plan.placed += 1
    return plan


def stated_places(stated: list[int], limit: int) -> list[int]:
    """Returns a queue offset of its own for each message of a queue, in the order of the log.

    It is the one that the message states, if it is plausible (`offset_limit`) and no earlier message states it,
    otherwise one after all of these.
    """
    believed = _plausible_range(stated, limit)
    taken: set[int] = set()
    places: list[int | None] = []
    for offset in stated:
        fits = offset in believed and offset not in taken
        places.append(offset if fits else None)
        taken.add(offset)
    after = count(max((place for place in places if place is not None), default=-1) + 1)
    return [next(after) if place is None else place for place in places]


def _plausible_range(offsets: list[int], limit: int) -> range:
    """Returns the plausible range of queue offsets: that of the largest group without gaps above `_LONGEST_GAP`."""
    groups: list[list[int]] = []
    end = limit - len(offsets)  # messages without a plausible queue offset follow the last one
    for offset in sorted(offset for offset in offsets if 0 <= offset < end):
        if groups and offset - groups[-1][-1] <= _LONGEST_GAP:
            groups[-1].append(offset)
        else:
            groups.append([offset])
    largest = max(groups, key=len, default=[0])
    return range(largest[0], largest[-1] + 1)


def _free(plan: QueuePlan, rest: list[_LoggedMessage], believed: range) -> list[int]:
    """Returns ascending queue offsets for the messages of `rest`, which are in the log's order.

    They are the queue offsets that these messages state, if plausible and free, in ascending order. Further messages
    get queue offsets after the queue's last one.
    """
    stated = {message.queue_offset for message in rest if message.queue_offset in believed}
    free = sorted(stated - plan.entries.keys())
    after = max([*plan.entries, *free], default=believed.start - 1) + 1
    return [*free, *range(after, after + len(rest) - len(free))]


def write_queues(
    store: EQueueStore, target: Path, settings: EQueueSettings, on_damage: Callable[[Damage], None] | None = None
) -> list[QueuePlan]:
    """Writes rebuilt queue chunks to an empty or absent directory; returns the plans, see `plan_queues`.

    Raises StoreError, before anything is written, if the target is not empty, or a topic cannot be a directory name.
    """
    if target.exists() and list_directory(target):
        raise StoreError("expected an empty or absent directory", target)
    plans = plan_queues(store, settings, on_damage)
    log_start = _log_start(store)
    for plan in plans:
        if not file_names.is_directory_name(plan.topic):
            reason = (
                f"a message states topic {plan.topic[:40]!r}, which is not a valid directory name; `mqtool verify` "
                "shows where"
            )
            raise StoreError(reason, store.path)
    for plan in plans:
        if plan.next_offset:
            write_queue(plan, target / equeue.QUEUE_CHUNKS / plan.topic / str(plan.queue_id), settings, log_start)
    return plans


def write_queue(plan: QueuePlan, directory: Path, settings: EQueueSettings, log_start: int) -> None:
    """Writes the chunks of a queue that has an entry or an end; queue offsets without an entry get a filler."""
    appender = ChunkAppender(directory, equeue.QUEUE_PREFIX, settings.queue_chunk_entries * ENTRY_SIZE)
    appender.begin(_first(plan, settings) // settings.queue_chunk_entries)
    try:
        for entry in _filled(plan, settings, log_start):
            data = equeue.QUEUE_ENTRY.build(entry)
            appender.append(lambda _, data=data: data)  # type: ignore[misc]  # bound now, called now
        appender.flush(sync=True)
    finally:
        appender.close()


def _filled(plan: QueuePlan, settings: EQueueSettings, log_start: int) -> Iterator[QueueEntry]:
    """Yields an entry for each queue offset, a filler for that of a lost message."""
    hole = first_filler(log_start)
    for offset in range(_first(plan, settings), plan.next_offset):
        entry = plan.entries.get(offset)
        if entry is None:
            plan.filled += 1
            yield hole
        else:
            hole = filler(entry.message_position)
            yield entry


def _first(plan: QueuePlan, settings: EQueueSettings) -> int:
    """Returns the first queue offset of a queue's first chunk; of its last one if all of its messages are lost."""
    first = min(plan.entries, default=plan.end - 1)
    return first - first % settings.queue_chunk_entries
