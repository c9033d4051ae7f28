"""Which parked messages are delivered, as far as the log proves it: for some messages, and for columns of a log.

A broker parks a delayed, timed or sent-back message in a system topic and stores it again in its own topic when it is
due. Both records have the same unique key, time of birth and number of tries. A group that fails twice on one try
parks two records that differ in nothing; one delivery after both proves neither. So parked records with one identity
are delivered when as many deliveries of it have followed. `delivered_offsets` is the form to read, `are_delivered`
the one for columns; a test compares them. Source: ScheduleMessageService.messageTimeup, TimerMessageStore.convert
(4.9.7, 5.5.0).
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from mqtool.formats import properties, topics
from mqtool.records.frames import Frames
from mqtool.records.trailers import Trailers
from mqtool.records.words import java_hashes
from mqtool.store.message import Message

PARKING_TOPICS = (topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Identity(NamedTuple):
    """What the record of a parked message and the record of its delivery have in common.

    Attributes:
        topic: in which the message is stored when it is delivered.
        unique_key, born_timestamp, reconsume_times: of both records.
    """

    topic: str
    unique_key: str
    born_timestamp: int
    reconsume_times: int


def identity_of(message: Message) -> Identity | None:
    """Returns the identity of a parked or delivered message; None without one, and for a request to recall a timer."""
    topic = message.properties.get(properties.REAL_TOPIC) if message.topic in PARKING_TOPICS else message.topic
    if topic is None or message.unique_key is None or properties.TIMER_DEL_UNIQUE_KEY in message.properties:
        return None
    return Identity(topic, message.unique_key, message.born_timestamp, message.reconsume_times)


def delivered_offsets(records: Iterable[Message]) -> set[int]:
    """Returns the physical offsets of the parked records whose deliveries are among some records.

    Args:
        records: all that may share an identity, in log order. One that the timer rolls ends the wait of an earlier
            record, and waits itself.
    """
    waiting: dict[Identity, list[int]] = {}
    deliveries: Counter[Identity] = Counter()
    delivered: set[int] = set()
    for message in records:
        identity = identity_of(message)
        if identity is None:
            continue
        parked = waiting.setdefault(identity, [])
        is_parked = message.topic in PARKING_TOPICS
        if parked and (not is_parked or _is_rolled(message)):
            deliveries[identity] += 1
            if deliveries[identity] == len(parked):
                delivered.update(parked)
                parked.clear()
                del deliveries[identity]
        if is_parked:
            parked.append(message.physical_offset)
    return delivered


def _is_rolled(message: Message) -> bool:
    return message.topic == topics.TIMER_TOPIC and message.properties.get(properties.TIMER_ROLL_TIMES, "0") != "0"


def identity_marks(frames: Frames, trailers: Trailers, parked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the frames that may be parked in or delivered from a delay level, and a hash of each one's identity.

    Args:
        frames: of valid records.
        trailers: of some of the frames.
        parked: bool for each of the frames, whether it is in SCHEDULE_TOPIC_XXXX.

    Returns:
        int64 indexes of frames with a delay level and an identity; their uint64 hashes.
    """
    slices = trailers.property_slices
    keys, key_lengths = slices.value_of(properties.UNIQUE_KEY)
    targets, target_lengths = slices.value_of(properties.REAL_TOPIC)
    delivered = ~parked[trailers.rows]
    targets[delivered], target_lengths[delivered] = trailers.topic_start[delivered], trailers.topic_length[delivered]
    levels = slices.value_of(properties.DELAY_LEVEL)[1]
    rows = np.flatnonzero((levels > 0) & (key_lengths > 0) & (target_lengths >= 0))
    key_hashes, _ = java_hashes(trailers.data, keys[rows], key_lengths[rows])
    topic_hashes, _ = java_hashes(trailers.data, targets[rows], target_lengths[rows])
    of_frame = trailers.rows[rows]
    marks = (key_hashes.astype(np.uint64) << np.uint64(32)) | topic_hashes
    for column in (frames.column("born_timestamp"), frames.column("reconsume_times")):
        marks = (marks ^ column[of_frame].astype(np.uint64)) * _MIX
    return of_frame, marks


def are_delivered(marks: np.ndarray, parked: np.ndarray) -> np.ndarray:
    """Returns a bool for each row: whether it is parked and its delivery is in a later row; see `delivered_offsets`.

    Args:
        marks: hash of each row's identity, in log order.
        parked: bool for each row; the others are deliveries.
    """
    order = np.argsort(marks, kind="stable")
    is_first = np.ones(len(order), bool)
    is_first[1:] = np.diff(marks[order]) != 0
    group = np.cumsum(is_first) - 1
    balance = np.cumsum(np.where(parked[order], 1, -1))
    before = np.concatenate([np.zeros(1, np.int64), balance])[np.flatnonzero(is_first)]
    floor = group * -(2 * len(order) + 1)  # groups so far apart that one running minimum serves all
    balance += floor - before[group]
    waiting = balance - np.minimum.accumulate(np.minimum(balance, floor))
    settled = np.flatnonzero(waiting == 0)
    last_settled = np.full(len(before), -1)
    last_settled[group[settled]] = settled  # ascending: the last one wins
    delivered = np.zeros(len(order), bool)
    delivered[order] = parked[order] & (np.arange(len(order)) < last_settled[group])
    return delivered
