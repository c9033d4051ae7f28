"""The name server's properties, which mqadmin reads and changes, and its key-value table.

Source: NamesrvConfig, NettyServerConfig and KVConfigManager (5.5.0).
"""

from mqtool.formats import java_properties

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"

LOCKED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Properties that no request may change (NamesrvConfig.configBlackList and additions of DefaultRequestProcessor)."""

DEFAULTS = {
    "deleteTopicWithBrokerRegistration": "false",
    "enableAllTopicList": "true",
    "enableTopicList": "true",
    "listenPort": "9876",
    "notifyMinBrokerIdChanged": "false",
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "scanNotActiveBrokerInterval": "10000",
    "serverChannelMaxIdleTimeSeconds": "120",
    "supportActingMaster": "false",
}
"""Default values of the supported properties; the scan interval is that of 4.9 (5.5.0: 5000)."""


class NameServerSettings:
    """The properties. As in RocketMQ, unknown names are accepted without effect."""

    def __init__(self, values: dict[str, str] | None = None) -> None:
        self._values = DEFAULTS | (values or {})

    def enabled(self, name: str) -> bool:
        """Returns a Boolean property."""
        return self._values[name].strip().lower() == "true"

    def seconds(self, name: str) -> float:
        """Returns a property in ms, converted to seconds; the default if its value is invalid."""
        value = self._values[name].strip()
        return int(value if value.isascii() and value.isdigit() and int(value) else DEFAULTS[name]) / 1000

    def update(self, data: bytes) -> bool:
        """Changes properties as in a properties file; returns False, without any change, if one of them is locked.

        Raises:
            FormatError: Java would refuse the file.
        """
        values = java_properties.parse(data)
        if LOCKED & values.keys():
            return False
        self._values.update({name: value for name, value in values.items() if name in self._values})
        return True

    def text(self) -> str:
        """Returns all properties, one per line, sorted by name."""
        return "".join(f"{name}={value}\n" for name, value in sorted(self._values.items()))


class KeyValues:
    """The key-value table: texts by namespace and key, in memory."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}

    def get(self, namespace: str, key: str) -> str | None:
        """Returns a value; None if it is not set."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Returns all values of a namespace; None if none was ever set."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets a value."""
        self._table.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str, key: str) -> None:
        """Deletes a value, if it exists."""
        self._table.get(namespace, {}).pop(key, None)
