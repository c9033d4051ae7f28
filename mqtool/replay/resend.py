"""Changes messages before they are sent again: other topics, dead letters, and half messages the broker gave up on.

A dead letter states the topic that it was sent to (RETRY_TOPIC, or DLQ_ORIGIN_TOPIC of 5.x). A half message that was
checked too often states its topic and queue (REAL_TOPIC, REAL_QID). Properties that only the broker's retries and
transactions use are removed: with TRAN_MSG a broker would treat the message as a new half message, with DELAY as a
delayed one. Source: AbstractSendMessageProcessor.consumerSendMsgBack, TransactionalMessageServiceImpl,
DefaultTransactionalMessageCheckListener (5.5.0).
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.export.schema import RecordClass, class_of
from mqtool.formats import properties, service_records, topics
from mqtool.formats.config_files import TopicConfig
from mqtool.store.globs import Globs
from mqtool.store.log.message import Message

DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"

_OF_RETRIES = (
    properties.RETRY_TOPIC,
    properties.ORIGIN_MESSAGE_ID,
    properties.DELAY_LEVEL,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    properties.RECONSUME_TIME,
    properties.MAX_RECONSUME_TIMES,
    DLQ_ORIGIN_TOPIC,
    "DLQ_ORIGIN_MESSAGE_ID",
    properties.ORIGIN_GROUP,
    properties.FIRST_POP_TIME,
    properties.POP_CHECK_POINT,
)
_OF_TRANSACTIONS = (
    properties.TRANSACTION_PREPARED,
    properties.TRANSACTION_ID,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    service_records.CHECK_TIMES,
    service_records.IMMUNITY,
    properties.TRANSACTION_PREPARED_QUEUE_OFFSET,
)


class Kind(StrEnum):
    """Which messages of a store are sent again."""

    VISIBLE = "visible"
    """Messages that consumers could see."""
    DEAD_LETTERS = "dead-letters"
    """Dead letters of one consumer group."""
    HALF = "half"
    """Half messages that the broker gave up on after too many checks."""


class Resend(Struct, frozen=True):
    """Which messages are sent again, and where to."""

    kind: Kind = Kind.VISIBLE  # the kind of messages
    group: str = ""  # consumer group whose dead letters are sent again
    to_topic: str | None = None  # topic for all messages; None to use the topic of each message
    # Topic configurations of the source store, which give the number of queues for dead letters.
    topics: Mapping[str, TopicConfig] | None = None

    @property
    def stored_topics(self) -> tuple[str, ...] | None:
        """Topics in which the messages are stored; None if the selection names the topics."""
        if self.kind is Kind.DEAD_LETTERS:
            return (topics.DEAD_LETTER_PREFIX + self.group,)
        return (topics.CHECKED_TOO_OFTEN_TOPIC,) if self.kind is Kind.HALF else None

    def is_wanted(self, topic: str, sys_flag: int) -> bool:
        """Whether a record is of the selected kind."""
        return self.kind is not Kind.VISIBLE or class_of(topic, sys_flag) is RecordClass.COMMITTED

    def matches_topic(self, message: Message, globs: Globs) -> bool:
        """Whether the selection includes the topic that a message was originally sent to.

        The topic in which a dead letter or half message is stored does not count.
        """
        return self.kind is Kind.VISIBLE or globs.matches(self._origin(message)[0] or "")

    def changed(self, message: Message) -> Message:
        """Returns a message in the form in which it is sent.

        Raises:
            FormatError: the message does not state its original topic, and `to_topic` is None.
        """
        topic, queue_id = self._origin(message)
        topic = self.to_topic or topic
        if topic is None:
            raise FormatError("expected the topic that it was sent to, found none; name one with --to-topic")
        if self.kind is Kind.VISIBLE:
            return message if topic == message.topic else replace(message, topic=topic)
        removed = _OF_RETRIES if self.kind is Kind.DEAD_LETTERS else _OF_TRANSACTIONS
        kept = {name: value for name, value in message.properties.items() if name not in removed}
        return replace(message, topic=topic, queue_id=queue_id, properties=kept, reconsume_times=0)

    def _origin(self, message: Message) -> tuple[str | None, int]:
        """Returns (original topic, queue id to send to); the topic is None if the message does not state it."""
        values = message.properties
        if self.kind is Kind.DEAD_LETTERS:
            topic = values.get(DLQ_ORIGIN_TOPIC) or values.get(properties.RETRY_TOPIC)
            if topic is None or topic.startswith(topics.RETRY_PREFIX):
                return None, 0
            config = (self.topics or {}).get(topic)
            return topic, message.queue_offset % max(1, config.write_queue_nums if config else 1)
        if self.kind is Kind.HALF:
            try:
                return service_records.destination(values)
            except FormatError:
                return None, 0
        return message.topic, message.queue_id

    def shape(self) -> dict[str, str]:
        """Returns the settings that must not change between the runs of one replay; empty for an ordinary replay."""
        given = {"resend": self.kind.value, "group": self.group, "to_topic": self.to_topic or ""}
        return given if self.kind is not Kind.VISIBLE or self.to_topic else {}


ORDINARY = Resend()
"""An ordinary replay: messages that consumers could see, sent to their own topics."""
