"""The subscription groups of a broker. Source: SubscriptionGroupManager (5.5.0)."""

from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import GroupConfig, SubscriptionGroups
from mqtool.formats.topics import is_lmq
from mqtool.server.broker import names
from mqtool.server.broker.settings import BrokerSettings
from mqtool.server.broker.tables.config_persister import ConfigPersister
from mqtool.server.broker.tables.config_table import ConfigTable


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


class GroupTable(ConfigTable[GroupConfig]):
    """The configurations of a broker's consumer groups."""

    def __init__(self, persister: ConfigPersister, settings: BrokerSettings) -> None:
        """Loads subscriptionGroup.json and adds the predefined groups.

        Raises:
            ConfigFileError: the file cannot be parsed.
        """
        loaded = persister.configs.load(file_names.SUBSCRIPTION_GROUPS, config_files.parse_groups)
        loaded = loaded or SubscriptionGroups({})
        table = dict(loaded.subscription_group_table)
        super().__init__(persister, file_names.SUBSCRIPTION_GROUPS, table, loaded.data_version)
        self._extra = loaded.extra
        self._settings = settings
        for name in names.PREDEFINED_GROUPS:
            self.table.setdefault(name, default_group(name))

    def _build(self) -> bytes:
        groups = SubscriptionGroups(self.table, self.data_version, self._extra)
        return config_files.build_groups(groups, self._persister.configs.style)

    def get(self, group: str) -> GroupConfig | None:
        """Returns a group; None if it does not exist. With enableLmq, every LMQ group exists."""
        if is_lmq(group) and self._settings.flag("enableLmq"):  # LmqSubscriptionGroupManager
            return default_group(group)
        return self.table.get(group)

    def find(self, group: str) -> GroupConfig | None:
        """Returns a group, creating it if that is allowed; None if it does not exist."""
        found = self.get(group)
        allowed = self._settings.flag("autoCreateSubscriptionGroup") or group.startswith(names.SYSTEM_GROUP_PREFIX)
        if found is None and allowed and names.group_problem(group) is None:
            found = default_group(group)
            self.put(found)
        return found

    def put(self, config: GroupConfig) -> None:
        """Adds or replaces a group."""
        self.table[config.group_name] = config
        self._changed()
