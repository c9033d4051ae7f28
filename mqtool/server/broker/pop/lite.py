"""Lite topics: many small ordered queues under one topic of type LITE, popped by the clients that subscribe to them.

A message that names a lite topic is stored in the parent topic and also dispatched to a light queue (LMQ). A client
subscribes to lite topics for its consumer group, and a pop takes messages from the light queues of its subscriptions,
in order. `LiteAdmin` handles mqadmin's requests about them. Source: PopLiteMessageProcessor,
AbstractLiteLifecycleManager, LiteManagerProcessor (5.5.0).
"""

import random
from collections.abc import Mapping
from typing import Any

from mqtool.formats.config_files import PERM_READ, GroupConfig, TopicConfig
from mqtool.formats.service_records import GroupQueue
from mqtool.formats.topics import LITE_PREFIX, is_lmq, lite_queue, parts_of_lite_queue
from mqtool.protocol.command import FAQ, Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError, body, number, ok, text
from mqtool.server.broker.attributes import LITE_EXPIRATION
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.offsets import OrderTable
from mqtool.server.broker.pop.check_points import ORDER_REVIVE_QUEUE, PopRequest, check_count
from mqtool.server.broker.pop.lite_subscriptions import CHANGED, LiteSubscriptions, bind_topic, is_wildcard
from mqtool.server.broker.pop.pop_message import PopProcessor
from mqtool.server.net.peer import Handler, Peer

LITE = "LITE"


