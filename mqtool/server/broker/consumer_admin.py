"""Handles administrative requests about consumers: connections, lag, and resetting offsets.

Source: AdminBrokerProcessor, Broker2Client (5.5.0).
"""

from functools import partial
from typing import Any

from mqtool.errors import MqtoolError
from mqtool.formats.topics import is_retry_of
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import QueueName, RefusalError, body, check_queue_id, flag, number, ok, text
from mqtool.server.broker.broker import RequestProcessor, handles
from mqtool.server.broker.clients import Client
from mqtool.server.broker.stats import GROUP_GET_NUMS
from mqtool.server.net.peer import Peer
from mqtool.store.queues.by_time import Boundary

RELAY_S = 10.0
_TOPIC_SEPARATOR = ";"


class ConsumerAdmin(RequestProcessor):
    """Handles administrative requests about consumers and producers."""

    @handles(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumer_connections(self, command: Command, _peer: Peer) -> Command:
        group = text(command, "consumerGroup")
        consumers = self._broker.clients.consumers.get(group)
        if consumers is None:
            raise RefusalError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        shown = {
            "connectionSet": [_connection(member) for member in consumers.members.values()],
            "consumeFromWhere": consumers.consume_from_where,
            "consumeType": consumers.consume_type,
            "messageModel": consumers.message_model,
            "subscriptionTable": {
                topic: subscription.body() for topic, subscription in consumers.subscriptions.items()
            },
        }
        return ok(command, data=body(shown))

    @handles(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producer_connections(self, command: Command, _peer: Peer) -> Command:
        group = text(command, "producerGroup")
        members = self._broker.clients.producers.get(group)
        if not members:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return ok(command, data=body({"connectionSet": [_connection(member) for member in members.values()]}))

    @handles(RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self, command: Command, _peer: Peer) -> Command:
        shown = {
            group: [
                {
                    "clientId": client.client_id,
                    "language": client.language,
                    "lastUpdateTimestamp": client.renewed_ms,
                    "remoteIP": f"/{client.peer.address}",
                    "version": client.version,
                }
                for client in members.values()
            ]
            for group, members in self._broker.clients.producers.items()
        }
        return ok(command, data=body({"data": shown}))

    @handles(RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def relay(self, command: Command, _peer: Peer) -> Command:
        """GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY: passes the request on to the consumer."""
        broker, group = self._broker, text(command, "consumerGroup")
        client_id = command.fields.get("clientId")
        consumers = broker.clients.consumers.get(group)
        member = consumers.member(client_id) if consumers is not None and client_id else None
        if member is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        fields, data = dict(command.fields), b""
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            fields["brokerName"] = broker.settings.text("brokerName")
            data = self._message_named(text(command, "msgId"))
        try:
            answer = await member.peer.request(Command(command.code, fields=fields, body=data), RELAY_S)
        except TimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout"
            raise RefusalError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from error
        except (MqtoolError, OSError) as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise RefusalError(ResponseCode.SYSTEM_ERROR, remark) from error
        return command.reply(answer.code, answer.remark, answer.fields, answer.body)

    def _message_named(self, offset_id: str) -> bytes:
        is_id = len(offset_id) in (32, 56)
        data = self._broker.messages.message_at(int(offset_id[-16:], 16)) if is_id else None
        if data is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"there is no message {offset_id}")
        return bytes(data)

    @handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def groups_of_topic(self, command: Command, _peer: Peer) -> Command:
        topic = text(command, "topic")
        groups = self._broker.clients.groups_of(topic) | self._broker.offsets.groups_of(topic)
        return ok(command, data=body({"groupList": sorted(groups)}))

    @handles(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def topics_of_group(self, command: Command, _peer: Peer) -> Command:
        return ok(command, data=body({"topicList": sorted(self._broker.offsets.topics_of(text(command, "group")))}))

    @handles(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def subscription(self, command: Command, _peer: Peer) -> Command:
        group, topic = text(command, "group"), text(command, "topic")
        consumers = self._broker.clients.consumers.get(group)
        subscription = consumers.subscriptions.get(topic) if consumers is not None else None
        shown = {"group": group, "topic": topic} | (
            {"subscriptionData": subscription.body()} if subscription is not None else {}
        )
        return ok(command, data=body(shown))

    @handles(RequestCode.GET_CONSUME_STATS)
    def consume_stats(self, command: Command, _peer: Peer) -> Command:
        """GET_CONSUME_STATS: of the topics that are listed, of one topic, or of all with a consumer offset.

        Except for a list, topics to which an online group does not subscribe are left out. Source:
        AdminBrokerProcessor.getTopicsForCollectingConsumeStats.
        """
        group, topic = text(command, "consumerGroup"), text(command, "topic", "").strip()
        topics = {name for name in text(command, "topicList", "").split(_TOPIC_SEPARATOR) if name}
        if not topics:
            subscribed = self._subscribed(group)
            topics = {topic} if topic else self._broker.offsets.topics_of(group)
            topics = {name for name in topics if not subscribed or name in subscribed or is_retry_of(name, group)}
        return ok(command, data=body(self.stats_of(group, sorted(topics))))

    def _subscribed(self, group: str) -> set[str]:
        consumers = self._broker.clients.consumers.get(group)
        return set(consumers.subscriptions) if consumers is not None else set()

    def stats_of(self, group: str, topics: list[str]) -> dict[str, Any]:
        """Returns the offsets and lag of a consumer group in topics (ConsumeStats)."""
        broker, table, rate = self._broker, {}, 0.0
        name = broker.settings.text("brokerName")
        for topic in topics:
            config = broker.topics.get(topic)
            if config is None:
                continue
            rate += broker.stats.per_second(GROUP_GET_NUMS, f"{topic}@{group}")
            committed = broker.offsets.of(group, topic)
            for queue_id in range(config.read_queue_nums):
                highest = broker.messages.queue_bounds(topic, queue_id)[1]
                offset = max(0, committed.get(queue_id, 0))
                pulled = broker.offsets.pulled(group, topic, queue_id)
                last = broker.messages.store_time(topic, queue_id, offset - 1) if offset > 0 else 0
                table[QueueName(name, queue_id, topic)] = {
                    "brokerOffset": highest,
                    "consumerOffset": offset,
                    "lastTimestamp": max(0, last),
                    "pullOffset": max(offset, pulled),
                }
        return {"consumeTps": rate, "offsetTable": table}

    @handles(RequestCode.GET_BROKER_CONSUME_STATS)
    def broker_consume_stats(self, command: Command, _peer: Peer) -> Command:
        broker, wants_order, total = self._broker, flag(command, "isOrder"), 0
        groups = []
        for group in broker.groups.table:
            stats = []
            for topic in sorted(broker.offsets.topics_of(group)):
                config = broker.topics.get(topic)
                if config is None or (wants_order and not config.order):
                    continue
                group_stats = self.stats_of(group, [topic])
                total += sum(row["brokerOffset"] - row["consumerOffset"] for row in group_stats["offsetTable"].values())
                stats.append(group_stats)
            groups.append({group: stats})
        shown = {"brokerAddr": broker.address, "consumeStatsList": groups, "totalDiff": total, "totalInflightDiff": 0}
        return ok(command, data=body(shown))

    @handles(RequestCode.QUERY_CONSUME_TIME_SPAN)
    def time_span(self, command: Command, _peer: Peer) -> Command:
        """QUERY_CONSUME_TIME_SPAN: how long ago the next message of each queue was stored; -1 for missing messages."""
        broker, topic, group = self._broker, text(command, "topic"), text(command, "group")
        config = broker.existing_topic(topic, f"topic[{topic}] not exist")
        name, shown = broker.settings.text("brokerName"), []
        now = broker.clock.now()
        for queue_id in range(config.write_queue_nums):
            store_time = partial(broker.messages.store_time, topic, queue_id)
            lowest, highest = broker.messages.queue_bounds(topic, queue_id)
            offset = broker.offsets.get(group, topic, queue_id) or 0
            oldest = store_time(lowest)
            shown.append(
                {
                    "consumeTimeStamp": store_time(offset - 1) if offset > 0 else oldest,
                    "delayTime": now - store_time(max(offset, lowest)) if offset < highest else 0,
                    "maxTimeStamp": store_time(highest - 1),
                    "messageQueue": QueueName(name, queue_id, topic),
                    "minTimeStamp": oldest,
                }
            )
        return ok(command, data=body({"consumeTimeSpanSet": shown}))

    @handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    def reset_offset(self, command: Command, _peer: Peer) -> Command:
        """INVOKE_BROKER_TO_RESET_OFFSET: sets consumer offsets, at which the next pull or pop of each queue begins.

        A 5.x broker sets offsets forward or back, with or without `isForce` (useServerSideResetOffset); a 4.9 broker
        sets them forward only with it.
        """
        broker, topic, group = self._broker, text(command, "topic"), text(command, "group")
        if broker.settings.text("brokerRole") == "SLAVE":  # AdminBrokerProcessor.resetOffsetInner (5.5.0)
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        config = broker.existing_topic(topic, f"Topic {topic} does not exist")
        if broker.groups.get(group) is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        at, only_queue = number(command, "timestamp", -1), number(command, "queueId", -1)
        if only_queue >= 0:
            check_queue_id(only_queue)
        queues = [only_queue] if only_queue >= 0 else list(range(config.read_queue_nums))
        given = number(command, "offset", -1)
        table = {}
        for queue_id in queues:
            lowest, highest = broker.messages.queue_bounds(topic, queue_id)
            if only_queue >= 0 and given != -1:
                if not lowest <= given <= highest + 1:
                    remark = f"Target offset {given} not in consume queue range [{lowest}-{highest}]"
                    raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)
                offset = given
            elif at < 0:
                offset = highest
            else:
                offset = broker.messages.offset_in_queue_by_time(topic, queue_id, at, Boundary.LOWER)
            known = broker.offsets.get(group, topic, queue_id)
            if broker.release < (5, 0) and not flag(command, "isForce") and known is not None and offset > known:
                offset = known
            broker.offsets.reset(group, topic, queue_id, offset)
            table[QueueName(broker.settings.text("brokerName"), queue_id, topic)] = offset
            broker.long_polling.wake(topic, queue_id)
        return ok(command, data=body({"offsetTable": table}))

    @handles(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def consumer_status(self, command: Command, _peer: Peer) -> Command:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: returns the offsets that the members report."""
        broker, topic, group = self._broker, text(command, "topic"), text(command, "group")
        address = command.fields.get("clientAddr")
        consumers = broker.clients.consumers.get(group)
        if consumers is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        pieces = []
        for member in list(consumers.members.values()):
            if address and member.client_id != address:
                continue
            fields = {"topic": topic, "group": group}
            answer = await broker.request(member.peer, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields, b"", 5.0)
            if answer is not None and answer.code == ResponseCode.SUCCESS and answer.body:
                table = bytes(answer.body).decode("utf-8", "replace").partition('"messageQueueTable":')[2].rstrip("}")
                pieces.append(f"{body(member.client_id).decode()}:{table or '{'}}}")
        return ok(command, data=('{"consumerTable":{' + ",".join(pieces) + '},"messageQueueTable":{}}').encode())

    @handles(RequestCode.CLONE_GROUP_OFFSET)
    def clone(self, command: Command, _peer: Peer) -> Command:
        broker, source, target = self._broker, text(command, "srcGroup"), text(command, "destGroup")
        topic = command.fields.get("topic")
        for name in [topic] if topic else sorted(broker.offsets.topics_of(source)):
            if broker.topics.get(name) is not None:
                broker.offsets.clone(source, target, name)
        return ok(command)


def _connection(member: Client) -> dict[str, Any]:
    return {
        "clientAddr": member.peer.address,
        "clientId": member.client_id,
        "language": member.language,
        "version": member.version,
    }
