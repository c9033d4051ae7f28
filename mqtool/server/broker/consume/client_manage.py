"""Handles heartbeats, unregistering, and checks of subscriptions. Source: ClientManageProcessor (5.5.0)."""

from collections.abc import Mapping
from typing import Any

from mqtool.formats.topics import retry_topic
from mqtool.protocol.codes import RequestCode
from mqtool.protocol.command import Command
from mqtool.server.broker import names
from mqtool.server.broker.answers import body_of, ok
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.tables.clients import Client
from mqtool.server.broker.tables.filters import filter_allowed, is_tag, subscription_from
from mqtool.server.net.peer import Handler, Peer

_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MODELS = ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")
_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
"""Names of the enumeration's members in the order of their ordinals, which the C++ client sends instead."""


class ClientProcessor:
    """Handles HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check,
        }

    def heartbeat(self, command: Command, peer: Peer) -> Command:
        """Registers the producer and consumer groups of a connection."""
        request = body_of(command)
        clients = self._broker.clients
        client = clients.client_of(peer, str(request.get("clientID", "")), command.language, command.version)
        unchanged = request.get("withoutSub") is True
        for data in request.get("consumerDataSet") or []:
            self._register(data, client, unchanged=unchanged)
        for data in request.get("producerDataSet") or []:
            clients.register_producer(str(data.get("groupName", "")), client)
        return ok(command, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})

    def _register(self, document: dict[str, Any], client: Client, *, unchanged: bool) -> None:
        broker, group = self._broker, str(document.get("groupName", ""))
        config = broker.groups.find(group)
        if config is None:
            return
        if broker.is_writable and not names.is_system_group(group):
            unit = document.get("unitMode") in (True, 1, "1")
            broker.topics.create_for_send_back(retry_topic(group), config.retry_queue_nums, unit=unit)
        subscriptions = None
        if not unchanged:
            subscriptions = [
                subscription_from(subscription) for subscription in document.get("subscriptionDataSet") or []
            ]
        broker.clients.register_consumer(
            group,
            client,
            _name(document.get("consumeType"), _TYPES),
            _name(document.get("messageModel"), _MODELS),
            _name(document.get("consumeFromWhere"), _WHERE),
            subscriptions,
            notify=config.notify_consumer_ids_changed_enable,
        )

    def unregister(self, command: Command, peer: Peer) -> Command:
        """Removes a connection from the groups that the request names."""
        group = command.fields.get("producerGroup")
        if group:
            self._broker.clients.unregister_producer(group, peer)
        group = command.fields.get("consumerGroup")
        if group:
            self._broker.clients.unregister_consumer(group, peer)
        return ok(command)

    def check(self, command: Command, _peer: Peer) -> Command:
        """Checks a subscription whose filter is not by tags."""
        subscription = body_of(command).get("subscriptionData")
        if not isinstance(subscription, dict):
            return ok(command)
        kind = subscription.get("expressionType")
        if not is_tag(kind):
            filter_allowed(self._broker.settings, str(subscription.get("subString") or "*"), str(kind))
        return ok(command)


def _name(value: object, names_: tuple[str, ...]) -> str:
    """Returns the name of an enumeration's member from its name or its ordinal."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names_):
        return names_[value]
    return str(value) if isinstance(value, str) else names_[0]
