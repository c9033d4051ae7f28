"""Checks and changes that a broker makes before the store; a store without hooks accepts any message.

A hook sees the message and returns a status that refuses it, or None and perhaps another message. Source:
HookUtils.checkBeforePutMessage/handleScheduleMessage, BrokerController.registerMessageStoreHook (4.9.7, 5.5.0).
"""

from collections.abc import Callable
from typing import NamedTuple

from mqtool.engine.options import StoreOptions
from mqtool.engine.statuses import PutStatus
from mqtool.engine.write.queue_offsets import encode_properties
from mqtool.errors import FormatError
from mqtool.formats import commit_log, java, properties
from mqtool.formats.service_records import parse_delay_levels
from mqtool.formats.topics import RETRY_PREFIX, SCHEDULE_TOPIC

_LONGEST_TOPIC = 127
_LONGEST_RETRY_TOPIC = 255


class OutgoingMessage(NamedTuple):
    """A message on its way into the store; the fields are the arguments of `MessageStore.put`, in their order."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: bytes | None = None
    store_host: bytes | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


Hook = Callable[[OutgoingMessage], OutgoingMessage | PutStatus]
"""Returns the message to store, or the status that refuses it."""


def check_before_put(page_cache_is_busy: Callable[[], bool]) -> Hook:
    """Returns the broker's first check: length of the topic, presence of a body, a busy page cache."""

    def check(message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        size = len(java.encode_utf8(message.topic))
        is_retry = message.topic.startswith(RETRY_PREFIX)
        if size > (_LONGEST_RETRY_TOPIC if is_retry else _LONGEST_TOPIC):
            return PutStatus.MESSAGE_ILLEGAL
        return PutStatus.OS_PAGE_CACHE_BUSY if page_cache_is_busy() else message

    return check


def delay_message(options: StoreOptions) -> Hook:
    """Returns the broker's rewriting of delayed messages: into a queue of the schedule topic, by level."""
    levels = len(parse_delay_levels(options.delay_levels))

    def rewrite(message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        if properties.DELAY_LEVEL.encode() not in message.properties or not commit_log.is_queued(message.sys_flag):
            return message
        decoded = properties.decode(message.properties)
        try:
            level = min(java.parse_int(decoded.get(properties.DELAY_LEVEL, "0")), levels)
        except FormatError:
            return PutStatus.MESSAGE_ILLEGAL
        if level <= 0:
            return message
        decoded[properties.DELAY_LEVEL] = str(level)
        decoded[properties.REAL_TOPIC] = message.topic
        decoded[properties.REAL_QUEUE_ID] = str(message.queue_id)
        return message._replace(
            topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=encode_properties(options, decoded)
        )

    return rewrite
