"""Requests to pop, check points of popped messages, acknowledgements of them, and redelivery of messages without one.

Check points and acknowledgements are timer messages for the revive topic, delivered there when the invisible duration
of the popped messages ends. This broker, or a real one that opens the store next, reads from them which messages must
be redelivered: those of a check point that have no acknowledgement by then are put into the retry topic of their group.
The consumer offset of the group CID_RMQ_SYS_REVIVE_GROUP in a revive queue is that of the last settled check point.
Source: PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck, PopCheckPoint, AckMsg, BatchAckMsg,
ExtraInfoUtil, PopReviveService (5.5.0).
"""

import json
import logging
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import java, properties
from mqtool.formats.service_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_GROUP,
    Ack,
    CheckPoint,
    GroupQueue,
    PointIdentity,
    check_revive_time,
    revive_record,
)
from mqtool.formats.topics import RETRY_PREFIX, REVIVE_TOPIC_PREFIX, pop_retry_topic, popped_topic
from mqtool.protocol.command import FAQ, Command, ResponseCode
from mqtool.server.broker.answers import RefusalError, flag, illegal_queue, number, text
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.clients import checked_filter
from mqtool.server.broker.config import BrokerSettings
from mqtool.server.broker.delay import Timer
from mqtool.server.broker.messages import ParsedRecord, parsed_record, requeued
from mqtool.server.net.peer import Peer
from mqtool.store.queues.get_message import MessageFilter

_LOG = logging.getLogger(__name__)

_PRIORITY = "PRIORITY"
MAX_MESSAGES = 32
_INIT_AT_END = 1
_RETRIES_FIRST = 5
"""One of this many pops reads the retry topic first."""

ORDER_REVIVE_QUEUE = 999
"""Revive queue id of messages popped in order, which have no check point."""

_EARLIER_MS = 1000
_NOT_ONE = -1
_WORDS = 7

_PERIOD_S = 0.2
_AT_ONCE = 32


class PopRequest(NamedTuple):
    """A pop request that has passed all checks."""

    group: str
    topic: str
    queues: list[GroupQueue]
    max_num: int
    invisible_ms: int
    message_filter: MessageFilter | None
    from_end: bool
    in_order: bool
    attempt_id: str | None


def retry_topics(settings: BrokerSettings, group: str, topic: str) -> list[str]:
    """Returns the retry topics that a pop reads; redelivered messages are put into the first one."""
    first = pop_retry_topic(group, topic)
    if not settings.flag("enableRetryTopicV2"):
        return [first]
    second = pop_retry_topic(group, topic, second_form=True)
    return [second, first] if settings.flag("retrieveMessageFromPopRetryTopicV1") else [second]


def read_request(broker: Broker, command: Command, peer: Peer) -> PopRequest:
    """Parses a request; raises RefusalError for the first check that fails, in the real broker's order."""
    group, topic, order = text(command, "consumerGroup"), text(command, "topic"), flag(command, "order")
    _check_broker(broker, command)
    config = broker.readable_topic(topic, "peeking message")
    queue_id = number(command, "queueId", 0)
    if queue_id >= config.read_queue_nums:
        raise illegal_queue(ResponseCode.INVALID_PARAMETER, config, queue_id, peer)
    broker.consuming_group(group, f"does not exist, {FAQ}")
    message_filter = checked_filter(command.fields.get("exp") or "*", command.fields.get("expType") or "TAG")
    every = list(range(config.read_queue_nums)) if queue_id < 0 else [queue_id]
    start = random.randrange(max(1, len(every)))  # noqa: S311 - load balancing, not security
    if config.message_type == _PRIORITY and not order:  # the queue id is the priority of its messages
        every, start = every[::-1], 0
    queues = [GroupQueue(group, topic, index) for index in every[start:] + every[:start]]
    if not order and not topic.startswith(RETRY_PREFIX):  # the retry topic need not exist yet
        retries = [GroupQueue(group, index, 0) for index in retry_topics(broker.settings, group, topic)]
        random.shuffle(retries)
        first = random.randrange(_RETRIES_FIRST) == 0  # noqa: S311
        queues = [*retries, *queues] if first else [*queues, *retries]
    return PopRequest(
        group,
        topic,
        queues,
        number(command, "maxMsgNums", 0),
        number(command, "invisibleTime", 0),
        message_filter,
        number(command, "initMode", 0) == _INIT_AT_END,
        order,
        command.fields.get("attemptId"),
    )


def _check_broker(broker: Broker, command: Command) -> None:
    """Raises RefusalError if the broker does not support POP, or the request asks for too many messages."""
    broker.check_release_5(command)
    broker.check_readable("pop message")
    if broker.is_stopping:
        broker.check_open()
    check_count(broker, number(command, "maxMsgNums", 0))
    if not broker.settings.flag("timerWheelEnable"):
        remark = f"the broker[{broker.host}] pop message is forbidden because timerWheelEnable is false"
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)


def check_count(broker: Broker, count: int) -> None:
    """Raises RefusalError if a pop asks for too many messages."""
    if count > MAX_MESSAGES:
        remark = f"the broker[{broker.host}] pop message's num is greater than {MAX_MESSAGES}"
        raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)


class ExtraInfo(NamedTuple):
    """The receipt handle with which a client identifies a popped message (property POP_CK)."""

    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    broker_name: str


def parse_extra_info(text: str) -> ExtraInfo:
    """Parses a client's receipt handle (`extraInfo`); raises RefusalError if a part is missing or not a number."""
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

    `due` is when the invisible duration of their check point ends, in ms since epoch.
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


