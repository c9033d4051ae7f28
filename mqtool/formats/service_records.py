"""The formats that the broker's background services expect of messages in their system topics.

Delayed messages, timers, transactions and POP keep their work in system topics. Clients and other stores can write
anything there, so each service parses messages with these functions, and skips a message that raises FormatError.
`verify` calls the same functions. Numbers follow Java's `parseInt` and `parseLong`, and no memory is allocated in
proportion to a number in a message. Source: ScheduleMessageService, TimerMessageStore,
TransactionalMessageServiceImpl, PopReviveService (5.5.0), DefaultMessageStore.parseDelayLevel.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from mqtool.errors import FormatError, UsageError
from mqtool.formats import file_names, java, properties
from mqtool.formats.topics import (
    HALF_TOPIC,
    OP_TOPIC,
    REVIVE_TOPIC_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    holds_service_records,
)

_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

MAX_QUEUES = 1 << 16
"""Queues that a topic may have; no loop or list follows a larger number."""
MAX_POINT = 127
"""Messages of one check point: a Java byte (PopCheckPoint.num)."""

CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"

_LONG_NAMES = {
    "ao": "ackOffset",
    "aol": "ackOffsetList",
    "so": "startOffset",
    "c": "consumerGroup",
    "t": "topic",
    "q": "queueId",
    "pt": "popTime",
    "bn": "brokerName",
}
"""Names of an acknowledgement's fields in 5.0.0, which later releases also read (AckMsg, BatchAckMsg)."""

CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Returns the delay of each level in ms, level 1 first.

    Raises UsageError for anything but whole numbers with s, m, h or d, and for more than 64 bits; only a configuration
    states it.
    """
    delays = []
    for word in text.split():
        try:
            delay = java.parse_long(word[:-1]) * _MS[word[-1]]
        except (FormatError, KeyError):
            delay = java.LONG_MAX + 1
        if delay > java.LONG_MAX:
            raise UsageError(f"messageDelayLevel: expected delays such as 10s 5m 2h 1d, found {word[:40]!r}")
        delays.append(delay)
    return tuple(delays)


def due(store_timestamp: int, level: int, delays: tuple[int, ...]) -> int | None:
    """Returns the deliver time of a message with a delay level, ms since epoch; None if DELAY states no level.

    The broker writes it into the unit instead of the tag's hash (CommitLog.checkMessageAndReturnSize,
    DefaultMessageStore.computeDeliverTimestamp). A level above the last counts as the last; `delays` are in ms.
    """
    level = min(level, len(delays))
    return java.to_int64(store_timestamp + delays[level - 1]) if level > 0 else None


class Destination(NamedTuple):
    """Topic and queue to which a waiting message will be delivered."""

    topic: str
    queue_id: int


class GroupQueue(NamedTuple):
    """A queue as consumed by one group."""

    group: str
    topic: str
    queue_id: int


PointIdentity = tuple[GroupQueue, int, int, str]
"""Queue, start, time and broker of a pop, by which acknowledgements refer to its checkpoint."""


class CheckPoint(Struct):
    """A POP checkpoint: messages of one queue that were returned by one pop."""

    key: GroupQueue  # group and queue
    start: int  # queue offset to which the others are relative
    offsets: list[int]  # queue offset of each message
    pop_time: int  # and invisible_ms: when they were popped, ms since epoch, and for how long they are invisible
    invisible_ms: int
    broker_name: str  # of the broker that returned them
    suspend: bool = False  # they are redelivered without counting as a delivery attempt
    revive_offset: int = 0  # queue offset of the checkpoint in its revive queue
    done: set[int] = field(default_factory=set)  # messages that were acknowledged or already redelivered

    @property
    def revive_time(self) -> int:
        """When unacknowledged messages are redelivered; ms since epoch."""
        return self.pop_time + self.invisible_ms

    @property
    def identity(self) -> PointIdentity:
        """Key by which acknowledgements refer to the checkpoint."""
        return self.key, self.start, self.pop_time, self.broker_name


class Ack(NamedTuple):
    """An acknowledgement of messages of one checkpoint."""

    key: GroupQueue
    start: int
    offsets: list[int]
    pop_time: int
    broker_name: str  # of the broker that returned the messages; "" for the broker that stores the acknowledgement

    def identities(self, own_names: Iterable[str]) -> list[PointIdentity]:
        """Keys of the checkpoints that it may refer to (PopReviveService.consumeReviveMessage).

        A name of the broker stands for a missing one; if it is unknown, all that it may have are given.
        """
        names = (self.broker_name,) if self.broker_name else own_names
        return [(self.key, self.start, self.pop_time, name) for name in names]

    def acknowledge(self, points: Mapping[PointIdentity, CheckPoint], own_names: Iterable[str]) -> None:
        """Marks the messages of the checkpoints that it refers to as done; arguments as of `identities`."""
        for point in map(points.get, self.identities(own_names)):
            if point is not None:
                point.done.update(offset for offset in self.offsets if offset in point.offsets)


def destination(values: Mapping[str, str], *, default_queue: str | None = None) -> Destination:
    """Returns the topic and queue to which a waiting message will be delivered, by its properties.

    `default_queue` replaces a missing REAL_QID, unless it is None. Raises FormatError if REAL_TOPIC or REAL_QID is
    missing or invalid.
    """
    topic = values.get(properties.REAL_TOPIC)
    if not topic or not file_names.is_directory_name(topic):
        raise _unexpected(properties.REAL_TOPIC, "the name of a topic", topic)
    queue_id = _number(values, properties.REAL_QUEUE_ID, default_queue, java.parse_int)
    if not 0 <= queue_id < MAX_QUEUES:
        raise _unexpected(properties.REAL_QUEUE_ID, f"0 to {MAX_QUEUES - 1}", str(queue_id))
    return Destination(topic, queue_id)


def deliver_ms(values: Mapping[str, str]) -> int:
    """Returns the deliver time of a timer message, ms since epoch; raises FormatError if it is not stated."""
    return _number(values, properties.TIMER_OUT_MS, None, java.parse_long)


def roll_times(values: Mapping[str, str]) -> int:
    """Returns how often a timer message was rolled; raises FormatError if that is not a number."""
    return _number(values, properties.TIMER_ROLL_TIMES, "0", java.parse_int)


def recall_name(topic: str | None, key: str, *, with_topic: bool) -> str:
    """Returns the name by which a request recalls a timer message (TimerMessageStore.buildDeleteKey).

    `with_topic` is appendTopicForTimerDeleteKey; releases before it had the topic always or never.
    """
    return f"{topic}+{key}" if with_topic else key


def is_recalled(topic: str | None, key: str | None, named: Collection[str]) -> bool:
    """Whether the timer drops a message because a request names it, by the rule of any release.

    `named` has TIMER_DEL_UNIQKEY of the requests in the message's slot (`timer.is_recall`), stored before or after it.
    A message without a unique key cannot be recalled.
    """
    if not key or not named:
        return False
    return any(recall_name(topic, key, with_topic=with_topic) in named for with_topic in (False, True))


def lenient_number(text: str | None) -> int:
    """Returns a number of a transaction's properties; -1 if the broker cannot parse it (getInt, getLong)."""
    try:
        return java.parse_long(text or "")
    except FormatError:
        return -1


def check_times(values: Mapping[str, str]) -> int:
    """Returns how often the producer of a half message was checked; -1 if the property is not a number."""
    return lenient_number(values[CHECK_TIMES]) if CHECK_TIMES in values else 0


def op_offsets(body: bytes) -> list[int]:
    """Returns the queue offsets of the half messages that an op message ends; FormatError if one is not an offset."""
    pieces = [piece for piece in bytes(body).decode("ascii", "replace").split(",") if piece.strip()]
    offsets = [java.parse_long(piece) for piece in pieces]
    if offsets and min(offsets) < 0:
        raise _unexpected("body", "queue offsets", str(min(offsets)))
    return offsets


def revive_record(tag: str, body: bytes) -> "CheckPoint | Ack | None":
    """Parses a message of the revive topic; None if the tag is not one of POP's: the broker ignores such a message.

    Raises FormatError if the body does not have the format that its tag implies.
    """
    if tag not in (CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG):
        return None
    try:
        document = json.loads(bytes(body))
        return _check_point(document) if tag == CHECK_POINT_TAG else _ack(document, tag)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"body: expected {tag!r} of POP, found {_message_of(error)}"[:300], layout="revive record"
        ) from error


