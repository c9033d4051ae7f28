"""Handles sends: stores messages of producers.

`SendProcessor` handles every send. `fast_path` handles the most frequent kind in fewer steps; the rules that both apply
are functions of this module. The header of a request has two forms: full field names, and one-letter names (V2,
batches). Source: SendMessageProcessor, AbstractSendMessageProcessor, SendMessageRequestHeader,
SendMessageRequestHeaderV2 (5.5.0).
"""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from mqtool.engine import AppendStatus, PutResult, PutStatus
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import hosts, java, message_batch, properties
from mqtool.formats.commit_log import TRANSACTION_MASK, SysFlag
from mqtool.formats.config_files import BATCH_QUEUES, TopicConfig
from mqtool.formats.topics import NOT_FOR_SENDERS, RETRY_PREFIX, dead_letter_topic, group_of_retry, lite_queue
from mqtool.protocol.command import FAQ, Command, RequestCode, ResponseCode
from mqtool.server.broker import attributes
from mqtool.server.broker.answers import REFUSED, STORED, RefusalError, integer, number, refusal, text
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.config import BrokerSettings
from mqtool.server.broker.delay import Timer
from mqtool.server.broker.send import transactions
from mqtool.server.clock import ServerClock
from mqtool.server.net.peer import Peer

V1 = {
    "group": "producerGroup",
    "topic": "topic",
    "default_topic": "defaultTopic",
    "default_topic_queues": "defaultTopicQueueNums",
    "queue_id": "queueId",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "flag": "flag",
    "properties": "properties",
    "reconsume_times": "reconsumeTimes",
    "unit_mode": "unitMode",
    "max_reconsume_times": "maxReconsumeTimes",
    "batch": "batch",
}
V2 = dict(zip(V1, "abcdefghijklm", strict=True))
"""One-letter field names of the V2 header, by attribute of SendHeader."""
_LONG_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_TRUE = frozenset({"true", "True", "TRUE", "1"})


class SendHeader(NamedTuple):
    """The fields of a send request."""

    group: str
    topic: str
    default_topic: str
    default_topic_queues: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    batch: bool


def topic_in(command: Command) -> str:
    """Returns the topic that the header of a request names, of whatever code; "" for none."""
    return command.fields.get("topic") or command.fields.get(V2["topic"], "")


def header_of(command: Command) -> SendHeader:
    """Parses the header of a send request; raises RefusalError if a field is missing, or is not a number.

    A request that marks a batch with "1" is a batch here, as its sender intends; the real broker stores it as one
    message.
    """
    attributes = V1 if command.code in _LONG_CODES else V2
    fields = command.fields
    limit = attributes["max_reconsume_times"]
    return SendHeader(
        text(command, attributes["group"]),
        text(command, attributes["topic"]),
        fields.get(attributes["default_topic"], ""),
        integer(command, attributes["default_topic_queues"], 0),
        integer(command, attributes["queue_id"]),
        integer(command, attributes["sys_flag"]),
        number(command, attributes["born_timestamp"]),
        integer(command, attributes["flag"]),
        fields.get(attributes["properties"]) or "",
        integer(command, attributes["reconsume_times"], 0),
        java.parse_boolean(fields.get(attributes["unit_mode"])),
        integer(command, limit) if fields.get(limit) else None,
        fields.get(attributes["batch"]) in _TRUE or command.code == RequestCode.SEND_BATCH_MESSAGE,
    )


MAX_PROPERTIES = 32767
"""Maximum size of a message's properties in bytes, including those that the broker adds."""

BROKER_PROPERTIES = (properties.POP_CHECK_POINT, properties.MSG_REGION, properties.TRACE_SWITCH, properties.CLUSTER)
"""Properties that only a broker may set; they are removed from a client's message."""

_INNER_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_OF_ANOTHER_TYPE = {
    properties.TRANSACTION_PREPARED,
    properties.DELAY_LEVEL,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELIVER_MS,
    properties.SHARDING_KEY,
    properties.LITE_TOPIC,
}
_UNIQUE_KEY_MARK = properties.mark(properties.UNIQUE_KEY)


