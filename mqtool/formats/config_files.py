"""Typed views of config/*.json: topics, subscription groups, consumer offsets, delay offsets.

A view keeps unknown members in `extra`, so that building it restores the broker's bytes. `config_json` reads and
writes the text. Docs page: docs/formats/config-files.md. Source: TopicConfigManager, SubscriptionGroupManager,
ConsumerOffsetManager, LmqConsumerOffsetManager, DelayOffsetSerializeWrapper, DataVersion (4.9.7, 5.5.0).
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, field

from mqtool.errors import FormatError
from mqtool.formats import config_json
from mqtool.formats.codec import Buffer
from mqtool.formats.config_json import Document, JsonStyle, bean_of, document_of, expect, table_of

TOPIC_GROUP_SEPARATOR = "@"
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
QUEUE_TYPE = "queue.type"
MESSAGE_TYPE = "message.type"
CLEANUP_POLICY = "cleanup.policy"

_QUEUE_OFFSET = re.compile(r"(\{[^{}]*\})\s*:\s*(-?\d{1,19})(?!\d)", re.ASCII)
"""A queue as a key, and its offset."""

COMPACTION = "COMPACTION"
"""The cleanup policy of compacted topics."""

T = TypeVar("T")

Offsets = dict[int, int]
"""Queue id (delay level, in delay offsets) to queue offset."""

SIMPLE_QUEUES, BATCH_QUEUES = "SimpleCQ", "BatchCQ"
"""Kinds of queues, as the attribute queue.type states them."""

FILTER_TYPES = "SINGLE_TAG", "MULTI_TAG"
"""How many tags a topic's messages have (TopicFilterType)."""


class DataVersion(Struct, frozen=True):
    """How often and when a table last changed."""

    counter: int = 0
    timestamp: int = 0
    state_version: int | None = None


class TopicConfig(Struct, frozen=True):
    """One topic."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Document | None = None
    extra: Document = field(default_factory=dict)

    @property
    def queue_type(self) -> str:
        """Kind of the topic's queues: SIMPLE_QUEUES or BATCH_QUEUES."""
        return str((self.attributes or {}).get(QUEUE_TYPE, SIMPLE_QUEUES))

    @property
    def message_type(self) -> str:
        """Kind of messages that the topic accepts, e.g. "NORMAL" or "FIFO"."""
        return str((self.attributes or {}).get(MESSAGE_TYPE, "NORMAL"))

    @property
    def is_compacted(self) -> bool:
        """Whether the broker keeps only the newest message of each key, and serves the topic from `compaction/`."""
        return (self.attributes or {}).get(CLEANUP_POLICY) == COMPACTION


class GroupConfig(Struct, frozen=True):
    """One subscription group; fields that are None exist only in 5.x."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool | None = None
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int | None = None
    consume_timeout_minute: int | None = None
    attributes: Document | None = None
    extra: Document = field(default_factory=dict)


class Topics(Struct, frozen=True):
    """topics.json: configurations by topic, in the file's order."""

    topic_config_table: dict[str, TopicConfig]
    data_version: DataVersion | None = None
    extra: Document = field(default_factory=dict)


class SubscriptionGroups(Struct, frozen=True):
    """subscriptionGroup.json: configurations by group, in the file's order."""

    subscription_group_table: dict[str, GroupConfig]
    data_version: DataVersion | None = None
    extra: Document = field(default_factory=dict)


class ConsumerOffsets(Struct, frozen=True):
    """consumerOffset.json, or lmqConsumerOffset.json, which replaces it if LMQ is enabled."""

    offset_table: dict[str, Offsets]  # "topic@group" to next queue offset by queue id
    # "topic@group" of an LMQ to next queue offset; None in consumerOffset.json.
    lmq_offset_table: dict[str, int] | None = None
    pull_offset_table: dict[str, Offsets] | None = None  # offsets of the last pulls, not of commits; 5.5.0 only
    data_version: DataVersion | None = None  # since 5.0
    # All other members, e.g. `groupTopicMap`, which the broker derives and does not read.
    extra: Document = field(default_factory=dict)

    def by_group(self) -> dict[str, dict[str, Offsets]]:
        """Returns the committed offsets as group to topic to queue id to offset, LMQs under queue 0."""
        groups: dict[str, dict[str, Offsets]] = {}
        for key, offsets in self.offset_table.items():
            topic, group = split_topic_group(key)
            groups.setdefault(group, {})[topic] = dict(offsets)
        for key, offset in (self.lmq_offset_table or {}).items():
            topic, group = split_topic_group(key)
            groups.setdefault(group, {})[topic] = {0: offset}
        return groups

    def pulled_by_group(self) -> dict[str, dict[str, Offsets]]:
        """Returns the offsets of last pulls as group to topic to queue id to offset."""
        groups: dict[str, dict[str, Offsets]] = {}
        for key, offsets in (self.pull_offset_table or {}).items():
            topic, group = split_topic_group(key)
            groups.setdefault(group, {})[topic] = dict(offsets)
        return groups


class DelayOffsets(Struct, frozen=True):
    """delayOffset.json: next queue offset by delay level (queue id + 1)."""

    offset_table: Offsets
    data_version: DataVersion | None = None
    extra: Document = field(default_factory=dict)


def batch_topics(topics: Mapping[str, TopicConfig]) -> frozenset[str]:
    """Returns the topics, of a table by name, whose queues are BatchConsumeQueues."""
    return frozenset(name for name, topic in topics.items() if topic.queue_type == BATCH_QUEUES)


