"""Parses and checks POP_MESSAGE requests, in the real broker's order. Source: PopMessageProcessor (5.5.0)."""

import random
from typing import NamedTuple

from mqtool.formats.service_records import GroupQueue
from mqtool.formats.topics import RETRY_PREFIX, pop_retry_topic
from mqtool.protocol.codes import FAQ, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, flag, illegal_queue, number, text
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.settings import BrokerSettings
from mqtool.server.broker.tables.clients import checked_filter
from mqtool.server.net.peer import Peer
from mqtool.store.queues.get_message import MessageFilter

_PRIORITY = "PRIORITY"
MAX_MESSAGES = 32
_INIT_AT_END = 1
_RETRIES_FIRST = 5
"""One of this many pops reads the retry topic first."""


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
        remark = illegal_queue(topic, queue_id, config.read_queue_nums, peer.address)
        raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)
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
    if number(command, "maxMsgNums", 0) > MAX_MESSAGES:
        remark = f"the broker[{broker.host}] pop message's num is greater than {MAX_MESSAGES}"
        raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)
    if not broker.settings.flag("timerWheelEnable"):
        remark = f"the broker[{broker.host}] pop message is forbidden because timerWheelEnable is false"
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)