class Lite:
    """Handles POP_LITE_MESSAGE; `LiteSubscriptions` handles the subscriptions."""

    def __init__(self, broker: Broker, pops: PopProcessor) -> None:
        self._broker = broker
        self._pops = pops
        self.subscriptions = LiteSubscriptions(broker, pops.orders)

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {RequestCode.POP_LITE_MESSAGE: self.pop, **self.subscriptions.handlers()}

    async def pop(self, command: Command, _peer: Peer) -> Command:
        """Returns messages of a client's lite topics; if there are none, waits as long as the request allows."""
        group, topic, client = text(command, "consumerGroup"), text(command, "topic"), text(command, "clientId")
        self._check(command, group, topic)
        broker, pops = self._broker, self._pops
        end = broker.clock.monotonic() + broker.long_polling.seconds(number(command, "pollTime", 0))
        if (known := self.subscriptions.clients.get(client)) is not None:
            known.accessed_ms = self._broker.clock.now()
        while True:
            request = self._request(command, group, topic, client)
            pop_time = self._broker.clock.now()
            taken = pops.take(request, pop_time, ORDER_REVIVE_QUEUE)
            left = end - broker.clock.monotonic()
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
        check_count(broker, number(command, "maxMsgNum", 0))
        config = broker.existing_topic(topic, f"topic [{topic}] not exist, apply first please! {FAQ}")
        if not config.perm & PERM_READ:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"the topic [{topic}] peeking message is forbidden")
        if config.message_type != LITE:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"the topic [{topic}] message type not match")
        if bind_topic(broker.consuming_group(group, f"not exist, {FAQ}")) != topic:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"subscription bind topic not match, {group}")

    def clean(self) -> None:
        """Removes subscriptions of inactive clients, and deletes expired lite topics."""
        settings = self._broker.settings
        self.subscriptions.expire(settings.number("liteSubscriptionCheckTimeoutMills"))
        unused_ms = settings.number("minLiteTTl")
        if (self._broker.clock.monotonic() - self._broker.began) * 1000 >= unused_ms and self._broker.is_writable:
            self.delete_expired(self._broker.clock.now(), unused_ms)

    def delete_expired(self, now: int, min_unused_ms: int) -> None:
        """Deletes the lite topics whose last message is older than their parent topic's attribute allows.

        `now` is in ms since epoch; the message is at least `min_unused_ms` old, whatever the attribute says
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


_MAX_NAMES = 10_000
_NAMES = 1000


class LiteAdmin(RequestProcessor):
    """Handles requests about lite topics, their consumer groups and their clients."""

    def __init__(self, broker: Broker, subscriptions: LiteSubscriptions, orders: OrderTable) -> None:
        super().__init__(broker)
        self._subscriptions, self._orders = subscriptions, orders

    @handles(RequestCode.GET_BROKER_LITE_INFO)
    def broker_info(self, command: Command, _peer: Peer) -> Command:
        """GET_BROKER_LITE_INFO: returns limits and numbers of lite topics and subscriptions."""
        broker = self._release_5(command)
        topics = {name for name, _ in broker.messages.queues()}
        info: dict[str, Any] = {
            "storeType": broker.settings.values.get("storeType", "default"),
            "maxLmqNum": broker.settings.number("maxLmqConsumeQueueNum"),
            "currentLmqNum": self._light_queues(),
            "liteSubscriptionCount": self._subscriptions.count,
            "orderInfoCount": sum(map(is_lmq, self._orders.topics())),
            "cqTableSize": len(topics),
            "offsetTableSize": len(broker.offsets.pairs()),
            "eventMapSize": len(self._subscriptions.clients),
            "topicMeta": {
                name: expiration(config) for name, config in broker.topics.table.items() if config.message_type == LITE
            },
            "groupMeta": self._groups(),
        }
        return ok(command, data=body(info))

    @handles(RequestCode.GET_PARENT_TOPIC_INFO)
    def topic_info(self, command: Command, _peer: Peer) -> Command:
        """GET_PARENT_TOPIC_INFO: returns the consumer groups of a topic and its number of lite topics."""
        self._release_5(command)
        topic = text(command, "topic")
        config = self._topic(topic)
        info: dict[str, Any] = {
            "topic": topic,
            "ttl": expiration(config),
            "lmqNum": self._light_queues(),
            "liteTopicCount": len(self._subscriptions.queues_of_topic(topic)),
        }
        groups = self._groups().get(topic)
        return ok(command, data=body(info if groups is None else {**info, "groups": groups}))

    @handles(RequestCode.GET_LITE_TOPIC_INFO)
    def lite_topic_info(self, command: Command, _peer: Peer) -> Command:
        """GET_LITE_TOPIC_INFO: returns the offsets of a lite topic and its subscribers."""
        messages = self._release_5(command).messages
        topic, lite_topic = text(command, "parentTopic", ""), text(command, "liteTopic", "")
        self._topic(topic)
        queue = lite_queue(topic, lite_topic)
        lowest, highest = messages.queue_bounds(queue, 0)
        info = {
            "parentTopic": topic,
            "liteTopic": lite_topic,
            "subscriber": [
                {"clientId": client, "group": group} for client, group in self._subscriptions.members_of(queue, topic)
            ],
            "topicOffset": {
                "minOffset": lowest,
                "maxOffset": highest,
                "lastUpdateTimestamp": messages.store_time(queue, 0, highest - 1) if highest else 0,
            },
            "shardingToBroker": True,
        }
        return ok(command, data=body(info))

    @handles(RequestCode.GET_LITE_CLIENT_INFO)
    def client_info(self, command: Command, _peer: Peer) -> Command:
        """GET_LITE_CLIENT_INFO: returns the lite topics of a client."""
        self._release_5(command)
        topic, group = text(command, "parentTopic", ""), text(command, "group", "")
        self._topic(topic)
        config = self._group(group)
        if bind_topic(config) != topic:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{topic}] not match.")
        client = text(command, "clientId", "")
        known = self._subscriptions.clients.get(client)
        info: dict[str, Any] = {
            "parentTopic": topic,
            "group": group,
            "clientId": client,
            "lastAccessTime": known.accessed_ms if known is not None else -1,
            "lastConsumeTime": 0,
            "liteTopicCount": len(known.queues) if known is not None else -1,
        }
        if known is not None:
            limit = max(0, min(number(command, "maxCount", _NAMES), _MAX_NAMES))
            info["liteTopicSet"] = list(known.queues)[:limit]
        return ok(command, data=body(info))

    @handles(RequestCode.GET_LITE_GROUP_INFO)
    def group_info(self, command: Command, _peer: Peer) -> Command:
        """GET_LITE_GROUP_INFO: returns the lag of a consumer group in all its lite topics, or in one of them."""
        self._release_5(command)
        group, lite_topic = text(command, "group"), command.fields.get("liteTopic") or ""
        topic = self._lite_group(group)
        info: dict[str, Any] = {"group": group, "parentTopic": topic}
        if lite_topic:
            info |= {"liteTopic": lite_topic, **self._progress(group, lite_queue(topic, lite_topic))}
        else:
            rows = self._behind(group)
            top = max(0, number(command, "topK", 0))
            info |= {
                "totalLagCount": sum(row["lagCount"] for row in rows),
                "lagCountTopK": sorted(rows, key=lambda row: -row["lagCount"])[:top],
                "lagTimestampTopK": [],  # the broker collects it only with liteLagLatencyCollectEnable
                "earliestUnconsumedTimestamp": -1,
            }
        return ok(command, data=body(info))

    @handles(RequestCode.TRIGGER_LITE_DISPATCH)
    def dispatch(self, command: Command, _peer: Peer) -> Command:
        """TRIGGER_LITE_DISPATCH: makes waiting pops of a consumer group, or of one client, check for messages again."""
        self._release_5(command)
        group, client = text(command, "group"), command.fields.get("clientId")
        self._lite_group(group)
        for name, known in self._subscriptions.clients.items():
            if known.group == group and client in {None, "", name}:
                self._subscriptions.wake(name)
        return ok(command)

    def _release_5(self, command: Command) -> Broker:
        self._broker.check_release_5(command)
        return self._broker

    def _topic(self, name: str) -> TopicConfig:
        config = self._broker.existing_topic(name, f"Topic [{name}] not exist.")
        if config.message_type != LITE:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"Topic [{name}] type not match.")
        return config

    def _group(self, name: str) -> GroupConfig:
        return self._broker.existing_group(name, f"Group [{name}] not exist.")

    def _lite_group(self, name: str) -> str:
        """Returns the topic to which a consumer group is bound; raises RefusalError if it is an ordinary group."""
        topic = bind_topic(self._group(name))
        if not topic:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"Group [{name}] is not a LITE group.")
        return topic

    def _groups(self) -> dict[str, list[str]]:
        """Returns the consumer groups bound to each topic."""
        groups: dict[str, list[str]] = {}
        for name, config in self._broker.groups.table.items():
            if topic := bind_topic(config):
                groups.setdefault(topic, []).append(name)
        return groups

    def _light_queues(self) -> int:
        return sum(is_lmq(name) for name, _ in self._broker.messages.queues())

    def _progress(self, group: str, queue: str) -> dict[str, Any]:
        """Returns the offsets and lag of a consumer group in one lite topic."""
        messages, highest = self._broker.messages, self._broker.messages.queue_bounds(queue, 0)[1]
        if not highest:
            return {"totalLagCount": -1, "earliestUnconsumedTimestamp": -1}
        at = self._broker.offsets.get(group, queue, 0)
        if at is None or at < 0:
            return {"totalLagCount": 0, "earliestUnconsumedTimestamp": -1}
        last = messages.store_time(queue, 0, at - 1) if at else 0
        return {
            "totalLagCount": highest - at,
            "earliestUnconsumedTimestamp": messages.store_time(queue, 0, at),
            "liteTopicOffsetWrapper": {
                "brokerOffset": highest,
                "consumerOffset": at,
                "lastTimestamp": last,
                "pullOffset": 0,
            },
        }

    def _behind(self, group: str) -> list[dict[str, Any]]:
        """Returns the lite topics in which a consumer group has unconsumed messages."""
        messages, rows = self._broker.messages, []
        for queue in self._broker.offsets.topics_of(group):
            parts, at = parts_of_lite_queue(queue), self._broker.offsets.get(group, queue, 0)
            lag = messages.queue_bounds(queue, 0)[1] - at if parts is not None and at is not None else 0
            if parts is not None and at is not None and lag > 0:
                time_ms = messages.store_time(queue, 0, at)
                rows.append({"liteTopic": parts[1], "lagCount": lag, "earliestUnconsumedTimestamp": time_ms})
        return rows
