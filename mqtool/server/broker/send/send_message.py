"""Send: messages from producers into the store. Source: SendMessageProcessor, AbstractSendMessageProcessor (5.5.0)."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Mapping

from mqtool.engine import AppendStatus, PutResult, PutStatus
from mqtool.engine.config_files import BATCH_QUEUES
from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import java, message_batch, properties
from mqtool.formats.commit_log import TRANSACTION_MASK, SysFlag
from mqtool.formats.config_files import TopicConfig
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker import names
from mqtool.server.broker.answers import FAQ, RefusalError
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.delay.timer import Timer
from mqtool.server.broker.send import transactions
from mqtool.server.broker.send.fast_path import (
    LONGEST_PROPERTIES,
    MULTI_TAGS,
    QuickSends,
    added_properties,
    offset_id_start,
    utf8,
)
from mqtool.server.broker.send.header import SendHeader, header_of
from mqtool.server.broker.send.put_answers import REFUSED, STORED, refusal
from mqtool.server.net.peer import Handler, Peer

_INNER_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


class SendProcessor:
    """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE."""

    def __init__(self, broker: Broker, timer: Timer) -> None:
        """Takes the broker whose tables and store it uses, and its timer."""
        self._broker = broker
        self._timer = timer
        self._quick = QuickSends(broker) if broker.is_writable and not broker.messages.options.sync else None

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, command: Command, peer: Peer) -> Command | Awaitable[Command] | None:
        """Stores a message or a batch; answers when it is as durable as the store's flush mode says.

        Returns:
            None if the answer was sent.
        """
        if self._quick is not None and self._quick.send(command, peer):
            return None
        header = header_of(command)
        existing = self._broker.topics.get(header.topic)
        config = self._topic(header)
        if header.topic.startswith(names.RETRY_PREFIX) and header.max_reconsume_times is not None:
            header, config = self._given_up(header, config)
        if existing is None:
            return self._after_creation(command, peer, header, config)
        return self._store(command, peer, header, config)

    async def _after_creation(self, command: Command, peer: Peer, header: SendHeader, config: TopicConfig) -> Command:
        await self._broker.keeper.saved()
        answer = self._store(command, peer, header, config)
        return answer if isinstance(answer, Command) else await answer

    def _store(
        self, command: Command, peer: Peer, header: SendHeader, config: TopicConfig
    ) -> Command | Awaitable[Command]:
        broker, data = self._broker, bytes(command.body)
        if len(data) > broker.settings.number("maxMessageSize") and not header.batch:
            raise RefusalError(*REFUSED[PutStatus.MESSAGE_ILLEGAL])
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(max(1, config.write_queue_nums))  # noqa: S311 - spreads load, hides nothing
        sys_flag = header.sys_flag | (MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0)
        if header.batch:
            encoded = self._properties(header, needs_key=False)
            is_inner = config.queue_type == BATCH_QUEUES and bool(unique_key_of(encoded)) and not broker.is_v4
            if is_inner:
                sys_flag |= _INNER_BATCH
                encoded += f"{properties.INNER_NUM}\x01{_count_in(data)}\x02".encode()
            message = OutgoingMessage(
                header.topic,
                queue_id,
                data if is_inner else b"",
                encoded,
                header.flag,
                sys_flag,
                header.born_timestamp,
                broker.host_of(peer),
                broker.store_host,
                header.reconsume_times,
            )
            if header.topic.startswith(names.RETRY_PREFIX):
                remark = f"batch request does not support retry group {header.topic}"
                raise RefusalError(ResponseCode.MESSAGE_ILLEGAL, remark)
            if is_inner:
                result = broker.writer.put(message)
            else:
                result = broker.writer.put_batch(header.topic, queue_id, data, message)
        else:
            encoded = self._properties(header, needs_key=True)
            message = OutgoingMessage(
                header.topic,
                queue_id,
                data,
                encoded,
                header.flag,
                sys_flag,
                header.born_timestamp,
                broker.host_of(peer),
                broker.store_host,
                header.reconsume_times,
            )
            if "TRAN_MSG" in header.properties and is_prepared(header.properties):
                message = transactions.half_message(message)
            elif sys_flag & TRANSACTION_MASK:
                message = message._replace(sys_flag=sys_flag & ~TRANSACTION_MASK)
            result = broker.writer.put(message)
        future = broker.writer.flushed(result, message.properties)
        if future is None:
            return self._answer(command, header, queue_id, message, result)
        return self._answer_later(command, header, queue_id, message, result, future)

    async def _answer_later(
        self,
        command: Command,
        header: SendHeader,
        queue_id: int,
        message: OutgoingMessage,
        result: PutResult,
        future: "asyncio.Future[PutStatus]",
    ) -> Command:
        return self._answer(command, header, queue_id, message, result._replace(status=await future))

    def _answer(
        self, command: Command, header: SendHeader, queue_id: int, message: OutgoingMessage, result: PutResult
    ) -> Command:
        broker, settings = self._broker, self._broker.settings.values
        code = STORED.get(result.status)
        if code is None or result.append_status is not AppendStatus.PUT_OK:
            broker.stats.put_failed()
            raise refusal(result)
        count = len(result.physical_offsets) or 1
        broker.stats.put(header.topic, queue_id, count, result.size)
        fields = {
            "msgId": _ids_of(result),
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
            "MSG_REGION": settings["regionId"],
            "TRACE_ON": settings["traceOn"],
        }
        if message.sys_flag & _INNER_BATCH:  # so the client knows that one record holds its batch
            fields["batchUniqId"] = fields["transactionId"] = unique_key_of(message.properties)
        if not header.batch:
            key = unique_key_of(message.properties)
            if key:
                fields["transactionId"] = key
            if b"TIMER_" in message.properties:
                handle = self._timer.handle_of(message, settings["brokerName"], key)
                if handle:
                    fields["recallHandle"] = handle
        return command.reply(code, None, fields)

    # -- what is stored ------------------------------------------------------------------------------------------

    def _properties(self, header: SendHeader, *, needs_key: bool) -> bytes:
        """Returns the properties with what a broker adds to them (AbstractSendMessageProcessor.buildMsgContext)."""
        given = header.properties
        if given and given[-1] != "\x02":
            given += "\x02"
        if "POP_CK\x01" in given or "MSG_REGION\x01" in given or "TRACE_ON\x01" in given or "CLUSTER\x01" in given:
            found = properties.decode(java.encode_utf8(given))
            for name in ("POP_CK", properties.MSG_REGION, properties.TRACE_SWITCH, properties.CLUSTER):
                found.pop(name, None)
            given = "".join(f"{name}\x01{value}\x02" for name, value in found.items())
        if needs_key and "UNIQ_KEY\x01" not in given:
            given += f"UNIQ_KEY\x01{secrets.token_hex(16).upper()}\x02"
        encoded = utf8(given + added_properties(self._broker.settings))
        if len(encoded) > LONGEST_PROPERTIES:
            raise RefusalError(*REFUSED[PutStatus.PROPERTIES_SIZE_EXCEEDED])
        return encoded

    # -- checks --------------------------------------------------------------------------------------------------

    def _topic(self, header: SendHeader) -> TopicConfig:
        """Returns the topic of a send, created if that is allowed; raises RefusalError in the real broker's order."""
        broker, topic = self._broker, header.topic
        config = broker.topics.get(topic)
        broker.check_writable(config)
        if config is None:
            problem = names.topic_problem(topic)
            if problem is not None:
                raise RefusalError(ResponseCode.INVALID_PARAMETER, problem)
        if topic in names.NOT_FOR_SENDERS:
            raise RefusalError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        if config is None:
            config = broker.topics.create_for_send(
                topic, header.default_topic, header.default_topic_queues, unit=header.unit_mode
            )
        if config is None and topic.startswith(names.RETRY_PREFIX):
            config = broker.topics.create_for_send_back(topic, 1, unit=header.unit_mode)
        if config is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        bound = max(config.write_queue_nums, config.read_queue_nums)
        if header.queue_id >= bound:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, TopicConfig [topicName={topic}, "
                f"readQueueNums={config.read_queue_nums}, writeQueueNums={config.write_queue_nums}]",
            )
        return config

    def _given_up(self, header: SendHeader, config: TopicConfig) -> tuple[SendHeader, TopicConfig]:
        """Sends a message that was tried too often to the dead letters (handleRetryAndDLQ)."""
        broker = self._broker
        group = header.topic[len(names.RETRY_PREFIX) :]
        found = broker.groups.find(group)
        if found is None:
            raise RefusalError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        limit = header.max_reconsume_times if header.max_reconsume_times is not None else found.retry_max_times
        if header.reconsume_times <= limit and not broker.locks.any_held(group):
            return header, config
        topic = names.dead_letter_topic(group)
        config = broker.topics.create_for_send_back(topic, 1)
        return header._replace(topic=topic, queue_id=0, properties=_without_delay(header.properties)), config


