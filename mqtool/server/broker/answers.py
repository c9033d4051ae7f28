"""Answers: fields of requests as typed values, refusals, and JSON bodies as the broker's library writes them.

Source: RemotingCommand.decodeCommandCustomHeader, RemotingSerializable (5.5.0).
"""

import json
from typing import Any

from mqtool.errors import FormatError, MqtoolError
from mqtool.formats import java
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.tables.queue_locks import QueueName

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Ends the remark of some refusals (FAQUrl)."""


class RefusalError(MqtoolError):
    """Raised by a handler to refuse a request; the answer has its code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        """Takes response code and remark."""
        super().__init__(remark)
        self.code = code
        self.remark = remark


def text(command: Command, name: str, default: str | None = None) -> str:
    """Returns a field.

    Raises:
        RefusalError: it is missing and has no default.
    """
    value = command.fields.get(name, default)
    if value is None:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return value


def number(command: Command, name: str, default: int | None = None) -> int:
    """Returns a field as an integer of 64 bits.

    Raises:
        RefusalError: it is missing and has no default, or is not a number.
    """
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
    """Returns a field as an integer of 32 bits; raises RefusalError as `number` does, and if it is larger."""
    value = number(command, name, default)
    if not -(1 << 31) <= value < 1 << 31:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}>: expected 32 bits, found {value}")
    return value


def flag(command: Command, name: str, *, default: bool = False) -> bool:
    """Returns a field that is a Boolean; only "true" is true."""
    value = command.fields.get(name)
    return default if value is None else java.parse_boolean(value)


def illegal_queue(topic: str, queue_id: int, queues: int, address: str) -> str:
    """Returns the remark about a queue that a topic does not have.

    Args:
        topic, queue_id: the queue.
        queues: how many queues to read the topic has.
        address: of the client.
    """
    return f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{queues}] consumer:[/{address}]"


def body_of(command: Command) -> dict[str, Any]:
    """Returns a body as a JSON object.

    Raises:
        RefusalError: it is not a JSON object.
    """
    try:
        found = json.loads(bytes(command.body).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"body is no JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise RefusalError(ResponseCode.SYSTEM_ERROR, "body is no JSON object")
    return found


def queue_names_of(value: object) -> set[QueueName]:
    """Returns the queues listed in a body.

    Raises:
        RefusalError: an element is not a queue.
    """
    try:
        rows: Any = value or []
        return {QueueName(str(one["brokerName"]), java.json_int(one["queueId"]), str(one["topic"])) for one in rows}
    except (KeyError, TypeError, FormatError) as error:
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"body lists something else than queues: {error!r}") from error


def dump(value: Any) -> str:
    """Returns a value as compact JSON; queues as keys of a map are objects, as fastjson writes and reads them."""
    if isinstance(value, dict):
        pairs = [f"{dump(key if isinstance(key, QueueName) else str(key))}:{dump(item)}" for key, item in value.items()]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, QueueName):
        return dump({"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic})
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def body(value: Any) -> bytes:
    """Returns a value as the body of an answer."""
    return dump(value).encode("utf-8", "replace")


def ok(command: Command, fields: dict[str, str] | None = None, data: bytes = b"", remark: str | None = None) -> Command:
    """Returns the answer SUCCESS to a request."""
    return command.reply(ResponseCode.SUCCESS, remark, fields, data)
