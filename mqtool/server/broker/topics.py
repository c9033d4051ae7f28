"""The tables of topics and subscription groups, with system topics and what sends and consumers create.

Static topics have logical queue ids and queue offsets, mapped to queues of one or more brokers. They are not mapped
here, so requests that name such queues are refused. Source: TopicConfigManager, TopicQueueMappingManager,
SubscriptionGroupManager (5.5.0).
"""

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from mqtool.engine.config_files import ConfigFiles
from mqtool.errors import FormatError, UsageError
from mqtool.formats import config_files, config_json, file_names, java
from mqtool.formats.codec import Buffer
from mqtool.formats.config_files import (
    BATCH_QUEUES,
    MESSAGE_TYPE,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    GroupConfig,
    SubscriptionGroups,
    TopicConfig,
    Topics,
)
from mqtool.formats.config_json import bean_of
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.formats.topics import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_QUEUES,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_MEMBER_PREFIX,
    TIMER_TOPIC,
    TRACE_TOPIC,
    is_lmq,
)
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker import attributes
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.attributes import MESSAGE_TYPES
from mqtool.server.broker.config import BrokerSettings, ConfigPersister, ConfigTable

_LOG = logging.getLogger(__name__)

_TABLE, _VERSION = "topicQueueMappingInfoMap", "dataVersion"

_SENDS = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}
"""Header field with the topic, of requests whose queue id is always logical."""

_REFUSED = _SENDS | dict.fromkeys(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.DELETE_TOPIC_IN_BROKER,
    ),
    "topic",
)
"""Header field with the topic, of requests that need the mapping; one with `lo=false` names a physical queue."""

UNIT = 1
UNIT_SUBSCRIPTION = 2
READ_WRITE = PERM_READ | PERM_WRITE

Forbidden: TypeAlias = dict[str, dict[str, int]]
"""By group and topic: what is forbidden, as bits."""

_FORBIDDEN_TABLE = "forbiddenTable"
_READ = 1 << 2
"""Bit of a pull (PermName.INDEX_PERM_READ)."""


class StaticTopics:
    """The static topics of a broker: by topic, the mapping as in topicQueueMapping.json."""

    def __init__(self, configs: ConfigFiles) -> None:
        """Loads topicQueueMapping.json; raises ConfigFileError if it cannot be parsed."""
        nothing: tuple[dict[str, Any], DataVersion] = {}, DataVersion(0, 0, 0)
        self.mappings, self.data_version = configs.load(file_names.TOPIC_QUEUE_MAPPING, _parse_mappings) or nothing
        if self.mappings:
            _LOG.warning("requests for static topics are refused topics=%s", ",".join(sorted(self.mappings)))

    def check(self, command: Command) -> None:
        """Raises RefusalError if a request needs the mapping of a static topic."""
        field = _REFUSED.get(command.code)  # type: ignore[call-overload]  # a code of a client is any number
        if field is None or (topic := command.fields.get(field)) not in self.mappings:
            return
        if command.code in _SENDS or command.fields.get("lo", "").lower() != "false":
            remark = f"topic[{topic}] is a static topic, whose logical queues are not mapped; use a RocketMQ broker"
            raise RefusalError(ResponseCode.NOT_LEADER_FOR_QUEUE, remark)


def _parse_mappings(data: Buffer) -> tuple[dict[str, Any], DataVersion]:
    document = config_json.parse(data)
    table = document.get(_TABLE) or {}
    if not isinstance(table, dict):
        raise FormatError("expected a table of mappings by topic", layout="configuration", field=_TABLE)
    version = bean_of(DataVersion, document.get(_VERSION) or {}, _VERSION)
    return {str(topic): mapping for topic, mapping in table.items()}, version


def _bounded(config: TopicConfig) -> TopicConfig:
    """Returns a topic configuration with at most MAX_QUEUES queues, to limit loops over queues."""
    reads, writes = (min(max(0, count), MAX_QUEUES) for count in (config.read_queue_nums, config.write_queue_nums))
    if (reads, writes) == (config.read_queue_nums, config.write_queue_nums):
        return config
    _LOG.warning("topics.json: topic has more queues than %d topic=%s", MAX_QUEUES, config.topic_name)
    return replace(config, read_queue_nums=reads, write_queue_nums=writes)


