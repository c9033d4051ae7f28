"""Fast path of a send: handles the most frequent messages of the most frequent clients in as few steps as possible.

It is only an optimisation of `SendProcessor`: it uses that module's rules, and passes every request that is unusual in
any way on to it, without side effects. Stored bytes and answers are the same without it; the tests run every send both
ways. A message costs 5 µs of CPU time here, 11 µs on the ordinary path, without parsing and encoding frames. Source:
SendMessageProcessor, SendMessageRequestHeaderV2 (5.5.0).
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from mqtool.engine import AppendStatus, PutResult, PutStatus
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.formats import java, properties
from mqtool.formats.commit_log import TRANSACTION_MASK
from mqtool.formats.config_files import TopicConfig
from mqtool.formats.topics import NOT_FOR_SENDERS, RETRY_PREFIX
from mqtool.protocol.command import FLAG_ONEWAY, Command, RequestCode, ResponseCode, Serialization
from mqtool.protocol.frames import PreparedAnswer
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.send.send_message import (
    BROKER_PROPERTIES,
    MAX_PROPERTIES,
    V2,
    SendProcessor,
    added_properties,
    answer_fields,
    id_prefix,
    keeps_batches,
    put_refused,
    queue_limit,
    topic_flags,
)
from mqtool.server.net.peer import Answer, Handler, Peer

_GROUP, _TOPIC, _DEFAULT_QUEUES, _QUEUE_ID, _SYS_FLAG, _BORN, _FLAG, _PROPERTIES, _RECONSUME_TIMES, _LIMIT, _BATCH = (
    V2[name]
    for name in (
        "group",
        "topic",
        "default_topic_queues",
        "queue_id",
        "sys_flag",
        "born_timestamp",
        "flag",
        "properties",
        "reconsume_times",
        "max_reconsume_times",
        "batch",
    )
)

_NUMBERS = {str(number): number for number in range(1024)}
"""Integers by their text; a look-up is faster than parsing. Requests with other numbers are unusual."""

_MAX_DIGITS = 18
"""Maximum number of digits of a number; it then fits into 64 bits."""

_UNUSUAL_PROPERTIES = (
    *(f"{name}\x01" for name in BROKER_PROPERTIES),
    properties.TRANSACTION_PREPARED,
    properties.PRIORITY,
    properties.LITE_TOPIC,
)
"""Properties that change how a send is handled, besides those for which the writer rewrites messages."""

_KEY_MARK = properties.mark(properties.UNIQUE_KEY)

_BATCH_VALUES = {RequestCode.SEND_MESSAGE_V2: "false", RequestCode.SEND_BATCH_MESSAGE: "true"}
"""Expected value of the header's batch field, by request code."""

_JSON = Serialization.JSON
_APPENDED = AppendStatus.PUT_OK
_OK = PutStatus.PUT_OK

_new = tuple.__new__  # NamedTuple.__new__ takes three times as long


class _Topic(NamedTuple):
    """A topic whose sends only need a check of the queue id."""

    # the topic's configuration when this was determined; a different one in the table invalidates the entry
    config: TopicConfig
    queue_limit: int  # result of `send_message.queue_limit`
    sys_flag: int  # result of `send_message.topic_flags`


class _Prepared(NamedTuple):
    """Values that depend only on the settings, in the form that a send needs."""

    version: int  # version of the settings
    may_write: bool  # whether messages are accepted
    max_body: int  # maximum size of a body in bytes
    added: bytes  # properties that every message gets
    # searches for an unusual property in encoded properties that begin with a separator
    is_unusual: Callable[[bytes], object]
    # answer to a message, with placeholders for its offset message id's physical offset, queue id, queue offset and
    # unique key
    answer: PreparedAnswer
    # answer to a batch, with placeholders for the ids, queue id, queue offset and unique key
    batch_answer: PreparedAnswer
    id_pattern: bytes  # an offset message id and a comma, with a placeholder for the physical offset


class SendNumbers(NamedTuple):
    """The numeric fields of a send's header."""

    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    reconsume_times: int


