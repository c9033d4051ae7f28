"""Quick sends: the usual message of the usual client, stored and answered in as few steps as there can be.

What is stored and answered is what `SendProcessor` stores and answers; a test holds the two to each other. A request
that is unusual in any way is left to it: then nothing has been done. Source: SendMessageProcessor,
SendMessageRequestHeaderV2 (5.5.0).
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mqtool.engine import AppendStatus, PutStatus
from mqtool.engine.config_files import BATCH_QUEUES
from mqtool.engine.write.hooks import OutgoingMessage
from mqtool.formats import java, message_id, properties
from mqtool.formats.commit_log import TRANSACTION_MASK
from mqtool.formats.config_files import PERM_WRITE, TopicConfig
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import FLAG_ONEWAY, Command, Serialization
from mqtool.protocol.prepared import PreparedAnswer
from mqtool.server.broker import names
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.send.put_answers import refusal
from mqtool.server.broker.settings import Settings
from mqtool.server.net.peer import Peer

MULTI_TAGS = 2
LONGEST_PROPERTIES = 32767

_NUMBERS = {str(number): number for number in range(1024)}
"""Texts of numbers as clients write them; others are read with care."""

_UNUSUAL = (b"POP_CK\x01", b"MSG_REGION\x01", b"TRACE_ON\x01", b"CLUSTER\x01", b"TRAN_MSG")
"""Properties that a broker does something about, beside those for which the writer has a rewriting."""

_KEY = properties.UNIQUE_KEY.encode() + b"\x01"

_BATCH_MARKS = {RequestCode.SEND_MESSAGE_V2: "false", RequestCode.SEND_BATCH_MESSAGE: "true"}
"""What the field for batches says, by request code."""

_JSON = Serialization.JSON
_APPENDED = AppendStatus.PUT_OK
_OK = PutStatus.PUT_OK
_MOST_DIGITS = 18
"""Of a number that is surely one of 64 bits."""

_new = tuple.__new__


class _Known(NamedTuple):
    """A topic that may be sent to without further question.

    Attributes:
        config: as it was when that was found out.
        queues: ids below this are there.
        sys_flag: bits that its messages get.
    """

    config: TopicConfig
    queues: int
    sys_flag: int


class _Shared(NamedTuple):
    """What depends on the settings alone; `version` is theirs."""

    version: int
    is_allowed: bool
    longest_body: int
    added: bytes
    is_unusual: Callable[[bytes], object]
    answer: PreparedAnswer
    batch_answer: PreparedAnswer
    place: bytes


class _Numbers(NamedTuple):
    """The numbers of a send's header."""

    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    reconsume_times: int


