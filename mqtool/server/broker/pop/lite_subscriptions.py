"""The subscriptions of clients to lite topics.

They are not stored: clients send all their subscriptions again when they connect, and every 30 s.
Source: LiteSubscriptionCtlProcessor, LiteSubscriptionRegistryImpl, LiteMetadataUtil (5.5.0).
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from mqtool.engine.clock import SystemClock
from mqtool.formats.config_files import GroupConfig
from mqtool.formats.service_records import GroupQueue
from mqtool.formats.topics import LITE_PREFIX, lite_queue
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError, body_of, ok
from mqtool.server.broker.attributes import (
    BIND_TOPIC,
    LITE_MODEL,
    LITE_RESET_EXCLUDED,
    LITE_RESET_UNSUBSCRIBED,
    LITE_WILDCARD,
)
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.offsets import OrderTable
from mqtool.server.net.peer import Peer

MAX_CLIENTS = 20_000
CHANGED = "%LITE%"
"""Prefix of a pseudo-queue's name, used to wake a client's pop when its subscriptions change; it has no messages."""

_FIRST, _END = 1, 2
"""Values of an offset option of type POLICY; 0 stands for the group's consumer offset."""
_ILLEGAL_STATE = "java.lang.IllegalStateException: "
_QUOTA = "org.apache.rocketmq.broker.lite.LiteQuotaException: lite subscription quota exceeded "


class Subscription(Struct):
    """The lite topics of one client."""

    # group, topic: consumer group of the client, and parent topic
    group: str
    topic: str
    peer: Peer  # connection of the client, to notify it of removed subscriptions
    queues: dict[str, None] = field(default_factory=dict)  # light queues, in the order of subscription
    updated: float = 0.0  # monotonic time of the last subscription request
    accessed_ms: int = -1  # when the client last popped, ms since epoch; -1 if it has not


def bind_topic(config: GroupConfig | None) -> str:
    """Returns the parent topic of the lite topics that a consumer group consumes; "" for an ordinary group."""
    return str((config.attributes or {}).get(BIND_TOPIC, "")) if config is not None else ""


def is_wildcard(config: GroupConfig | None) -> bool:
    """Whether a consumer group consumes all lite topics of its parent topic."""
    return config is not None and LITE_WILDCARD in (config.attributes or {})


