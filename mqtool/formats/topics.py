"""Names of the broker's system topics and what each is for, and the prefixes of topics that do not belong to users.

Source: TopicValidator, TopicConfigManager, MixAll, TransactionalMessageUtil, TimerMessageStore, PopAckConstants (4.9.7,
5.5.0).
"""

from collections.abc import Collection
from typing import NamedTuple

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_QUEUES = 18
"""Queues with which a broker creates the schedule topic, whatever messageDelayLevel says (TopicConfigManager)."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
CHECKED_TOO_OFTEN_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Of half messages whose producer was asked as often as the broker asks."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Of the trace that clients write about their messages."""
DEFAULT_TOPIC = "TBW102"
"""The pattern for topics that the broker creates when a client sends to them."""
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
"""Reserved by 5.5.0 as the key of a row in RocksDB. The broker puts no message into it."""
SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"

RETRY_PREFIX = "%RETRY%"
"""Of a group's topic for messages that are to be consumed again."""
DEAD_LETTER_PREFIX = "%DLQ%"
"""Of a group's topic for messages that were given up."""
LMQ_PREFIX = "%LMQ%"
"""Of a light message queue."""
LITE_PREFIX = f"{LMQ_PREFIX}$"
"""Of the light message queue of a lite topic."""
SYSTEM_PREFIX = "rmq_sys_"

TopicQueue = tuple[str, int]
"""Topic and queue id of a queue."""


class SystemTopic(NamedTuple):
    """A topic that the broker reserves."""

    name: str  # of the topic
    holds_service_records: bool = False  # a service of the broker keeps messages of other topics in it
    for_senders: bool = False  # clients may send to it
    for_consumers: bool = False  # applications may have it as a topic of their own
    made_by_broker: bool = True  # a broker creates it itself, perhaps without writing it to topics.json immediately


_TABLE = (
    SystemTopic(SCHEDULE_TOPIC, holds_service_records=True),
    SystemTopic(TIMER_TOPIC, holds_service_records=True, for_senders=True),
    SystemTopic(HALF_TOPIC, holds_service_records=True),
    SystemTopic(OP_TOPIC, holds_service_records=True),
    SystemTopic(ROCKSDB_HALF_TOPIC, holds_service_records=True),
    SystemTopic(ROCKSDB_OP_TOPIC, holds_service_records=True),
    SystemTopic(CHECKED_TOO_OFTEN_TOPIC),
    SystemTopic(SELF_TEST_TOPIC),
    SystemTopic(OFFSET_MOVED_TOPIC),
    SystemTopic(DEFAULT_TOPIC, for_senders=True),
    SystemTopic(TRACE_TOPIC, for_senders=True),
    SystemTopic(BENCHMARK_TOPIC, for_senders=True, for_consumers=True),
    SystemTopic(CHECKPOINT_TOPIC, for_senders=True, for_consumers=True, made_by_broker=False),
)
SYSTEM_TOPICS = frozenset(topic.name for topic in _TABLE)
"""Topics that no client may create, change or delete, in addition to those with the system prefix."""
NOT_FOR_SENDERS = frozenset(topic.name for topic in _TABLE if not topic.for_senders)
"""Topics to which no client may send."""
HALF_TOPICS = frozenset((HALF_TOPIC, ROCKSDB_HALF_TOPIC))
_FOR_CONSUMERS = frozenset(topic.name for topic in _TABLE if topic.for_consumers)
_WITH_SERVICE_RECORDS = frozenset(topic.name for topic in _TABLE if topic.holds_service_records)
_MADE_BY_USERS = frozenset(topic.name for topic in _TABLE if not topic.made_by_broker)


def is_system_topic(topic: str) -> bool:
    """Whether the broker reserves a topic (TopicValidator.isSystemTopic, 5.5.0)."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_for_consumers(topic: str) -> bool:
    """Whether a topic's messages are for applications: those of other topics are the broker's own."""
    return topic in _FOR_CONSUMERS or not is_system_topic(topic)


def holds_service_records(topic: str) -> bool:
    """Whether a service of the broker keeps messages of other topics in a topic."""
    return topic in _WITH_SERVICE_RECORDS or topic.startswith(REVIVE_TOPIC_PREFIX)


def is_made_by_broker(topic: str) -> bool:
    """Whether a broker creates a topic itself, so that it may be missing in topics.json."""
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) or is_lmq(topic):
        return True
    return is_system_topic(topic) and topic not in _MADE_BY_USERS


def is_lmq(name: str) -> bool:
    """Whether a name is that of a light message queue, which has only queue 0."""
    return name.startswith(LMQ_PREFIX)


def lite_queue(topic: str, lite_topic: str) -> str:
    """Returns the light queue of a lite topic (LiteUtil.toLmqName)."""
    return f"{LITE_PREFIX}{topic}${lite_topic}"


def parts_of_lite_queue(name: str) -> tuple[str, str] | None:
    """Returns topic and lite topic of a light queue, None if it is not a lite topic's (LiteUtil.getParentTopic)."""
    topic, _, lite_topic = name.removeprefix(LITE_PREFIX).partition("$")
    if not name.startswith(LITE_PREFIX) or not topic or not lite_topic or "$" in lite_topic:
        return None
    return topic, lite_topic


def retry_topic(group: str) -> str:
    """Returns the retry topic of a consumer group."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Returns the dead letter topic of a consumer group."""
    return DEAD_LETTER_PREFIX + group


def pop_retry_topic(group: str, topic: str, *, second_form: bool = False) -> str:
    """Returns the POP retry topic, for popped messages of a topic that a group did not acknowledge.

    The second form, `%RETRY%group+topic`, is that of brokers with enableRetryTopicV2 (KeyBuilder.buildPopRetryTopicV2).
    """
    return f"{RETRY_PREFIX}{group}{'+' if second_form else '_'}{topic}"


def popped_topic(group: str, topic: str) -> str:
    """Returns the original topic of messages in a POP retry topic (KeyBuilder.parseNormalTopic)."""
    return topic[len(RETRY_PREFIX) + len(group) + 1 :] if topic.startswith(RETRY_PREFIX) else topic


def is_retry_of(topic: str, group: str) -> bool:
    """Whether a topic is a group's retry topic, or may be one of its POP retry topics.

    `%RETRY%a_b` may also be the retry topic of a group `a_b`.
    """
    own = retry_topic(group)
    return topic == own or topic.startswith((f"{own}_", f"{own}+"))


def group_of_retry(topic: str, groups: Collection[str]) -> str:
    """Returns the group of a retry or dead-letter topic, `%RETRY%…` or `%DLQ%…`.

    Retry topics of POP are named after group and topic, `%RETRY%group_topic` or `%RETRY%group+topic` (KeyBuilder,
    5.5.0). In the former, only a list of known groups determines where the group name ends.
    """
    name = topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
    if name in groups or topic.startswith(DEAD_LETTER_PREFIX):
        return name
    if "+" in name:
        return name.partition("+")[0]
    return max((group for group in groups if name.startswith(f"{group}_")), key=len, default=name)
