"""The configuration of a broker: the supported keys of broker.conf, and the tables that are stored in files.

Keys have the real broker's defaults. They can change while the broker runs (UPDATE_BROKER_CONFIG), so other modules do
not keep copies of values. A table marks its file as changed; a thread then writes the complete file, so that many
changes cost one write. A handler that must not answer before a change is saved awaits `saved`. Source: BrokerConfig,
MessageStoreConfig, NettyServerConfig, ConfigManager, DataVersion (5.5.0).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from msgspec.structs import replace

from mqtool.engine.clock import SystemClock
from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.files import Files
from mqtool.engine.options import OPENING_KEYS, StoreOptions, config_values
from mqtool.errors import ConfigFileError, FormatError, UsageError
from mqtool.formats import java
from mqtool.formats.config_files import DataVersion
from mqtool.formats.release import V5_5, Release
from mqtool.store.config.broker_config import BrokerConfig, effective_value
from mqtool.store.config.broker_keys import LEGACY_KEYS, defaults

_LOG = logging.getLogger(__name__)

# fmt: off
_USED = (
    "allowRecallWhenBrokerNotWriteable", "appendTopicForTimerDeleteKey", "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable", "brokerClusterName", "brokerId", "brokerIP1", "brokerPermission", "brokerRole",
    "brokerTopicEnable", "clusterTopicEnable", "defaultMessageRequestMode", "defaultPopShareQueueNum",
    "defaultTopicQueueNums", "enableMixedMessageType", "enablePropertyFilter", "enableRetryTopicV2",
    "fileReservedTime", "flushConsumerOffsetInterval", "flushDelayOffsetInterval", "flushDiskType",
    "liteSubscriptionCheckInterval", "liteSubscriptionCheckTimeoutMills", "longPollingEnable",
    "maxLiteSubscriptionCount", "maxLmqConsumeQueueNum", "maxMessageSize", "maxTransferBytesOnMessageInDisk",
    "maxTransferBytesOnMessageInMemory", "maxTransferCountOnMessageInDisk", "maxTransferCountOnMessageInMemory",
    "minLiteTTl", "namesrvAddr", "popPollingSize", "recallMessageEnable", "regionId",
    "retrieveMessageFromPopRetryTopicV1", "serverLoadBalancerEnable", "shortPollingTimeMills",
    "storeReplyMessageEnable", "timerMaxDelaySec", "timerPrecisionMs", "timerWheelEnable", "traceOn",
    "traceTopicEnable", "transactionCheckInterval", "transactionCheckMax", "transactionTimeOut",
)
# fmt: on

DEFAULTS = {key: defaults(V5_5).get(key, "") for key in _USED} | {
    "brokerName": "broker-a",
    "haListenPort": "0",
    "listenPort": "10911",
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

T = TypeVar("T")
Build = Callable[[], bytes]

C = TypeVar("C")


class BrokerSettings:
    """Keys and values, as in the broker's Properties, including defaults.

    `version` counts changes; it is the broker's configuration data version. `changed_at` is in ms since epoch.
    """

    def __init__(self, config: BrokerConfig | Mapping[str, str] | None = None) -> None:
        """Adds defaults to configured values; raises UsageError if a value that must be a number is not one."""
        values = config.effective_values() if isinstance(config, BrokerConfig) else (config or {})
        self.values = {**DEFAULTS, **values}
        self.version = 0
        self.changed_at = SystemClock.now()
        for key, default in DEFAULTS.items():
            if default.isdigit():
                self.number(key)

    def text(self, key: str) -> str:
        """Returns a value as text; "" if the key is unknown."""
        return self.values.get(key, "")

    def number(self, key: str) -> int:
        """Returns a value as an integer; raises UsageError if it is not a number."""
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

        A key that cannot change while the broker runs, or a value that is invalid for its key, is a UsageError.
        """
        effective = {}
        for key, value in changes.items():
            text = effective_value(key, value)
            if text is None:
                raise UsageError(f"{key}: expected a value that a broker accepts, without blanks; found {value!r}")
            if key in FIXED and text != self.values.get(key):
                raise UsageError(
                    f"{key}: cannot be changed while the broker is running; change it in broker.conf and restart"
                )
            if DEFAULTS.get(key, "").isdigit():
                BrokerSettings({key: text})  # raises UsageError if the value must be a number and is not
            effective[key] = text
        return effective

    def update(self, changes: Mapping[str, str]) -> None:
        """Changes values; raises UsageError as `checked`, without any change."""
        self.values.update(self.checked(changes))
        self.version += 1
        self.changed_at = SystemClock.now()

    def properties_text(self, options: StoreOptions) -> str:
        """Returns all keys of a broker of the store's release as lines of a properties file, passwords hidden."""
        shown = defaults(options.release)
        opened = config_values(options)
        shown |= {key: opened[key] for key in opened.keys() & shown.keys()} | self.values
        shown |= dict.fromkeys(SECRET & shown.keys(), HIDDEN)
        return "".join(f"{key}={value}\n" for key, value in sorted(shown.items()))


