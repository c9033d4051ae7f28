"""Handles heartbeats of clients, and requests about members of groups, consumer offsets, queue locks, queue bounds.

Source: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor (5.5.0).
"""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from mqtool.formats.topics import lite_queue, retry_topic
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker import attributes
from mqtool.server.broker.answers import (
    RefusalError,
    body,
    body_of,
    check_queue_id,
    flag,
    number,
    ok,
    queue_names_of,
    text,
)
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.tables.clients import Client, filter_allowed, is_tag, subscription_from
from mqtool.server.net.peer import Handler, Peer
from mqtool.store.queues.by_time import Boundary

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
        if broker.is_writable and not attributes.is_system_group(group):
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


class ConsumerProcessor:
    """Handles requests about members of consumer groups, consumer offsets, queue locks, and bounds of queues.

    The request codes are GET_CONSUMER_LIST_BY_GROUP, …_CONSUMER_OFFSET, …LOCK_BATCH_MQ, GET_…_OFFSET and
    SEARCH_OFFSET_BY_TIMESTAMP.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._starting: WeakKeyDictionary[Peer, tuple[str, int]] = WeakKeyDictionary()

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.members,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def members(self, command: Command, _peer: Peer) -> Command:
        """Returns the client ids of a consumer group's members."""
        group = text(command, "consumerGroup")
        members = self._broker.clients.consumer_group(group)
        if members is None or not members.members:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return ok(command, data=body({"consumerIdList": members.client_ids()}))

    # -- offsets -------------------------------------------------------------------------------------------------

    def query_offset(self, command: Command, peer: Peer) -> Command:
        """Returns a group's consumer offset.

        For a group without one, returns 0 if the queue still has its first message and no slave is suggested; otherwise
        raises RefusalError.
        """
        broker = self._broker
        group, topic, queue_id = text(command, "consumerGroup"), text(command, "topic"), number(command, "queueId")
        offset = broker.offsets.get(group, topic, queue_id)
        if offset is not None and offset >= 0:
            return ok(command, {"offset": str(offset)})
        self._starting[peer] = topic, queue_id
        if flag(command, "setZeroIfNotFound", default=True):
            first = broker.messages.get_message(topic, queue_id, 0, 1)
            is_young = first.records and first.queue_offsets[0] == 0 and not first.suggest_slave
            if is_young or (first.max_offset == 0 and broker.long_polling.is_expected(topic, queue_id)):
                return ok(command, {"offset": "0"})
            raise RefusalError(
                ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            )
        raise RefusalError(ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first")

    def update_offset(self, command: Command, _peer: Peer) -> Command:
        """Commits a group's consumer offset; removes it if the new one is negative.

        The broker stores a negative offset and answers queries as if there were none.
        """
        broker = self._broker
        group, topic, queue_id = text(command, "consumerGroup"), text(command, "topic"), number(command, "queueId")
        if broker.groups.get(group) is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if broker.topics.get(topic) is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if "commitOffset" not in command.fields:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        offset = number(command, "commitOffset")
        check_queue_id(queue_id)
        if broker.offsets.has_reset(group, topic, queue_id):
            return ok(command)
        if offset < 0:
            broker.offsets.forget(group, topic, queue_id)
        else:
            broker.offsets.commit(group, topic, queue_id, offset)
        return ok(command)

    # -- locks ---------------------------------------------------------------------------------------------------

    def lock(self, command: Command, _peer: Peer) -> Command:
        """Locks queues for a client; returns the queues that the client holds now."""
        request = body_of(command)
        group, client = str(request.get("consumerGroup", "")), str(request.get("clientId", ""))
        locked = self._broker.locks.lock(group, queue_names_of(request.get("mqSet")), client)
        return ok(command, data=body({"lockOKMQSet": sorted(locked)}))

    def unlock(self, command: Command, _peer: Peer) -> Command:
        """Releases a client's locks on queues."""
        request = body_of(command)
        group, client = str(request.get("consumerGroup", "")), str(request.get("clientId", ""))
        self._broker.locks.unlock(group, queue_names_of(request.get("mqSet")), client)
        return ok(command)

    # -- bounds --------------------------------------------------------------------------------------------------

    async def max_offset(self, command: Command, peer: Peer) -> Command:
        """Returns the max offset of a queue, after the messages put so far are dispatched.

        For a client whose group has just been found to have no offset, it is the one at once, as in the real broker:
        the group starts there (RebalancePushImpl.computePullFromWhere), and would skip what is sent while it starts.
        """
        topic, queue_id = text(command, "topic"), number(command, "queueId")
        if self._starting.pop(peer, None) != (topic, queue_id):
            await self._broker.long_polling.caught_up(topic, queue_id)
        _, highest = self._broker.messages.queue_bounds(topic, queue_id)
        return ok(command, {"offset": str(highest)})

    def min_offset(self, command: Command, _peer: Peer) -> Command:
        """Returns the min offset of a queue."""
        lowest, _ = self._broker.messages.queue_bounds(text(command, "topic"), number(command, "queueId"))
        return ok(command, {"offset": str(lowest)})

    def search_offset(self, command: Command, _peer: Peer) -> Command:
        """Returns the queue offset for a store timestamp; 0 for a lite topic without messages."""
        boundary = Boundary.UPPER if command.fields.get("boundaryType", "").upper() == "UPPER" else Boundary.LOWER
        topic, queue_id, at = text(command, "topic"), number(command, "queueId"), number(command, "timestamp")
        if lite := command.fields.get("liteTopic", "").strip():
            topic = lite_queue(topic, lite)
            if queue_id or self._broker.messages.queue_bounds(topic, 0)[1] == 0:
                return ok(command, {"offset": "0"})
        offset = self._broker.messages.offset_in_queue_by_time(topic, queue_id, at, boundary)
        return ok(command, {"offset": str(offset)})

    def earliest_time(self, command: Command, _peer: Peer) -> Command:
        """Returns the store timestamp of a queue's first message; -1 if the queue is empty."""
        topic, queue_id = text(command, "topic"), number(command, "queueId")
        lowest, _ = self._broker.messages.queue_bounds(topic, queue_id)
        return ok(command, {"timestamp": str(self._broker.messages.store_time(topic, queue_id, lowest))})
