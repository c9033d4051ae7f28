"""Names that a broker accepts for topics and groups, and the groups that it predefines.

Source: TopicValidator, MixAll, SubscriptionGroupManager (4.9.7, 5.5.0).
"""

import re

from mqtool.formats import java
from mqtool.formats.service_records import TRANSACTION_GROUP
from mqtool.formats.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX

REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"
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


def is_system_group(group: str) -> bool:
    """Whether a consumer group is a system group."""
    return group in PREDEFINED_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def topic_problem(topic: str) -> str | None:
    """Returns why a topic name is invalid; None if it is valid."""
    if java.is_blank(topic):
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
    if java.is_blank(group):
        return "The specified group is blank."
    if _ILLEGAL.search(group):
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > LONGEST_GROUP:
        return f"The specified group: {group}, is longer than group max length: {LONGEST_GROUP}"
    return None
