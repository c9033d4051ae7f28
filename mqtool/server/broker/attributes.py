"""Names and attributes of topics and consumer groups: what a broker accepts, and how a request changes attributes.

A request names changes: "+NAME" with a value sets an attribute, "-NAME" removes it. Source: TopicValidator, MixAll,
SubscriptionGroupManager (4.9.7, 5.5.0), TopicAttributes, SubscriptionGroupAttributes, AttributeParser, AttributeUtil
(5.5.0).
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.config_files import (
    BATCH_QUEUES,
    CLEANUP_POLICY,
    COMPACTION,
    MESSAGE_TYPE,
    QUEUE_TYPE,
    SIMPLE_QUEUES,
)
from mqtool.formats.service_records import TRANSACTION_GROUP
from mqtool.formats.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from mqtool.protocol.command import ResponseCode
from mqtool.server.broker.answers import RefusalError

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


MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE")
"""Message types to which a topic can be restricted."""
MIXED = "MIXED"
"""Message type of a topic that accepts all; needs enableMixedMessageType."""
LITE_EXPIRATION = "lite.topic.expiration"
BIND_TOPIC = "lite.bind.topic"
LITE_MODEL = "lite.sub.model"
LITE_QUOTA = "lite.sub.client.quota"
LITE_RESET_EXCLUDED = "lite.sub.reset.offset.exclusive"
LITE_RESET_UNSUBSCRIBED = "lite.sub.reset.offset.unsubscribe"
LITE_WILDCARD = "lite.sub.wildcard"

_LONGEST_EXPIRATION = 30 * 24 * 60
"""30 days, in minutes."""


class Attribute(NamedTuple):
    """One known attribute."""

    problem: Callable[[str], str]  # returns why a value is invalid; "" if it is valid
    is_changeable: bool = True  # whether it can be set or removed after the topic is created


def _one_of(*values: str) -> Callable[[str], str]:
    return lambda value: "" if value in values else f"value is not in set: [{', '.join(values)}]"


def _whole_number(low: int, high: int = java.LONG_MAX) -> Callable[[str], str]:
    def problem(value: str) -> str:
        try:
            number = java.parse_long(value)
        except FormatError:
            return f'For input string: "{value}"'
        return "" if low <= number <= high else f"value is not in range({low}, {high})"

    return problem


def _boolean(value: str) -> str:
    return "" if value.lower() in ("true", "false") else "boolean attribute format is wrong."


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType(
    {
        QUEUE_TYPE: Attribute(_one_of(BATCH_QUEUES, SIMPLE_QUEUES), is_changeable=False),
        CLEANUP_POLICY: Attribute(_one_of("DELETE", COMPACTION), is_changeable=False),
        MESSAGE_TYPE: Attribute(_one_of("UNSPECIFIED", *MESSAGE_TYPES, MIXED)),
        "reserve.time": Attribute(_whole_number(-1)),
        LITE_EXPIRATION: Attribute(_whole_number(-1, _LONGEST_EXPIRATION)),
    }
)
GROUP_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType(
    {
        "priority.factor": Attribute(_whole_number(0, 100)),
        BIND_TOPIC: Attribute(lambda _: ""),
        LITE_QUOTA: Attribute(_whole_number(-1)),
        LITE_MODEL: Attribute(_one_of("Shared", "Exclusive")),
        LITE_RESET_EXCLUDED: Attribute(_boolean),
        LITE_RESET_UNSUBSCRIBED: Attribute(_boolean),
        "lite.sub.client.max.event.cnt": Attribute(_whole_number(10)),
        LITE_WILDCARD: Attribute(lambda _: ""),
    }
)


def parse_changes(text: str) -> dict[str, str]:
    """Returns changes such as "+a=b,-c" by signed name; raises RefusalError if one is malformed or occurs twice."""
    changes: dict[str, str] = {}
    for piece in java.split_drop_trailing(text, ",") if text else ():
        name, value = piece, ""
        if "=" in piece:
            name, value, *_ = (*java.split_drop_trailing(piece, "="), "", "")
            if "+" not in name or "=" not in piece.rstrip("="):
                raise _refused(f"add/alter attribute format is wrong: {piece}")
        elif "-" not in name:
            raise _refused(f"delete attribute format is wrong: {piece}")
        if name in changes:
            raise _refused(f"key duplication: {name}")
        changes[name] = value
    return changes


def alter_attributes(
    known: Mapping[str, Attribute], current: Mapping[str, Any] | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the attributes of a topic or group after changes by signed name; `current` is None if it is new.

    Raises RefusalError if a change is not allowed. Source: AttributeUtil.alterCurrentAttributes.
    """
    altered = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        if not name or "+" in name or "-" in name or not isinstance(value, str):
            raise _refused("kv string format wrong.")
        if name in seen:
            raise _refused(f"alter duplication key. key: {name}")
        seen.add(name)
        if current is None and sign != "+":
            raise _refused(f"only add attribute is supported while creating topic. key: {name}")
        if sign not in ("+", "-"):
            raise _refused(f"wrong format key: {name}")
        if sign == "-" and name not in altered:
            raise _refused(f"attempt to delete a nonexistent key: {name}")
        _check(known, name, value if sign == "+" else None, is_new=current is None)
        if sign == "+":
            altered[name] = value
        else:
            del altered[name]
    return altered


def _check(known: Mapping[str, Attribute], name: str, value: str | None, *, is_new: bool) -> None:
    """Raises RefusalError if an attribute cannot get a value, or cannot be removed (None)."""
    attribute = known.get(name)
    if attribute is None:
        raise _refused(f"unsupported key: {name}")
    if not (is_new or attribute.is_changeable):
        raise _refused(f"attempt to update an unchangeable attribute. key: {name}")
    problem = "" if value is None else attribute.problem(value)
    if problem:
        raise _refused(problem)


def _refused(remark: str) -> RefusalError:
    return RefusalError(ResponseCode.SYSTEM_ERROR, remark)
