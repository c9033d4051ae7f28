"""Names that brokers and clients share: system topics, prefixes, predefined groups.

Source: TopicValidator, MixAll, NamespaceUtil, TopicConfigManager, SubscriptionGroupManager (4.9.7, 5.5.0).
"""

import re

from mqtool.formats import service_records, topics

HALF_TOPIC = topics.HALF_TOPIC
OP_TOPIC = topics.OP_TOPIC
TIMER_TOPIC = topics.TIMER_TOPIC
REVIVE_TOPIC_PREFIX = topics.REVIVE_TOPIC_PREFIX
TRANSACTION_GROUP = service_records.TRANSACTION_GROUP
RETRY_PREFIX = topics.RETRY_PREFIX
DEAD_LETTER_PREFIX = topics.DEAD_LETTER_PREFIX
DEFAULT_TOPIC = topics.DEFAULT_TOPIC
SELF_TEST_TOPIC = topics.SELF_TEST_TOPIC
BENCHMARK_TOPIC = topics.BENCHMARK_TOPIC
OFFSET_MOVED_TOPIC = topics.OFFSET_MOVED_TOPIC
TRACE_TOPIC = topics.TRACE_TOPIC
CHECKED_TOO_OFTEN_TOPIC = topics.CHECKED_TOO_OFTEN_TOPIC
REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"
SYNC_MEMBER_PREFIX = topics.SYNC_MEMBER_PREFIX
NOT_FOR_SENDERS = topics.NOT_FOR_SENDERS
TOOLS_GROUP = "TOOLS_CONSUMER"

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

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
LONGEST_NAME = 127
LONGEST_RETRY_NAME = 255
LONGEST_GROUP = 120
"""Maximum length of a group's name; a retry topic's name contains it."""

_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")


retry_topic = topics.retry_topic
dead_letter_topic = topics.dead_letter_topic
pop_retry_topic = topics.pop_retry_topic
popped_topic = topics.popped_topic
is_system_topic = topics.is_system_topic


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
