"""Messages that the broker holds back: delays, timers, open transactions, popped messages without an ack.

No consumer group waits for them under its own name, so consumer offsets do not show them; deleting their segment
loses them all the same. If the files do not show whether a message was delivered, it counts as waiting.
Source: ScheduleMessageService, TimerMessageStore, TransactionalMessageServiceImpl (4.9.7, 5.5.0), PopReviveService
(5.5.0).
"""

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError, StoreError
from mqtool.formats import file_names, properties, service_records, timer, topics
from mqtool.store.files import MappedFile, ReadFile, list_mapped_files
from mqtool.store.log.message import Message
from mqtool.store.queues.consume_queue import Queue, units_from
from mqtool.store.store import Store
from mqtool.store.waiting.popped import open_check_points, open_offsets
from mqtool.store.waiting.timer import read_checkpoint, read_wheel

PARKING_TOPICS = (topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC)


class WaitingKind(Enum):
    """What a message waits for."""

    DELAY = "delay"
    TIMER = "timer"
    TRANSACTION = "transaction"
    POPPED = "popped"


class WaitingMessages(Struct, frozen=True):
    """Waiting messages of one queue, in order of queue offset."""

    kind: WaitingKind  # what they wait for
    topic: str  # and queue_id: the queue that stores them, one of a system topic; for popped messages their own
    queue_id: int
    queue_offsets: np.ndarray  # int64, in that queue
    physical_offsets: np.ndarray  # int64, of their records

    @property
    def queue(self) -> str:
        """Their queue as `topic/queue`."""
        return f"{self.topic}/{self.queue_id}"

    def among(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Returns how many of them are in ranges of queue offsets, first and last included."""
        bounds = (np.searchsorted(self.queue_offsets, (first, last + 1)).tolist() for first, last in ranges)
        return sum(end - begin for begin, end in bounds)


class Undelivered(Struct, frozen=True):
    """Waiting messages of one queue in one segment."""

    kind: WaitingKind  # what they wait for
    topic: str  # and queue_id: of the system topic that stores them; for popped messages their own
    queue_id: int
    messages: int  # their number

    def words_of(self, segment: MappedFile) -> str:
        """Returns one line about the segment that contains them."""
        queue = f"{self.topic}/{self.queue_id}"
        return f"segment {segment.path.name}: {self.messages} {self.kind.value} message(s) of {queue} not delivered yet"


def waiting_by_segment(store: Store) -> list[tuple[MappedFile, tuple[Undelivered, ...]]]:
    """Returns all segments, oldest first, each with the waiting messages in it; raises StoreError."""
    segments = store.commit_log.segments
    bases = [item.base for item in segments]
    by_segment: list[list[Undelivered]] = [[] for _ in bases]
    for item in waiting_messages(store):
        files = np.searchsorted(bases, item.physical_offsets, side="right") - 1
        numbers, counts = np.unique(files[files >= 0], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            by_segment[number].append(Undelivered(item.kind, item.topic, item.queue_id, count))
    return [(segment, tuple(messages)) for segment, messages in zip(segments, by_segment, strict=True)]


def waiting_messages(store: Store) -> list[WaitingMessages]:
    """Returns messages that a broker would still deliver or ask about, by queue; raises StoreError."""
    store.require_queues()
    return [waiting for waiting in _all(store) if len(waiting.queue_offsets)]


def waiting_among(store: Store, lost: Mapping[str, Iterable[tuple[int, int]]]) -> dict[str, int]:
    """Returns how many lost messages, by `topic/queue` and ranges of queue offsets, wait; {} if that is unknown."""
    with contextlib.suppress(FormatError, StoreError):
        return {item.queue: item.among(lost[item.queue]) for item in waiting_messages(store) if item.queue in lost}
    return {}


def _all(store: Store) -> Iterator[WaitingMessages]:
    timers: list[int] = []
    for queue in store.queues():
        if queue.topic == topics.SCHEDULE_TOPIC:
            done = store.metadata.delay_offsets.get(queue.queue_id + 1, 0)
            yield _waiting(WaitingKind.DELAY, queue, *units_from(queue, max(done, queue.min_offset)))
        elif queue.topic == topics.TIMER_TOPIC:
            waiting = _timers(store, queue)
            timers += waiting.physical_offsets.tolist()
            yield waiting
        elif queue.topic == topics.HALF_TOPIC:
            yield _transactions(store, queue)
    yield from _popped(store, timers)


def _popped(store: Store, timers: list[int]) -> Iterator[WaitingMessages]:
    """Yields messages that were popped and not acknowledged, by queue; several groups may have popped one."""
    open_: dict[tuple[str, int], set[int]] = {}
    for point in open_check_points(store, timers):
        open_.setdefault((point.key.topic, point.key.queue_id), set()).update(open_offsets(point))
    for (topic, queue_id), numbers in sorted(open_.items()):
        queue = store.queue(topic, queue_id)
        if queue is not None:
            offsets, physical = units_from(queue, max(min(numbers), queue.min_offset))
            is_open = np.isin(offsets, np.array(sorted(numbers), np.int64))
            yield _waiting(WaitingKind.POPPED, queue, offsets[is_open], physical[is_open])


def _waiting(kind: WaitingKind, queue: Queue, offsets: np.ndarray, physical: np.ndarray) -> WaitingMessages:
    return WaitingMessages(kind, queue.topic, queue.queue_id, offsets, physical)


# -- timers ------------------------------------------------------------------------------------------------------


def _timers(store: Store, queue: Queue) -> WaitingMessages:
    """Returns messages that are not in the wheel yet, and those in unread slots."""
    offsets, physical = units_from(queue, queue.min_offset)
    checkpoint = read_checkpoint(store.path)
    in_wheel = _in_wheel(store, checkpoint.last_read_time_ms)
    if in_wheel is None:
        waits = np.array(
            [_is_due_later(store, offset, checkpoint.last_read_time_ms) for offset in physical.tolist()], bool
        )
    else:
        waits = (offsets >= checkpoint.last_timer_queue_offset) | np.isin(physical, in_wheel)
    return _waiting(WaitingKind.TIMER, queue, offsets[waits], physical[waits])


def _in_wheel(store: Store, read_to: int) -> np.ndarray | None:
    """Returns the physical offsets that unread slots of the wheel lead to; None if the files do not show them."""
    files = list_mapped_files(store.path / file_names.TIMER_LOG).files
    if not (store.path / file_names.TIMER_WHEEL).is_file():
        return None
    slots = read_wheel(store.path)
    if len(slots) != timer.WHEEL_FILE_SIZE // timer.SLOT_SIZE:
        return None
    unread = timer.unread_slots(slots, read_to, store.config.timer_precision)
    waiting: list[int] = []
    with contextlib.ExitStack() as stack:
        opened_files = [(file, stack.enter_context(ReadFile(file.path))) for file in files]
        for last in slots["last_position"][unread].tolist():
            parked: list[int] = []
            recalls: list[int] = []
            position, below = last, last + 1
            while 0 <= position < below:  # a chain leads backwards; else it is damaged and says nothing
                file = next(((file, opened) for file, opened in opened_files if file.base <= position < file.end), None)
                unit_bytes = b"" if file is None else file[1].read(position - file[0].base, timer.LOG_UNIT_SIZE)
                unit = timer.unit_at(unit_bytes)
                if unit is None:
                    return None
                if timer.is_recall(unit.magic):
                    recalls.append(unit.physical_offset)
                elif not unit.magic & timer.TimerMagic.DELETE:
                    parked.append(unit.physical_offset)
                below, position = position, unit.previous_position
            waiting += _not_recalled(store, parked, recalls) if recalls else parked
    return np.array(waiting, np.int64)


def _not_recalled(store: Store, parked: list[int], recalls: list[int]) -> list[int]:
    """Returns the messages of a slot that no recall request in it names."""
    named = {_properties(store, offset).get(properties.TIMER_DEL_UNIQUE_KEY, "") for offset in recalls}
    return [offset for offset in parked if not _is_recalled(_properties(store, offset), named)]


def _is_recalled(values: dict[str, str], named: set[str]) -> bool:
    return service_records.is_recalled(values.get(properties.REAL_TOPIC), values.get(properties.UNIQUE_KEY), named)


def _properties(store: Store, physical_offset: int) -> dict[str, str]:
    """Returns the properties of a record, {} if it is unreadable."""
    with contextlib.suppress(FormatError, StoreError):
        return properties.decode(store.commit_log.record(physical_offset).properties)
    return {}


def skipped_timers(store: Store, now: int) -> int:
    """Returns how many timer messages a broker started at a time (ms) skips: after seven days, those due before.

    It reads those that it has not put into the wheel again, and delivers them. 0 if the files do not show it.
    """
    queue, checkpoint = store.queue(topics.TIMER_TOPIC, 0), read_checkpoint(store.path)
    read_from = timer.first_slot_after_start(now, store.config.timer_precision)
    if queue is None or checkpoint.last_read_time_ms >= read_from:
        return 0
    unread, read = (_in_wheel(store, time) for time in (checkpoint.last_read_time_ms, read_from))
    if unread is None or read is None:
        return 0
    offsets, physical = units_from(queue, queue.min_offset)
    physical = physical[offsets < checkpoint.master_timer_queue_offset]
    return int((np.isin(physical, unread) & ~np.isin(physical, read)).sum())


def _is_due_later(store: Store, physical_offset: int, read_to: int) -> bool:
    """Whether a parked message is due at or after the time up to which the timer has delivered."""
    try:
        named = properties.decode(store.commit_log.record(physical_offset).properties)
        return properties.TIMER_DEL_UNIQUE_KEY not in named and service_records.deliver_ms(named) >= read_to
    except (FormatError, StoreError):
        return True


# -- transactions ------------------------------------------------------------------------------------------------


def _transactions(store: Store, queue: Queue) -> WaitingMessages:
    """Returns half messages that no op message ends, from the broker's own position on."""
    group = store.metadata.consumer_offsets.get(service_records.TRANSACTION_GROUP, {})
    start = group.get(queue.topic, {}).get(queue.queue_id, 0)
    offsets, physical = units_from(queue, max(start, queue.min_offset))
    ended = _ended(store, queue.queue_id, group.get(topics.OP_TOPIC, {}).get(queue.queue_id, 0))
    open_ = ~np.isin(offsets, ended)
    return _waiting(WaitingKind.TRANSACTION, queue, offsets[open_], physical[open_])


def _ended(store: Store, queue_id: int, start: int) -> np.ndarray:
    """Returns the queue offsets of the half messages that op messages from a queue offset on end."""
    ended: list[int] = []
    queue = store.queue(topics.OP_TOPIC, queue_id)
    if queue is not None:
        for physical_offset in units_from(queue, max(start, queue.min_offset))[1].tolist():
            with contextlib.suppress(FormatError, StoreError):  # a damaged op ends nothing
                ended += service_records.op_offsets(bytes(store.commit_log.record(physical_offset).body))
    return np.array(ended, np.int64)


class Identity(NamedTuple):
    """What the record of a parked message and the record of its delivery have in common."""

    topic: str  # in which the message is stored when it is delivered
    unique_key: str  # and born_timestamp, reconsume_times: of both records
    born_timestamp: int
    reconsume_times: int


def identity_of(message: Message) -> Identity | None:
    """Returns the identity of a parked or delivered message; None without one, and for a request to recall a timer."""
    topic = message.properties.get(properties.REAL_TOPIC) if message.topic in PARKING_TOPICS else message.topic
    if topic is None or message.unique_key is None or properties.TIMER_DEL_UNIQUE_KEY in message.properties:
        return None
    return Identity(topic, message.unique_key, message.born_timestamp, message.reconsume_times)


class ParkingEvent(NamedTuple):
    """What one record does for the parked messages of its identity."""

    identity: Hashable  # of the message
    physical_offset: int  # of the record
    is_parked: bool  # it waits for its delivery
    delivers: bool  # it is the delivery of an earlier one: its message, or one that the timer rolls


def event_of(message: Message) -> ParkingEvent | None:
    """Returns what a record does; None if it has no identity."""
    identity = identity_of(message)
    if identity is None:
        return None
    is_parked = message.topic in PARKING_TOPICS
    is_rolled = message.topic == topics.TIMER_TOPIC and message.properties.get(properties.TIMER_ROLL_TIMES, "0") != "0"
    return ParkingEvent(identity, message.physical_offset, is_parked, not is_parked or is_rolled)


def delivered_offsets(events: Iterable[ParkingEvent | None]) -> set[int]:
    """Returns the physical offsets of the parked records whose deliveries are among some records.

    The events are of all records that may share an identity, in log order.
    """
    waiting: dict[Hashable, list[int]] = {}
    deliveries: Counter[Hashable] = Counter()
    delivered: set[int] = set()
    for event in events:
        if event is None:
            continue
        parked = waiting.setdefault(event.identity, [])
        if parked and event.delivers:
            deliveries[event.identity] += 1
            if deliveries[event.identity] == len(parked):
                delivered.update(parked)
                parked.clear()
                del deliveries[event.identity]
        if event.is_parked:
            parked.append(event.physical_offset)
    return delivered
