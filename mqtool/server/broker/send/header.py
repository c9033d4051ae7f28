"""Parses the header of a send request in its two forms: full field names, and one-letter names (V2, batches).

Source: SendMessageRequestHeader, SendMessageRequestHeaderV2 (5.5.0).
"""

from typing import NamedTuple

from mqtool.formats import java
from mqtool.protocol.codes import RequestCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import integer, number, text

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


def header_of(command: Command) -> SendHeader:
    """Parses the header of a send request.

    A request that marks a batch with "1" is a batch here, as its sender intends; the real broker stores it as one
    message.

    Raises:
        RefusalError: a field is missing, or is not a number.
    """
    names = V1 if command.code in _LONG_CODES else V2
    fields = command.fields
    limit = names["max_reconsume_times"]
    return SendHeader(
        text(command, names["group"]),
        text(command, names["topic"]),
        fields.get(names["default_topic"], ""),
        integer(command, names["default_topic_queues"], 0),
        integer(command, names["queue_id"]),
        integer(command, names["sys_flag"]),
        number(command, names["born_timestamp"]),
        integer(command, names["flag"]),
        fields.get(names["properties"]) or "",
        integer(command, names["reconsume_times"], 0),
        java.parse_boolean(fields.get(names["unit_mode"])),
        integer(command, limit) if fields.get(limit) else None,
        fields.get(names["batch"]) in _TRUE or command.code == RequestCode.SEND_BATCH_MESSAGE,
    )
