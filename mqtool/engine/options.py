"""StoreOptions: all options of a store, with the broker's defaults.

One frozen value, built from keyword arguments, or from a broker's properties by `options_from_config`. Sizes are
bytes, times milliseconds. Source: MessageStoreConfig (4.9.7, 5.5.0).
"""

from collections.abc import Iterable
from datetime import tzinfo
from enum import Enum
from pathlib import Path

from msgspec import Struct, structs
from msgspec.structs import replace

from mqtool.choices import Compat, RecoveryMode
from mqtool.errors import UsageError
from mqtool.formats import consume_queue as queue_format
from mqtool.formats import index_file
from mqtool.formats.hosts import Host
from mqtool.formats.release import Release, release_of
from mqtool.records.dispatch import DispatchRules, rules_for
from mqtool.records.record_check import RecoveryRules
from mqtool.store import file_sizes
from mqtool.store.config.broker_config import PATH_KEYS, BrokerConfig
from mqtool.store.config.rules import delays_of, recovery_rules
from mqtool.store.index_file import DEFAULT_MAX_QUERY

DEFAULT_HOST = Host("127.0.0.1", 10911)


_RELEASES = {compat: release_of(compat) for compat in Compat}
_MIN = {
    "commit_log_file_size": file_sizes.COMMIT_LOG.minimum,
    "consume_queue_file_size": file_sizes.CONSUME_QUEUE.minimum,
    "consume_queue_ext_file_size": file_sizes.CONSUME_QUEUE_EXT.minimum,
    "batch_consume_queue_file_size": file_sizes.BATCH_CONSUME_QUEUE.minimum,
    "index_slots": 1,
    "index_entries": 2,
    "max_message_size": 10,
}

BROKER_KEYS = {
    "mappedFileSizeCommitLog": "commit_log_file_size",
    "mappedFileSizeConsumeQueue": "consume_queue_file_size",
    "enableConsumeQueueExt": "consume_queue_ext",
    "mappedFileSizeConsumeQueueExt": "consume_queue_ext_file_size",
    "mapperFileSizeBatchConsumeQueue": "batch_consume_queue_file_size",
    "messageIndexEnable": "index",
    "maxHashSlotNum": "index_slots",
    "maxIndexNum": "index_entries",
    "flushIntervalCommitLog": "flush_interval_ms",
    "flushCommitLogLeastPages": "flush_least_pages",
    "flushCommitLogThoroughInterval": "flush_thorough_interval_ms",
    "commitIntervalCommitLog": "commit_interval_ms",
    "commitCommitLogLeastPages": "commit_least_pages",
    "commitCommitLogThoroughInterval": "commit_thorough_interval_ms",
    "flushIntervalConsumeQueue": "queue_flush_interval_ms",
    "flushConsumeQueueLeastPages": "queue_flush_least_pages",
    "flushConsumeQueueThoroughInterval": "queue_flush_thorough_interval_ms",
    "cleanResourceInterval": "clean_interval_ms",
    "syncFlushTimeout": "sync_flush_timeout_ms",
    "writeWithoutMmap": "positional_writes",
    "maxMessageSize": "max_message_size",
    "enabledAppendPropCRC": "append_record_crc",
    "enableLmq": "lmq",
    "enableMultiDispatch": "multi_dispatch",
    "osPageCacheBusyTimeOutMills": "page_cache_busy_ms",
    "messageDelayLevel": "delay_levels",
    "maxTransferBytesOnMessageInMemory": "max_get_bytes_in_memory",
    "maxTransferCountOnMessageInMemory": "max_get_count_in_memory",
    "maxTransferBytesOnMessageInDisk": "max_get_bytes_on_disk",
    "maxTransferCountOnMessageInDisk": "max_get_count_on_disk",
    "accessMessageInMemoryMaxRatio": "memory_ratio",
    "maxFilterMessageSize": "max_filter_bytes",
    "maxMsgsNumBatch": "max_query",
}
"""Broker's key to option; the keys of directories, pool, flush mode and retention are read separately."""

LIMIT_KEYS = frozenset(
    {
        "maxMessageSize",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferCountOnMessageInDisk",
        "accessMessageInMemoryMaxRatio",
        "maxFilterMessageSize",
    }
)
"""Broker's keys of limits, which can change while the store is open (`MessageStore.change_limits`)."""

