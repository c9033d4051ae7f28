"""Converts messages of the gRPC protocol to requests of the broker, and records of the store to gRPC messages.

Source: GrpcConverter, SendMessageActivity, GrpcValidator (rocketmq-proxy 5.5.0), MessageConst.
"""

import hashlib
import re

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct

from mqtool.engine.clock import SystemClock
from mqtool.errors import FormatError
from mqtool.formats import compression, hosts, java, message_batch, properties, service_records
from mqtool.formats.commit_log import SysFlag
from mqtool.formats.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server.broker.messages import ParsedRecord
from mqtool.server.grpc.core import TIME_MAX_S, Core, StatusError, duration_ms, time_ms
from mqtool.store.queues.get_message import TagFilter

MAX_BODY = 4_194_304
MAX_PROPERTIES = 128
MAX_PROPERTY_BYTES = 16_384
MAX_GROUP_BYTES = 63
MAX_LITE_BYTES = 64
MAX_DELAY_MS = 86_400_000
MAX_RECOVERY_S = 3600

BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
DEAD_TOPIC, DEAD_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"

_SYSTEM = """
    1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG CORRELATION_ID
    DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO INNER_MULTI_QUEUE_OFFSET INSTANCE_ID
    KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG MSG_REGION MSG_TYPE ORIGIN_GROUP ORIGIN_MESSAGE_ID
    PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC
    TAGS TIMER_DELAY_LEVEL TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS
    TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON TRANSFER_FLAG TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TTL
    UNIQ_KEY WAIT _SYS_MSG_PRIORITY_ __BORNHOST __CRC32# __LITE_TOPIC
"""
SYSTEM_PROPERTIES = frozenset(_SYSTEM.split())
"""Names that user properties must not have (MessageConst.STRING_HASH_SET)."""

_HIDDEN = SYSTEM_PROPERTIES | {
    properties.SHARDING_KEY,
    properties.INNER_MULTI_DISPATCH,
    TRACE_CONTEXT,
    service_records.IMMUNITY,
}
"""Names of properties that consumers do not see among the user properties."""

