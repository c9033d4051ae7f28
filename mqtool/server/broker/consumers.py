"""Handles requests of clients about themselves and their queues.

They are heartbeats, members of groups, consumer offsets, queue locks, bounds of queues, and queue assignment: which
queues a client consumes if the broker decides, and whether it pulls or pops. Source: ClientManageProcessor,
ConsumerManageProcessor, AdminBrokerProcessor, QueryAssignmentProcessor, MessageRequestModeManager,
AllocateMessageQueueAveragely (5.5.0).
"""

from typing import Any
from weakref import WeakKeyDictionary

from mqtool.formats import config_json, file_names, java
from mqtool.formats.topics import RETRY_PREFIX, lite_queue, retry_topic
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker import attributes
from mqtool.server.broker.answers import (
    QueueName,
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
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.clients import Client, filter_allowed, is_tag, subscription_from
from mqtool.server.net.peer import Peer
from mqtool.store.queues.by_time import Boundary

_AVERAGE, _CIRCLE = "AVG", "AVG_BY_CIRCLE"
_PULL, _POP = "PULL", "POP"
_BROADCASTING, _CLUSTERING = "BROADCASTING", "CLUSTERING"

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


class Assignments(RequestProcessor):
    """Handles QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(self, broker: Broker) -> None:
        """Loads messageRequestMode.json; raises ConfigFileError if it cannot be parsed."""
        super().__init__(broker)
        document = broker.persister.configs.load(file_names.MESSAGE_REQUEST_MODE, config_json.parse) or {}
        self._document: dict[Any, Any] = document
        self._modes: dict[str, dict[str, dict[str, Any]]] = document.setdefault("messageRequestModeMap", {})
        broker.persister.register(file_names.MESSAGE_REQUEST_MODE, self._build)

    def _build(self) -> bytes:
        return config_json.build(self._document, self._broker.persister.configs.style)

    @handles(RequestCode.SET_MESSAGE_REQUEST_MODE)
    async def set_mode(self, command: Command, _peer: Peer) -> Command:
        """Sets whether a consumer group pulls or pops a topic."""
        self._broker.check_open()
        request = body_of(command)
        topic, group = str(request.get("topic", "")), str(request.get("consumerGroup", ""))
        mode = str(request.get("mode", _PULL))
        if mode not in (_PULL, _POP):
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"mode: expected PULL or POP, found {mode}")
        number = java.json_int(request.get("popShareQueueNum") or 0)
        if topic.startswith(RETRY_PREFIX):
            raise RefusalError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        self._broker.existing_topic(topic, f"topic[{topic}] not exist")
        self._broker.existing_group(group, "subscription group does not exist")
        self._modes.setdefault(topic, {})[group] = {
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": number,
            "topic": topic,
        }
        self._broker.persister.mark(file_names.MESSAGE_REQUEST_MODE)
        await self._broker.persister.saved()
        return ok(command)

    @handles(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def modes(self, command: Command, _peer: Peer) -> Command:
        """Returns the modes that were set, by topic and consumer group."""
        return ok(command, data=body(self._document))

    @handles(RequestCode.QUERY_ASSIGNMENT)
    def query(self, command: Command, _peer: Peer) -> Command:
        """Returns the queues assigned to a client, and whether it pulls or pops them.

        Without an answer for the client, for instance because its group has no members yet, the list is missing, so
        that the client keeps its queues.
        """
        request = body_of(command)
        mode, shared = self._mode(str(request.get("topic", "")), str(request.get("consumerGroup", "")))
        queues = self._assigned(request, shared if mode == _POP else None)
        if queues is None:
            return ok(command, data=body({}))
        shown = [{"attachments": {}, "messageQueue": queue, "mode": mode} for queue in queues]
        return ok(command, data=body({"messageQueueAssignments": shown}))

    def _mode(self, topic: str, group: str) -> tuple[str, int]:
        """Returns whether a group pulls or pops a topic, and popShareQueueNum."""
        stored, settings = self._modes.get(topic, {}).get(group), self._broker.settings
        if stored is not None:
            return str(stored.get("mode", _PULL)), java.json_int(stored.get("popShareQueueNum") or 0)
        mode = _PULL if topic.startswith(RETRY_PREFIX) else settings.text("defaultMessageRequestMode")
        return mode, settings.number("defaultPopShareQueueNum")

    def _assigned(self, request: dict[str, Any], shared: int | None) -> list[QueueName] | None:
        """Returns a client's queues; None if unknown (doLoadBalance). `shared`: popShareQueueNum, None for a pull."""
        topic, client = str(request.get("topic", "")), str(request.get("clientId", ""))
        model, config = request.get("messageModel"), self._broker.topics.get(topic)
        if config is None or model not in (_BROADCASTING, _CLUSTERING):
            return None
        name = self._broker.settings.text("brokerName")
        queues = [QueueName(name, queue_id, topic) for queue_id in range(config.read_queue_nums)]
        if model == _BROADCASTING or not self._broker.settings.flag("serverLoadBalancerEnable"):
            return queues
        members = self._broker.clients.consumers.get(str(request.get("consumerGroup", "")))
        ids = sorted(set(members.client_ids())) if members is not None else []
        strategy = request.get("strategyName")
        if not ids or not client or not queues or strategy not in (_AVERAGE, _CIRCLE):
            return None
        if shared is None:
            return share(queues, ids, client, strategy)
        return share_popped(queues, ids, client, strategy, shared)


def share(queues: list[QueueName], ids: list[str], client: str, strategy: str) -> list[QueueName]:
    """Returns a client's share of the queues, by the same algorithm as clients use; none for a client without member.

    Queues and client ids of all members are in order; the strategy is "AVG" or "AVG_BY_CIRCLE".
    """
    if client not in ids:
        return []
    place = ids.index(client)
    if strategy == _CIRCLE:
        return queues[place :: len(ids)]
    quotient, more = divmod(len(queues), len(ids))
    start = place * quotient + min(place, more)
    return queues[start : start + quotient + (place < more)]


def share_popped(queues: list[QueueName], ids: list[str], client: str, strategy: str, shared: int) -> list[QueueName]:
    """Returns the queues that a client pops (allocate4Pop); queue -1 stands for all of them.

    `shared` is the number of further members whose share the client pops too; all if it is not positive.
    """
    if shared <= 0 or shared >= len(ids) - 1:
        return [queues[0]._replace(queue_id=-1)]
    if client not in ids:
        return []
    place = ids.index(client)
    if len(ids) > len(queues):
        return [queues[place % len(queues)]]
    owners = [ids[(place + further) % len(ids)] for further in range(shared + 1)]
    return [queue for owner in owners for queue in share(queues, ids, owner, strategy)]


class ClientProcessor(RequestProcessor):
    """Handles HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG."""

    @handles(RequestCode.HEART_BEAT)
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

    @handles(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, command: Command, peer: Peer) -> Command:
        """Removes a connection from the groups that the request names."""
        group = command.fields.get("producerGroup")
        if group:
            self._broker.clients.unregister_producer(group, peer)
        group = command.fields.get("consumerGroup")
        if group:
            self._broker.clients.unregister_consumer(group, peer)
        return ok(command)

    @handles(RequestCode.CHECK_CLIENT_CONFIG)
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


class ConsumerProcessor(RequestProcessor):
    """Handles requests about members of consumer groups, consumer offsets, queue locks, and bounds of queues."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._starting: WeakKeyDictionary[Peer, tuple[str, int]] = WeakKeyDictionary()

    @handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def members(self, command: Command, _peer: Peer) -> Command:
        """Returns the client ids of a consumer group's members."""
        group = text(command, "consumerGroup")
        members = self._broker.clients.consumers.get(group)
        if members is None or not members.members:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return ok(command, data=body({"consumerIdList": members.client_ids()}))

    @handles(RequestCode.QUERY_CONSUMER_OFFSET)
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

    @handles(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update_offset(self, command: Command, _peer: Peer) -> Command:
        """Commits a group's offset; a negative one removes it. The broker stores that, and answers as without one."""
        broker = self._broker
        group, topic, queue_id = text(command, "consumerGroup"), text(command, "topic"), number(command, "queueId")
        if broker.groups.get(group) is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        broker.existing_topic(topic, f"Topic {topic} not exist!")
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

    @handles(RequestCode.LOCK_BATCH_MQ)
    def lock(self, command: Command, _peer: Peer) -> Command:
        """Locks queues for a client; returns the queues that the client holds now."""
        request = body_of(command)
        group, client = str(request.get("consumerGroup", "")), str(request.get("clientId", ""))
        locked = self._broker.locks.lock(group, queue_names_of(request.get("mqSet")), client)
        return ok(command, data=body({"lockOKMQSet": sorted(locked)}))

    @handles(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, command: Command, _peer: Peer) -> Command:
        """Releases a client's locks on queues."""
        request = body_of(command)
        group, client = str(request.get("consumerGroup", "")), str(request.get("clientId", ""))
        self._broker.locks.unlock(group, queue_names_of(request.get("mqSet")), client)
        return ok(command)

    @handles(RequestCode.GET_MAX_OFFSET)
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

    @handles(RequestCode.GET_MIN_OFFSET)
    def min_offset(self, command: Command, _peer: Peer) -> Command:
        """Returns the min offset of a queue."""
        lowest, _ = self._broker.messages.queue_bounds(text(command, "topic"), number(command, "queueId"))
        return ok(command, {"offset": str(lowest)})

    @handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
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

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def earliest_time(self, command: Command, _peer: Peer) -> Command:
        """Returns the store timestamp of a queue's first message; -1 if the queue is empty."""
        topic, queue_id = text(command, "topic"), number(command, "queueId")
        lowest, _ = self._broker.messages.queue_bounds(topic, queue_id)
        return ok(command, {"timestamp": str(self._broker.messages.store_time(topic, queue_id, lowest))})