OPENING_KEYS = (
    BROKER_KEYS.keys() - LIMIT_KEYS
    | {"flushDiskType", "transientStorePoolEnable", "transientStorePoolSize"}
    | {*PATH_KEYS}
)
"""Broker's keys whose values an open store has read once and for all."""


class FlushMode(Enum):
    """When the CommitLog is flushed to disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """At intervals, after the put has returned."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """Before the put returns."""


class PropertyOrder(Enum):
    """Order in which properties are stored when the engine has to rewrite them (LMQ, inner batch)."""

    GIVEN = "given"
    """In the given order; new ones at the end."""
    HASH = "hash"
    """In the iteration order of the broker's HashMap."""


class StoreOptions(Struct, frozen=True):
    """Options of a `MessageStore`; the field's docs name the broker's key."""

    compat: Compat = Compat.V5_5  # release whose on-disk format to write
    recovery: RecoveryMode = RecoveryMode.COMPATIBLE  # what to do with bytes that recovery cuts off
    # Directories of the CommitLog, () for `commitlog` in the store (storePathCommitLog).
    commit_log_dirs: tuple[Path, ...] = ()
    # Directories of further segments that are only read (readOnlyCommitLogStorePaths).
    read_only_dirs: tuple[Path, ...] = ()
    commit_log_file_size: int = 1 << 30  # mappedFileSizeCommitLog
    # mappedFileSizeConsumeQueue; rounded up to whole units.
    consume_queue_file_size: int = queue_format.DEFAULT_FILE_SIZE
    consume_queue_ext: bool = False  # enableConsumeQueueExt
    consume_queue_ext_file_size: int = queue_format.DEFAULT_EXT_FILE_SIZE  # mappedFileSizeConsumeQueueExt
    batch_consume_queue_file_size: int = queue_format.DEFAULT_BATCH_FILE_SIZE  # mapperFileSizeBatchConsumeQueue
    index: bool = True  # whether keys are indexed (messageIndexEnable)
    # Whether TAGS are indexed too; None for the release's default: 5.5 indexes them, 5.0 to 5.4 did not.
    index_tags: bool | None = None
    index_slots: int = index_file.DEFAULT_SLOTS  # and index_entries: maxHashSlotNum, maxIndexNum
    index_entries: int = index_file.DEFAULT_ENTRIES
    flush_mode: FlushMode = FlushMode.ASYNC_FLUSH  # flushDiskType
    flush_interval_ms: int = 500  # and flush_least_pages, flush_thorough_interval_ms: flushIntervalCommitLog and so on
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    commit_interval_ms: int = 200  # and commit_least_pages, commit_thorough_interval_ms: of the transient store pool
    commit_least_pages: int = 4
    commit_thorough_interval_ms: int = 200
    # queue_flush_interval_ms, queue_flush_least_pages, queue_flush_thorough_interval_ms: flushIntervalConsumeQueue …
    queue_flush_interval_ms: int = 1_000
    queue_flush_least_pages: int = 2
    queue_flush_thorough_interval_ms: int = 60_000
    checkpoint_interval_ms: int = 1_000  # how often the checkpoint is written; fixed at one second in the broker
    clean_interval_ms: int = 10_000  # how often retention runs (cleanResourceInterval)
    sync_flush_timeout_ms: int = 5_000  # how long a put waits for its flush (syncFlushTimeout)
    pool_buffers: int = 0  # buffers of the transient store pool, 0 for none (transientStorePoolEnable, …Size)
    positional_writes: bool = False  # records are written by pwrite, not through a mapping (writeWithoutMmap)
    # How far ahead of the writer blocks are reserved and pages are faulted in (in place of warmMapedFileEnable).
    reserve_bytes: int = 16 << 20
    lock_memory: bool = False  # whether the pages ahead of the writer are locked too, where the system allows it
    max_message_size: int = 4 << 20  # maximum length of a body (maxMessageSize)
    # Refuse a record that fits no segment; the broker answers PUT_OK and leaves two segments blank.
    refuse_oversize: bool = True
    append_record_crc: bool = False  # enabledAppendPropCRC
    lmq: bool = False  # and multi_dispatch: enableLmq, enableMultiDispatch
    multi_dispatch: bool = False
    property_order: PropertyOrder = PropertyOrder.HASH  # order of properties that the engine rewrites
    page_cache_busy_ms: int = 1_000  # osPageCacheBusyTimeOutMills
    delay_levels: str = ""  # messageDelayLevel; "" for that of the release
    # max_get_bytes_in_memory, max_get_count_in_memory, max_get_bytes_on_disk, max_get_count_on_disk: maxTransfer….
    max_get_bytes_in_memory: int = 262_144
    max_get_count_in_memory: int = 32
    max_get_bytes_on_disk: int = 65_536
    max_get_count_on_disk: int = 8
    memory_ratio: int = 40  # percentage of the memory that counts as page cache (accessMessageInMemoryMaxRatio)
    max_filter_bytes: int = 16_000  # maximum bytes of ConsumeQueue that a filtered get scans (maxFilterMessageSize)
    max_query: int = DEFAULT_MAX_QUERY  # maximum number of messages that a query returns (maxMsgsNumBatch)
    store_host: Host = DEFAULT_HOST  # store host of records whose caller gives none
    # Other keys that decide what recovery does; None for the defaults of the release.
    rules: RecoveryRules | None = None
    zone: tzinfo | None = None  # time zone of index file names and of `delete_hours`, None for the local one

    def __post_init__(self) -> None:
        """Rounds the size of queue files up to a multiple of the unit size, as MessageStoreConfig's getter does."""
        size = queue_format.round_up_file_size(self.consume_queue_file_size)
        structs.force_setattr(self, "consume_queue_file_size", size)
        for name, minimum in _MIN.items():
            if getattr(self, name) < minimum:
                raise UsageError(f"{name}: expected at least {minimum}, found {getattr(self, name)}")

    @property
    def sync(self) -> bool:
        """Whether a put waits for its flush."""
        return self.flush_mode is FlushMode.SYNC_FLUSH

    @property
    def release(self) -> Release:
        """The release whose rules and bytes apply."""
        return _RELEASES[self.compat]

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """Delay of each level, level 1 first; raises UsageError for a wrong messageDelayLevel."""
        return delays_of(self.delay_levels, self.release)