class SentProperties:
    """The properties of a send: parsed at most once, and encoded again only if a rule changes them."""

    def __init__(self, text: str) -> None:
        self._text = text if not text or text[-1] == "\x02" else text + "\x02"
        self._values: dict[str, str] | None = None
        self._is_changed = False

    @property
    def values(self) -> dict[str, str]:
        """Values by name; see `properties.decode`."""
        if self._values is None:
            self._values = properties.decode(java.encode_utf8(self._text))
        return self._values

    def get(self, name: str) -> str:
        """Returns a value; "" if there is none."""
        return self.values.get(name, "") if f"{name}\x01" in self._text else ""

    def put(self, name: str, value: str) -> None:
        """Adds a property, or changes its value."""
        self.values[name], self._is_changed = value, True

    def drop(self, name: str) -> None:
        """Removes a property."""
        if f"{name}\x01" in self._text:
            self.values.pop(name, None)
            self._is_changed = True

    def encoded(self) -> bytes:
        """Returns the properties as bytes; the original ones if nothing was changed."""
        return java.encode_utf8(properties.encode_text(self.values.items()) if self._is_changed else self._text)


class _Put(NamedTuple):
    """A send whose message or batch has been put."""

    command: Command
    header: SendHeader
    queue_id: int  # queue id of the request, or the one chosen for it; a half message is stored in another queue
    message: OutgoingMessage  # the message as it was put; for a batch, `body` is the whole batch
    result: PutResult


class SendProcessor(RequestProcessor):
    """Handles SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(self, broker: Broker, timer: Timer) -> None:
        super().__init__(broker)
        self._timer = timer

    @handles(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    def send(self, command: Command, peer: Peer) -> Command | Awaitable[Command]:
        """Stores a message or a batch; answers when it is as durable as the store's flush mode requires."""
        header = header_of(command)
        existing = self._broker.topics.get(header.topic)
        config = topic_of_send(self._broker, header)
        if header.topic.startswith(RETRY_PREFIX) and not header.batch:  # a batch is refused
            header, config = self._exhausted(header, config)
        if existing is None:
            return self._after_creation(command, peer, header, config)
        return self._store(command, peer, header, config)

    async def _after_creation(self, command: Command, peer: Peer, header: SendHeader, config: TopicConfig) -> Command:
        """Stores a message once the new topic's configuration is written; without it the message is unreadable."""
        await self._broker.persister.saved()
        answer = self._store(command, peer, header, config)
        return answer if isinstance(answer, Command) else await answer

    def _store(
        self, command: Command, peer: Peer, header: SendHeader, config: TopicConfig
    ) -> Command | Awaitable[Command]:
        broker, queue_id = self._broker, header.queue_id
        if not header.batch and len(command.body) > broker.settings.number("maxMessageSize"):
            raise RefusalError(*REFUSED[PutStatus.MESSAGE_ILLEGAL])
        if queue_id < 0:
            queue_id = random.randrange(max(1, config.write_queue_nums))  # noqa: S311 - load balancing, not security
        sent = SentProperties(header.properties)
        if not header.batch:
            _add_light_queue(sent, header.topic)
            _convert_delivery_time(sent, broker.clock)
            queue_id = _queue_by_priority(sent, queue_id, config)
            if config.is_compacted and java.is_blank(sent.get(properties.KEYS)):
                raise RefusalError(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        message = OutgoingMessage(
            header.topic,
            queue_id,
            bytes(command.body),
            stored_properties(sent, broker.settings, needs_key=not header.batch),
            header.flag,
            header.sys_flag | topic_flags(config),
            header.born_timestamp,
            broker.host_of(peer),
            broker.store_host,
            header.reconsume_times,
        )
        if not message.sys_flag & TRANSACTION_MASK:
            _delay_level(sent)  # the real broker fails on a delay level that is not a number
        message, result = self._put_batch(message, config) if header.batch else self._put_one(message, sent)
        put = _Put(command, header, queue_id, message, result)
        future = broker.writer.flushed(result, message.properties)
        return self._answer(put) if future is None else self._answer_later(put, future)

    def _put_one(self, message: OutgoingMessage, sent: SentProperties) -> tuple[OutgoingMessage, PutResult]:
        """Puts one message; a half message goes into the half topic."""
        if _is_half(message, sent):
            message = transactions.half_message(message)
        elif message.sys_flag & TRANSACTION_MASK:
            message = message._replace(sys_flag=message.sys_flag & ~TRANSACTION_MASK)
        return message, self._broker.writer.put(message)

    def _put_batch(self, message: OutgoingMessage, config: TopicConfig) -> tuple[OutgoingMessage, PutResult]:
        """Puts a batch: as one record if the topic has BatchConsumeQueues, otherwise as one record per message."""
        broker = self._broker
        is_inner = keeps_batches(config) and bool(unique_key_of(message.properties)) and broker.release >= (5, 0)
        if is_inner:
            count = properties.encode([(properties.INNER_NUM, str(_count_in(message.body)))])
            message = message._replace(properties=message.properties + count, sys_flag=message.sys_flag | _INNER_BATCH)
        if message.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {message.topic}"
            raise RefusalError(ResponseCode.MESSAGE_ILLEGAL, remark)
        return message, broker.writer.put(message) if is_inner else broker.writer.put_batch(message)

    async def _answer_later(self, put: _Put, future: "asyncio.Future[PutStatus]") -> Command:
        return self._answer(put._replace(result=put.result._replace(status=await future)))

    def _answer(self, put: _Put) -> Command:
        broker, settings = self._broker, self._broker.settings.values
        result, message = put.result, put.message
        code = STORED.get(result.status)
        if code is None or result.append_status is not AppendStatus.PUT_OK:
            raise put_refused(broker, result)
        broker.stats.put(put.header.topic, put.queue_id, len(result.physical_offsets) or 1, result.size)
        fields = answer_fields(settings, _ids_of(result), str(put.queue_id), str(result.queue_offset))
        key = unique_key_of(message.properties)
        if key:
            fields["transactionId"] = key
        if message.sys_flag & _INNER_BATCH:  # tells the client that one record contains the batch
            fields["batchUniqId"] = key
        if not put.header.batch and b"TIMER_" in message.properties:
            handle = self._timer.handle_of(message, settings["brokerName"], key)
            if handle:
                fields["recallHandle"] = handle
        return put.command.reply(code, None, fields)

    def _exhausted(self, header: SendHeader, config: TopicConfig) -> tuple[SendHeader, TopicConfig]:
        """Returns header and topic for a message of a retry topic, or of the dead letter topic after too many retries.

        Source: SendMessageProcessor.handleRetryAndDLQ.
        """
        broker = self._broker
        group = group_of_retry(header.topic, ())
        group_config = broker.existing_group(group, f"subscription group not exist, {group}")
        limit = header.max_reconsume_times if header.max_reconsume_times is not None else group_config.retry_max_times
        if header.reconsume_times <= limit and not broker.locks.any_held(group):
            return header, config
        topic = dead_letter_topic(group)
        config = broker.topics.create_for_send_back(topic, 1)
        return header._replace(topic=topic, queue_id=0, properties=_without_delay(header.properties)), config


# -- rules of every send ---------------------------------------------------------------------------------------------


def topic_of_send(broker: Broker, header: SendHeader) -> TopicConfig:
    """Returns the topic of a send, created if allowed; raises RefusalError, checking in the real broker's order.

    Source: AbstractSendMessageProcessor.msgCheck.
    """
    topic = header.topic
    config = broker.topics.get(topic)
    if config is not None and config.order:
        broker.check_writable()
    else:
        broker.check_open()
    if config is None:
        problem = attributes.topic_problem(topic)
        if problem is not None:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, problem)
    if topic in NOT_FOR_SENDERS:
        raise RefusalError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    if config is None:
        config = broker.topics.create_for_send(
            topic, header.default_topic, header.default_topic_queues, unit=header.unit_mode
        )
    if config is None and topic.startswith(RETRY_PREFIX):
        config = broker.topics.create_for_send_back(topic, 1, unit=header.unit_mode)
    if config is None:
        raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
    if header.queue_id >= queue_limit(config):
        raise RefusalError(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{header.queue_id}] is illegal, TopicConfig [topicName={topic}, "
            f"readQueueNums={config.read_queue_nums}, writeQueueNums={config.write_queue_nums}]",
        )
    return config


