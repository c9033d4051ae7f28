"""Handles messages that a consumer sends back: they are retried later, or become dead letters.

Source: AbstractSendMessageProcessor.consumerSendMsgBack (5.5.0).
"""

import random
from collections.abc import Mapping

from mqtool.errors import FormatError
from mqtool.formats import message_id, properties
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.formats.topics import dead_letter_topic, retry_topic
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError, flag, number, ok, text
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.parsed_record import ParsedRecord, parsed_record, requeued
from mqtool.server.broker.send.put_answers import STORED
from mqtool.server.net.peer import Handler, Peer

_FIRST_LEVEL = 3
_VERSION_WITH_LIMIT = 121
"""MQVersion.V3_4_9: from this version on, clients send the maximum number of retries."""


class SendBackProcessor:
    """Handles CONSUMER_SEND_MSG_BACK."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
        }

    async def send_back(self, command: Command, _peer: Peer) -> Command:
        """Stores the message again, in the retry topic or dead letter topic of its consumer group."""
        broker = self._broker
        group, level = text(command, "group"), number(command, "delayLevel")
        config = broker.groups.find(group)
        if config is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
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
        first = changed.get(properties.ORIGIN_MESSAGE_ID) or message_id.format_offset_id(
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
        data = self._broker.messages.message_at(physical_offset)
        try:
            if data is not None:
                return parsed_record(data)
        except FormatError:
            pass
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}")
