"""Messages that a store has promised and not yet delivered, by topic and group, and one by one.

`store.waiting.held_back` decides which messages wait. This module adds destination, due time and number of tries, and
the retries and dead letters that wait for a group in a queue of their own. Source: ScheduleMessageService,
TimerMessageStore, TransactionalMessageServiceImpl, PopReviveService, AbstractSendMessageProcessor.consumerSendMsgBack
(5.5.0).
"""

from collections.abc import Collection, Iterator
from enum import StrEnum

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import file_names, properties, service_records, topics
from mqtool.formats.service_records import CheckPoint
from mqtool.store.log.message import Message
from mqtool.store.queues import pull
from mqtool.store.queues.consume_queue import Queue, units_from
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import WaitingKind, WaitingMessages, waiting_messages
from mqtool.store.waiting.popped import KvPopped, open_check_points, open_offsets, popped_in_database
from mqtool.store.waiting.timer import checkpoint_path


class PendingKind(StrEnum):
    """What a message waits for."""

    DELAY = "delay"
    """A delay level."""
    TIMER = "timer"
    """Its time, in the timer."""
    TRANSACTION = "transaction"
    """Its producer: it is a half message that nobody committed or rolled back."""
    POPPED = "popped"
    """The acknowledgement of the group that popped it."""
    RETRY = "retry"
    """Another try of a group: it is in a retry topic, or in a delay level on its way there."""
    DEAD_LETTER = "dead-letter"
    """Somebody who takes care of it: its group gave it up."""


class PendingMessage(Struct, frozen=True):
    """A message that is promised and not delivered."""

    kind: PendingKind  # what it waits for
    topic: str  # where consumers find it, or found it
    group: str | None  # group for which it waits, of a half message the producer's; None if it is for every group
    stored_topic: str  # and queue_id, queue_offset: where it is stored now
    queue_id: int
    queue_offset: int
    physical_offset: int  # of its record
    due: int | None = None  # when the broker delivers it, ms since the epoch; None if that does not depend on time
    # When it was sent, was popped or became a retry or dead letter, ms since the epoch; None if unknown.
    since: int | None = None
    tries: int = 0  # number of check-backs, or of deliveries to a group
    unique_key: str | None = None  # UNIQ_KEY of the message, None if it has none
    origin: str | None = None  # topic that a retry or dead letter was sent to; otherwise None
    problem: str = ""  # why some of this is unknown, otherwise ""


class PendingCount(Struct, frozen=True):
    """Messages of one kind for one topic and group."""

    kind: PendingKind  # and topic, group: see `PendingMessage`; topic is None if even that is unknown
    topic: str | None
    group: str | None
    messages: int | None  # their number; None if it cannot be determined
    next_due: int | None = None  # and last_due: first and last due time, ms since the epoch
    last_due: int | None = None
    oldest: int | None = None  # since when the first of them waits, ms since the epoch
    tries: int = 0  # maximum number of tries of one
    reason: str = ""  # why something is unknown, otherwise ""


def pending_messages(store: Store) -> Iterator[PendingMessage]:
    """Yields the waiting messages, kind by kind; raises StoreError if a file or the queues cannot be read."""
    waiting = waiting_messages(store)
    for messages in waiting:
        yield from _messages_of(store, messages)
    yield from _popped(store, timer_offsets(waiting), popped_in_database(store))
    for kind, queue, start in _queues_of_groups(store):
        yield from _in_queue(store, kind, queue, start)


def pending_counts(store: Store) -> list[PendingCount]:
    """Counts the waiting messages by kind, topic and group, and reports what cannot be determined.

    Only the first record of the retries and dead letters in a topic is read. If queues are in a RocksDB that cannot be
    read, or the system does not let a file be read that decides what waits, no number is known. Raises StoreError for a
    damaged file.
    """
    try:
        reason = store.unread_queues
        if not reason:
            return _counts(store)
    except UnreadableError as error:
        reason = str(error)
    return [PendingCount(kind, None, None, None, reason=reason) for kind in PendingKind]


def _counts(store: Store) -> list[PendingCount]:
    counts: dict[tuple[PendingKind, str, str | None], PendingCount] = {}
    waiting = waiting_messages(store)
    for queue_messages in waiting:
        for message in _messages_of(store, queue_messages):
            _count(counts, message)
    from_database = popped_in_database(store)
    for message in _popped(store, timer_offsets(waiting), from_database):
        _count(counts, message)
    for kind, queue, start in _queues_of_groups(store):
        number = len(units_from(queue, start)[0])
        first = next(_in_queue(store, kind, queue, start), None)
        if first is not None:
            _count(counts, first, number)
    order = list(PendingKind)
    rows = sorted(counts.values(), key=lambda row: (order.index(row.kind), row.topic or "", row.group or ""))
    return [*rows, *_unknown(store, from_database.unknown)]


def _messages_of(store: Store, waiting: WaitingMessages) -> Iterator[PendingMessage]:
    if waiting.kind is WaitingKind.DELAY:
        yield from _delayed(store, waiting)
    elif waiting.kind is WaitingKind.TIMER:
        yield from _timers(store, waiting)
    elif waiting.kind is WaitingKind.TRANSACTION:
        yield from _transactions(store, waiting)