class SendFastPath:
    """Handles usual V2 sends, for a store whose puts do not wait for a flush; passes others to `SendProcessor`."""

    def __init__(self, broker: Broker, sends: SendProcessor) -> None:
        self._broker = broker
        self._sends = sends
        self._settings = broker.settings
        self._topics = broker.topics.table
        self._known: dict[str, _Topic] = {}
        self._put = broker.writer.put_as_it_is
        self._put_batch = broker.writer.put_batch
        self._store_host = broker.store_host
        self._count = broker.stats.put
        self._prepared: _Prepared | None = None

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return {
            **self._sends.handlers(),
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, command: Command, peer: Peer) -> Awaitable[Answer] | Answer:
        """Stores a message or a batch; returns None if the answer has already been written to the peer.

        For headers in JSON the answer's frame is written directly; other requests are answered by a command. Raises
        RefusalError if the store did not accept the message.
        """
        answer = self._stored(command, peer)
        if answer is None:
            return self._sends.send(command, peer)
        if isinstance(answer, Command):
            return answer
        if not command.flag & FLAG_ONEWAY:
            peer.write(answer)
        return None

    def put(self, topic: str, numbers: SendNumbers, properties: str, body: bytes, peer: Peer) -> PutResult | None:
        """Stores one message of a client of another protocol; None, without doing anything, if it is unusual.

        The sys_flag has no transaction bits; properties are encoded as in requests. Raises RefusalError if the store
        did not accept the message.
        """
        prepared = self._current()
        message = self._message(prepared, topic, numbers, properties, body, peer)
        if message is None or len(body) > prepared.max_body:
            return None
        return self._put_counted(message)

    def _current(self) -> _Prepared:
        prepared = self._prepared
        if prepared is None or prepared.version != self._settings.version:
            prepared = self._prepared = self._prepare()
        return prepared

    def _message(
        self,
        prepared: _Prepared,
        name: str,
        numbers: SendNumbers,
        properties: str | None,
        body: bytes | memoryview,
        peer: Peer,
    ) -> OutgoingMessage | None:
        """Returns the message of a request; None if it is unusual."""
        topic = self._known.get(name)
        if topic is None or topic.config is not self._topics.get(name):
            topic = self._learn(name)
        if (
            topic is None
            or numbers[0] >= topic.queue_limit
            or not prepared.may_write
            or self._broker.is_stopping
            or not (encoded := _encoded(properties, prepared))
        ):
            return None
        return _new(
            OutgoingMessage,
            (
                name,
                numbers[0],
                bytes(body),
                encoded,
                numbers[3],
                numbers[1] | topic.sys_flag,
                numbers[2],
                peer.attributes.get("host_bytes") or self._broker.host_of(peer),
                self._store_host,
                numbers[4],
                0,
            ),
        )

    def _stored(self, command: Command, peer: Peer) -> Command | bytes | None:
        """Stores a message or a batch and returns the answer; returns None without doing anything if it is unusual."""
        fields, body, prepared = command.fields, command.body, self._current()
        is_batch = _BATCH_VALUES.get(command.code)  # type: ignore[call-overload]
        numbers = _numbers_of(fields)
        if numbers is None or is_batch is None or fields.get(_BATCH, "false") != is_batch:
            return None
        message = self._message(prepared, fields.get(_TOPIC, ""), numbers, fields.get(_PROPERTIES), body, peer)
        if message is None:
            return None
        key = properties.value(message.properties, _KEY_MARK)
        if not key.isalnum():  # the JSON answer would need escapes
            return None
        if is_batch == "true":
            return None if command.serialization is not _JSON else self._put_messages(message, prepared, key, command)
        if len(body) > prepared.max_body:
            return None
        return self._put_message(message, prepared, key, command)

    def _put_message(
        self, message: OutgoingMessage, prepared: _Prepared, key: bytes, command: Command
    ) -> Command | bytes:
        """Stores a message and returns the answer: a frame if the header is JSON, otherwise a command."""
        result, queue_id = self._put_counted(message), message.queue_id
        offset, place = result.physical_offset, result.queue_offset
        if command.serialization is _JSON:
            return prepared.answer.frame(offset, queue_id, place, key, command.opaque)
        message_id = prepared.id_pattern.decode()[:-1] % offset
        fields = answer_fields(self._settings.values, message_id, str(queue_id), str(place))
        fields["transactionId"] = key.decode()
        return command.reply(ResponseCode.SUCCESS, None, fields)

    def _put_counted(self, message: OutgoingMessage) -> PutResult:
        result = self._put(message)
        if result.append_status is not _APPENDED or result.status is not _OK:
            raise put_refused(self._broker, result)
        self._count(message[0], message[1], 1, result.size)
        return result

    def _put_messages(self, batch: OutgoingMessage, prepared: _Prepared, key: bytes, command: Command) -> bytes:
        """Stores the messages of a batch and returns the answer's frame."""
        result = self._put_batch(batch)
        if result.append_status is not _APPENDED or result.status is not _OK:
            raise put_refused(self._broker, result)
        offsets, queue_id = result.physical_offsets, batch.queue_id
        self._count(batch.topic, queue_id, len(offsets), result.size)
        ids = (prepared.id_pattern * len(offsets) % offsets)[:-1]
        return prepared.batch_answer.frame(ids, queue_id, result.queue_offset, key, command.opaque)

    def _learn(self, name: str) -> _Topic | None:
        """Returns the entry of a topic; None if its sends need more than the usual checks or steps."""
        config = self._topics.get(name)
        self._known.pop(name, None)
        if config is None or name in NOT_FOR_SENDERS or name.startswith(RETRY_PREFIX):
            return None
        if keeps_batches(config) or config.is_compacted or name in self._broker.static_topics.mappings:
            return None
        topic = self._known[name] = _Topic(config, queue_limit(config), topic_flags(config))
        return topic

    def _prepare(self) -> _Prepared:
        settings, broker = self._settings, self._broker
        marks = (*(name.encode() for name in _UNUSUAL_PROPERTIES), *(mark for mark, _ in broker.writer.rewrites))
        unusual = re.compile(b"\x02(?:" + b"|".join(map(re.escape, marks)) + b")")
        id_pattern = id_prefix(broker.store_host) + "%016X"
        escaped = {key: value.replace("%", "%%") for key, value in settings.values.items()}
        fields = answer_fields(escaped, id_pattern, "%d", "%d")
        return _Prepared(
            settings.version,
            broker.may_write,
            settings.number("maxMessageSize"),
            java.encode_utf8(added_properties(settings)),
            unusual.search,
            PreparedAnswer(ResponseCode.SUCCESS, {**fields, "transactionId": "%b"}, broker.version),
            PreparedAnswer(
                ResponseCode.SUCCESS,
                {**answer_fields(escaped, "%b", "%d", "%d"), "transactionId": "%b"},
                broker.version,
            ),
            f"{id_pattern},".encode(),
        )