class TopicTable(ConfigTable[TopicConfig]):
    """The topic configurations of a broker.

    `on_batch_topic` is called with a topic whose queues are BatchConsumeQueues, `on_change` after each change.
    """

    def __init__(self, persister: ConfigPersister, settings: BrokerSettings) -> None:
        """Loads topics.json and adds the system topics; raises ConfigFileError if it cannot be parsed."""
        loaded = persister.configs.topics()
        table = {name: _bounded(config) for name, config in loaded.topic_config_table.items()}
        super().__init__(persister, file_names.TOPICS, table, loaded.data_version)
        self.on_batch_topic: Callable[[str], None] = lambda _topic: None
        self.on_change: Callable[[], None] = lambda: None
        self._extra = loaded.extra
        self._settings = settings
        for config in self._system_topics():
            self.table.setdefault(config.topic_name, config)

    def _build(self) -> bytes:
        return config_files.build_topics(
            Topics(self.table, self.data_version, self._extra), self._persister.configs.style
        )

    def _system_topics(self) -> list[TopicConfig]:
        settings = self._settings
        cluster, broker = settings.text("brokerClusterName"), settings.text("brokerName")
        shared = READ_WRITE | PERM_INHERIT
        numbers = {
            SELF_TEST_TOPIC: 1,
            BENCHMARK_TOPIC: 1024,
            OFFSET_MOVED_TOPIC: 1,
            SCHEDULE_TOPIC: SCHEDULE_QUEUES,
            f"{cluster}_{attributes.REPLY_TOPIC_SUFFIX}": 1,
            HALF_TOPIC: 1,
            OP_TOPIC: 1,
            REVIVE_TOPIC_PREFIX + cluster: 8,
            SYNC_MEMBER_PREFIX + broker: 1,
        }
        if settings.flag("traceTopicEnable"):
            numbers[TRACE_TOPIC] = 1
        if settings.flag("timerWheelEnable"):
            numbers[TIMER_TOPIC] = 1
        topics = [plain_topic(name, number) for name, number in numbers.items()]
        topics.append(plain_topic(cluster, 16, shared if settings.flag("clusterTopicEnable") else PERM_INHERIT))
        topics.append(plain_topic(broker, 1, shared if settings.flag("brokerTopicEnable") else PERM_INHERIT))
        if settings.flag("autoCreateTopicEnable"):
            topics.append(plain_topic(DEFAULT_TOPIC, settings.number("defaultTopicQueueNums"), shared))
        return topics

    def get(self, topic: str) -> TopicConfig | None:
        """Returns a topic; None if it does not exist. With enableLmq, every LMQ exists."""
        config = self.table.get(topic)
        if config is None and is_lmq(topic) and self._settings.flag("enableLmq"):  # LmqTopicConfigManager
            return plain_topic(topic, 1)
        return config

    def put(self, config: TopicConfig) -> None:
        """Adds or replaces a topic."""
        self.table[config.topic_name] = config
        if config.queue_type == BATCH_QUEUES:
            self.on_batch_topic(config.topic_name)
        self._changed()

    def announce(self) -> None:
        """Makes name servers read all topics again after a change of the broker's own permissions.

        They ignore a registration whose data version they know (RouteInfoManager.registerBroker).
        """
        self._changed()

    def _changed(self) -> None:
        super()._changed()
        self.on_change()

    def create_for_send(self, topic: str, default_topic: str, queues: int, *, unit: bool) -> TopicConfig | None:
        """Creates a topic for a send, with permission and filter type of its default topic; None if not allowed.

        The default topic must exist and have the permission to inherit. The producer requests `queues`, and may be in
        unit mode.
        """
        pattern = self.table.get(default_topic)
        if default_topic == DEFAULT_TOPIC and not self._settings.flag("autoCreateTopicEnable"):
            return None
        if pattern is None or not pattern.perm & PERM_INHERIT:
            return None
        number = max(0, min(queues, pattern.write_queue_nums))
        config = replace(
            plain_topic(topic, number, pattern.perm & ~PERM_INHERIT),
            topic_sys_flag=UNIT if unit else 0,
            topic_filter_type=pattern.topic_filter_type,
        )
        self.put(config)
        return config

    def create_for_send_back(self, topic: str, queues: int, *, unit: bool = False) -> TopicConfig:
        """Returns a retry or dead letter topic; creates it if it does not exist, with at most MAX_QUEUES queues."""
        config = self.table.get(topic)
        if config is None:
            config = replace(
                plain_topic(topic, min(queues, MAX_QUEUES)), topic_sys_flag=UNIT_SUBSCRIPTION if unit else 0
            )
            self.put(config)
        return config


