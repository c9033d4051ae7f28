"""Whether a table of config/ has the types that a release's classes expect.

A number that is a word, or a list that should be a map, makes the broker refuse the whole table. Source: members of
TopicConfigSerializeWrapper, ConsumerOffsetManager, SubscriptionGroupManager, ConsumerFilterManager,
DelayOffsetSerializeWrapper and, in 5.5, TopicQueueMappingSerializeWrapper and ConsumerOrderInfoManager, as fastjson
1.2.69 (4.9.7) and fastjson2 2.0.59 (5.5.0) convert them.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, field

from mqtool.formats import file_names
from mqtool.formats.release import V5_5, Release

_DIGITS = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Kind(Enum):
    """The type that a value is converted to."""

    INT = 32
    LONG = 64
    BOOL = 1
    ANY = 0


class Value(Struct, frozen=True):
    """One value; `needed` if null is refused."""

    kind: Kind = Kind.ANY
    needed: bool = False


class Bean(Struct, frozen=True):
    """An object with known members; others are ignored."""

    members: "Mapping[str, Shape]" = field(default_factory=dict)
    needed: bool = True


class Table(Struct, frozen=True):
    """A map; with `numbers`, its keys are numbers of that kind, without quotes."""

    entry: "Shape"
    numbers: Kind | None = None
    needed: bool = True


Shape = Value | Bean | Table

_ANY, _INT, _LONG, _BOOL = (Value(kind) for kind in (Kind.ANY, Kind.INT, Kind.LONG, Kind.BOOL))
_OFFSETS = Table(Value(Kind.LONG, needed=True), numbers=Kind.INT)
_TEXTS = Table(_ANY, needed=False)
_VERSION_4 = Bean({"counter": Value(Kind.LONG, needed=True), "timestamp": _LONG})
_VERSION_5 = Bean(dict(_VERSION_4.members) | {"stateVersion": _LONG})
_MAYBE_VERSION_5 = Bean(_VERSION_5.members, needed=False)

_TOPIC_4 = Bean({"readQueueNums": _INT, "writeQueueNums": _INT, "perm": _INT, "topicSysFlag": _INT, "order": _BOOL})
_TOPIC_5 = Bean(dict(_TOPIC_4.members) | {"attributes": _TEXTS})
_GROUP_4 = Bean(
    dict.fromkeys(("retryQueueNums", "retryMaxTimes"), _INT)
    | dict.fromkeys(("brokerId", "whichBrokerWhenConsumeSlowly"), _LONG)
    | dict.fromkeys(
        ("consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "notifyConsumerIdsChangedEnable"), _BOOL
    )
)
_GROUP_5 = Bean(
    dict(_GROUP_4.members)
    | {"consumeMessageOrderly": _BOOL, "groupSysFlag": _INT, "consumeTimeoutMinute": _INT, "attributes": _TEXTS}
    | {"groupRetryPolicy": Bean(needed=False)}
)
_ORDER_INFO = Bean(
    dict.fromkeys(("popTime", "i", "l", "cm"), _LONG)
    | {"ot": Table(_LONG, Kind.LONG, needed=False), "oc": Table(_INT, Kind.LONG, needed=False)}
)
_FILTER = Bean({"bornTime": _LONG, "clientVersion": _LONG, "bloomFilterData": Bean(needed=False)})
_FILTERS = Table(Bean({"groupFilterData": Table(_FILTER)}))

_SHAPES_4: dict[str, Bean] = {
    file_names.TOPICS: Bean({"topicConfigTable": Table(_TOPIC_4), "dataVersion": _VERSION_4}),
    file_names.CONSUMER_OFFSETS: Bean({"offsetTable": Table(_OFFSETS, needed=False)}),
    file_names.SUBSCRIPTION_GROUPS: Bean({"subscriptionGroupTable": Table(_GROUP_4)}),
    file_names.CONSUMER_FILTERS: Bean({"filterDataByTopic": Table(_FILTERS.entry, needed=False)}),
    file_names.DELAY_OFFSETS: Bean({"offsetTable": _OFFSETS}),
}
_SHAPES_5: dict[str, Bean] = {
    file_names.TOPICS: Bean({"topicConfigTable": Table(_TOPIC_5), "dataVersion": _VERSION_5}),
    file_names.TOPIC_QUEUE_MAPPING: Bean({"topicQueueMappingInfoMap": Table(Bean())}),
    file_names.CONSUMER_OFFSETS: Bean(
        dict.fromkeys(("offsetTable", "pullOffsetTable"), Table(_OFFSETS, needed=False))
        | {"dataVersion": _MAYBE_VERSION_5}
    ),
    file_names.SUBSCRIPTION_GROUPS: Bean(
        {
            "subscriptionGroupTable": Table(_GROUP_5),
            "forbiddenTable": Table(Table(Value(Kind.INT, needed=True)), needed=False),
            "dataVersion": _VERSION_5,
        }
    ),
    file_names.CONSUMER_FILTERS: Bean({"filterDataByTopic": Table(_FILTERS.entry, needed=False)}),
    file_names.CONSUMER_ORDER_INFO: Bean({"table": Table(Table(_ORDER_INFO, numbers=Kind.INT))}),
    file_names.DELAY_OFFSETS: Bean({"offsetTable": _OFFSETS, "dataVersion": _MAYBE_VERSION_5}),
}


def fits(name: str, document: Any, *, release: Release) -> bool:
    """Whether the release accepts a table of config/ with these values; null stands for an empty table."""
    shape = (_SHAPES_5 if release >= (5, 5) else _SHAPES_4).get(name)
    if shape is None or document is None:
        return True
    if document == [] and release < (5, 5):  # fastjson makes null of it
        return True
    return _fits(shape, document, release=release)


def _fits(shape: Shape, value: Any, *, release: Release) -> bool:
    if isinstance(shape, Value):
        return _is_kind(shape, value, release=release)
    if value is None:
        return not shape.needed
    if not isinstance(value, dict):
        return False
    if isinstance(shape, Bean):
        known = shape.members
        return all(
            isinstance(key, str)
            and (_fits(known[key], member, release=release) if key in known else _passes(member, release=release))
            for key, member in value.items()
        )
    return all(_is_key(shape, key) and _fits(shape.entry, member, release=release) for key, member in value.items())


def _is_key(shape: Table, key: Any) -> bool:
    if shape.numbers is None:
        return isinstance(key, str)
    return _is_kind(Value(shape.numbers, needed=True), key, release=V5_5)


def _passes(value: Any, *, release: Release) -> bool:
    """Whether an unknown member passes: fastjson2 reads its values too, and then rejects numbers as keys."""
    if release < (5, 5):
        return True
    if isinstance(value, dict):
        return all(isinstance(key, str) and _passes(member, release=V5_5) for key, member in value.items())
    return not isinstance(value, list) or all(_passes(member, release=V5_5) for member in value)


def _is_kind(shape: Value, value: Any, *, release: Release) -> bool:
    if release >= (5, 5) and shape.kind is Kind.INT and isinstance(value, list) and len(value) == 1:
        value = value[0]  # fastjson2 takes the one element for it
    if shape.kind is Kind.ANY:
        return _passes(value, release=release)
    if value is None or value in ("", "null"):
        return not shape.needed
    if shape.kind is Kind.BOOL:
        return _is_flag(value, release=release)
    if isinstance(value, bool):
        return release >= (5, 5) or (shape.kind is Kind.INT and not shape.needed)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, int | float):
        return shape.kind is Kind.LONG or -(1 << 31) <= value < 1 << 31
    return False


def _is_flag(value: Any, *, release: Release) -> bool:
    if isinstance(value, str):
        return value.lower() in ("true", "false")
    return isinstance(value, int | float) and (release >= (5, 5) or abs(value) < 1 << 31)