class ConfigPersister:
    """Writes the files in a broker's `config` directory. Its methods must be called in the event loop's thread."""

    def __init__(self, configs: ConfigFiles, *, durable: bool) -> None:
        """Creates a persister without files.

        If not `durable`, `saved` does not wait for the disk: saved changes survive the end of the process, but a power
        loss only a moment later, as messages do with ASYNC_FLUSH.
        """
        self.configs = configs
        self._durable = durable
        self._builders: dict[str, Build] = {}
        self._marked: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mqtool-config")

    def register(self, name: str, build: Build) -> None:
        """Registers a file with the function that builds its content."""
        self._builders[name] = build

    def mark(self, name: str) -> None:
        """Marks a file as changed; it is written soon."""
        self._marked.add(name)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def mark_all(self) -> None:
        """Marks all registered files as changed."""
        for name in self._builders:
            self.mark(name)

    async def saved(self) -> None:
        """Waits until all files marked so far have been written; raises OSError if one cannot be."""
        if self._task is None:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    async def _run(self) -> None:
        while self._marked or self._waiting:
            names, self._marked = sorted(self._marked), set()
            waiting, self._waiting = self._waiting, []
            failure = await self._turn(names, lambda name: partial(self._save, name, self._builders[name]()))
            if not self._marked:  # no file was marked since, so this write serves later callers too
                waiting, self._waiting = [*waiting, *self._waiting], []
            for future in waiting:
                if not future.done():
                    future.set_result(None) if failure is None else future.set_exception(failure)
            if not self._durable:
                await self._turn(names, lambda name: partial(self.configs.sync, name))
        self._task = None

    async def _turn(self, names: list[str], work: Callable[[str], Callable[[], None]]) -> OSError | None:
        """Runs the work for each file in the thread; returns the last error, or None."""
        failure: OSError | None = None
        for name in names:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, work(name))
            except OSError as error:
                _LOG.error("configuration was not written file=%s error=%s", name, error)
                failure = error
        return failure

    def _save(self, name: str, data: bytes) -> None:
        self.configs.save(name, data, durable=self._durable)

    async def close(self) -> None:
        """Writes all registered files and ends the thread."""
        self.mark_all()
        try:
            await self.saved()
        finally:
            if self._task is not None:
                await self._task
            self._thread.shutdown()


class MemoryConfigs(ConfigFiles):
    """Reads configuration files but never writes them; used for a store that is served read-only."""

    def load(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        """Like `ConfigFiles.load`, but returns None for a file that cannot be parsed."""
        try:
            return super().load(name, parse)
        except ConfigFileError as error:
            _LOG.warning("served without it: %s", error)
            return None

    def save(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Writes nothing."""

    def sync(self, name: str) -> None:
        """Does nothing, because nothing was written."""


def configs_of(store: Path, *, release: Release, writable: bool) -> ConfigFiles:
    """Returns the configuration files of a store, written in the format of a release; never, if not `writable`."""
    kind = ConfigFiles if writable else MemoryConfigs
    return kind(store, Files(), release=release)


def first_version(release: Release) -> DataVersion:
    """Returns the data version of a table that has not been changed. Only 5.x has a stateVersion."""
    return DataVersion(0, SystemClock.now(), 0 if release >= (5, 0) else None)


def next_version(version: DataVersion | None, release: Release) -> DataVersion:
    """Returns the data version after one more change."""
    new = first_version(release)
    if version is None:
        return replace(new, counter=1)
    return replace(new, counter=version.counter + 1, state_version=version.state_version or new.state_version)


class ConfigTable(ABC, Generic[C]):
    """Configurations by name. Each change increments the data version and marks the file to be written."""

    def __init__(
        self, persister: ConfigPersister, file_name: str, table: dict[str, C], version: DataVersion | None
    ) -> None:
        """Registers the table's file in the directory `config`; `version` is None if the loaded file has none."""
        self.table = table
        self.data_version = version or first_version(persister.configs.release)
        self._persister = persister
        self._file_name = file_name
        persister.register(file_name, self._build)

    @abstractmethod
    def _build(self) -> bytes:
        """Returns the content of the file."""

    def delete(self, name: str) -> bool:
        """Removes an entry; returns whether it existed."""
        if self.table.pop(name, None) is None:
            return False
        self._changed()
        return True

    def _changed(self) -> None:
        self.data_version = next_version(self.data_version, self._persister.configs.release)
        self._persister.mark(self._file_name)
