"""The connected producers and consumers of all groups, subscriptions with their filters, and locks of queues.

Heartbeats renew the entries; an entry without a heartbeat for two minutes, or without a connection, is removed. A
consumer that consumes in order locks its queues: each is locked by one client of a group. Source: ProducerManager,
ConsumerManager, ConsumerGroupInfo, ClientHousekeepingService, FilterAPI, ExpressionMessageFilter,
ConsumerFilterManager, RebalanceLockManager (5.5.0).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct, field

from mqtool.engine.clock import SystemClock
from mqtool.errors import UsageError
from mqtool.formats import java
from mqtool.protocol.command import ResponseCode
from mqtool.server.broker.answers import QueueName, RefusalError
from mqtool.server.broker.config import BrokerSettings
from mqtool.server.net.peer import Peer
from mqtool.store.queues.get_message import ALL, MessageFilter, SqlFilter, TagFilter

EXPIRY_S = 120.0

TAG = "TAG"

LIFE_S = 60.0
"""Seconds after which a lock that is not renewed expires (rocketmq.broker.rebalance.lockMaxLiveTime)."""


class Client(Struct):
    """The membership of one connection in a group."""

    peer: Peer
    client_id: str
    language: str
    version: int
    renewed: float
    renewed_ms: int


class Subscription(Struct, frozen=True):
    """A consumer group's subscription to a topic."""

    topic: str
    expression: str = "*"
    version: int = 0
    kind: str = "TAG"
    class_filter: bool = False
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()

    def body(self) -> dict[str, Any]:
        """Returns the subscription in the form of JSON bodies (SubscriptionData)."""
        return {
            "classFilterMode": self.class_filter,
            "codeSet": list(self.codes),
            "expressionType": self.kind,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


class ConsumerGroup(Struct):
    """The members of one consumer group."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[Peer, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        """Returns the client ids of the members."""
        return [member.client_id for member in self.members.values()]

    def member(self, client_id: str) -> Client | None:
        """Returns the member with a client id; None if there is none."""
        return next((client for client in self.members.values() if client.client_id == client_id), None)


Notify = Callable[[ConsumerGroup], None]
"""Called when the members or subscriptions of a group have changed."""


class Clients:
    """All connected producers and consumers. Must be used in the event loop's thread."""

    def __init__(self, notify: Notify, now: Callable[[], float] = SystemClock.monotonic) -> None:
        """Creates an empty table; `notify` is called after changes, `now` is a clock in seconds."""
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Peer, Client]] = {}
        self._notify = notify
        self._now = now
        self._next_producer = 0

    def adopt(self, other: "Clients") -> None:
        """Takes over the members of another table, which is not used any more."""
        self.consumers, self.producers = other.consumers, other.producers

    def client_of(self, peer: Peer, client_id: str, language: str, version: int) -> Client:
        """Returns a new membership that starts now."""
        return Client(peer, client_id, language, version, self._now(), SystemClock.now())

    def register_producer(self, group: str, client: Client) -> None:
        """Adds a producer to a group, or renews its entry."""
        self.producers.setdefault(group, {})[client.peer] = client

    def register_consumer(
        self,
        group: str,
        client: Client,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: list[Subscription] | None,
        *,
        notify: bool,
    ) -> bool:
        """Adds a consumer to a group, or renews its entry; returns whether anything changed.

        The latest heartbeat determines the options of the group. `subscriptions` are all of the group, None if they
        have not changed; `notify` states whether its members are notified of changes.
        """
        members = self.consumers.get(group)
        if members is None:
            members = self.consumers[group] = ConsumerGroup(group, consume_type, message_model, consume_from_where)
        members.consume_type, members.message_model = consume_type, message_model
        members.consume_from_where = consume_from_where
        changed = client.peer not in members.members
        members.members[client.peer] = client
        if subscriptions is not None and _subscribe(members, subscriptions):
            changed = True
        if changed and notify:
            self._notify(members)
        return changed

    def unregister_producer(self, group: str, peer: Peer) -> None:
        """Removes a producer from a group."""
        members = self.producers.get(group, {})
        members.pop(peer, None)
        if not members:
            self.producers.pop(group, None)

    def unregister_consumer(self, group: str, peer: Peer) -> None:
        """Removes a consumer from a group and notifies the others."""
        members = self.consumers.get(group)
        if members is None or members.members.pop(peer, None) is None:
            return
        if not members.members:
            del self.consumers[group]
        self._notify(members)

    def forget(self, peer: Peer) -> None:
        """Removes a closed connection from all groups."""
        for group in [name for name, members in self.producers.items() if peer in members]:
            self.unregister_producer(group, peer)
        for group in [name for name, consumers in self.consumers.items() if peer in consumers.members]:
            self.unregister_consumer(group, peer)

    def expire(self) -> list[Peer]:
        """Removes clients that sent no heartbeat for two minutes; returns their connections."""
        limit = self._now() - EXPIRY_S
        silent = {member.peer for member in self.members() if member.renewed < limit}
        for peer in silent:
            self.forget(peer)
        return list(silent)

    def members(self) -> Iterator[Client]:
        """Yields all memberships."""
        for group in self.consumers.values():
            yield from group.members.values()
        for members in self.producers.values():
            yield from members.values()

    def producer_of(self, group: str) -> Peer | None:
        """Returns the connection of one of a group's producers, in rotation; None if the group has no members."""
        members = list(self.producers.get(group, {}))
        if not members:
            return None
        self._next_producer += 1
        return members[self._next_producer % len(members)]

    def peer_of(self, client_id: str) -> Peer | None:
        """Returns the connection of a producer with a client id."""
        for members in self.producers.values():
            for peer, client in members.items():
                if client.client_id == client_id:
                    return peer
        return None

    def groups_of(self, topic: str) -> set[str]:
        """Returns the connected consumer groups that subscribe to a topic."""
        return {name for name, group in self.consumers.items() if topic in group.subscriptions}


