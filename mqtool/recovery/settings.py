"""What a start depends on besides the store's files: the release, and the broker's own keys.

A missing key has the release's default. Without a configuration file, sizes come from the store's files. Source:
MessageStoreConfig, BrokerConfig (4.9.7, 5.5.0).
"""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import field, structs

from mqtool.errors import LayoutError, NotAStoreError, UnsupportedFormatError, UsageError
from mqtool.formats import consume_queue, file_names, timer
from mqtool.formats.release import Release
from mqtool.formats.topics import is_lmq
from mqtool.records.record_check import RecoveryRules
from mqtool.store import layout
from mqtool.store.config.broker_config import LOG_PATH_KEYS, BrokerConfig
from mqtool.store.config.rules import has_further_queues, recovery_rules
from mqtool.store.file_sizes import (
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    TIMER_LOG,
    KnownSize,
    compaction_sizes,
)
from mqtool.store.index_file import DEFAULT_SHAPE, Shape, list_index_files, shape_of
from mqtool.store.layout import LedgerPlace, epoch_file, ledger_place, place_or_name
from mqtool.store.queues.rocksdb_queues import has_queues_only_in_database, queue_database
from mqtool.store.waiting.timer import log_file_size

_OTHER_ENGINES = {
    "enableControllerMode": "the broker's role comes from a controller",
    "duplicationEnable": "recovery follows a replica's confirm offset",
    "enableRocksDBStore": "the queues are in RocksDB",
    "rocksdbCQDoubleWriteEnable": "the queues are also in RocksDB",
    "enableAcceleratedRecovery": "recovery starts inside a segment",
}

DEFAULT_SEGMENT_SIZE = COMMIT_LOG.default
DEFAULT_SIZES = {
    COMMIT_LOG.key: DEFAULT_SEGMENT_SIZE,
    CONSUME_QUEUE.key: consume_queue.DEFAULT_FILE_SIZE,
    BATCH_CONSUME_QUEUE.key: consume_queue.DEFAULT_BATCH_FILE_SIZE,
    CONSUME_QUEUE_EXT.key: CONSUME_QUEUE_EXT.default,
    "maxHashSlotNum": DEFAULT_SHAPE.slots,
    "maxIndexNum": DEFAULT_SHAPE.places,
    TIMER_LOG.key: timer.DEFAULT_LOG_FILE_SIZE,
}
"""Defaults of the sizes that a start depends on (MessageStoreConfig, 4.9.7, 5.5.0)."""
_LEFT_OVER = {
    file_names.LOCK,
    file_names.ABORT,
    file_names.ABORT_BACKUP,
    file_names.ABORT_NEW,
    file_names.ROCKSDB_STORE,
    file_names.TIMER_WHEEL,
}


def refuse_other_engines(root: Path, config: BrokerConfig) -> None:
    """Raises UnsupportedFormatError if not the plain file-based store would open the directory.

    The configuration decides, or the files if that does not say.
    """
    for key, meaning in _OTHER_ENGINES.items():
        if config.flag(key):
            raise UnsupportedFormatError(f"{root}: {key}=true: {meaning}; only the file-based store's start is known")
    kind = config.text("storeType") or ""
    if kind not in ("", "default"):
        raise UnsupportedFormatError(f"{root}: storeType={kind}: only the file-based store's start is known")
    if not kind and has_queues_only_in_database(root, config):
        raise UnsupportedFormatError(
            f"{queue_database(root, config)} holds a RocksDB database: only the start with queue files can be "
            "predicted; for a broker that uses those, give --config with storeType=default"
        )


def unmodelled_parts(root: Path, config: BrokerConfig) -> tuple[str, ...]:
    """Returns the parts of a store that a start uses and that are not modelled, in words."""
    parts = []
    if config.flag("enableConsumeQueueExt"):
        parts.append(f"{file_names.CONSUME_QUEUE_EXT}: its files are cut and written, too")
    if epoch_file(root, config).exists() and config.flag("enableControllerMode") is None:
        parts.append(f"{file_names.EPOCH_FILE} exists: in controller mode, recovery uses other bounds")
    return tuple(parts)


