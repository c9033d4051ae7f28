"""Connects the gRPC server to the broker: sends requests to its handlers, and maps refusals to status codes.

Source: ResponseBuilder, GrpcValidator (rocketmq-proxy 5.5.0).
"""

import re
from collections.abc import Awaitable, Mapping

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct, field

from mqtool.errors import MqtoolError
from mqtool.formats import java
from mqtool.formats.config_files import PERM_READ, PERM_WRITE, GroupConfig, TopicConfig
from mqtool.formats.topics import is_system_topic
from mqtool.protocol.command import Command, RequestCode, ResponseCode, Serialization
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server.broker import attributes
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.attributes import MIXED
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.pop.acks import PopAcks
from mqtool.server.broker.send.fast_path import SendFastPath
from mqtool.server.broker.topics import default_group
from mqtool.server.net.peer import Answer, Handler, Peer

OK = d.Status(code=d.OK, message="OK")

_CODES = {
    ResponseCode.SUCCESS: d.OK,
    ResponseCode.SYSTEM_BUSY: d.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: d.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: d.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: d.TOPIC_NOT_FOUND,
    ResponseCode.FLUSH_DISK_TIMEOUT: d.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: d.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: d.HA_NOT_AVAILABLE,
    ResponseCode.LMQ_QUOTA_EXCEEDED: d.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: d.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}
"""gRPC status code by response code of a refusal; all others become INTERNAL_SERVER_ERROR."""

_TIME_MIN_S, TIME_MAX_S = -62_135_596_800, 253_402_300_799
"""First and last second of a Timestamp: years 1 to 9999."""
_DURATION_MAX_S = 315_576_000_000
_SECOND_NS = 1_000_000_000

_CLIENT_FAQ = "\nFor more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEGAL_TEXT = "^[%|a-zA-Z0-9_-]+$"
_TYPES: dict[str, tuple[int, ...]] = {
    "NORMAL": (d.NORMAL,),
    "FIFO": (d.FIFO,),
    "DELAY": (d.DELAY,),
    "TRANSACTION": (d.TRANSACTION,),
    "LITE": (d.LITE,),
    "PRIORITY": (d.PRIORITY,),
    MIXED: (d.NORMAL, d.FIFO, d.DELAY, d.TRANSACTION),
}
"""By the type of a topic: the message types in its route (RouteActivity.parseTopicMessageType)."""


def type_name(kind: int) -> str:
    """Returns the name of a message type as used in texts for people."""
    return d.MessageType.Name(kind).removeprefix("MESSAGE_TYPE_")


