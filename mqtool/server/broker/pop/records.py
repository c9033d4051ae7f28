"""Records of POP: check points of popped messages, and acknowledgements of them.

Both are timer messages for the revive topic, delivered there when the invisible duration of the popped messages ends.
This broker, or a real one that opens the store next, reads from them which messages must be redelivered. Source:
PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck, PopCheckPoint, AckMsg, BatchAckMsg, ExtraInfoUtil
(5.5.0).
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import java, properties
from mqtool.formats.service_records import ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG, Ack, CheckPoint
from mqtool.formats.topics import RETRY_PREFIX
from mqtool.protocol.codes import ResponseCode
from mqtool.server.broker.answers import RefusalError

ORDER_REVIVE_QUEUE = 999
"""Revive queue id of messages popped in order, which have no check point."""

_EARLIER_MS = 1000
_NOT_ONE = -1
_WORDS = 7


class ExtraInfo(NamedTuple):
    """The receipt handle with which a client identifies a popped message (property POP_CK)."""

    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    broker_name: str


def parse_extra_info(text: str) -> ExtraInfo:
    """Parses a client's receipt handle (`extraInfo`).

    Raises:
        RefusalError: a part is missing or not a number.
    """
    words = text.split(properties.KEY_SEPARATOR)
    try:
        start, pop_time, invisible_ms = map(java.parse_long, words[:3])
        return ExtraInfo(start, pop_time, invisible_ms, java.parse_int(words[3]), words[5])
    except (IndexError, ValueError, FormatError) as error:
        remark = f"extraInfo: expected {_WORDS} or 8 words with numbers, found {text[:200]!r}"
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark) from error


def build_extra_info(point: CheckPoint, revive_queue: int, offset: int) -> str:
    """Returns the receipt handle of one message of a check point (ExtraInfoUtil.buildExtraInfo)."""
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
    """Returns POP's mark for the kind of a topic: 0 ordinary, 1 retry topic, 2 retry topic with the newer name form."""
    if not topic.startswith(RETRY_PREFIX):
        return 0
    return 2 if "+" in topic else 1


def check_point_message(point: CheckPoint, revive_topic: str, revive_queue: int, host: bytes) -> OutgoingMessage:
    """Returns a check point as a message that is delivered one second before its acknowledgements."""
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
    """Returns acknowledgements as a message; several become a batch (BatchAckMsg).

    Args:
        ack: the acknowledgements.
        due: when the invisible duration of their check point ends, ms since epoch.
        revive_topic, revive_queue: revive queue of their check point.
        host: address of the broker in the form of records.
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
    values = {
        properties.TAGS: tag,
        properties.UNIQUE_KEY: "@".join(map(str, name)),
        properties.TIMER_DELIVER_MS: str(due),
    }
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    encoded = properties.encode(values.items())
    return OutgoingMessage(topic, queue_id, data, encoded, born_host=host, store_host=host)
