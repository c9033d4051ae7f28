"""Lite topics: many small ordered queues under one topic of type LITE, popped by the clients that subscribe to them.

A message that names a lite topic is stored in the parent topic and also dispatched to a light queue (LMQ). A client
subscribes to lite topics for its consumer group, and a pop takes messages from the light queues of its subscriptions,
in order. Source: PopLiteMessageProcessor, AbstractLiteLifecycleManager (5.5.0).
"""

import random
import time
from collections.abc import Mapping

from mqtool.formats.config_files import PERM_READ, TopicConfig
from mqtool.formats.service_records import GroupQueue
from mqtool.formats.topics import LITE_PREFIX, parts_of_lite_queue
from mqtool.protocol.codes import FAQ, RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, number, text
from mqtool.server.broker.attributes import LITE_EXPIRATION
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.pop.lite_subscriptions import CHANGED, LiteSubscriptions, bind_topic, is_wildcard
from mqtool.server.broker.pop.pop_message import PopProcessor
from mqtool.server.broker.pop.records import ORDER_REVIVE_QUEUE
from mqtool.server.broker.pop.request import MAX_MESSAGES, PopRequest
from mqtool.server.net.peer import Handler, Peer

LITE = "LITE"


class Lite:
    """Handles POP_LITE_MESSAGE; `LiteSubscriptions` handles the subscriptions.

    Attributes:
        subscriptions: subscriptions of all clients.
    """

    def __init__(self, broker: Broker, pops: PopProcessor) -> None:
        self._broker = broker
        self._pops = pops
        self.subscriptions = LiteSubscriptions(broker, pops.orders)

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {RequestCode.POP_LITE_MESSAGE: self.pop, **self.subscriptions.handlers()}

    # -- popping -------------------------------------------------------------------------------------------------

    async def pop(self, command: Command, _peer: Peer) -> Command:
        """Returns messages of a client's lite topics; if there are none, waits as long as the request allows."""
        group, topic, client = text(command, "consumerGroup"), text(command, "topic"), text(command, "clientId")
        self._check(command, group, topic)
        broker, pops = self._broker, self._pops
        end = broker.long_polling.now() + broker.long_polling.seconds(number(command, "pollTime", 0))
        if (known := self.subscriptions.clients.get(client)) is not None:
            known.accessed_ms = time.time_ns() // 1_000_000
        while True:
            request = self._request(command, group, topic, client)
            pop_time = time.time_ns() // 1_000_000
            taken = pops.take(request, pop_time, ORDER_REVIVE_QUEUE)
            left = end - broker.long_polling.now()
            if taken or left <= 0 or broker.is_stopping:
                break
            await pops.wait(request, left, {(CHANGED + client, 0): 0, **self._new_queues(group, topic)})
        fields = {
            "popTime": str(pop_time),
            "invisibleTime": str(request.invisible_ms),
            "reviveQid": str(ORDER_REVIVE_QUEUE),
        }
        if not taken:
            return command.reply(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", fields)
        counts = []
        for popped in taken:
            info = pops.orders.find(popped.point.key)
            consumed = info.consumed if info is not None else {}
            counts += [str(consumed.get(offset, 0)) for offset in popped.point.offsets]
        fields["orderCountInfo"] = ";".join(counts)
        data = b"".join(record for popped in taken for record in popped.result.records)
        return command.reply(ResponseCode.SUCCESS, "FOUND", fields, data)

    def _new_queues(self, group: str, topic: str) -> dict[tuple[str, int], int]:
        """Returns the queues to wait for besides the light queues: a wildcard group also waits for new lite topics."""
        config = self._broker.topics.get(topic)
        if config is None or not is_wildcard(self._broker.groups.get(group)):
            return {}
        bounds = self._broker.messages.queue_bounds
        return {(topic, queue_id): bounds(topic, queue_id)[1] for queue_id in range(config.read_queue_nums)}

    def _request(self, command: Command, group: str, topic: str, client: str) -> PopRequest:
        names = self.subscriptions.queues_of(client, group, topic)
        start = random.randrange(max(1, len(names)))  # noqa: S311 - no lite topic starves the others
        return PopRequest(
            group,
            topic,
            [GroupQueue(group, name, 0) for name in names[start:] + names[:start]],
            number(command, "maxMsgNum", 0),
            number(command, "invisibleTime", 0),
            None,
            True,
            True,
            command.fields.get("attemptId"),
        )

    def _check(self, command: Command, group: str, topic: str) -> None:
        """Raises RefusalError for the first check that fails, in the real broker's order."""
        broker = self._broker
        broker.check_release_5(command)
        broker.check_readable("pop message")
        if number(command, "maxMsgNum", 0) > MAX_MESSAGES:
            remark = f"the broker[{broker.host}] pop message's num is greater than {MAX_MESSAGES}"
            raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)
        config = broker.topics.get(topic)
        if config is None:
            remark = f"topic [{topic}] not exist, apply first please! {FAQ}"
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not config.perm & PERM_READ:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"the topic [{topic}] peeking message is forbidden")
        if config.message_type != LITE:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"the topic [{topic}] message type not match")
        if bind_topic(broker.consuming_group(group, f"not exist, {FAQ}")) != topic:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"subscription bind topic not match, {group}")

    # -- old lite topics -----------------------------------------------------------------------------------------

    def clean(self) -> None:
        """Removes subscriptions of inactive clients, and deletes expired lite topics."""
        settings = self._broker.settings
        self.subscriptions.expire(settings.number("liteSubscriptionCheckTimeoutMills"))
        unused_ms = settings.number("minLiteTTl")
        if (time.monotonic() - self._broker.began) * 1000 >= unused_ms and self._broker.is_writable:
            self.delete_expired(time.time_ns() // 1_000_000, unused_ms)

    def delete_expired(self, now: int, min_unused_ms: int) -> None:
        """Deletes the lite topics whose last message is older than their parent topic's attribute allows.

        Args:
            now: ms since epoch.
            min_unused_ms: minimum age of the last message before a lite topic is deleted, whatever the attribute says
                (minLiteTTl).
        """
        messages = self._broker.messages
        for name, _ in messages.queues():
            parts = parts_of_lite_queue(name) if name.startswith(LITE_PREFIX) else None
            minutes = expiration(self._broker.topics.get(parts[0])) if parts is not None else -1
            if minutes <= 0:
                continue
            last = messages.store_time(name, 0, messages.queue_bounds(name, 0)[1] - 1)
            if last > 0 and now - last > max(minutes * 60_000, min_unused_ms - 1):
                self.delete(name)

    def delete(self, queue: str) -> None:
        """Deletes a lite topic: its queue, the consumer offsets in it, and the subscriptions to it."""
        for group in self._broker.offsets.groups_of(queue):
            self._pops.orders.clear(GroupQueue(group, queue, 0))
        self._broker.offsets.forget_topic(queue)
        self._broker.engine.delete_topic(queue)
        self.subscriptions.forget_queue(queue)


def expiration(config: TopicConfig | None) -> int:
    """Returns the minutes without a message after which a topic's lite topics are deleted; -1 for never."""
    try:
        return int((config.attributes or {}).get(LITE_EXPIRATION, -1)) if config is not None else -1
    except ValueError:
        return -1