def split_topic_group(key: str) -> tuple[str, str]:
    """Returns topic and group of "topic@group"; the group is empty if there is no "@"."""
    topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
    return topic, group


def parse_topics(data: Buffer) -> Topics:
    """Reads topics.json; raises FormatError as `config_json.parse`, and for values of a wrong type."""
    version, rest = _parse(data)
    return Topics(table_of(rest, "topicConfigTable", TopicConfig), version, rest)


def build_topics(topics: Topics, style: JsonStyle) -> bytes:
    """Returns the bytes of topics.json."""
    table = {name: document_of(config) for name, config in topics.topic_config_table.items()}
    return _build({"topicConfigTable": table}, topics.data_version, topics.extra, style)


def parse_groups(data: Buffer) -> SubscriptionGroups:
    """Reads subscriptionGroup.json; raises as `parse_topics`."""
    version, rest = _parse(data)
    return SubscriptionGroups(table_of(rest, "subscriptionGroupTable", GroupConfig), version, rest)


def build_groups(groups: SubscriptionGroups, style: JsonStyle) -> bytes:
    """Returns the bytes of subscriptionGroup.json."""
    table = {name: document_of(config) for name, config in groups.subscription_group_table.items()}
    return _build({"subscriptionGroupTable": table}, groups.data_version, groups.extra, style)


def parse_consumer_offsets(data: Buffer) -> ConsumerOffsets:
    """Reads consumerOffset.json or lmqConsumerOffset.json; raises as `parse_topics`."""
    version, rest = _parse(data)
    return ConsumerOffsets(
        offset_table=_table(rest, "offsetTable", _offsets) or {},
        lmq_offset_table=_table(rest, "lmqOffsetTable", partial(expect, int)),
        pull_offset_table=_table(rest, "pullOffsetTable", _offsets),
        data_version=version,
        extra=rest,
    )


def build_consumer_offsets(offsets: ConsumerOffsets, style: JsonStyle) -> bytes:
    """Returns the bytes of consumerOffset.json or lmqConsumerOffset.json."""
    known: Document = {"offsetTable": offsets.offset_table}
    if offsets.lmq_offset_table is not None:
        known["lmqOffsetTable"] = offsets.lmq_offset_table
    if offsets.pull_offset_table is not None:
        known["pullOffsetTable"] = offsets.pull_offset_table
    return _build(known, offsets.data_version, offsets.extra, style)


def parse_delay_offsets(data: Buffer) -> DelayOffsets:
    """Reads delayOffset.json; raises as `parse_topics`."""
    version, rest = _parse(data)
    return DelayOffsets(_offsets(rest.pop("offsetTable", None), "offsetTable"), version, rest)


def build_delay_offsets(offsets: DelayOffsets, style: JsonStyle) -> bytes:
    """Returns the bytes of delayOffset.json."""
    return _build({"offsetTable": offsets.offset_table}, offsets.data_version, offsets.extra, style)


def parse_broadcast_offsets(data: Buffer) -> dict[tuple[str, str, int], int]:
    """Parses `offsets.json` of a client of a broadcasting group: next queue offset by topic, broker name and queue id.

    Both releases of fastjson write the keys of its table as objects, which is not JSON. Source: LocalFileOffsetStore,
    OffsetSerializeWrapper (4.9.7, 5.5.0).
    """
    try:
        text = bytes(data).decode("utf-8")
        if not re.match(r'\s*\{\s*"offsetTable"\s*:\s*\{', text):
            raise FormatError("expected an object with offsetTable", layout="offsets.json")
        offsets = {}
        for key, offset in _QUEUE_OFFSET.findall(text):
            queue = json.loads(key)
            offsets[str(queue["topic"]), str(queue["brokerName"]), int(queue["queueId"])] = int(offset)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"expected the positions of a client: {error}", layout="offsets.json") from error
    return offsets


def data_version_of(document: Document) -> DataVersion | None:
    """Returns the data version of any configuration file, None if it has none."""
    stored = document.get("dataVersion")
    return None if stored is None else bean_of(DataVersion, stored, "dataVersion")


def _parse(data: Buffer) -> tuple[DataVersion | None, Document]:
    document = config_json.parse(data)
    version = data_version_of(document)
    document.pop("dataVersion", None)
    return version, document


def _build(known: Document, version: DataVersion | None, extra: Document, style: JsonStyle) -> bytes:
    document = {**extra, **known}
    if version is not None:
        document["dataVersion"] = document_of(version)
    return config_json.build({name: document[name] for name in sorted(document)}, style)


def _table(document: Document, name: str, parse: Callable[[Any, str], T]) -> dict[str, T] | None:
    """Removes a table from a document and returns it; None if it is absent."""
    stored = document.pop(name, None)
    if stored is None:
        return None
    table = expect(dict, stored, name)
    return {str(key): parse(value, f"{name}.{key}") for key, value in table.items()}


def _offsets(value: Any, path: str) -> Offsets:
    offsets: Offsets = {}
    for key, offset in expect(dict, {} if value is None else value, path).items():
        try:
            offsets[int(key)] = expect(int, offset, f"{path}.{key}")
        except ValueError as error:
            raise FormatError(f"expected a number, found {key!r}", layout="configuration", field=path) from error
    return offsets
