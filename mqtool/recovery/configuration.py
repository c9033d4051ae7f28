"""The tables in config/ that a broker loads before its store, and whether it can: their text, and the types of values.

A missing or empty table counts as empty. One that cannot be parsed is replaced by its .bak; if that cannot be parsed
either, the broker ends. Its parser accepts more than JSON: bytes that are not UTF-8 become replacement characters,
control characters are allowed in strings, and form feed and backspace (with fastjson2, NUL too) count as white space.
Other extensions, such as a missing comma, are not followed: see `is_cut`. A number that is a word, or a list that
should be a map, makes the broker refuse the complete table.

Source: ConfigManager.load, loadBak, BrokerController.initialize (4.9.7); BrokerController.initializeMetadata (5.5.0);
members of TopicConfigSerializeWrapper, ConsumerOffsetManager, SubscriptionGroupManager, ConsumerFilterManager,
DelayOffsetSerializeWrapper and, in 5.5, TopicQueueMappingSerializeWrapper and ConsumerOrderInfoManager, as fastjson
1.2.69 (4.9.7) and fastjson2 2.0.59 (5.5.0) convert them.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.errors import FormatError
from mqtool.formats import config_files, file_names
from mqtool.formats.codec import Buffer
from mqtool.formats.config_files import TopicConfig
from mqtool.formats.release import V5_5, Release
from mqtool.recovery.action_log import Action, ActionLog, load_fails
from mqtool.recovery.settings import RecoverySettings
from mqtool.store.files import read_file

_TABLES_4 = (
    file_names.TOPICS,
    file_names.CONSUMER_OFFSETS,
    file_names.SUBSCRIPTION_GROUPS,
    file_names.CONSUMER_FILTERS,
)
_TABLES_5 = (
    file_names.TOPICS,
    file_names.TOPIC_QUEUE_MAPPING,
    file_names.CONSUMER_OFFSETS,
    file_names.SUBSCRIPTION_GROUPS,
    file_names.CONSUMER_FILTERS,
    file_names.CONSUMER_ORDER_INFO,
)
_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]++|\\.)*+")|(?<![\d.eE+-])(?P<key>-?\d++)(?=\s*+:)|(?P<blank>[\f\b])|(?P<nul>\0)',
    re.DOTALL | re.ASCII,
)
"""Strings first, so that the rest is found outside of them only."""
_NUMBER = "\0number:"
_DIGITS = re.compile(r"[+-]?[0-9]+", re.ASCII)


def load_tables(settings: RecoverySettings, actions: ActionLog) -> Mapping[str, TopicConfig]:
    """Loads the tables in the broker's order; returns the topics by name, none if they cannot be read."""
    table = b""
    for name in _TABLES_5 if settings.release >= (5, 0) else _TABLES_4:
        chosen = _with_lmq(name, settings)
        data = load_table(settings, actions, chosen)
        if data is None:
            _note_overwritten(settings, actions)
            raise load_fails(f"load {last_tried_file(_path(settings, chosen), release=settings.release)} Failed")
        if name == file_names.TOPICS:
            table = data
    return _topics(table)


def load_table(settings: RecoverySettings, actions: ActionLog, name: str) -> bytes | None:
    """Returns what a table is loaded from, its file or its backup; b"" for an empty table; None if neither parses."""
    path = _path(settings, name)
    data = _content(path)
    if data and _is_taken(settings, actions, name, data):
        return data
    backup = _content(path.with_name(path.name + file_names.BACKUP_SUFFIX))
    if path.is_file():
        instead = "its .bak" if backup else "an empty table"
        actions.log_accepted(
            f"config/{name} is empty or cannot be read: the broker uses {instead} (ConfigManager.load)"
        )
    elif not backup and name in (file_names.TOPICS, file_names.CONSUMER_OFFSETS):
        actions.log_accepted(f"config/{name} is missing: the broker starts with an empty table (ConfigManager.load)")
    if backup is None or not backup:
        return b""
    return backup if _is_taken(settings, actions, name, backup) else None


def last_tried_file(path: Path, *, release: Release) -> Path:
    """Returns the file that the broker names when a table and its backup cannot be parsed."""
    return path.with_name(path.name + file_names.BACKUP_SUFFIX) if release >= (5, 0) else path