class _ReviveQueue:
    """The unsettled check points of one revive queue."""

    def __init__(self, queue_id: int, next_offset: int) -> None:
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.points: dict[PointIdentity, CheckPoint] = {}
        self.last_done = next_offset - 1


class Revive:
    """The redelivery service of one broker."""

    def __init__(self, broker: Broker, timer: Timer) -> None:
        self._broker = broker
        self._timer = timer
        self._queues: dict[int, _ReviveQueue] = {}

    @property
    def topic(self) -> str:
        """Name of the revive topic of the broker's cluster."""
        return REVIVE_TOPIC_PREFIX + self._broker.settings.text("brokerClusterName")

    @property
    def queue_count(self) -> int:
        """Number of revive queues, at least 1."""
        config = self._broker.topics.get(self.topic)
        return max(1, config.write_queue_nums) if config is not None else 1

    def turns(self) -> float:
        """Settles due check points of all revive queues; returns the seconds until the next run."""
        for queue_id in range(self.queue_count):
            self.turn(queue_id)
        return _PERIOD_S

    def turn(self, queue_id: int) -> None:
        """Reads new records of a revive queue, and redelivers unacknowledged messages that are due."""
        broker = self._broker
        if broker.long_polling.is_expected(self.topic, queue_id):  # an acknowledgement may not be dispatched yet
            return
        until = self._timer.delivered_until
        queue = self._queues.get(queue_id)
        if queue is None:
            last = broker.offsets.get(REVIVE_GROUP, self.topic, queue_id)
            queue = self._queues[queue_id] = _ReviveQueue(queue_id, 0 if last is None else last + 1)
        self._read(queue)
        for identity, point in list(queue.points.items()):
            if point.revive_time >= until:
                continue  # a later one does not delay others
            if not self._revive(point):
                break
            del queue.points[identity]
            queue.last_done = max(queue.last_done, point.revive_offset)
        first_open = min((point.revive_offset for point in queue.points.values()), default=queue.last_done + 1)
        done = min(queue.last_done, first_open - 1)
        if done >= 0 and done != broker.offsets.get(REVIVE_GROUP, self.topic, queue_id):
            broker.offsets.commit(REVIVE_GROUP, self.topic, queue_id, done)

    def _read(self, queue: _ReviveQueue) -> None:
        """Reads a revive queue to its end."""
        while True:
            result = self._broker.messages.get_message(self.topic, queue.queue_id, queue.next_offset, _AT_ONCE)
            for queue_offset, data in zip(result.queue_offsets, result.records, strict=True):
                with self._broker.skipped.guard("pop revive", self.topic, queue.queue_id, queue_offset):
                    self._note(queue, parsed_record(data), queue_offset)
                queue.next_offset = queue_offset + 1
            if result.records:
                continue
            if result.resume_offset == queue.next_offset:
                return
            queue.next_offset = result.resume_offset

    def _note(self, queue: _ReviveQueue, message: ParsedRecord, queue_offset: int) -> None:
        broker = self._broker
        tag = message.properties.get(properties.TAGS, "")
        record = revive_record(tag, message.record.body)
        if isinstance(record, CheckPoint):
            check_revive_time(record, message.record.store_timestamp, broker.settings.number("timerMaxDelaySec"))
            record.revive_offset = queue_offset
            queue.points[record.identity] = record
        elif isinstance(record, Ack):
            record.acknowledge(queue.points, (broker.settings.text("brokerName"),))

    def _revive(self, point: CheckPoint) -> bool:
        """Redelivers the unacknowledged messages of a check point; returns whether it is settled."""
        broker, key = self._broker, point.key
        if broker.topics.get(popped_topic(key.group, key.topic)) is None or broker.groups.find(key.group) is None:
            return True
        for offset in point.offsets:
            if offset in point.done:
                continue
            is_done = True
            with broker.skipped.guard("pop revive", key.topic, key.queue_id, offset):
                is_done = self._put_again(point, offset)
            if not is_done:
                return False
            point.done.add(offset)
        return True

    def _put_again(self, point: CheckPoint, offset: int) -> bool:
        """Puts a message into its retry topic; returns False if the store does not accept it."""
        broker, key = self._broker, point.key
        answer = broker.messages.get_message(key.topic, key.queue_id, offset, 1)
        if not answer.records or answer.queue_offsets[0] != offset:
            return True
        message = parsed_record(answer.records[0])
        is_retry = key.topic.startswith(RETRY_PREFIX)
        topic = key.topic if is_retry else retry_topics(broker.settings, key.group, key.topic)[0]
        broker.topics.create_for_send_back(topic, 1)
        if broker.offsets.get(key.group, topic, 0) is None:
            broker.offsets.commit(key.group, topic, 0, 0)
        changed = dict(message.properties)
        if not message.record.reconsume_times or properties.FIRST_POP_TIME not in changed:
            changed[properties.FIRST_POP_TIME] = str(point.pop_time)
        changed[properties.ORIGIN_GROUP] = key.group
        times = message.record.reconsume_times + (not point.suspend)
        outgoing = requeued(message, topic, 0, changed, broker.store_host)._replace(reconsume_times=times)
        result = broker.writer.deliver(outgoing._replace(born_host=broker.store_host))
        if result.ok:
            broker.stats.put(topic, 0, 1, result.size)
        else:
            _LOG.error("a popped message could not be put again topic=%s status=%s", topic, result.status.value)
        return result.ok
