"""Settings of a broker: the supported keys of broker.conf, with the real broker's defaults.

They can change while the broker runs (UPDATE_BROKER_CONFIG), so other modules do not keep copies of values. Source:
BrokerConfig, MessageStoreConfig, NettyServerConfig (5.5.0).
"""

import time
from collections.abc import Mapping

from mqtool.engine.options import OPENING_KEYS, StoreOptions, config_values
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.errors import FormatError, UsageError
from mqtool.formats import java
from mqtool.store.config.broker_config import BrokerConfig, effective_value
from mqtool.store.config.broker_keys import LEGACY_KEYS, defaults

DEFAULTS = {
    "allowRecallWhenBrokerNotWriteable": "true",
    "appendTopicForTimerDeleteKey": "false",
    "autoCreateSubscriptionGroup": "true",
    "autoCreateTopicEnable": "true",
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerIP1": "",
    "brokerName": "broker-a",
    "brokerPermission": "6",
    "brokerRole": "ASYNC_MASTER",
    "brokerTopicEnable": "true",
    "clusterTopicEnable": "true",
    "defaultMessageRequestMode": "PULL",
    "defaultPopShareQueueNum": "-1",
    "defaultTopicQueueNums": "8",
    "enableMixedMessageType": "false",
    "enablePropertyFilter": "false",
    "enableRetryTopicV2": "false",
    "fileReservedTime": str(RetentionPolicy().reserved_hours),
    "flushConsumerOffsetInterval": "5000",
    "flushDelayOffsetInterval": "10000",
    "flushDiskType": "ASYNC_FLUSH",
    "haListenPort": "0",
    "listenPort": "10911",
    "liteSubscriptionCheckInterval": "120000",
    "liteSubscriptionCheckTimeoutMills": "180000",
    "longPollingEnable": "true",
    "maxLiteSubscriptionCount": "100000",
    "maxLmqConsumeQueueNum": "20000",
    "maxMessageSize": "4194304",
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInDisk": "8",
    "maxTransferCountOnMessageInMemory": "32",
    "messageDelayLevel": StoreOptions().delay_levels,
    "minLiteTTl": "900000",
    "namesrvAddr": "",
    "popPollingSize": "1024",
    "recallMessageEnable": "false",
    "regionId": "DefaultRegion",
    "retrieveMessageFromPopRetryTopicV1": "true",
    "serverLoadBalancerEnable": "true",
    "shortPollingTimeMills": "1000",
    "storeReplyMessageEnable": "true",
    "timerMaxDelaySec": "259200",
    "timerPrecisionMs": "1000",
    "timerWheelEnable": "true",
    "traceOn": "true",
    "traceTopicEnable": "false",
    "transactionCheckInterval": "30000",
    "transactionCheckMax": "15",
    "transactionTimeOut": "6000",
    "useEndpointPortFromRequest": "false",
}
"""Default values of the keys that this broker uses; other keys are kept and shown, but have no effect."""

SECRET = frozenset({"initAuthenticationUser", "innerClientAuthenticationCredentials"})
"""Keys whose values contain a password; they are never shown."""

HIDDEN = "******"

FIXED = (
    SECRET
    | OPENING_KEYS
    | LEGACY_KEYS.keys()
    | {
        "brokerName",
        "brokerClusterName",
        "brokerId",
        "brokerRole",
        "listenPort",
        "haListenPort",
        "brokerIP1",
        "namesrvAddr",
        "timerPrecisionMs",
        "timerRollWindowSlot",
        "timerWheelEnable",
        "mappedFileSizeTimerLog",
        "aclEnable",
        "authenticationEnabled",
        "authenticationWhitelist",
        "authorizationEnabled",
        "authorizationWhitelist",
        "migrateAuthFromV1Enabled",
    }
)
"""Keys that cannot change while the broker runs: they identify it to others, protect it, or are read at the start."""


class BrokerSettings:
    """Keys and values, as in the broker's Properties.

    Attributes:
        values: all values, including defaults.
        version: number of changes; the broker's configuration data version.
        changed_at: time of the last change, ms since epoch.
    """

    def __init__(self, config: BrokerConfig | Mapping[str, str] | None = None) -> None:
        """Combines configured values and defaults.

        Args:
            config: keys that replace defaults.

        Raises:
            UsageError: a value that must be a number is not one.
        """
        values = config.effective_values() if isinstance(config, BrokerConfig) else (config or {})
        self.values = {**DEFAULTS, **values}
        self.version = 0
        self.changed_at = time.time_ns() // 1_000_000
        for key, default in DEFAULTS.items():
            if default.isdigit():
                self.number(key)

    def text(self, key: str) -> str:
        """Returns a value as text; "" if the key is unknown."""
        return self.values.get(key, "")

    def number(self, key: str) -> int:
        """Returns a value as an integer.

        Raises:
            UsageError: the value is not a number.
        """
        try:
            return java.parse_long(self.values[key].strip())
        except FormatError as error:
            raise UsageError(f"{key}: expected a whole number, found {self.values[key]!r}") from error

    def flag(self, key: str) -> bool:
        """Returns a value as a Boolean."""
        return java.parse_boolean(self.values.get(key, "").strip())

    def store_config(self, changes: Mapping[str, str] | None = None) -> BrokerConfig:
        """Returns the values, with changes, as the configuration of a store."""
        return BrokerConfig({**self.values, **(changes or {})}, None, "configuration")

    def checked(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Returns changes as a broker reads those of a broker.conf: without trimming Booleans and numbers.

        Raises:
            UsageError: a key cannot change while the broker runs, or a value is invalid for its key.
        """
        effective = {}
        for key, value in changes.items():
            text = effective_value(key, value)
            if text is None:
                raise UsageError(f"{key}: expected a value that a broker accepts, without blanks; found {value!r}")
            if key in FIXED and text != self.values.get(key):
                raise UsageError(
                    f"{key}: cannot be changed while the broker runs; change it in broker.conf and restart"
                )
            if DEFAULTS.get(key, "").isdigit():
                BrokerSettings({key: text})  # raises UsageError if the value must be a number and is not
            effective[key] = text
        return effective

    def update(self, changes: Mapping[str, str]) -> None:
        """Changes values.

        Raises:
            UsageError: as `checked`; nothing is changed.
        """
        self.values.update(self.checked(changes))
        self.version += 1
        self.changed_at = time.time_ns() // 1_000_000

    def properties_text(self, options: StoreOptions) -> str:
        """Returns all keys of a broker of the store's release with their values, as lines of a properties file.

        Passwords are hidden.
        """
        shown = defaults(options.release)
        opened = config_values(options)
        shown |= {key: opened[key] for key in opened.keys() & shown.keys()} | self.values
        shown |= dict.fromkeys(SECRET & shown.keys(), HIDDEN)
        return "".join(f"{key}={value}\n" for key, value in sorted(shown.items()))
