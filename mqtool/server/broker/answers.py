"""Helpers for handlers: typed request fields, refusals, answers to puts, and JSON bodies in the real broker's format.

Source: RemotingCommand.decodeCommandCustomHeader, RemotingSerializable, SendMessageProcessor.handlePutMessageResult
(5.5.0).
"""

import json
from typing import Any, NamedTuple

from mqtool.engine import PutResult, PutStatus
from mqtool.errors import FormatError, MqtoolError
from mqtool.formats import java
from mqtool.formats.config_files import TopicConfig
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.protocol.command import Command, ResponseCode
from mqtool.server.net.peer import Peer


class QueueName(NamedTuple):
    """A queue as named in requests and answers; the order of the fields is fastjson's."""

    broker_name: str
    queue_id: int
    topic: str


class RefusalError(MqtoolError):
    """Raised by a handler to refuse a request; the answer carries its code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def text(command: Command, name: str, default: str | None = None) -> str:
    """Returns a header field as text; raises RefusalError if it is missing and has no default."""
    value = command.fields.get(name, default)
    if value is None:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return value


def number(command: Command, name: str, default: int | None = None) -> int:
    """Returns a header field as a 64-bit integer; raises RefusalError as `text`, or if it is not a number."""
    value = command.fields.get(name)
    if value is None or value == "":
        if default is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
        return default
    try:
        return int(value) if value.isdecimal() and len(value) < 19 else java.parse_long(value)
    except FormatError as error:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}>: {error}") from error


def integer(command: Command, name: str, default: int | None = None) -> int:
    """Returns a header field as a 32-bit integer; raises RefusalError as `number`, or if it exceeds 32 bits."""
    value = number(command, name, default)
    if not -(1 << 31) <= value < 1 << 31:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}>: expected 32 bits, found {value}")
    return value


def check_queue_id(queue_id: int) -> None:
    """Raises RefusalError if no topic has the queue; each queue of a group becomes an entry in the offset table."""
    if not 0 <= queue_id < MAX_QUEUES:
        raise RefusalError(ResponseCode.INVALID_PARAMETER, f"queueId {queue_id}: expected 0 to {MAX_QUEUES - 1}")


def flag(command: Command, name: str, *, default: bool = False) -> bool:
    """Returns a header field as a Boolean; only "true" is true."""
    value = command.fields.get(name)
    return default if value is None else java.parse_boolean(value)


def illegal_queue(code: ResponseCode, topic: TopicConfig, queue_id: int, peer: Peer) -> RefusalError:
    """Returns the refusal of a request for a queue that a topic does not have for consumers."""
    known = f"topic:[{topic.topic_name}] topicConfig.readQueueNums:[{topic.read_queue_nums}]"
    return RefusalError(code, f"queueId[{queue_id}] is illegal, {known} consumer:[/{peer.address}]")


def body_of(command: Command) -> dict[str, Any]:
    """Parses a body as a JSON object; raises RefusalError if it is not one."""
    try:
        document = json.loads(bytes(command.body).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"body is not valid JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise RefusalError(ResponseCode.SYSTEM_ERROR, "body is not a JSON object")
    return document


def queue_names_of(value: object) -> set[QueueName]:
    """Parses a list of queues in a body; raises RefusalError if an element is not a queue."""
    try:
        rows: Any = value or []
        return {QueueName(str(row["brokerName"]), java.json_int(row["queueId"]), str(row["topic"])) for row in rows}
    except (KeyError, TypeError, FormatError) as error:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"body lists something else than queues: {error!r}") from error


def dump(value: Any) -> str:
    """Returns a value as compact JSON. Queues as map keys become objects, as fastjson writes and reads them."""
    if isinstance(value, dict):
        pairs = [f"{dump(key if isinstance(key, QueueName) else str(key))}:{dump(item)}" for key, item in value.items()]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, QueueName):
        return dump({"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic})
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def body(value: Any) -> bytes:
    """Encodes a value as the JSON body of an answer."""
    return dump(value).encode("utf-8", "replace")


def ok(command: Command, fields: dict[str, str] | None = None, data: bytes = b"", remark: str | None = None) -> Command:
    """Returns an answer with the code SUCCESS."""
    return command.reply(ResponseCode.SUCCESS, remark, fields, data)


REFUSED = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutStatus.MESSAGE_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched.",
    ),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. msg properties length limit 32KB.",
    ),
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay",
    ),
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: (ResponseCode.SYSTEM_ERROR, "timer message is under flow control"),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled, timerWheelEnable is false",
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now: the disk may be full, or the store is being shut down",
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_BUSY,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
}
"""Response code and remark by status, for puts that failed."""

STORED = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""Response code by status, for puts whose message is in the log."""


def refusal(result: PutResult) -> RefusalError:
    """Returns the refusal for a message that the store did not accept."""
    return RefusalError(*REFUSED.get(result.status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT")))
