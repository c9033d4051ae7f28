"""Names of the broker's system topics, and the prefixes of topics that do not belong to users.

Source: TopicValidator, MixAll, TransactionalMessageUtil, TimerMessageStore, PopAckConstants (4.9.7, 5.5.0).
"""

from collections.abc import Collection

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
CHECKED_TOO_OFTEN_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Of half messages whose producer was asked as often as the broker asks."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Of the trace that clients write about their messages."""

RETRY_PREFIX = "%RETRY%"
"""Of a group's topic for messages that are to be consumed again."""
DEAD_LETTER_PREFIX = "%DLQ%"
"""Of a group's topic for messages that were given up."""
LMQ_PREFIX = "%LMQ%"
"""Of a light message queue."""
LITE_PREFIX = f"{LMQ_PREFIX}$"
"""Of the light message queue of a lite topic."""
SYSTEM_PREFIX = "rmq_sys_"


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


def group_of_retry(topic: str, groups: Collection[str]) -> str:
    """Returns the group of a retry or dead-letter topic.

    Retry topics of POP are named after group and topic, `%RETRY%group_topic` or `%RETRY%group+topic` (KeyBuilder,
    5.5.0). In the former, only a list of groups determines where the group name ends.

    Args:
        topic: `%RETRY%…` or `%DLQ%…`.
        groups: known groups.
    """
    name = topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
    if name in groups or topic.startswith(DEAD_LETTER_PREFIX):
        return name
    if "+" in name:
        return name.partition("+")[0]
    return max((group for group in groups if name.startswith(f"{group}_")), key=len, default=name)