def _ids_of(result: PutResult) -> str:
    """Returns the offset message ids of what was stored; of a batch all of them, which differ in the offset alone."""
    if not result.physical_offsets:
        return result.offset_message_id
    host = offset_id_start(result.store_host)
    return ",".join([f"{host}{offset:016X}" for offset in result.physical_offsets])


def _count_in(body: bytes) -> int:
    """Returns how many messages a batch holds; raises RefusalError if it is none."""
    try:
        return sum(1 for _ in message_batch.split(body))
    except FormatError as error:
        raise RefusalError(*REFUSED[PutStatus.MESSAGE_ILLEGAL]) from error


def is_prepared(given: str) -> bool:
    """Whether properties say that a message is the first half of a transaction."""
    found = properties.decode(java.encode_utf8(given))
    return java.parse_boolean(found.get(properties.TRANSACTION_PREPARED))


def _without_delay(given: str) -> str:
    pieces = [piece for piece in given.split("\x02") if piece and not piece.startswith("DELAY\x01")]
    return "".join(piece + "\x02" for piece in pieces)


def unique_key_of(encoded: bytes) -> str:
    """Returns the unique key in encoded properties, "" if there is none."""
    start = encoded.find(b"UNIQ_KEY\x01")
    if start < 0:
        return ""
    end = encoded.find(b"\x02", start)
    return encoded[start + 9 : end if end >= 0 else len(encoded)].decode("utf-8", "replace")