def _count(
    counts: dict[tuple[PendingKind, str, str | None], PendingCount], message: PendingMessage, number: int = 1
) -> None:
    key = (message.kind, message.topic, message.group)
    known = counts.get(key) or PendingCount(*key, 0)
    counts[key] = PendingCount(
        *key,
        (known.messages or 0) + number,
        _first(known.next_due, message.due),
        max(known.last_due or 0, message.due or 0) or None,
        _first(known.oldest, message.since),
        max(known.tries, message.tries),
        known.reason or message.problem,
    )


def _first(time: int | None, other: int | None) -> int | None:
    return min((value for value in (time, other) if value is not None), default=None)


def timer_offsets(waiting: list[WaitingMessages]) -> list[int]:
    """Returns the physical offsets of waiting timer messages."""
    return [
        at for messages in waiting if messages.kind is WaitingKind.TIMER for at in messages.physical_offsets.tolist()
    ]


# -- messages of the broker's services ----------------------------------------------------------------------------


def _delayed(store: Store, waiting: WaitingMessages) -> Iterator[PendingMessage]:
    """Yields messages of a delay level; those for a retry topic are retries."""
    queue = store.queue(waiting.topic, waiting.queue_id)
    groups = known_groups(store)
    for place in _places(waiting):
        due = None if queue is None else _tags_code(queue, place[2])
        message = _decoded(store, place[3])
        if isinstance(message, str):
            yield PendingMessage(PendingKind.DELAY, waiting.topic, None, *place, due=due, problem=message)
            continue
        target = message.properties.get(properties.REAL_TOPIC, "")
        is_retry = target.startswith(topics.RETRY_PREFIX)
        yield PendingMessage(
            PendingKind.RETRY if is_retry else PendingKind.DELAY,
            target or waiting.topic,
            topics.group_of_retry(target, groups) if is_retry else None,
            *place,
            due=due,
            since=message.store_timestamp,
            tries=message.reconsume_times,
            unique_key=message.unique_key,
            origin=message.properties.get(properties.RETRY_TOPIC) if is_retry else None,
            problem="" if target else f"{properties.REAL_TOPIC} is missing: the broker cannot deliver it",
        )


def _timers(store: Store, waiting: WaitingMessages) -> Iterator[PendingMessage]:
    """Yields messages of the timer, without POP's own records and recall requests."""
    for place in _places(waiting):
        message = _decoded(store, place[3])
        if isinstance(message, str):
            yield PendingMessage(PendingKind.TIMER, waiting.topic, None, *place, problem=message)
            continue
        named = message.properties
        target = named.get(properties.REAL_TOPIC, "")
        if target.startswith(topics.REVIVE_TOPIC_PREFIX) or properties.TIMER_DEL_UNIQUE_KEY in named:
            continue
        due, problem = None, ""
        try:
            due = service_records.deliver_ms(named)
            service_records.destination(named, default_queue="0")
        except FormatError as error:
            problem = str(error)
        yield PendingMessage(
            PendingKind.TIMER,
            target or waiting.topic,
            None,
            *place,
            due=due,
            since=message.store_timestamp,
            unique_key=message.unique_key,
            problem=problem,
        )


def _transactions(store: Store, waiting: WaitingMessages) -> Iterator[PendingMessage]:
    for place in _places(waiting):
        message = _decoded(store, place[3])
        if isinstance(message, str):
            yield PendingMessage(PendingKind.TRANSACTION, waiting.topic, None, *place, problem=message)
            continue
        yield PendingMessage(
            PendingKind.TRANSACTION,
            message.properties.get(properties.REAL_TOPIC, waiting.topic),
            message.properties.get(properties.PRODUCER_GROUP),
            *place,
            since=message.born_timestamp,
            tries=max(0, service_records.check_times(message.properties)),
            unique_key=message.unique_key,
        )


def _popped(store: Store, timers: list[int], from_database: KvPopped) -> Iterator[PendingMessage]:
    for point in [*open_check_points(store, timers), *from_database.points]:
        yield from _of_check_point(store, point)


def _of_check_point(store: Store, point: CheckPoint) -> Iterator[PendingMessage]:
    key = point.key
    queue = store.queue(key.topic, key.queue_id)
    for offset in open_offsets(point):
        physical = -1 if queue is None else physical_offset_of(queue, offset)
        decoded = _decoded(store, physical) if physical >= 0 else "its queue has no unit for it"
        message = None if isinstance(decoded, str) else decoded
        yield PendingMessage(
            PendingKind.POPPED,
            key.topic,
            key.group,
            key.topic,
            key.queue_id,
            offset,
            physical,
            due=point.revive_time,
            since=point.pop_time,
            tries=message.reconsume_times if message else 0,
            unique_key=message.unique_key if message else None,
            problem=decoded if isinstance(decoded, str) else "",
        )


# -- retries and dead letters -------------------------------------------------------------------------------------


def known_groups(store: Store) -> Collection[str]:
    """Returns the groups that the configuration files name."""
    return {*store.metadata.groups, *store.metadata.consumer_offsets}