class RecoverySettings(RecoveryRules, frozen=True, kw_only=True):
    """Everything a start depends on that is not in the data files; the recovery rules among it."""

    root: Path  # the store's root
    commit_log_dirs: tuple[Path, ...]  # directories of segments; several with a multi-path CommitLog
    segment_size: int  # and queue_file_size, batch_file_size: bytes of a file of each kind
    queue_file_size: int
    batch_file_size: int
    # index_slots, index_entries: maxHashSlotNum, maxIndexNum; None where neither configuration nor files tell.
    index_slots: int | None
    index_entries: int | None
    whole_broker: bool = True  # also the tables in config/ are loaded, as a broker does; the bare store does not
    sync_flush: bool = False  # flushDiskType is SYNC_FLUSH
    is_master: bool = True  # and is_slave: brokerId is 0; brokerRole is SLAVE
    is_slave: bool = False
    # multi_dispatch, lmq: enableMultiDispatch, enableLmq; where they are not configured, whether there are light
    # queues.
    multi_dispatch: bool = False
    lmq: bool = False
    # Bytes of a file of compacted logs and of their queues; None without enableCompaction.
    compaction_sizes: tuple[int, int] | None = None
    queue_ext_file_size: int | None = None  # bytes of a file of a queue's extension; None if the broker has none
    has_further_queues: bool = True  # see `store.config.rules.has_further_queues`
    timer_wheel: bool = False  # the broker opens the timer's wheel, not a snapshot of it
    timer_log_size: int | None = None  # bytes of a file of the timer log; None if the broker has no timer
    evidence: Mapping[str, str] = field(default_factory=dict)  # where sizes came from
    dledger: LedgerPlace | None = None  # where the log is that DLedger keeps; None without DLedger mode
    # Segments whose records state other physical offsets than their names: right base, by path.
    misnamed: Mapping[Path, int] = field(default_factory=dict)
    # Parts of the store that a start touches and that are not followed here, and sizes that are not certain, in words.
    unmodelled_parts: tuple[str, ...] = ()
    # Physical offset that the scan does not begin after, because queue units from there on were discarded; None for a
    # broker's own start, which discards none before it scans.
    discarded_from: int | None = None


def settings_of(
    root: Path, release: Release, config: BrokerConfig, *, whole_broker: bool = True, heap: int | None = None
) -> RecoverySettings:
    """Returns the settings according to the files and the configuration.

    Raises UsageError if the node of the DLedger group cannot be determined, and see `refuse_other_engines`.
    """
    refuse_other_engines(root, config)
    config = with_defaults(config)
    detected = _layout(root, config)
    segment = _size_or_default(detected.commit_log_size if detected else None, DEFAULT_SEGMENT_SIZE)
    queue = _size_or_default(detected.consume_queue_size if detected else None, consume_queue.DEFAULT_FILE_SIZE)
    batch = _size_or_default(
        detected.batch_consume_queue_size if detected else None, consume_queue.DEFAULT_BATCH_FILE_SIZE
    )
    extension = None
    if config.flag("enableConsumeQueueExt"):
        extension = _size_or_default(detected.consume_queue_ext_size if detected else None, CONSUME_QUEUE_EXT.default)
    shape = _index_shape(root, config)
    topics = {topic for topic, _, _ in layout.queue_directories(root / file_names.CONSUME_QUEUE)}
    return RecoverySettings(
        **structs.asdict(recovery_rules(config, release, heap)),
        root=root,
        commit_log_dirs=_commit_log_dirs(root, config, detected),
        segment_size=segment.value,
        queue_file_size=queue.value,
        batch_file_size=batch.value,
        queue_ext_file_size=None if extension is None else extension.value,
        index_slots=None if shape is None else shape.slots,
        index_entries=None if shape is None else shape.places,
        whole_broker=whole_broker,
        **_keys_of(config, release, topics),
        has_further_queues=has_further_queues(config, topics),
        timer_log_size=log_file_size(root, config) if has_timer(config, release) else None,
        compaction_sizes=_compaction_sizes(root, config, release),
        is_master=(config.integer("brokerId") or 0) == 0,
        evidence={"segments": segment.evidence, "queue files": queue.evidence},
        dledger=_ledger_place(root, config),
        misnamed={file.path: file.base for file in detected.misplaced} if detected else {},
        unmodelled_parts=(
            *unmodelled_parts(root, config),
            *(size.doubt for size in (segment, queue, batch, extension) if size and not size.is_certain),
        ),
    )