def _numbers_of(fields: Mapping[str, str]) -> SendNumbers | None:
    """Returns the numeric fields of a header; None if one of them, or another field, is unusual."""
    known, born = _NUMBERS, fields.get(_BORN, "")
    queue_id, sys_flag = known.get(fields.get(_QUEUE_ID, "")), known.get(fields.get(_SYS_FLAG, ""))
    flag, times = known.get(fields.get(_FLAG, "")), known.get(fields.get(_RECONSUME_TIMES, "0"))
    if (
        queue_id is None
        or sys_flag is None
        or flag is None
        or times is None
        or sys_flag & TRANSACTION_MASK
        or not born.isdecimal()
        or len(born) > _MAX_DIGITS
        or _GROUP not in fields
        or fields.get(_DEFAULT_QUEUES, "0") not in known
        or fields.get(_LIMIT)
    ):
        return None
    return _new(SendNumbers, (queue_id, sys_flag, int(born), flag, times))


def _encoded(properties: str | None, prepared: _Prepared) -> bytes:
    """Returns properties as they are stored; b"" if they are unusual."""
    if not properties or properties[-1] != "\x02":
        return b""
    encoded = java.encode_utf8(properties)
    if prepared.is_unusual(b"\x02" + encoded):
        return b""
    encoded += prepared.added
    return encoded if len(encoded) <= MAX_PROPERTIES else b""
