"""Handles messages that consumers send: those that they send back, and replies.

A message sent back is retried later, or becomes a dead letter. A reply is pushed to the client that sent the request.
Source: AbstractSendMessageProcessor.consumerSendMsgBack, ReplyMessageProcessor (5.5.0).
"""

import logging
import random

from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import hosts, java, properties
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.formats.topics import dead_letter_topic, retry_topic
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import STORED, RefusalError, flag, number, ok, text
from mqtool.server.broker.broker import RequestProcessor, handles
from mqtool.server.broker.messages import ParsedRecord, parsed_record, requeued
from mqtool.server.broker.send.send_message import SendHeader, header_of, topic_of_send
from mqtool.server.net.peer import Peer

_FIRST_LEVEL = 3
_VERSION_WITH_LIMIT = 121
"""MQVersion.V3_4_9: from this version on, clients send the maximum number of retries."""


class SendBackProcessor(RequestProcessor):
    """Handles CONSUMER_SEND_MSG_BACK."""

    @handles(RequestCode.CONSUMER_SEND_MSG_BACK)
    async def send_back(self, command: Command, _peer: Peer) -> Command:
        """Stores the message again, in the retry topic or dead letter topic of its consumer group."""
        broker = self._broker
        group, level = text(command, "group"), number(command, "delayLevel")
        config = broker.existing_group(group, f"subscription group not exist, {group}")
        broker.check_writable()
        if config.retry_queue_nums <= 0:
            return ok(command)
        message = self._message_at(number(command, "offset"))
        limit = config.retry_max_times
        if command.version >= _VERSION_WITH_LIMIT:
            limit = number(command, "maxReconsumeTimes", limit)
        changed = dict(message.properties)
        changed.setdefault(properties.RETRY_TOPIC, message.topic)
        changed[properties.WAIT] = "false"
        record = message.record
        if record.reconsume_times >= limit or level < 0:
            topic, queues = dead_letter_topic(group), 1
            changed.pop(properties.DELAY_LEVEL, None)
        else:
            topic, queues = retry_topic(group), min(config.retry_queue_nums, MAX_QUEUES)
            changed[properties.DELAY_LEVEL] = str(level or _FIRST_LEVEL + record.reconsume_times)
        broker.topics.create_for_send_back(topic, queues, unit=flag(command, "unitMode"))
        await broker.persister.saved()
        first = changed.get(properties.ORIGIN_MESSAGE_ID) or hosts.format_offset_id(
            record.store_host, record.physical_offset
        )
        changed[properties.ORIGIN_MESSAGE_ID] = first
        for name in (properties.REAL_TOPIC, properties.REAL_QUEUE_ID):
            changed.pop(name, None)
        queue_id = random.randrange(queues)  # noqa: S311 - load balancing, not security
        outgoing = requeued(message, topic, queue_id, changed, broker.store_host)
        result = await broker.writer.store(outgoing._replace(reconsume_times=record.reconsume_times + 1))
        code = STORED.get(result.status)
        if code is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, result.status.value)
        broker.stats.sent_back(group, message.topic)
        return ok(command)

    def _message_at(self, physical_offset: int) -> ParsedRecord:
        try:
            return parsed_record(self._broker.messages.message_at(physical_offset) or b"")
        except FormatError as error:
            remark = f"look message by offset failed, {physical_offset}"
            raise RefusalError(ResponseCode.SYSTEM_ERROR, remark) from error


_LOG = logging.getLogger(__name__)

REPLY_TO = "REPLY_TO_CLIENT"
PUSH_STATUS = "PUSH_REPLY_TIME"
PUSH_S = 10.0


class ReplyProcessor(RequestProcessor):
    """Handles SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    @handles(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
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
            values[PUSH_STATUS] = str(broker.clock.now())
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
            "storeTimestamp": str(broker.clock.now()),
        }
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        answer = await broker.request(target, code, fields, bytes(command.body), PUSH_S)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            return None
        if answer is not None:
            _LOG.warning("reply refused client=%s remark=%s", client_id, answer.remark)
        return f"push reply message to {client_id}fail."
