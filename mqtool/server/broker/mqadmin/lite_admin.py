"""Handles mqadmin's requests about lite topics. Source: LiteManagerProcessor (5.5.0)."""

from collections.abc import Mapping
from typing import Any

from mqtool.formats.config_files import GroupConfig, TopicConfig
from mqtool.formats.topics import is_lmq, lite_queue, parts_of_lite_queue
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, body, number, ok, text
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.pop.lite import LITE, expiration
from mqtool.server.broker.pop.lite_subscriptions import LiteSubscriptions, bind_topic
from mqtool.server.broker.pop.order import OrderTable
from mqtool.server.net.peer import Handler, Peer

_MAX_NAMES = 10_000
_NAMES = 1000


class LiteAdmin:
    """Handles requests about lite topics, their consumer groups and their clients."""

    def __init__(self, broker: Broker, subscriptions: LiteSubscriptions, orders: OrderTable) -> None:
        self._broker, self._subscriptions, self._orders = broker, subscriptions, orders

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.GET_BROKER_LITE_INFO: self.broker_info,
            RequestCode.GET_PARENT_TOPIC_INFO: self.topic_info,
            RequestCode.GET_LITE_TOPIC_INFO: self.lite_topic_info,
            RequestCode.GET_LITE_CLIENT_INFO: self.client_info,
            RequestCode.GET_LITE_GROUP_INFO: self.group_info,
            RequestCode.TRIGGER_LITE_DISPATCH: self.dispatch,
        }

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

    def client_info(self, command: Command, _peer: Peer) -> Command:
        """GET_LITE_CLIENT_INFO: returns the lite topics of a client."""
        self._release_5(command)
        topic, group = text(command, "parentTopic", ""), text(command, "group", "")
        self._topic(topic)
        config = self._group(group)
        if bind_topic(config) != topic:
            remark = f"Subscription [{group}]-[{topic}] not match."
            raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)
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

    def dispatch(self, command: Command, _peer: Peer) -> Command:
        """TRIGGER_LITE_DISPATCH: makes waiting pops of a consumer group, or of one client, check for messages again."""
        self._release_5(command)
        group, client = text(command, "group"), command.fields.get("clientId")
        self._lite_group(group)
        for name, known in self._subscriptions.clients.items():
            if known.group == group and client in {None, "", name}:
                self._subscriptions.wake(name)
        return ok(command)

    # -- details -------------------------------------------------------------------------------------------------

    def _release_5(self, command: Command) -> Broker:
        self._broker.check_release_5(command)
        return self._broker

    def _topic(self, name: str) -> TopicConfig:
        config = self._broker.topics.get(name)
        if config is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{name}] not exist.")
        if config.message_type != LITE:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"Topic [{name}] type not match.")
        return config

    def _group(self, name: str) -> GroupConfig:
        config = self._broker.groups.find(name)
        if config is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{name}] not exist.")
        return config

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