class LiteSubscriptions(RequestProcessor):
    """Handles LITE_SUBSCRIPTION_CTL, and keeps the subscriptions. Must be used in the event loop's thread.

    `count` is the number of subscriptions of all clients; a lite topic with two subscribers counts twice.
    """

    def __init__(self, broker: Broker, orders: OrderTable) -> None:
        super().__init__(broker)
        self._orders = orders
        self.clients: dict[str, Subscription] = {}
        self.count = 0
        self._by_queue: dict[str, dict[str, None]] = {}

    @handles(RequestCode.LITE_SUBSCRIPTION_CTL)
    def subscribe(self, command: Command, peer: Peer) -> Command:
        """Adds or removes subscriptions of clients."""
        self._broker.check_release_5(command)
        if not command.body:
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
        given = body_of(command).get("subscriptionSet")
        if not isinstance(given, list) or not given:
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        for entry in given:
            if isinstance(entry, dict):
                self._change(entry, peer)
        return ok(command)

    def _change(self, document: dict[str, Any], peer: Peer) -> None:
        client, group, topic = (str(document.get(name) or "") for name in ("clientId", "group", "topic"))
        if not client.strip() or not group.strip() or not topic.strip():
            return
        names = document.get("liteTopicSet")
        queues = [lite_queue(topic, str(name)) for name in (names if isinstance(names, list) else ()) if name]
        match document.get("action"):
            case "PARTIAL_ADD":
                self._add(client, group, topic, queues, document.get("offsetOption"), peer)
            case "PARTIAL_REMOVE":
                self._remove(client, queues, reset=self._attribute(group, LITE_RESET_UNSUBSCRIBED) == "true")
            case "COMPLETE_ADD":
                self._replace(client, group, topic, queues, peer)
            case "COMPLETE_REMOVE":
                self.forget(client)
            case _:
                return
        self.wake(client)

    def _add(self, client: str, group: str, topic: str, queues: list[str], option: object, peer: Peer) -> None:
        self._check_group(group)
        self._check_quota(client, queues)
        if is_wildcard(self._broker.groups.get(group)):
            remark = f"{_ILLEGAL_STATE}subscribe lite operation is not supported for this group"
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, remark)
        known = self._known(client, group, topic, peer)
        exclusive = self._attribute(group, LITE_MODEL) == "Exclusive"
        for queue in queues:
            if exclusive:
                self._exclude(client, group, queue)
            self._reset(group, queue, option)
            self._note(client, known, queue)

    def _replace(self, client: str, group: str, topic: str, queues: list[str], peer: Peer) -> None:
        self._check_group(group)
        if is_wildcard(self._broker.groups.get(group)):
            queues = [f"{topic}@{group}"]
        self._check_quota(client, queues)
        known = self._known(client, group, topic, peer)
        kept = set(queues)
        for queue in [removed for removed in known.queues if removed not in kept]:
            self._drop(client, known, queue)
        for queue in queues:
            self._note(client, known, queue)

    def _remove(self, client: str, queues: Iterable[str], *, reset: bool) -> None:
        known = self.clients.get(client)
        if known is None:
            return
        known.updated = SystemClock.monotonic()
        for queue in queues:
            if self._drop(client, known, queue) and reset:
                self._set_offset(known.group, queue, 0)

    def forget(self, client: str) -> None:
        """Removes all subscriptions of a client."""
        known = self.clients.pop(client, None)
        for queue in list(known.queues) if known is not None else ():
            self._drop(client, known, queue)  # type: ignore[arg-type]

    def forget_queue(self, queue: str) -> None:
        """Removes a deleted lite topic from all subscriptions."""
        for client in list(self._by_queue.get(queue, ())):
            self._drop(client, self.clients[client], queue)

    def expire(self, silent_ms: int) -> None:
        """Removes the subscriptions of clients that have not sent any for `silent_ms` (cleanupExpiredSubscriptions)."""
        oldest = SystemClock.monotonic() - silent_ms / 1000
        for client in [name for name, entry in self.clients.items() if entry.updated < oldest]:
            self.forget(client)

    def _exclude(self, client: str, group: str, queue: str) -> None:
        """Unsubscribes the other clients of a group from a lite topic, and notifies them (excludeClientByLmqName)."""
        for other in list(self._by_queue.get(queue, ())):
            known = self.clients[other]
            if other == client or known.group != group:
                continue
            self._drop(other, known, queue)
            name = queue.rpartition("$")[2]
            fields = {"clientId": other, "consumerGroup": group, "liteTopic": name}
            self._broker.notify(known.peer, RequestCode.NOTIFY_UNSUBSCRIBE_LITE, fields)
            if self._attribute(group, LITE_RESET_EXCLUDED) == "true":
                self._set_offset(group, queue, 0)
            self.wake(other)

    def _known(self, client: str, group: str, topic: str, peer: Peer) -> Subscription:
        known = self.clients.get(client)
        if known is not None and (known.group, known.topic) != (group, topic):
            self.forget(client)
            known = None
        if known is None:
            known = self.clients[client] = Subscription(group, topic, peer)
        known.peer, known.updated = peer, SystemClock.monotonic()
        return known

    def _note(self, client: str, subscription: Subscription, queue: str) -> None:
        if queue not in subscription.queues:
            subscription.queues[queue] = None
            self._by_queue.setdefault(queue, {})[client] = None
            self.count += 1

    def _drop(self, client: str, subscription: Subscription, queue: str) -> bool:
        if queue not in subscription.queues:
            return False
        del subscription.queues[queue]
        members = self._by_queue[queue]
        del members[client]
        if not members:
            del self._by_queue[queue]
        self.count -= 1
        return True

    def wake(self, client: str) -> None:
        """Wakes a client's waiting pop to check for messages again."""
        self._broker.long_polling.wake(CHANGED + client, 0)

    def _reset(self, group: str, queue: str, option: object) -> None:
        """Sets a group's consumer offset as a subscriber requests; the option TIMESTAMP has no effect in 5.5.0."""
        if not isinstance(option, dict):
            return
        kind, value = option.get("type"), option.get("value")
        value = value if isinstance(value, int) else 0
        committed = self._broker.offsets.get(group, queue, 0)
        if kind == "POLICY" and value == _FIRST:
            self._set_offset(group, queue, 0)
        elif kind == "POLICY" and value == _END:
            self._set_offset(group, queue, self._broker.messages.queue_bounds(queue, 0)[1])
        elif kind == "OFFSET" and value >= 0:
            self._set_offset(group, queue, value)
        elif kind == "TAIL_N" and committed is not None:
            self._set_offset(group, queue, max(0, committed - value))

    def _set_offset(self, group: str, queue: str, offset: int) -> None:
        if self._broker.offsets.get(group, queue, 0) != offset:
            self._broker.offsets.reset(group, queue, 0, offset)
            self._orders.clear(GroupQueue(group, queue, 0))

    def _check_group(self, group: str) -> None:
        config = self._broker.groups.find(group)
        if config is None or not config.consume_enable:
            remark = f"{_ILLEGAL_STATE}Consumer group is not allowed to consume."
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, remark)

    def _check_quota(self, client: str, queues: list[str]) -> None:
        quota = self._broker.settings.number("maxLiteSubscriptionCount")
        known = self.clients.get(client)
        new = sum(1 for queue in queues if known is None or queue not in known.queues)
        if (new and self.count + new > quota) or (known is None and len(self.clients) >= MAX_CLIENTS):
            raise RefusalError(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, f"{_QUOTA}{quota}")

    def _attribute(self, group: str, name: str) -> str:
        config = self._broker.groups.get(group)
        return str((config.attributes or {}).get(name, "")) if config is not None else ""

    def queues_of(self, client: str, group: str, topic: str) -> list[str]:
        """Returns the light queues from which a client pops; for a wildcard group, all light queues of the topic."""
        known = self.clients.get(client)
        if known is None or (known.group, known.topic) != (group, topic):
            return []
        if is_wildcard(self._broker.groups.get(group)):
            return self.queues_of_topic(topic)
        return list(known.queues)

    def queues_of_topic(self, topic: str) -> list[str]:
        """Returns the light queues of a topic's lite topics that have or had messages."""
        prefix = f"{LITE_PREFIX}{topic}$"
        return [name for name, _ in self._broker.messages.queues() if name.startswith(prefix)]

    def members_of(self, queue: str, topic: str) -> list[tuple[str, str]]:
        """Returns (client id, group) of a lite topic's subscribers; the id "*" stands for all of a wildcard group."""
        members = {(client, self.clients[client].group) for client in self._by_queue.get(queue, ())}
        for entry in self.clients.values():
            if entry.topic == topic and is_wildcard(self._broker.groups.get(entry.group)):
                members.add(("*", entry.group))
        return sorted(members)