def typed_topic(name: str, message_type: str, queues: int = 8) -> TopicConfig:
    """Returns a topic that accepts messages of one type; raises UsageError for an invalid name, type or number."""
    problem = attributes.topic_problem(name)
    if problem is not None:
        raise UsageError(f"topic {name!r}: {problem}")
    if not 1 <= queues <= MAX_QUEUES or queues % 1 != 0:
        raise UsageError(f"queues of topic {name}: expected 1 to {MAX_QUEUES}, found {queues}")
    if message_type not in MESSAGE_TYPES:
        expected = ", ".join(MESSAGE_TYPES)
        raise UsageError(f"message type of topic {name}: expected one of {expected}, found {message_type!r}")
    return replace(plain_topic(name, queues), attributes={MESSAGE_TYPE: message_type})


def plain_topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    """Returns the configuration of a topic with the same number of read and write queues."""
    return TopicConfig(name, queues, queues, perm, attributes={})


def default_group(name: str) -> GroupConfig:
    """Returns the configuration that a broker creates for a group of an unknown consumer."""
    return GroupConfig(
        name,
        consume_message_orderly=False,
        group_sys_flag=0,
        consume_timeout_minute=15,
        attributes={},
        extra={"groupRetryPolicy": {"type": "CUSTOMIZED"}},
    )


def _parse_groups(data: Buffer) -> tuple[SubscriptionGroups, Forbidden]:
    """Parses subscriptionGroup.json with its table of forbidden topics; raises FormatError for another file."""
    groups = config_files.parse_groups(data)
    extra = dict(groups.extra)
    table = extra.pop(_FORBIDDEN_TABLE, None) or {}
    if not isinstance(table, dict) or not all(isinstance(value, dict) for value in table.values()):
        raise FormatError("expected a table of tables", layout="configuration", field=_FORBIDDEN_TABLE)
    forbidden = {
        str(group): {str(topic): java.json_int(bits) for topic, bits in topics.items()}
        for group, topics in table.items()
    }
    return SubscriptionGroups(groups.subscription_group_table, groups.data_version, extra), forbidden


class GroupTable(ConfigTable[GroupConfig]):
    """A broker's consumer groups, and the topics that members of each may not pull (`forbidden`)."""

    def __init__(self, persister: ConfigPersister, settings: BrokerSettings) -> None:
        """Loads subscriptionGroup.json, adds predefined groups; raises ConfigFileError if it cannot be parsed."""
        loaded, self.forbidden = persister.configs.load(file_names.SUBSCRIPTION_GROUPS, _parse_groups) or (
            SubscriptionGroups({}),
            {},
        )
        table = dict(loaded.subscription_group_table)
        super().__init__(persister, file_names.SUBSCRIPTION_GROUPS, table, loaded.data_version)
        self._extra = loaded.extra
        self._settings = settings
        for name in attributes.PREDEFINED_GROUPS:
            self.table.setdefault(name, default_group(name))

    def _build(self) -> bytes:
        extra = {**self._extra, _FORBIDDEN_TABLE: self.forbidden} if self.forbidden else self._extra
        groups = SubscriptionGroups(self.table, self.data_version, extra)
        return config_files.build_groups(groups, self._persister.configs.style)

    def get(self, group: str) -> GroupConfig | None:
        """Returns a group; None if it does not exist. With enableLmq, every LMQ group exists."""
        if is_lmq(group) and self._settings.flag("enableLmq"):  # LmqSubscriptionGroupManager
            return default_group(group)
        return self.table.get(group)

    def find(self, group: str) -> GroupConfig | None:
        """Returns a group, creating it if that is allowed; None if it does not exist."""
        config = self.get(group)
        allowed = self._settings.flag("autoCreateSubscriptionGroup") or group.startswith(attributes.SYSTEM_GROUP_PREFIX)
        if config is None and allowed and attributes.group_problem(group) is None:
            config = default_group(group)
            self.put(config)
        return config

    def put(self, config: GroupConfig) -> None:
        """Adds or replaces a group."""
        self.table[config.group_name] = config
        self._changed()

    def delete(self, name: str) -> bool:
        """Removes a group, with its forbidden topics; returns whether it existed."""
        self.forbidden.pop(name, None)
        return super().delete(name)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether members of a group may not pull a topic; a negative entry forbids nothing."""
        return bool(max(0, self.forbidden.get(group, {}).get(topic, 0)) & _READ)

    def forbid(self, group: str, topic: str, *, forbidden: bool) -> None:
        """Sets whether members of a group may not pull a topic.

        5.5.0 allows all topics of the group again where one is allowed, and does not save that.
        """
        topics = self.forbidden.get(group, {})
        bits = max(0, topics.get(topic, 0))
        bits = bits | _READ if forbidden else bits & ~_READ
        topics = {**topics, topic: bits} if bits else {name: kept for name, kept in topics.items() if name != topic}
        self.forbidden.pop(group, None)
        if topics:
            self.forbidden[group] = topics
        self._changed()