def _with_lmq(name: str, settings: RecoverySettings) -> str:
    return file_names.LMQ_CONSUMER_OFFSETS if settings.lmq and name == file_names.CONSUMER_OFFSETS else name


def _path(settings: RecoverySettings, name: str) -> Path:
    return settings.root / file_names.CONFIG / name


def _content(path: Path) -> bytes | None:
    return read_file(path) if path.is_file() else None


def _is_taken(settings: RecoverySettings, actions: ActionLog, name: str, data: bytes) -> bool:
    """Whether the release's parser accepts a table: its text, and the values in it."""
    try:
        document = read_table(data, release=settings.release)
    except (ValueError, RecursionError):
        if not is_cut(data):
            actions.log_undecided(f"whether the broker's parser accepts config/{name}, which is not JSON: assumed not")
        return False
    return table_fits(name, document, release=settings.release)


def _note_overwritten(settings: RecoverySettings, actions: ActionLog) -> None:
    tables = [_with_lmq(file_names.CONSUMER_OFFSETS, settings)]
    if settings.release >= (5, 0):
        tables += [file_names.TOPICS, file_names.SUBSCRIPTION_GROUPS]
    for name in tables:
        actions.do(Action.WRITE, _path(settings, name))
    actions.log_reason(
        "a broker that cannot load its tables still writes them when it exits: "
        f"{', '.join(tables)}: overwritten with empty or default tables (BrokerController.shutdown)"
    )


def _topics(data: bytes) -> Mapping[str, TopicConfig]:
    try:
        return config_files.parse_topics(data).topic_config_table if data else {}
    except FormatError:
        return {}


def read_table(data: Buffer, *, release: Release) -> Any:
    """Returns a table's document; keys without quotes are `int`. Raises ValueError or RecursionError."""

    def plain(match: re.Match[str]) -> str:
        if match["key"]:
            return f'"\\u0000number:{match["key"]}"'
        return " " if match["blank"] or (match["nul"] and release >= (5, 0)) else match[0]

    text = bytes(data).decode("utf-8", "replace")
    return json.loads(_TOKEN.sub(plain, text), object_pairs_hook=_object, strict=False)


def is_cut(data: Buffer) -> bool:
    """Whether an unreadable text plainly lacks its end, so that no parser accepts it."""
    text = bytes(data).decode("utf-8", "replace")
    outside = _TOKEN.sub(lambda match: "" if match["text"] else match[0], text)
    return '"' in outside or outside.count("{") != outside.count("}")


def _object(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    return {int(key[len(_NUMBER) :]) if key.startswith(_NUMBER) else key: value for key, value in pairs}


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


def table_fits(name: str, document: Any, *, release: Release) -> bool:
    """Whether the release accepts a table of config/ with these values; null stands for an empty table."""
    shape = (_SHAPES_5 if release >= (5, 0) else _SHAPES_4).get(name)
    if shape is None or document is None:
        return True
    if document == [] and release < (5, 0):  # fastjson makes null of it
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
    if release < (5, 0):
        return True
    if isinstance(value, dict):
        return all(isinstance(key, str) and _passes(member, release=V5_5) for key, member in value.items())
    return not isinstance(value, list) or all(_passes(member, release=V5_5) for member in value)


def _is_kind(shape: Value, value: Any, *, release: Release) -> bool:
    if release >= (5, 0) and shape.kind is Kind.INT and isinstance(value, list) and len(value) == 1:
        value = value[0]  # fastjson2 takes the one element for it
    if shape.kind is Kind.ANY:
        return _passes(value, release=release)
    if value is None or value in ("", "null"):
        return not shape.needed
    if shape.kind is Kind.BOOL:
        return _is_flag(value, release=release)
    if isinstance(value, bool):
        return release >= (5, 0) or (shape.kind is Kind.INT and not shape.needed)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, int | float):
        return shape.kind is Kind.LONG or -(1 << 31) <= value < 1 << 31
    return False


def _is_flag(value: Any, *, release: Release) -> bool:
    if isinstance(value, str):
        return value.lower() in ("true", "false")
    return isinstance(value, int | float) and (release >= (5, 0) or abs(value) < 1 << 31)