_TYPES = {
    name: type(default)
    for name, default in zip(StoreOptions.__struct_fields__, StoreOptions.__struct_defaults__, strict=True)
}


def config_values(options: StoreOptions) -> dict[str, str]:
    """Returns the values of options by the broker's key, as text, without those that the release decides."""
    values = {key: value for key, name in BROKER_KEYS.items() if (value := getattr(options, name)) != ""}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}


def options_from_config(config: BrokerConfig, base: StoreOptions | None = None) -> StoreOptions:
    """Converts a broker's properties to options, with those of `base` for missing properties.

    Keys that are not an option of the engine are ignored. Raises UsageError for an invalid value.
    """
    values = _values_of(config, BROKER_KEYS)
    mode = config.text("flushDiskType")
    if mode is not None:
        values["flush_mode"] = FlushMode[mode]
    if config.flag("transientStorePoolEnable"):
        size = config.integer("transientStorePoolSize")
        values["pool_buffers"] = 5 if size is None else size
    for key, name in (("storePathCommitLog", "commit_log_dirs"), ("readOnlyCommitLogStorePaths", "read_only_dirs")):
        if config.paths(key):
            values[name] = config.paths(key)
    base = base or StoreOptions()
    rules = recovery_rules(config, base.release)
    return replace(base, **values | {"rules": rules, "index": rules.index_enabled and values.get("index", base.index)})


def with_limits(options: StoreOptions, config: BrokerConfig) -> StoreOptions:
    """Returns options with the limits of a broker's properties (LIMIT_KEYS); raises UsageError for an invalid value."""
    return replace(options, **_values_of(config, LIMIT_KEYS))


def _values_of(config: BrokerConfig, keys: Iterable[str]) -> dict[str, object]:
    """Returns the options, by name, of the given keys that are in the properties."""
    values: dict[str, object] = {}
    for key in keys:
        name = BROKER_KEYS[key]
        value: object = config.integer(key) if _TYPES[name] is int else config.flag(key)
        if _TYPES[name] is str:
            value = config.text(key)
        if value is not None:
            values[name] = value
    return values


def rules_of(options: StoreOptions, batch_topics: frozenset[str]) -> DispatchRules:
    """Returns the dispatch rules of a store."""
    rules = rules_for(
        options.release,
        multi_dispatch=options.multi_dispatch,
        delay_levels=options.delays_ms,
        batch_topics=batch_topics,
    )
    return rules if options.index_tags is None else replace(rules, index_tags=options.index_tags)