def queue_limit(config: TopicConfig) -> int:
    """Returns the number of queues to which a send may go: the larger of the topic's write and read queue numbers."""
    return max(config.write_queue_nums, config.read_queue_nums)


def topic_flags(config: TopicConfig) -> int:
    """Returns the sys_flag bits that messages get from their topic."""
    return int(SysFlag.MULTI_TAGS) if config.topic_filter_type == "MULTI_TAG" else 0


def _add_light_queue(sent: SentProperties, topic: str) -> None:
    """Makes dispatch add a lite topic's message to the light queue (LMQ) too."""
    if name := sent.get(properties.LITE_TOPIC):
        sent.put(properties.INNER_MULTI_DISPATCH, lite_queue(topic, name))


def _convert_delivery_time(sent: SentProperties, clock: ServerClock) -> None:
    """Converts a delivery time of the producer's clock, which a test does not advance, to one of the broker's."""
    due = sent.get(properties.TIMER_DELIVER_MS) or ""
    if due.isdecimal() and (moved := clock.moved(int(due))) != int(due):
        sent.put(properties.TIMER_DELIVER_MS, str(moved))


def _queue_by_priority(sent: SentProperties, queue_id: int, config: TopicConfig) -> int:
    """Returns the queue id for a message: its priority, if it has one, limited to the last queue.

    A message that is of another type by its properties loses its priority.
    Source: SendMessageProcessor.sendMessage, TopicMessageType.parseFromMessageProperty.
    """
    try:
        priority = java.parse_int(sent.get(properties.PRIORITY) or "-1")
    except FormatError:
        return queue_id
    if priority < 0:
        return queue_id
    if _OF_ANOTHER_TYPE & sent.values.keys():
        sent.drop(properties.PRIORITY)
        return queue_id
    return min(priority, max(1, config.write_queue_nums) - 1)


