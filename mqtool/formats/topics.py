"""Names of the broker's own topics, and the prefixes of topics that are not a user's.

Source: TopicValidator, MixAll, TransactionalMessageUtil, TimerMessageStore, PopAckConstants (4.9.7, 5.5.0).
"""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"

RETRY_PREFIX = "%RETRY%"
"""Of a group's topic for messages that are to be consumed again."""
DEAD_LETTER_PREFIX = "%DLQ%"
"""Of a group's topic for messages that were given up."""
LMQ_PREFIX = "%LMQ%"
"""Of a light message queue."""
SYSTEM_PREFIX = "rmq_sys_"


def is_lmq(name: str) -> bool:
    """Whether a queue is a light message queue, of which only queue 0 exists."""
    return name.startswith(LMQ_PREFIX)


def lite_queue(topic: str, lite_topic: str) -> str:
    """Returns the light queue of a lite topic (LiteUtil.toLmqName)."""
    return f"{LMQ_PREFIX}${topic}${lite_topic}"