def with_defaults(config: BrokerConfig) -> BrokerConfig:
    """Returns a configuration file's keys with the defaults of sizes that it lacks or that the broker ignores.

    A broker does not look at its files: without `mappedFileSizeCommitLog`, and with `mappedFileSizeCommitLog=abc`, it
    expects segments of 1 GiB (MixAll.properties2Object, 4.9.7, 5.5.0).
    """
    if config.file is None:
        return config
    missing = {key: str(default) for key, default in DEFAULT_SIZES.items() if config.integer(key) is None}
    if not config.flag("enableConsumeQueueExt"):  # then a broker opens none of these files
        missing.pop(CONSUME_QUEUE_EXT.key, None)
    return structs.replace(config, values={**config.values, **missing})


def _keys_of(config: BrokerConfig, release: Release, topics: Collection[str]) -> dict[str, Any]:
    """Returns the keys that are flags or names; 4.9 ignores keys that it does not know."""
    has_light = any(is_lmq(topic) for topic in topics)
    flag = partial(config.flag_or_default, release=release)
    return {
        "sync_flush": config.text("flushDiskType", release) == "SYNC_FLUSH",
        "is_slave": config.text("brokerRole", release) == "SLAVE",
        "multi_dispatch": flag("enableMultiDispatch", default=has_light),
        "lmq": flag("enableLmq", default=has_light),
        "timer_wheel": has_timer(config, release) and not flag("timerWheelSnapshotFlush"),
    }


def _compaction_sizes(root: Path, config: BrokerConfig, release: Release) -> tuple[int, int] | None:
    if not config.flag_or_default("enableCompaction", release):
        return None
    parts = (file_names.COMPACTION_LOG, file_names.COMPACTION_CONSUME_QUEUE)
    return compaction_sizes(config, *(layout.queue_files(root / part) for part in parts))


def has_timer(config: BrokerConfig, release: Release) -> bool:
    """Whether a broker has the timer for messages with a deliver time."""
    return config.flag_or_default("timerWheelEnable", release)


def _layout(root: Path, config: BrokerConfig) -> layout.StoreLayout | None:
    """Returns the layout of the directory; None if it is empty: a broker creates a new store there."""
    try:
        return layout.detect(root, config)
    except LayoutError:  # a directory of segments is gone: to a broker that is a log without files
        rest = {key: value for key, value in config.values.items() if key not in LOG_PATH_KEYS}
        return layout.detect(root, BrokerConfig(rest, config.directory, config.source))
    except NotAStoreError:
        if root.is_dir() and all(path.name in _LEFT_OVER for path in root.iterdir()):
            return None
        raise


def _commit_log_dirs(root: Path, config: BrokerConfig, stored: layout.StoreLayout | None) -> tuple[Path, ...]:
    """Returns the directories in which the broker looks for segments: the configured ones, or only commitlog/."""
    default = root / file_names.COMMIT_LOG
    named = config.commit_log_paths
    detected = stored.commit_log_dirs if stored else ()
    if named:
        return tuple(place_or_name(path, root, config) for path in named)
    return (default,) if default in detected or not detected else detected


def _ledger_place(root: Path, config: BrokerConfig) -> LedgerPlace | None:
    place = ledger_place(root, config)
    if place is None and config.flag("enableDLegerCommitLog"):
        raise UsageError("it is unknown which node of the DLedger group this is: give --config with dLegerSelfId")
    if place is not None and len(place.data) > 1:
        raise UnsupportedFormatError(f"{root}: DLedger's data files are in several directories, which is not supported")
    return place


def _size_or_default(size: KnownSize | None, default: int) -> KnownSize:
    return size or KnownSize(default, "the broker's default")


def _index_shape(root: Path, config: BrokerConfig) -> Shape | None:
    """Returns slots and entries of index files, the defaults if there are none; None if neither states them."""
    directory = root / file_names.INDEX
    files, strays = list_index_files(directory) if directory.is_dir() else ([], [])
    return shape_of(files, config) or (None if files or strays else DEFAULT_SHAPE)