def _message_of(error: Exception) -> str:
    """Returns a description of an error in the JSON of a record."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "no JSON"
    if isinstance(error, RecursionError):
        return "JSON that is nested too deeply"
    if isinstance(error, KeyError):
        return f"no field {error.args[0]!r}"
    return "a number of too many digits" if isinstance(error, ValueError) else "JSON of another shape"


def check_revive_time(point: CheckPoint, stored: int, max_delay_s: int) -> None:
    """Raises FormatError if a checkpoint, which the timer delivers, has a revive time that no pop could have set.

    `stored` is the store timestamp of its record, ms since epoch; `max_delay_s` is timerMaxDelaySec.
    """
    if point.revive_time > stored + max_delay_s * 1000:
        reason = f"body: expected a time that is over, found {point.revive_time} ms"
        raise FormatError(reason, layout="revive record")


def _check_point(document: dict[str, Any]) -> CheckPoint:
    start, count = java.json_long(document["so"]), java.json_int(document["n"])
    diffs = document.get("d") or range(count if 0 <= count <= MAX_POINT else 0)
    if not 0 <= count <= MAX_POINT or len(diffs) > MAX_POINT:
        raise _unexpected("n", f"0 to {MAX_POINT} messages", str(max(count, len(diffs))))
    offsets = [start + java.json_int(diff) for diff in diffs]
    times = java.json_long(document["pt"]), java.json_long(document["it"])
    name = str(document.get("bn") or "")
    return CheckPoint(_key(document), start, offsets, *times, name, suspend=bool(document.get("sp")))


def _ack(document: dict[str, Any], tag: str) -> Ack:
    document = {**{name: document[long] for name, long in _LONG_NAMES.items() if long in document}, **document}
    offsets = [java.json_long(offset) for offset in (document["aol"] if tag == BATCH_ACK_TAG else [document["ao"]])]
    name = str(document.get("bn") or "")
    start, pop_time = java.json_long(document["so"]), java.json_long(document["pt"])
    return Ack(_key(document), start, offsets, pop_time, name if name.strip() else "")


def _key(document: dict[str, Any]) -> GroupQueue:
    queue_id = java.json_int(document["q"])
    if not 0 <= queue_id < MAX_QUEUES:
        raise _unexpected("q", f"0 to {MAX_QUEUES - 1}", str(queue_id))
    return GroupQueue(str(document["c"]), str(document["t"]), queue_id)


def has_format(topic: str) -> bool:
    """Whether a service expects a format of a topic's messages that `problem_of` checks.

    Transactions whose state is in RocksDB are not checked.
    """
    return holds_service_records(topic) and topic not in (ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)


def problem_of(topic: str, values: Mapping[str, str], body: bytes, stored: int, max_delay_s: int) -> str | None:
    """Returns why the service of a system topic cannot process a message; None if it can, or the topic has no service.

    `stored` is its store timestamp in ms since epoch, `values` are its properties, `max_delay_s` is timerMaxDelaySec.
    """
    try:
        if topic == SCHEDULE_TOPIC:
            scheduled_destination(values)
        elif topic == TIMER_TOPIC:
            deliver_ms(values)
            roll_times(values)
            if properties.TIMER_DEL_UNIQUE_KEY not in values:
                destination(values, default_queue="0")
        elif topic == HALF_TOPIC:
            destination(values)
        elif topic == OP_TOPIC:
            op_offsets(body)
        elif topic.startswith(REVIVE_TOPIC_PREFIX):
            record = revive_record(values.get(properties.TAGS, ""), body)
            if isinstance(record, CheckPoint):
                check_revive_time(record, stored, max_delay_s)
    except FormatError as error:
        return str(error)
    return None


def scheduled_destination(values: Mapping[str, str]) -> Destination:
    """Returns where a delayed message will be delivered; raises as `destination`, and for the half topic."""
    place = destination(values, default_queue="0")
    if place.topic == HALF_TOPIC:  # the broker discards it as well
        raise _unexpected(properties.REAL_TOPIC, "a topic of clients", place.topic)
    return place


def _number(values: Mapping[str, str], name: str, default: str | None, parse: Callable[[str], int]) -> int:
    text = values.get(name, default)
    if text is None:
        raise _unexpected(name, "a number", None)
    try:
        return parse(text)
    except FormatError as error:
        raise FormatError(f"{name}: {error}", layout="service record") from error


def _unexpected(name: str, expected: str, actual: str | None) -> FormatError:
    shown = "nothing" if actual is None else repr(actual[:80])
    return FormatError(f"{name}: expected {expected}, found {shown}", layout="service record")