def _subscribe(group: ConsumerGroup, subscriptions: list[Subscription]) -> bool:
    """Updates a group's subscriptions; returns whether topics changed (ConsumerGroupInfo.updateSubscription)."""
    changed = False
    for subscription in subscriptions:
        known = group.subscriptions.get(subscription.topic)
        if known is None:
            changed = True
        if known is None or subscription.version > known.version:
            group.subscriptions[subscription.topic] = subscription
    topics = {subscription.topic for subscription in subscriptions}
    for topic in [name for name in group.subscriptions if name not in topics]:
        del group.subscriptions[topic]
        changed = True
    return changed


@lru_cache(maxsize=4096)
def filter_of(expression: str, kind: str) -> MessageFilter | None:
    """Returns the engine's filter for an expression; None if every message matches.

    A `kind` other than "TAG" means SQL92; raises UsageError if the expression is not valid SQL92.
    """
    if is_tag(kind):
        return None if expression in ("", ALL) else TagFilter(expression)
    return SqlFilter(expression)


def checked_filter(expression: str, kind: str) -> MessageFilter | None:
    """Like `filter_of`, but raises RefusalError for an invalid expression."""
    try:
        return filter_of(expression, kind)
    except UsageError as error:
        remark = "parse the consumer's subscription failed"
        raise RefusalError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from error


def filter_allowed(settings: BrokerSettings, expression: str, kind: str) -> MessageFilter | None:
    """Like `checked_filter`, but also raises RefusalError for SQL92 if `enablePropertyFilter` is off."""
    if not is_tag(kind) and not settings.flag("enablePropertyFilter"):
        remark = f"The broker does not support consumer to filter message by {kind}"
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)
    return checked_filter(expression, kind)


def is_tag(kind: str | None) -> bool:
    """Whether an expression type means tags (ExpressionType.isTagType)."""
    return not kind or kind == TAG


def subscription_from(document: dict[str, Any]) -> Subscription:
    """Parses a subscription in a heartbeat's body; an invalid expression in SQL92 matches no message.

    The tags codes are computed from the tags, not taken from the client.
    """
    topic, expression = str(document.get("topic", "")), str(document.get("subString") or ALL)
    version, kind = java.json_long(document.get("subVersion") or 0), str(document.get("expressionType") or TAG)
    if not is_tag(kind):
        return Subscription(topic, expression, version, kind)
    tags = TagFilter(expression).tags
    codes = tuple(sorted({java.string_hash(tag) for tag in tags}))
    return Subscription(topic, expression, version, TAG, tags=tags, codes=codes)


class _Lock(NamedTuple):
    client_id: str
    renewed: float


class QueueLocks:
    """The queue locks of all groups."""

    def __init__(self, now: Callable[[], float] = SystemClock.monotonic) -> None:
        self._now = now
        self._locks: dict[str, dict[QueueName, _Lock]] = {}

    def lock(self, group: str, queues: set[QueueName], client_id: str) -> set[QueueName]:
        """Locks free queues and renews the client's locks; returns the given queues that the client now holds."""
        now = self._now()
        locks = self._locks.setdefault(group, {})
        for queue in queues:
            owner = locks.get(queue)
            if owner is None or owner.client_id == client_id or now - owner.renewed > LIFE_S:
                locks[queue] = _Lock(client_id, now)
        return {queue for queue in queues if locks[queue].client_id == client_id}

    def unlock(self, group: str, queues: set[QueueName], client_id: str) -> None:
        """Unlocks the given queues where the client holds the lock."""
        locks = self._locks.get(group, {})
        for queue in queues:
            owner = locks.get(queue)
            if owner is not None and owner.client_id == client_id:
                del locks[queue]

    def any_held(self, group: str) -> bool:
        """Whether a group holds a lock that has not expired."""
        now = self._now()
        return any(now - lock.renewed <= LIFE_S for lock in self._locks.get(group, {}).values())
