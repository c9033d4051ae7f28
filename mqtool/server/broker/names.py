"""Names that brokers and clients share: system topics, prefixes, predefined groups.

Source: TopicValidator, MixAll, NamespaceUtil, TopicConfigManager, SubscriptionGroupManager (4.9.7, 5.5.0).
"""

import re

from mqtool.formats import service_records, topics

SCHEDULE_TOPIC = topics.SCHEDULE_TOPIC
HALF_TOPIC = topics.HALF_TOPIC
OP_TOPIC = topics.OP_TOPIC
TIMER_TOPIC = topics.TIMER_TOPIC
REVIVE_TOPIC_PREFIX = topics.REVIVE_TOPIC_PREFIX
TRANSACTION_GROUP = service_records.TRANSACTION_GROUP
RETRY_PREFIX = topics.RETRY_PREFIX
DEAD_LETTER_PREFIX = topics.DEAD_LETTER_PREFIX
DEFAULT_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = topics.TRACE_TOPIC
CHECKED_TOO_OFTEN_TOPIC = topics.CHECKED_TOO_OFTEN_TOPIC
REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"
SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
TOOLS_GROUP = "TOOLS_CONSUMER"

NOT_FOR_SENDERS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECKED_TOO_OFTEN_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics to which no client may send."""

SYSTEM_TOPICS = NOT_FOR_SENDERS | {DEFAULT_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, TIMER_TOPIC}
"""Topics that cannot be deleted or changed, in addition to those with the system prefix."""

PREDEFINED_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)

SYSTEM_PREFIX = topics.SYSTEM_PREFIX
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
LONGEST_NAME = 127
LONGEST_RETRY_NAME = 255
LONGEST_GROUP = 120
"""Maximum length of a group's name; a retry topic's name contains it."""

_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")


def retry_topic(group: str) -> str:
    """Returns the retry topic of a consumer group."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Returns the dead letter topic of a consumer group."""
    return DEAD_LETTER_PREFIX + group


def pop_retry_topic(group: str, topic: str) -> str:
    """Returns the POP retry topic, for popped messages that were not acknowledged (KeyBuilder.buildPopRetryTopicV1)."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def popped_topic(group: str, topic: str) -> str:
    """Returns the original topic of messages in a POP retry topic (KeyBuilder.parseNormalTopic)."""
    return topic[len(RETRY_PREFIX) + len(group) + 1 :] if topic.startswith(RETRY_PREFIX) else topic


def is_system_topic(topic: str) -> bool:
    """Whether a topic is a system topic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a consumer group is a system group."""
    return group in PREDEFINED_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def topic_problem(topic: str) -> str | None:
    """Returns why a topic name is invalid; None if it is valid."""
    if not topic.strip():
        return "The specified topic is blank."
    if _ILLEGAL.search(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if len(topic) > LONGEST_RETRY_NAME:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max length: "
                f"{LONGEST_RETRY_NAME}"
            )
    elif len(topic) > LONGEST_NAME:
        return f"The specified topic: {topic}, is longer than topic max length: {LONGEST_NAME}"
    return None


def group_problem(group: str) -> str | None:
    """Returns why a group name is invalid; None if it is valid."""
    if not group.strip():
        return "The specified group is blank."
    if _ILLEGAL.search(group):
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > LONGEST_GROUP:
        return f"The specified group: {group}, is longer than group max length: {LONGEST_GROUP}"
    return None
