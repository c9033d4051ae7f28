"""What POP writes down: a check point for messages that went out, an acknowledgement for each that was consumed.

Both are timer messages for the revive topic, so they lie there when the time of the messages is over; who opens the
store next, this broker or a real one, reads from them what has to come again. Source: PopMessageProcessor.buildCkMsg,
AckMessageProcessor.appendAck, PopCheckPoint, AckMsg, BatchAckMsg, ExtraInfoUtil (5.5.0).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mqtool.engine.hooks import OutgoingMessage
from mqtool.formats import properties
from mqtool.protocol.codes import ResponseCode
from mqtool.server.broker import names
from mqtool.server.broker.answers import RefusalError

CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
ORDER_REVIVE_QUEUE = 999
"""Stands where the queue of a check point does, for messages popped in order: those have none."""

_EARLIER_MS = 1000
_NOT_ONE = -1
_WORDS = 7


class QueueKey(NamedTuple):
    """A queue as one group sees it."""

    group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class CheckPoint:
    """Messages of one queue that went out in one answer.

    Attributes:
        key: group and queue.
        start: queue offset that the others are counted from.
        offsets: queue offset of each message.
        pop_time, invisible_ms: when they went out, ms since epoch, and for how long.
        broker_name: of the broker that handed them out.
        suspend: they come again without counting as tried.
        revive_offset: where the check point lies in its revive queue.
        done: those that are acknowledged, or came again already.
    """

    key: QueueKey
    start: int
    offsets: list[int]
    pop_time: int
    invisible_ms: int
    broker_name: str
    suspend: bool = False
    revive_offset: int = 0
    done: set[int] = field(default_factory=set)

    @property
    def revive_time(self) -> int:
        """When what is not acknowledged comes again; ms since epoch."""
        return self.pop_time + self.invisible_ms

    @property
    def identity(self) -> tuple[QueueKey, int, int, str]:
        """What acknowledgements name it by."""
        return self.key, self.start, self.pop_time, self.broker_name


class Ack(NamedTuple):
    """Messages of one check point that are consumed."""

    key: QueueKey
    start: int
    offsets: list[int]
    pop_time: int
    broker_name: str

    @property
    def identity(self) -> tuple[QueueKey, int, int, str]:
        """That of their check point."""
        return self.key, self.start, self.pop_time, self.broker_name


class ExtraInfo(NamedTuple):
    """The words by which a client names a message that it popped (its property POP_CK)."""

    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    broker_name: str


def parse_extra_info(given: str) -> ExtraInfo:
    """Reads a client's words.

    Raises:
        RefusalError: they are too few, or no numbers.
    """
    words = given.split(properties.KEY_SEPARATOR)
    try:
        return ExtraInfo(int(words[0]), int(words[1]), int(words[2]), int(words[3]), words[5])
    except (IndexError, ValueError) as error:
        remark = f"extraInfo: expected {_WORDS} or 8 words with numbers, found {given[:200]!r}"
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark) from error


def build_extra_info(point: CheckPoint, revive_queue: int, offset: int) -> str:
    """Returns the words for one message of a check point (ExtraInfoUtil.buildExtraInfo)."""
    key = point.key
    words = (
        point.start,
        point.pop_time,
        point.invisible_ms,
        revive_queue,
        retry_flag(key.topic),
        point.broker_name,
        key.queue_id,
        offset,
    )
    return properties.KEY_SEPARATOR.join(map(str, words))


def retry_flag(topic: str) -> int:
    """Returns how POP marks a topic: 0, or for messages that come again 1, and 2 with the newer kind of name."""
    if not topic.startswith(names.RETRY_PREFIX):
        return 0
    return 2 if "+" in topic else 1


def check_point_message(point: CheckPoint, revive_topic: str, revive_queue: int, host: bytes) -> OutgoingMessage:
    """Returns a check point as a message that comes a second before its acknowledgements do."""
    key = point.key
    body = {
        "bm": 0,
        "bn": point.broker_name,
        "c": key.group,
        "d": [offset - point.start for offset in point.offsets],
        "it": point.invisible_ms,
        "n": len(point.offsets),
        "pt": point.pop_time,
        "q": key.queue_id,
        "ro": 0,
        "so": point.start,
        "sp": point.suspend,
        "t": key.topic,
    }
    name = (key.topic, key.queue_id, point.start, key.group, point.pop_time, point.broker_name, CHECK_POINT_TAG)
    return _message(body, CHECK_POINT_TAG, name, point.revive_time - _EARLIER_MS, revive_topic, revive_queue, host)


def ack_message(ack: Ack, due: int, revive_topic: str, revive_queue: int, host: bytes) -> OutgoingMessage:
    """Returns acknowledgements as a message.

    Args:
        ack: them; more than one becomes a batch.
        due: when their check point's time is over, ms since epoch.
        revive_topic, revive_queue: where their check point goes.
        host: the broker's address, encoded.
    """
    key, is_one = ack.key, len(ack.offsets) == 1
    body: dict[str, Any] = {
        "ao": ack.offsets[0] if is_one else _NOT_ONE,
        "bn": ack.broker_name,
        "c": key.group,
        "pt": ack.pop_time,
        "q": key.queue_id,
        "so": ack.start,
        "t": key.topic,
    }
    if not is_one:
        body["aol"] = ack.offsets
    name = (key.topic, key.queue_id, body["ao"], key.group, ack.pop_time, ack.broker_name, ACK_TAG)
    return _message(body, ACK_TAG if is_one else BATCH_ACK_TAG, name, due, revive_topic, revive_queue, host)


def _message(
    body: dict[str, Any], tag: str, name: Iterable[object], due: int, topic: str, queue_id: int, host: bytes
) -> OutgoingMessage:
    found = {
        properties.TAGS: tag,
        properties.UNIQUE_KEY: "@".join(map(str, name)),
        properties.TIMER_DELIVER_MS: str(due),
    }
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    encoded = properties.encode(found.items())
    return OutgoingMessage(topic, queue_id, data, encoded, born_host=host, store_host=host)


def parse(tag: str, body: bytes, broker_name: str) -> "CheckPoint | Ack | None":
    """Reads what lies in the revive topic.

    Args:
        tag: what it says it is.
        body: of the message.
        broker_name: that of acknowledgements that name none.

    Returns:
        None if it is nothing that has to be heeded, such as a check point that was taken back.
    """
    try:
        found = json.loads(body)
        key = QueueKey(str(found["c"]), str(found["t"]), int(found["q"]))
        start, pop_time, name = int(found["so"]), int(found["pt"]), str(found.get("bn") or "")
        if tag == CHECK_POINT_TAG:
            diffs = found.get("d") or range(int(found["n"]))
            offsets = [start + int(diff) for diff in diffs]
            return CheckPoint(key, start, offsets, pop_time, int(found["it"]), name, bool(found.get("sp")))
        if tag in (ACK_TAG, BATCH_ACK_TAG):
            offsets = list(map(int, found["aol"])) if tag == BATCH_ACK_TAG else [int(found["ao"])]
            return Ack(key, start, offsets, pop_time, name if name.strip() else broker_name)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    return None
