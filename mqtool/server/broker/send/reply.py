"""Request-reply: pushes a reply to the client that sent the request. Source: ReplyMessageProcessor (5.5.0)."""

import logging
import random
import time
from collections.abc import Mapping

from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.formats import hosts, java, properties
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.send.header import SendHeader, header_of
from mqtool.server.broker.send.send_message import topic_of_send
from mqtool.server.net.peer import Handler, Peer

_LOG = logging.getLogger(__name__)

REPLY_TO = "REPLY_TO_CLIENT"
PUSH_STATUS = "PUSH_REPLY_TIME"
_PUSH_S = 10.0


class ReplyProcessor:
    """Handles SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(self, command: Command, peer: Peer) -> Command:
        """Pushes the reply to the client that waits for it; also stores it if storeReplyMessageEnable is set."""
        broker, header = self._broker, header_of(command)
        existing = broker.topics.get(header.topic)
        config, queue_id = topic_of_send(broker, header), header.queue_id
        if existing is None:
            await broker.persister.saved()
        if queue_id < 0:
            queue_id = random.randrange(max(1, config.write_queue_nums))  # noqa: S311 - load balancing, not security
        values = properties.decode(java.encode_utf8(header.properties))
        pushed = await self._push(command, peer, header, values)
        fields = {"msgId": "0" if pushed is None else "", "queueId": str(queue_id), "queueOffset": "0"}
        code, remark = (ResponseCode.SUCCESS, None) if pushed is None else (ResponseCode.SYSTEM_ERROR, pushed)
        if broker.settings.flag("storeReplyMessageEnable"):
            values[PUSH_STATUS] = str(time.time_ns() // 1_000_000)
            result = await broker.writer.store(
                OutgoingMessage(
                    header.topic,
                    queue_id,
                    bytes(command.body),
                    properties.encode(values.items()),
                    header.flag,
                    header.sys_flag,
                    header.born_timestamp,
                    broker.host_of(peer),
                    broker.store_host,
                    header.reconsume_times,
                )
            )
            if result.ok:
                fields |= {"msgId": result.offset_message_id, "queueOffset": str(result.queue_offset)}
            else:  # the client has it all the same
                _LOG.warning("reply not stored topic=%s status=%s", header.topic, result.status.value)
        return command.reply(code, remark, fields)

    async def _push(self, command: Command, peer: Peer, header: SendHeader, values: dict[str, str]) -> str | None:
        """Pushes the reply to the client that waits for it; returns the error, or None on success."""
        broker, client_id = self._broker, values.get(REPLY_TO)
        if client_id is None:
            return f"reply message properties[{REPLY_TO}] is null"
        target = broker.clients.peer_of(client_id)
        if target is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        fields = {
            "producerGroup": header.group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_topic_queues),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_timestamp),
            "flag": str(header.flag),
            "properties": header.properties,
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": str(header.unit_mode).lower(),
            "bornHost": peer.address,
            "storeHost": hosts.text_of(broker.store_host),
            "storeTimestamp": str(time.time_ns() // 1_000_000),
        }
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        answer = await broker.request(target, code, fields, bytes(command.body), _PUSH_S)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            return None
        if answer is not None:
            _LOG.warning("reply refused client=%s remark=%s", client_id, answer.remark)
        return f"push reply message to {client_id}fail."