def keeps_batches(config: TopicConfig) -> bool:
    """Whether a batch is stored as a single record in a topic."""
    return config.queue_type == BATCH_QUEUES


def added_properties(settings: BrokerSettings) -> str:
    """Returns the properties that the broker adds to every message, encoded."""
    attributes = (properties.MSG_REGION, properties.TRACE_SWITCH, properties.CLUSTER)
    values = (settings.text(key) for key in ("regionId", "traceOn", "brokerClusterName"))
    return properties.encode_text(zip(attributes, values, strict=True))


def stored_properties(sent: SentProperties, settings: BrokerSettings, *, needs_key: bool) -> bytes:
    """Returns the properties of a message as they are stored; with `needs_key`, one without a unique key gets one.

    Raises RefusalError if they are longer than MAX_PROPERTIES. Source: AbstractSendMessageProcessor.buildMsgContext,
    SendMessageProcessor.sendMessage.
    """
    for name in BROKER_PROPERTIES:
        sent.drop(name)
    encoded = sent.encoded()
    if needs_key and not properties.value(encoded, _UNIQUE_KEY_MARK):
        encoded += properties.encode([(properties.UNIQUE_KEY, secrets.token_hex(16).upper())])
    encoded += java.encode_utf8(added_properties(settings))
    if len(encoded) > MAX_PROPERTIES:
        raise RefusalError(*REFUSED[PutStatus.PROPERTIES_SIZE_EXCEEDED])
    return encoded


def answer_fields(settings: Mapping[str, str], ids: str, queue_id: str, queue_offset: str) -> dict[str, str]:
    """Returns the header fields of the answer to a send; the position is that of the first message."""
    return {
        "msgId": ids,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "MSG_REGION": settings["regionId"],
        "TRACE_ON": settings["traceOn"],
    }


def put_refused(broker: Broker, result: PutResult) -> RefusalError:
    """Counts a put that the store refused; returns the refusal."""
    broker.stats.put_failures += 1
    return refusal(result)


def id_prefix(store_host: bytes) -> str:
    """Returns the common start of a broker's offset message ids: all but the 16 digits of the physical offset."""
    return hosts.format_offset_id(store_host, 0)[:-16]


def _ids_of(result: PutResult) -> str:
    """Returns the offset message ids of stored messages; those of a batch differ only in the physical offset."""
    if not result.physical_offsets:
        return result.offset_message_id
    prefix = id_prefix(result.store_host)
    return ",".join([f"{prefix}{offset:016X}" for offset in result.physical_offsets])


def _count_in(body: bytes) -> int:
    """Returns the number of messages in a batch; raises RefusalError if the body is not a batch."""
    try:
        return sum(1 for _ in message_batch.split(body))
    except FormatError as error:
        raise RefusalError(*REFUSED[PutStatus.MESSAGE_ILLEGAL]) from error


def _delay_level(sent: SentProperties) -> int:
    """Returns the delay level in properties, 0 if there is none; raises RefusalError if it is not a number."""
    try:
        return java.parse_int(sent.get(properties.DELAY_LEVEL) or "0")
    except FormatError as error:
        remark = f"the property {properties.DELAY_LEVEL} is not a delay level: {error}"
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark) from error


def _is_half(message: OutgoingMessage, sent: SentProperties) -> bool:
    """Whether a message is a half message: marked as one, and not sent again with a delay after a failed consumption.

    Source: SendMessageProcessor.sendMessage.
    """
    is_marked = java.parse_boolean(sent.get(properties.TRANSACTION_PREPARED))
    return is_marked and (message.reconsume_times <= 0 or _delay_level(sent) <= 0)


def _without_delay(given: str) -> str:
    pieces = [piece for piece in given.split("\x02") if piece and not piece.startswith("DELAY\x01")]
    return "".join(piece + "\x02" for piece in pieces)


def unique_key_of(encoded: bytes) -> str:
    """Returns the unique key in encoded properties; "" if there is none."""
    return java.decode_utf8(properties.value(encoded, _UNIQUE_KEY_MARK))
