"""Lite topics: many small ordered queues under one topic of type LITE, popped by whoever subscribes to them.

A message that names a lite topic is stored in the topic and dispatched to a light queue (LMQ) too. A client subscribes
to lite topics for its group, and a pop takes from the light queues of its subscriptions, in order. Subscriptions are
not stored: clients send all of theirs again when they connect.
Source: LiteSubscriptionCtlProcessor, LiteSubscriptionRegistryImpl, PopLiteMessageProcessor (5.5.0).
"""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mqtool.formats.config_files import PERM_READ
from mqtool.formats.service_records import QueueKey
from mqtool.formats.topics import lite_queue
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import FAQ, RefusalError, body_of, number, ok, text
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.pop.pop_message import PopProcessor
from mqtool.server.broker.pop.records import ORDER_REVIVE_QUEUE
from mqtool.server.broker.pop.request import MAX_MESSAGES, PopRequest
from mqtool.server.net.peer import Handler, Peer

MAX_SUBSCRIPTIONS = 2000
"""Lite topics of one client (liteSubscriptionQuota)."""
MAX_CLIENTS = 20_000
BIND_TOPIC = "lite.bind.topic"
LITE = "LITE"
_CHANGED = "%LITE%"
"""Begins the name of the queue that wakes a client's pop when its subscriptions change; it never has a message."""


@dataclass(slots=True)
class _Subscriptions:
    """The lite topics of one client.

    Attributes:
        group, topic: that they belong to.
        queues: light queues, in the order of subscription.
    """

    group: str
    topic: str
    queues: dict[str, None] = field(default_factory=dict)


class Lite:
    """LITE_SUBSCRIPTION_CTL and POP_LITE_MESSAGE."""

    def __init__(self, broker: Broker, pops: PopProcessor) -> None:
        """Takes the broker whose tables and store it uses, and what pops."""
        self._broker = broker
        self._pops = pops
        self._clients: dict[str, _Subscriptions] = {}

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.LITE_SUBSCRIPTION_CTL: self.subscribe,
            RequestCode.POP_LITE_MESSAGE: self.pop,
        }

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscribe(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002 - every handler has both
        """Adds or removes subscriptions of clients."""
        self._broker.check_release_5(command)
        given = body_of(command).get("subscriptionSet")
        if not isinstance(given, list) or not given:
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        for one in given:
            if isinstance(one, dict):
                self._change(one)
        return ok(command)

    def _change(self, given: dict[str, Any]) -> None:
        client, group, topic = (str(given.get(name) or "") for name in ("clientId", "group", "topic"))
        action = str(given.get("action") or "")
        if not client.strip() or (action != "COMPLETE_REMOVE" and not (group.strip() and topic.strip())):
            return
        names = [lite_queue(topic, str(name)) for name in given.get("liteTopicSet") or []]
        if action == "COMPLETE_REMOVE":
            self._clients.pop(client, None)
        elif action == "PARTIAL_REMOVE":
            known = self._clients.get(client)
            for name in names if known is not None else ():
                known.queues.pop(name, None)  # type: ignore[union-attr]
        else:
            self._add(client, group, topic, names, complete=action == "COMPLETE_ADD")
        self._broker.long_polling.wake(_CHANGED + client, 0)

    def _add(self, client: str, group: str, topic: str, names: list[str], *, complete: bool) -> None:
        config = self._broker.groups.find(group)
        if config is None or not config.consume_enable:
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "Consumer group is not allowed to consume.")
        known = self._clients.get(client)
        queues = {} if complete or known is None else dict(known.queues)
        queues |= dict.fromkeys(names)
        if len(queues) > MAX_SUBSCRIPTIONS or (known is None and len(self._clients) >= MAX_CLIENTS):
            remark = f"lite subscription quota exceeded: {MAX_SUBSCRIPTIONS}"
            raise RefusalError(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, remark)
        self._clients[client] = _Subscriptions(group, topic, queues)

    # -- popping -------------------------------------------------------------------------------------------------

    async def pop(self, command: Command, peer: Peer) -> Command:  # noqa: ARG002 - every handler has both
        """Returns messages of a client's lite topics; waits for them as long as the request allows."""
        group, topic, client = text(command, "consumerGroup"), text(command, "topic"), text(command, "clientId")
        self._check(command, group, topic)
        broker, pops = self._broker, self._pops
        end = broker.long_polling.now() + broker.long_polling.seconds(number(command, "pollTime", 0))
        while True:
            request = self._request(command, group, topic, client)
            pop_time = time.time_ns() // 1_000_000
            taken = pops.take(request, pop_time, ORDER_REVIVE_QUEUE)
            left = end - broker.long_polling.now()
            if taken or left <= 0 or broker.is_stopping:
                break
            await pops.wait(request, left, {(_CHANGED + client, 0): 0})
        fields = {
            "popTime": str(pop_time),
            "invisibleTime": str(request.invisible_ms),
            "reviveQid": str(ORDER_REVIVE_QUEUE),
        }
        if not taken:
            return command.reply(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", fields)
        counts = []
        for one in taken:
            info = pops.orders.find(one.point.key)
            consumed = info.consumed if info is not None else {}
            counts += [str(consumed.get(offset, 0)) for offset in one.point.offsets]
        fields["orderCountInfo"] = ";".join(counts)
        data = b"".join(record for one in taken for record in one.found.records)
        return command.reply(ResponseCode.SUCCESS, "FOUND", fields, data)

    def _request(self, command: Command, group: str, topic: str, client: str) -> PopRequest:
        known = self._clients.get(client)
        names = list(known.queues) if known is not None and (known.group, known.topic) == (group, topic) else []
        start = random.randrange(max(1, len(names)))  # noqa: S311 - no lite topic starves the others
        return PopRequest(
            group,
            topic,
            [QueueKey(group, name, 0) for name in names[start:] + names[:start]],
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
        host = broker.address.rpartition(":")[0]
        if number(command, "maxMsgNum", 0) > MAX_MESSAGES:
            remark = f"the broker[{host}] pop message's num is greater than {MAX_MESSAGES}"
            raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)
        config = broker.topics.get(topic)
        if config is None:
            remark = f"topic [{topic}] not exist, apply first please! {FAQ}"
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not config.perm & PERM_READ:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"the topic [{topic}] peeking message is forbidden")
        if config.message_type != LITE:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"the topic [{topic}] message type not match")
        group_config = broker.groups.find(group)
        if group_config is None:
            remark = f"subscription group [{group}] not exist, {FAQ}"
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group_config.consume_enable:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        if (group_config.attributes or {}).get(BIND_TOPIC) != topic:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"subscription bind topic not match, {group}")