class QuickSends:
    """The quick way of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE. For a store whose puts wait for nothing."""

    def __init__(self, broker: Broker) -> None:
        """Takes the broker whose tables and store it uses."""
        self._broker = broker
        self._settings = broker.settings
        self._topics = broker.topics.table
        self._known: dict[str, _Known] = {}
        self._put = broker.writer.append
        self._touch = broker.held.touch
        self._store_host = broker.store_host
        self._count = broker.stats.put
        self._shared: _Shared | None = None

    def send(self, command: Command, peer: Peer) -> bool:
        """Stores a message and answers it; returns False, with nothing done, if it is for the careful way.

        Raises:
            RefusalError: the store did not take it.
        """
        fields, body, shared = command.fields, command.body, self._shared
        if shared is None or shared.version != self._settings.version:
            shared = self._shared = self._look()
        topic, mark = fields.get("b", ""), _BATCH_MARKS.get(command.code)  # type: ignore[call-overload]
        known = self._known.get(topic)
        if known is None or known.config is not self._topics.get(topic):
            known = self._learn(topic)
        numbers = _numbers_of(fields)
        if (
            known is None
            or numbers is None
            or command.serialization is not _JSON
            or mark is None
            or fields.get("m", "false") != mark
            or numbers[0] >= known.queues
            or not shared.is_allowed
            or self._broker.is_stopping
            or not (encoded := _encoded(fields.get("i"), shared))
        ):
            return False
        message = _new(
            OutgoingMessage,
            (
                topic,
                numbers[0],
                bytes(body),
                encoded,
                numbers[3],
                numbers[1] | known.sys_flag,
                numbers[2],
                peer.attributes.get("host_bytes") or self._broker.host_of(peer),
                self._store_host,
                numbers[4],
                0,
            ),
        )
        if mark == "true":
            frame = self._batch(message, shared, command.opaque)
        else:
            start = encoded.find(_KEY)
            key = encoded[start + len(_KEY) : encoded.find(b"\x02", start)] if start >= 0 else b""
            if not key.isalnum() or len(body) > shared.longest_body:  # what must be escaped in an answer, or refused
                return False
            frame = self._one(message, shared, key, command.opaque)
        if not command.flag & FLAG_ONEWAY:
            peer.write(frame)
        return True

    def _one(self, message: OutgoingMessage, shared: _Shared, key: bytes, opaque: int) -> bytes:
        """Stores a message; returns the answer."""
        result = self._put(*message, wait=False)
        if result.append_status is not _APPENDED or result.status is not _OK:
            self._broker.stats.put_failed()
            raise refusal(result)
        topic, queue_id = message[:2]
        self._touch(topic, queue_id, result.queue_offset)
        self._count(topic, queue_id, 1, result.size)
        return shared.answer.frame(result.physical_offset, queue_id, result.queue_offset, key, opaque)

    def _batch(self, message: OutgoingMessage, shared: _Shared, opaque: int) -> bytes:
        """Stores the messages of a batch; returns the answer."""
        topic, queue_id, body = message[:3]
        if not self._broker.is_v4:  # brokers since 5.4 keep none of what the request says for all of them
            message = message._replace(properties=b"")
        result = self._broker.writer.put_batch(topic, queue_id, body, message)
        if result.append_status is not _APPENDED or result.status is not _OK:
            self._broker.stats.put_failed()
            raise refusal(result)
        offsets = result.physical_offsets
        self._count(topic, queue_id, len(offsets), result.size)
        ids = (shared.place * len(offsets) % offsets)[:-1]
        return shared.batch_answer.frame(ids, queue_id, result.queue_offset, opaque)

    def _learn(self, topic: str) -> _Known | None:
        """Returns what there is to know of a topic that may be sent to without further question."""
        config = self._topics.get(topic)
        self._known.pop(topic, None)
        if config is None or topic in names.NOT_FOR_SENDERS or topic.startswith(names.RETRY_PREFIX):
            return None
        if config.queue_type == BATCH_QUEUES:  # its batches stay together
            return None
        queues = max(config.write_queue_nums, config.read_queue_nums)
        multi = MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        found = self._known[topic] = _Known(config, queues, multi)
        return found

    def _look(self) -> _Shared:
        settings, broker = self._settings, self._broker
        marks = (*_UNUSUAL, *(mark for mark, _ in broker.writer.rewrites))
        unusual = re.compile(b"\x02(?:" + b"|".join(map(re.escape, marks)) + b")")
        place = offset_id_start(broker.store_host) + "%016X"
        same = {
            "queueId": "%d",
            "queueOffset": "%d",
            "MSG_REGION": settings.text("regionId").replace("%", "%%"),
            "TRACE_ON": settings.text("traceOn").replace("%", "%%"),
        }
        answer = PreparedAnswer(ResponseCode.SUCCESS, {"msgId": place, **same, "transactionId": "%b"})
        batch_answer = PreparedAnswer(ResponseCode.SUCCESS, {"msgId": "%b", **same})
        return _Shared(
            settings.version,
            bool(settings.number("brokerPermission") & PERM_WRITE),
            settings.number("maxMessageSize"),
            utf8(added_properties(settings)),
            unusual.search,
            answer,
            batch_answer,
            f"{place},".encode(),
        )


def added_properties(settings: Settings) -> str:
    """Returns what a broker adds to the properties of every message."""
    region, trace, cluster = (settings.text(key) for key in ("regionId", "traceOn", "brokerClusterName"))
    return f"MSG_REGION\x01{region}\x02TRACE_ON\x01{trace}\x02CLUSTER\x01{cluster}\x02"


def offset_id_start(store_host: bytes) -> str:
    """Returns what all offset message ids of a broker begin with: all but the 16 digits of the offset."""
    return message_id.format_offset_id(store_host, 0)[:-16]


def _numbers_of(fields: Mapping[str, str]) -> _Numbers | None:
    """Returns the numbers of a header, None if any of them, or what else is in it, is unusual."""
    known, born = _NUMBERS, fields.get("g", "")
    queue_id, sys_flag = known.get(fields.get("e", "")), known.get(fields.get("f", ""))
    flag, times = known.get(fields.get("h", "")), known.get(fields.get("j", "0"))
    if (
        queue_id is None
        or sys_flag is None
        or flag is None
        or times is None
        or sys_flag & TRANSACTION_MASK
        or not born.isdecimal()
        or len(born) > _MOST_DIGITS
        or "a" not in fields
        or fields.get("d", "0") not in known
        or fields.get("l")
    ):
        return None
    return _new(_Numbers, (queue_id, sys_flag, int(born), flag, times))


def _encoded(given: str | None, shared: _Shared) -> bytes:
    """Returns the properties with what a broker adds to them; none if they are unusual."""
    if not given or given[-1] != "\x02":
        return b""
    encoded = utf8(given)
    if shared.is_unusual(b"\x02" + encoded):
        return b""
    encoded += shared.added
    return encoded if len(encoded) <= LONGEST_PROPERTIES else b""


def utf8(text: str) -> bytes:
    """Returns `java.encode_utf8`, quickly."""
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which becomes a question mark
        return java.encode_utf8(text)