_DELAYS = frozenset(
    {properties.DELAY_LEVEL, properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS}
)
"""Properties of which each makes a message a delayed one, whatever its value."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LITE_TOPIC = re.compile(r"[a-zA-Z0-9_-]+")
_COMPRESSED = int(SysFlag.COMPRESSED)
_PREPARED = int(SysFlag.TRANSACTION_PREPARED)


class Outgoing(Struct, frozen=True):
    """A checked message of a producer, in the form of a send request."""

    message_id: str  # message id that the producer generated
    kind: int  # message type
    # body, properties, sys_flag, born_ms: fields of the send request
    body: bytes
    properties: str
    sys_flag: int
    born_ms: int
    sharding_key: str  # message group or lite topic, which determines the queue; "" if there is neither

    def batched(self) -> bytes:
        """Returns the message encoded as one message of a batch request."""
        encoded = self.properties.encode("utf-8", "replace")
        return message_batch.build(message_batch.make(self.body, encoded))


def outgoing(core: Core, message: d.Message, topic: str) -> Outgoing:
    """Converts a message to a send request; raises StatusError for the first check that fails."""
    system, body = message.system_properties, message.body
    if not body:
        raise StatusError(d.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > MAX_BODY:
        raise StatusError(d.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {MAX_BODY}")
    values = _user_properties(message)
    _check_system(system)
    if system.keys:
        values[properties.KEYS] = properties.KEY_SEPARATOR.join(system.keys)
    if system.tag:
        values[properties.TAGS] = system.tag
    values[properties.UNIQUE_KEY] = system.message_id
    kind = _mark_type(values, system)
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):  # these topics accept every type
        core.topic_config(topic)
    else:
        core.check_type(topic, kind)
    born_ms = _born_ms(system) or SystemClock.now()
    if system.trace_context:
        values[TRACE_CONTEXT] = system.trace_context
    values[properties.RECONSUME_TIME] = "0"
    values[BORN_TIMESTAMP] = str(born_ms)
    if system.born_host:
        values[BORN_HOST] = system.born_host
    values[properties.PRODUCER_GROUP] = topic
    sys_flag = (_COMPRESSED if system.body_encoding == d.GZIP else 0) | (_PREPARED if kind == d.TRANSACTION else 0)
    encoded = properties.encode_text(values.items())
    key = system.message_group or system.lite_topic
    return Outgoing(system.message_id, kind, body, encoded, sys_flag, born_ms, key)


def _user_properties(message: d.Message) -> dict[str, str]:
    """Returns the user properties; raises StatusError if one is invalid, or they, tag and keys are too large."""
    values = dict(message.user_properties)
    if len(values) > MAX_PROPERTIES:
        text = f"too many user properties, max is {MAX_PROPERTIES}"
        raise StatusError(d.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size = 0
    for name, value in values.items():
        if name in SYSTEM_PROPERTIES:
            raise StatusError(d.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        _check_text("the key of property", d.ILLEGAL_MESSAGE_PROPERTY_KEY, name)
        _check_text("the value of property", d.ILLEGAL_MESSAGE_PROPERTY_KEY, value)
        size += len(name.encode()) + len(value.encode())
    tag, keys = message.system_properties.tag, message.system_properties.keys
    if "|" in tag:
        raise StatusError(d.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    _check_text("tag", d.ILLEGAL_MESSAGE_TAG, tag, may_be_blank=False)
    for key in keys:
        _check_text("key", d.ILLEGAL_MESSAGE_KEY, key, may_be_blank=False)
    if size + sum(len(part.encode()) for part in (tag, *keys)) > MAX_PROPERTY_BYTES:
        text = f"the total size of user property is too large, max is {MAX_PROPERTY_BYTES}"
        raise StatusError(d.MESSAGE_PROPERTIES_TOO_LARGE, text)
    return values


def _check_text(what: str, code: int, text: str, *, may_be_blank: bool = True) -> None:
    """Raises StatusError if a text that is not empty contains a control character, or nothing but blanks."""
    if text and not may_be_blank and java.is_blank(text):
        raise StatusError(code, f"{what} cannot be the char sequence of whitespace")
    if _CONTROL.search(text):
        raise StatusError(code, f"{what} cannot contain control character")


def _born_ms(system: d.SystemProperties) -> int:
    """Returns when the producer created a message, in ms since epoch; 0 if it states no valid time."""
    try:
        return time_ms(system.born_timestamp)
    except StatusError:
        return 0


def _check_system(system: d.SystemProperties) -> None:
    """Raises StatusError if the message id, message group or lite topic is invalid; an empty one counts as not set."""
    if java.is_blank(system.message_id):
        raise StatusError(d.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    group = system.message_group
    if len(group.encode()) > MAX_GROUP_BYTES:
        raise StatusError(d.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {MAX_GROUP_BYTES + 1}")
    _check_text("message group", d.ILLEGAL_MESSAGE_GROUP, group, may_be_blank=False)
    if system.lite_topic:
        check_lite_topic(system.lite_topic)


def check_lite_topic(name: str) -> None:
    """Raises StatusError if the name of a lite topic is invalid."""
    if java.is_blank(name):
        raise StatusError(d.ILLEGAL_LITE_TOPIC, "lite topic cannot be the char sequence of whitespace")
    if len(name.encode("utf-8", "replace")) > MAX_LITE_BYTES:
        raise StatusError(d.ILLEGAL_LITE_TOPIC, f"lite topic exceed the max size {MAX_LITE_BYTES}")
    if not _LITE_TOPIC.fullmatch(name):
        message = "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
        raise StatusError(d.ILLEGAL_LITE_TOPIC, message)


def _mark_type(values: dict[str, str], system: d.SystemProperties) -> int:
    """Adds the properties that determine a message's type; returns the type.

    The type follows from these properties, not from the field in the message, except for transactions.
    """
    if system.HasField("priority"):
        if system.priority < 0:
            raise StatusError(d.INTERNAL_SERVER_ERROR, "The priority must be greater than or equal to 0")
        values[properties.PRIORITY] = str(system.priority)
    if system.lite_topic:
        values[properties.LITE_TOPIC] = system.lite_topic
    if system.message_group:
        values[properties.SHARDING_KEY] = system.message_group
    if system.HasField("delivery_timestamp"):
        due = time_ms(system.delivery_timestamp)
        if due - SystemClock.now() > MAX_DELAY_MS:
            text = f"the max delay time of message is too large, max is {MAX_DELAY_MS}"
            raise StatusError(d.ILLEGAL_DELIVERY_TIME, text)
        values[properties.TIMER_DELIVER_MS] = str(due)
    if system.message_type == d.TRANSACTION:
        values[properties.TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = java.divide(duration_ms(system.orphaned_transaction_recovery_duration), 1000)
            if seconds > MAX_RECOVERY_S:
                text = f"the max transaction recovery time of message is too large, max is {MAX_RECOVERY_S}"
                raise StatusError(d.BAD_REQUEST, text)
            if seconds > 0:
                values[service_records.IMMUNITY] = str(seconds)
    return type_of(values)


def type_of(values: dict[str, str]) -> int:
    """Returns the type of a message with these properties (TopicMessageType.parseFromMessageProperty, 5.5.0)."""
    if java.parse_boolean(values.get(properties.TRANSACTION_PREPARED)):
        return d.TRANSACTION
    if not _DELAYS.isdisjoint(values):
        return d.DELAY
    if properties.SHARDING_KEY in values:
        return d.FIFO
    if properties.PRIORITY in values:
        return d.PRIORITY
    return d.LITE if properties.LITE_TOPIC in values else d.NORMAL


def tag_filter(expression: d.FilterExpression) -> TagFilter:
    """Returns a filter that compares tags themselves; it selects all messages for an SQL expression.

    Raises StatusError if there is no SQL expression, or nothing but separators of tags (FilterAPI).
    """
    text, is_sql = expression.expression, expression.type == d.SQL
    if is_sql and not text:
        raise StatusError(d.ILLEGAL_FILTER_EXPRESSION, "Expression can't be null! SQL92")
    if not is_sql and text and not text.replace("||", ""):
        raise StatusError(d.ILLEGAL_FILTER_EXPRESSION, "subString split error")
    return TagFilter("" if is_sql else text)


def fill_incoming(result: d.Message, message: ParsedRecord, topic: str, handle: str | None, attempt: int) -> None:
    """Fills an empty gRPC message with a stored one. Filling it within its answer avoids copies.

    `topic` is what the client asked for; `handle` is None for a message that is not received by a pop; `attempt` counts
    deliveries from 1.
    """
    record, values = message.record, message.properties
    body, encoding = _body(bytes(record.body), record.sys_flag)
    result.topic.name, result.body = topic, body
    system = result.system_properties
    key = message.unique_key
    if java.is_blank(key):
        key = hosts.format_offset_id(record.store_host, record.physical_offset)
    system.message_id = key
    digest = system.body_digest
    digest.type, digest.checksum = d.MD5, hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding  # type: ignore[assignment]  # protobuf takes numbers
    system.message_type = type_of(values)  # type: ignore[assignment]
    system.born_host = values.get(BORN_HOST) or hosts.text_of(record.born_host)
    system.store_host = hosts.text_of(record.store_host)
    system.queue_id, system.queue_offset, system.delivery_attempt = record.queue_id, record.queue_offset, attempt
    _set_time(system.born_timestamp, record.born_timestamp)
    _set_time(system.store_timestamp, record.store_timestamp)
    if handle is not None:
        system.receipt_handle = handle
    _set_optional(system, values)
    for name, value in values.items():
        if name not in _HIDDEN:
            result.user_properties[name] = value


def _set_optional(system: d.SystemProperties, values: dict[str, str]) -> None:
    if properties.TAGS in values:
        system.tag = values[properties.TAGS]
    if properties.KEYS in values:
        system.keys.extend(word for word in values[properties.KEYS].split(properties.KEY_SEPARATOR) if word)
    if properties.SHARDING_KEY in values:
        system.message_group = values[properties.SHARDING_KEY]
    if properties.TIMER_DELIVER_MS in values:
        _set_time(system.delivery_timestamp, service_records.lenient_number(values[properties.TIMER_DELIVER_MS]))
    if properties.PRIORITY in values:
        system.priority = service_records.lenient_number(values[properties.PRIORITY])
    if properties.LITE_TOPIC in values:
        system.lite_topic = values[properties.LITE_TOPIC]
    if TRACE_CONTEXT in values:
        system.trace_context = values[TRACE_CONTEXT]
    if DEAD_TOPIC in values or DEAD_ID in values:
        system.dead_letter_queue.topic = values.get(DEAD_TOPIC, "")
        system.dead_letter_queue.message_id = values.get(DEAD_ID, "")


def _body(body: bytes, sys_flag: int) -> tuple[bytes, int]:
    """Returns a body as it is sent, and its encoding.

    A body in a compression that remoting clients use is decompressed, so that every client can read it; the real proxy
    passes it on, labelled "GZIP". Any other body that is marked as compressed is sent as stored, with that label.
    """
    if not sys_flag & _COMPRESSED:
        return body, d.IDENTITY
    try:
        return compression.decode(body, sys_flag), d.IDENTITY
    except FormatError:
        return body, d.GZIP


def _set_time(stamp: Timestamp, time_ms: int) -> None:
    seconds, rest = divmod(time_ms, 1000)
    stamp.seconds, stamp.nanos = max(0, min(seconds, TIME_MAX_S)), rest * 1_000_000
