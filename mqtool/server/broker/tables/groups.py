"""The subscription groups of a broker. Source: SubscriptionGroupManager (5.5.0)."""

from typing import TypeAlias

from mqtool.errors import FormatError
from mqtool.formats import config_files, file_names, java
from mqtool.formats.codec import Buffer
from mqtool.formats.config_files import GroupConfig, SubscriptionGroups
from mqtool.formats.topics import is_lmq
from mqtool.server.broker import attributes
from mqtool.server.broker.settings import BrokerSettings
from mqtool.server.broker.tables.config_persister import ConfigPersister, ConfigTable

Forbidden: TypeAlias = dict[str, dict[str, int]]
"""By group and topic: what is forbidden, as bits."""

_FORBIDDEN_TABLE = "forbiddenTable"
_READ = 1 << 2
"""Bit of a pull (PermName.INDEX_PERM_READ)."""


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


def _parse(data: Buffer) -> tuple[SubscriptionGroups, Forbidden]:
    """Parses subscriptionGroup.json with its table of forbidden topics.

    Raises:
        FormatError: the file is not such a table.
    """
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
    """The configurations of a broker's consumer groups.

    Attributes:
        forbidden: topics that members of a group may not pull.
    """

    def __init__(self, persister: ConfigPersister, settings: BrokerSettings) -> None:
        """Loads subscriptionGroup.json and adds the predefined groups.

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        loaded, self.forbidden = persister.configs.load(file_names.SUBSCRIPTION_GROUPS, _parse) or (
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