def _queues_of_groups(store: Store) -> Iterator[tuple[PendingKind, Queue, int]]:
    """Yields queues of retry and dead letter topics, with the queue offset of the first waiting message."""
    groups, positions = known_groups(store), store.metadata.consumer_offsets
    for queue in store.queues():
        if queue.topic.startswith(topics.DEAD_LETTER_PREFIX):
            yield PendingKind.DEAD_LETTER, queue, queue.min_offset
        elif queue.topic.startswith(topics.RETRY_PREFIX):
            group = topics.group_of_retry(queue.topic, groups)
            position = positions.get(group, {}).get(queue.topic, {}).get(queue.queue_id, 0)
            yield PendingKind.RETRY, queue, max(position, queue.min_offset)


def _in_queue(store: Store, kind: PendingKind, queue: Queue, start: int) -> Iterator[PendingMessage]:
    group = topics.group_of_retry(queue.topic, known_groups(store))
    offsets, physical = units_from(queue, start)
    for offset, at in zip(offsets.tolist(), physical.tolist(), strict=True):
        message = _decoded(store, at)
        place = (queue.topic, queue.queue_id, offset, at)
        if isinstance(message, str):
            yield PendingMessage(kind, queue.topic, group, *place, problem=message)
            continue
        yield PendingMessage(
            kind,
            queue.topic,
            group,
            *place,
            since=message.store_timestamp,
            tries=message.reconsume_times,
            unique_key=message.unique_key,
            origin=message.properties.get(properties.RETRY_TOPIC),
        )


# -- what is unknown ----------------------------------------------------------------------------------------------


def _unknown(store: Store, reason: str) -> Iterator[PendingCount]:
    """Yields what the files of this store do not show; `reason` says why a database cannot be read, or is ""."""
    if not reason and store.config.flag("enablePopBufferMerge") and not store.clean_stop:
        reason = "enablePopBufferMerge keeps check points in memory, and the broker was not shut down cleanly"
    if reason:
        yield PendingCount(PendingKind.POPPED, None, None, None, reason=reason)
    if any(queue.topic == topics.ROCKSDB_HALF_TOPIC for queue in store.queues()):
        reason = f"half messages of {topics.ROCKSDB_HALF_TOPIC} are settled in RocksDB, which is not read"
        yield PendingCount(PendingKind.TRANSACTION, None, None, None, reason=reason)
    check_point = checkpoint_path(store.path)
    if any(queue.topic == topics.TIMER_TOPIC for queue in store.queues()) and not check_point.is_file():
        state = "is not a file" if check_point.exists() else "is missing"
        reason = (
            f"{file_names.CONFIG}/{check_point.name} {state}: messages that the timer has already delivered are "
            "counted, too"
        )
        yield PendingCount(PendingKind.TIMER, None, None, None, reason=reason)
    if store.config.flag("timerRocksDBEnable"):
        reason = "timerRocksDBEnable keeps timers in RocksDB, which is not read"
        yield PendingCount(PendingKind.TIMER, None, None, None, reason=reason)
    stored = {queue.topic for queue in store.queues()}
    delays, of_groups = store.metadata.unread.get(file_names.DELAY_OFFSETS, ""), store.metadata.offset_tables.unread
    counted_from = (
        (PendingKind.DELAY, topics.SCHEDULE_TOPIC, delays),
        (PendingKind.TRANSACTION, topics.HALF_TOPIC, of_groups),
        (PendingKind.POPPED, topics.REVIVE_TOPIC_PREFIX, of_groups),
        (PendingKind.RETRY, topics.RETRY_PREFIX, of_groups),
        (PendingKind.RETRY, topics.SCHEDULE_TOPIC, delays),
    )
    rows = ((kind, reason) for kind, start, reason in counted_from if any(text.startswith(start) for text in stored))
    for kind, reason in dict.fromkeys(rows):
        if reason:
            yield PendingCount(kind, None, None, None, reason=f"{reason}; positions count from 0")


# -- reading ------------------------------------------------------------------------------------------------------


def physical_offset_of(queue: Queue, queue_offset: int) -> int:
    """Returns the physical offset that the unit at a queue offset names, -1 if there is no such unit."""
    unit = pull.unit_at(queue, queue_offset)
    return -1 if unit is None else unit.physical_offset


def _tags_code(queue: Queue, queue_offset: int) -> int | None:
    """Returns the deliver time in a unit of SCHEDULE_TOPIC_XXXX, ms since epoch."""
    unit = pull.unit_at(queue, queue_offset)
    return None if unit is None else unit.tags_code


def _places(waiting: WaitingMessages) -> Iterator[tuple[str, int, int, int]]:
    pairs = np.column_stack((waiting.queue_offsets, waiting.physical_offsets)).tolist()
    for offset, physical in pairs:
        yield waiting.topic, waiting.queue_id, offset, physical


def _decoded(store: Store, physical_offset: int) -> Message | str:
    """Returns a message, or the reason why its record cannot be read."""
    try:
        return store.message_at(physical_offset)
    except StoreError as error:
        return f"its record cannot be read: {error}"
