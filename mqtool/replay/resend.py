"""What becomes of a message on its way: renamed, a dead letter sent back, a given-up transaction sent again.

A dead letter states the topic that it was sent to (RETRY_TOPIC, or DLQ_ORIGIN_TOPIC of 5.x), a half message that ran
out of checks its topic and queue (REAL_TOPIC, REAL_QID). What only the broker's retries and transactions need is
removed: with TRAN_MSG a broker would take the message for a new half message, with DELAY it would park it.
Source: AbstractSendMessageProcessor.consumerSendMsgBack, TransactionalMessageServiceImpl,
DefaultTransactionalMessageCheckListener (5.5.0).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from mqtool.errors import FormatError
from mqtool.export.schema import RecordClass, class_of
from mqtool.formats import properties, service_records, topics
from mqtool.formats.config_files import TopicConfig
from mqtool.store.globs import Globs
from mqtool.store.message import Message

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
    "ORIGIN_GROUP",
    "1ST_POP_TIME",
    "POP_CK",
)
_OF_TRANSACTIONS = (
    properties.TRANSACTION_PREPARED,
    properties.TRANSACTION_ID,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    service_records.CHECK_TIMES,
    service_records.IMMUNITY,
    "TRAN_PREPARED_QUEUE_OFFSET",
)


class Kind(StrEnum):
    """Which messages of a store are sent again."""

    VISIBLE = "visible"
    """Those that consumers could see."""
    DEAD_LETTERS = "dead-letters"
    """Dead letters of one group."""
    HALF = "half"
    """Half messages that ran out of checks."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Which messages are sent again, and where to.

    Attributes:
        kind: which.
        group: of dead letters.
        to_topic: topic for all of them; None for that of each message.
        topics: configurations of the source's topics, for the queues of dead letters.
    """

    kind: Kind = Kind.VISIBLE
    group: str = ""
    to_topic: str | None = None
    topics: Mapping[str, TopicConfig] | None = None

    @property
    def stored_topics(self) -> tuple[str, ...] | None:
        """Topics in which the messages are stored; None if the selection says so."""
        if self.kind is Kind.DEAD_LETTERS:
            return (topics.DEAD_LETTER_PREFIX + self.group,)
        return (topics.CHECKED_TOO_OFTEN_TOPIC,) if self.kind is Kind.HALF else None

    def is_wanted(self, topic: str, sys_flag: int) -> bool:
        """Whether a record is of the kind."""
        return self.kind is not Kind.VISIBLE or class_of(topic, sys_flag) is RecordClass.COMMITTED

    def matches_topic(self, message: Message, globs: Globs) -> bool:
        """Whether the topic that a message was sent to is selected; its origin counts, not where it is stored."""
        return self.kind is Kind.VISIBLE or globs.matches(self._origin(message)[0] or "")

    def changed(self, message: Message) -> Message:
        """Returns a message as it is sent.

        Raises:
            FormatError: it does not state its topic, and none is given.
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
        """Returns the topic that a message was sent to, None if it is not stated, and the queue to send it to."""
        found = message.properties
        if self.kind is Kind.DEAD_LETTERS:
            topic = found.get(DLQ_ORIGIN_TOPIC) or found.get(properties.RETRY_TOPIC)
            if topic is None or topic.startswith(topics.RETRY_PREFIX):
                return None, 0
            config = (self.topics or {}).get(topic)
            return topic, message.queue_offset % max(1, config.write_queue_nums if config else 1)
        if self.kind is Kind.HALF:
            try:
                return service_records.destination(found)
            except FormatError:
                return None, 0
        return message.topic, message.queue_id

    def shape(self) -> dict[str, str]:
        """Returns what must stay the same between the runs of one replay; nothing for an ordinary one."""
        given = {"resend": self.kind.value, "group": self.group, "to_topic": self.to_topic or ""}
        return given if self.kind is not Kind.VISIBLE or self.to_topic else {}


ORDINARY = Resend()
"""An ordinary replay: what consumers could see, to the same topics."""
