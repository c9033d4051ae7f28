"""Which parked messages are delivered, as far as the log proves it.

A broker parks a delayed, timed or sent-back message in a system topic and stores it again in its own topic when it is
due. Both records have the same unique key, time of birth and number of tries. A group that fails twice on one try
parks two records that differ in nothing; one delivery after both proves neither. So parked records with one identity
are delivered when as many deliveries of it have followed. Source: ScheduleMessageService.messageTimeup,
TimerMessageStore.convert (4.9.7, 5.5.0).
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from mqtool.formats import properties, topics
from mqtool.store.log.message import Message

PARKING_TOPICS = (topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC)


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
    return ParkingEvent(identity, message.physical_offset, is_parked, not is_parked or _is_rolled(message))


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


def _is_rolled(message: Message) -> bool:
    return message.topic == topics.TIMER_TOPIC and message.properties.get(properties.TIMER_ROLL_TIMES, "0") != "0"