class StatusError(MqtoolError):
    """Raised to answer a call with a status code of RocketMQ; the status of gRPC itself is OK."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> d.Status:
        """The status of the answer."""
        return d.Status(code=self.code, message=self.message)  # type: ignore[arg-type]  # protobuf takes numbers


def thrown(code: int, message: str) -> StatusError:
    """Returns an error with the text of one that the proxy throws and answers later."""
    return StatusError(code, f"org.apache.rocketmq.proxy.common.ProxyException: {message}")


def time_ms(stamp: Timestamp) -> int:
    """Returns a time in ms since epoch; raises StatusError if it is invalid (protobuf's Timestamps.toMillis)."""
    seconds, nanos = stamp.seconds, stamp.nanos
    if not (_TIME_MIN_S <= seconds <= TIME_MAX_S and 0 <= nanos < _SECOND_NS):
        raise _invalid("Timestamp", seconds, "-62,135,596,800, +253,402,300,799", nanos, "0, +999,999,999")
    return seconds * 1000 + nanos // 1_000_000


def duration_ms(duration: Duration) -> int:
    """Returns a duration in ms; raises StatusError if it is invalid (protobuf's Durations.toMillis)."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(seconds) > _DURATION_MAX_S or abs(nanos) >= _SECOND_NS or seconds * nanos < 0:
        raise _invalid("Duration", seconds, "-315,576,000,000, +315,576,000,000", nanos, "-999,999,999, +999,999,999")
    return java.divide(seconds * _SECOND_NS + nanos, 1_000_000)


def _invalid(kind: str, seconds: int, range_s: str, nanos: int, range_ns: str) -> StatusError:
    text = (
        f"{kind} is not valid. See proto definition for valid values. "
        f"Seconds ({seconds}) must be in range [{range_s}]. Nanos ({nanos}) must be in range [{range_ns}]."
    )
    more = " Nanos must have the same sign as seconds" if kind == "Duration" else ""
    return StatusError(d.INTERNAL_SERVER_ERROR, text + more)


def refused(answer: Command | RefusalError) -> StatusError:
    """Converts an answer other than SUCCESS to a StatusError."""
    code = _CODES.get(answer.code, d.INTERNAL_SERVER_ERROR)  # type: ignore[call-overload]
    return StatusError(code, f"CODE: {answer.code}  DESC: {answer.remark or ''}")


class Core(Struct):
    """The broker and its handlers by request code."""

    broker: Broker  # its tables may be read directly; changes go through handlers
    handlers: Mapping[int, Handler]  # the handlers that remoting clients use too
    # acks, fast_sends: those of `BrokerService`
    acks: PopAcks
    fast_sends: SendFastPath | None
    _accept: dict[str, tuple[TopicConfig, tuple[int, ...]]] = field(default_factory=dict)

    def start(
        self, code: RequestCode, fields: dict[str, str], peer: Peer, body: bytes = b"", language: str = "JAVA"
    ) -> Awaitable[Answer] | Answer:
        """Passes a request to its handler; the answer is a command, because the request uses ROCKETMQ serialization."""
        command = Command(code, fields=fields, body=body, language=language, serialization=Serialization.ROCKETMQ)
        return self.handlers[code](command, peer)

    async def ask(self, code: RequestCode, fields: dict[str, str], peer: Peer) -> Command:
        """Sends a request and returns the answer, whatever its code."""
        answer = self.start(code, fields, peer)
        if not isinstance(answer, Command) and answer is not None:
            answer = await answer
        assert answer is not None
        return answer

    async def call(self, code: RequestCode, fields: dict[str, str], peer: Peer) -> Command:
        """Sends a request and returns the answer; raises StatusError if its code is not SUCCESS."""
        answer = await self.ask(code, fields, peer)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        return answer

    def topic(self, resource: d.Resource) -> str:
        """Returns the name of a topic; raises StatusError if the name is invalid."""
        name = resource.name
        if name in self._accept and name in self.broker.topics.table:
            return name
        if java.is_blank(name):
            raise StatusError(d.ILLEGAL_TOPIC, "The specified topic is blank")
        if len(name) > attributes.LONGEST_NAME:
            message = f"The specified topic is longer than topic max length {attributes.LONGEST_NAME}."
            raise StatusError(d.ILLEGAL_TOPIC, message)
        if not _LEGAL.fullmatch(name):
            message = f"The specified topic[{name}] contains illegal characters, allowing only {_LEGAL_TEXT}"
            raise StatusError(d.ILLEGAL_TOPIC, message)
        if is_system_topic(name):
            raise StatusError(d.ILLEGAL_TOPIC, "cannot access system topic")
        return name

    def group(self, resource: d.Resource) -> str:
        """Returns the name of a consumer group; raises StatusError if the name is invalid (Validators.checkGroup)."""
        name = resource.name
        problem = None
        if attributes.is_system_group(name):
            problem = "cannot use system consumer group"
        elif name in self.broker.groups.table:
            return name
        elif java.is_blank(name):
            problem = "the specified group is blank"
        elif len(name) > attributes.LONGEST_GROUP:
            problem = f"the specified group[{name}] is longer than group max length: {attributes.LONGEST_GROUP}."
        elif not _LEGAL.fullmatch(name):
            problem = f"the specified group[{name}] contains illegal characters, allowing only {_LEGAL_TEXT}"
        if problem is not None:
            raise StatusError(d.ILLEGAL_CONSUMER_GROUP, problem)
        return name

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the configuration of a topic; raises StatusError if the topic does not exist."""
        config = self.broker.topics.get(name)
        if config is None:
            message = f"CODE: 17  DESC: No topic route info in name server for the topic: {name}{_CLIENT_FAQ}"
            raise StatusError(d.TOPIC_NOT_FOUND, message)
        return config

    def permission(self, config: TopicConfig) -> int:
        """Returns the permissions of a topic in the route to this broker."""
        return config.perm & self.broker.permission_limit

    def readable_queues(self, config: TopicConfig) -> int:
        """Returns the number of queues that consumers may read; 0 if the topic is not readable."""
        return config.read_queue_nums if self.permission(config) & PERM_READ else 0

    def writable_queues(self, config: TopicConfig) -> int:
        """Returns the number of queues that producers may write to; 0 if the topic is not writable."""
        return config.write_queue_nums if self.permission(config) & PERM_WRITE else 0

    def message_types(self, name: str) -> tuple[int, ...]:
        """Returns the message types in the route to a topic; the unspecified one if the topic does not exist."""
        config = self.broker.topics.get(name)
        if config is None:
            return (d.MESSAGE_TYPE_UNSPECIFIED,)
        known = self._accept.get(name)
        if known is not None and known[0] is config:
            return known[1]
        kinds = _TYPES.get(config.message_type, (d.MESSAGE_TYPE_UNSPECIFIED,))
        if name in self.broker.topics.table:
            self._accept[name] = (config, kinds)
        return kinds

    def check_type(self, name: str, kind: int) -> None:
        """Raises StatusError if a topic does not accept a message type; a mixed topic accepts all.

        Source: DefaultTopicMessageTypeValidator (5.5.0).
        """
        kinds = self.message_types(name)
        if kind not in kinds and len(kinds) == 1:
            text = (
                f"TopicMessageType validate failed, the expected type is {type_name(kinds[0])}, "
                f"but actual type is {type_name(kind)}"
            )
            raise thrown(d.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)

    def group_config(self, name: str) -> GroupConfig:
        """Returns the configuration of a consumer group; the default one if the group does not exist."""
        return self.broker.groups.get(name) or default_group(name)

    @property
    def broker_name(self) -> str:
        """Name of the broker."""
        return self.broker.settings.text("brokerName")
