"""What decides a start besides the store's files: the release, and the broker's own keys.

A key that nobody gave has the release's default, except for sizes of files: those the files tell.
Source: MessageStoreConfig, BrokerConfig (4.9.7, 5.5.0).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from mqtool.engine.recovery import scope
from mqtool.engine.recovery.dledger_place import LedgerPlace, ledger_place
from mqtool.errors import LayoutError, NotAStoreError, UsageError
from mqtool.formats import batch_consume_queue, consume_queue, consume_queue_ext, file_names, index_file
from mqtool.store import broker_config, layout
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.index_file import list_index_files
from mqtool.store.layout import Known

DEFAULT_SEGMENT_SIZE = 1 << 30
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DEFAULT_RECOVER_MAX = 10
DEFAULT_HEAP = 8 << 30
"""What the broker's start script gives the JVM."""
_COMMIT_LOG_KEYS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
_LEFT_OVER = {
    file_names.LOCK,
    file_names.ABORT,
    file_names.ABORT_BACKUP,
    file_names.ROCKSDB_STORE,
    file_names.TIMER_WHEEL,
}
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Release(StrEnum):
    """The releases whose start is known; each stands for its family."""

    V4_9 = "4.9"
    V5_5 = "5.5"

    @property
    def known_from(self) -> str:
        """The version whose behaviour was read and measured."""
        return {"4.9": "4.9.7", "5.5": "5.5.0"}[self.value]


def release_of(text: str) -> Release:
    """Returns the release that a version belongs to.

    Raises:
        UsageError: its start is not known here.
    """
    for release in Release:
        if text == release.value or text.startswith(f"{release.value}."):
            return release
    known = ", ".join(release.value for release in Release)
    raise UsageError(f"how RocketMQ {text[:40]} starts is not known here; known are {known}")


@dataclass(frozen=True)
class Settings:
    """Everything a start depends on that is not in the data files.

    Attributes:
        release: whose rules hold.
        root: the store's root.
        commit_log_dirs: directories of segments; several with a multi-path CommitLog.
        segment_size, queue_file_size, batch_file_size, ext_file_size: bytes of a file of each kind.
        index_slots, index_entries: maxHashSlotNum, maxIndexNum; None where neither configuration nor files tell.
        whole_broker: also the tables in config/ are loaded, as a broker does; the bare store does not.
        check_crc, force_property_crc: checkCRCOnRecover, forceVerifyPropCRC.
        check_offset_on_recover: checkCommitLogOffsetOnRecover (5.5).
        index_enabled, index_safe: messageIndexEnable (and indexFileWriteEnable), messageIndexSafe.
        recover_max: commitLogRecoverMaxNum (5.5): segments that are looked at for a starting point.
        sync_flush: flushDiskType is SYNC_FLUSH.
        recheck_reput: recheckReputOffsetFromCq (5.5).
        is_master, is_slave: brokerId is 0; brokerRole is SLAVE.
        multi_dispatch, lmq, queue_ext: enableMultiDispatch, enableLmq, enableConsumeQueueExt.
        delay_levels_ms: delay of level 1, 2, …
        heap_bytes: the broker's heap; an array of half of it is taken not to fit.
        evidence: where sizes came from.
        dledger: where the log is that DLedger keeps; None without DLedger mode.
        unfollowed: parts of the store that a start touches and that are not followed here, in words.
    """

    release: Release
    root: Path
    commit_log_dirs: tuple[Path, ...]
    segment_size: int
    queue_file_size: int
    batch_file_size: int
    ext_file_size: int
    index_slots: int | None
    index_entries: int | None
    whole_broker: bool = True
    check_crc: bool = True
    force_property_crc: bool = False
    check_offset_on_recover: bool = False
    index_enabled: bool = True
    index_safe: bool = False
    recover_max: int = DEFAULT_RECOVER_MAX
    sync_flush: bool = False
    recheck_reput: bool = False
    is_master: bool = True
    is_slave: bool = False
    multi_dispatch: bool = False
    lmq: bool = False
    queue_ext: bool = False
    delay_levels_ms: tuple[int, ...] = ()
    heap_bytes: int = DEFAULT_HEAP
    evidence: Mapping[str, str] = field(default_factory=dict)
    dledger: LedgerPlace | None = None
    unfollowed: tuple[str, ...] = ()

    @property
    def is_5(self) -> bool:
        """Whether 5.5's rules hold."""
        return self.release is Release.V5_5


def settings_of(
    root: Path, release: Release, config: BrokerConfig, *, whole_broker: bool = True, heap: int | None = None
) -> Settings:
    """Puts together what the files and the configuration tell.

    Raises:
        NotAStoreError: the directory is neither a store nor empty.
        UnsupportedFormatError: another engine than the file-based one would open the store.
    """
    scope.refuse_other_engines(root, config)
    found = _layout(root, config)
    segment = _known(found.commit_log_size if found else None, DEFAULT_SEGMENT_SIZE)
    queue = _known(found.consume_queue_size if found else None, consume_queue.DEFAULT_FILE_SIZE)
    batch = _known(found.batch_consume_queue_size if found else None, batch_consume_queue.DEFAULT_FILE_SIZE)
    ext = _known(found.consume_queue_ext_size if found else None, consume_queue_ext.DEFAULT_FILE_SIZE)
    slots, entries = _index_sizes(root, config)
    return Settings(
        release=release,
        root=root,
        commit_log_dirs=_commit_log_dirs(root, config, found),
        segment_size=segment.value,
        queue_file_size=queue.value,
        batch_file_size=batch.value,
        ext_file_size=ext.value,
        index_slots=slots,
        index_entries=entries,
        whole_broker=whole_broker,
        **_keys_of(config, is_5=release is Release.V5_5),
        is_master=(config.integer("brokerId") or 0) == 0,
        delay_levels_ms=_delays(config.values.get("messageDelayLevel", DEFAULT_DELAY_LEVELS)),
        heap_bytes=heap or DEFAULT_HEAP,
        evidence={"segments": segment.evidence, "queue files": queue.evidence},
        dledger=ledger_place(root, config),
        unfollowed=scope.unfollowed(root, config),
    )


def _keys_of(config: BrokerConfig, *, is_5: bool) -> dict[str, Any]:
    """Returns the keys that are flags or names; keys that 4.9 does not know do nothing there."""

    def flag(key: str, *, default: bool = False, known: bool = True) -> bool:
        value = config.flag(key) if known else None
        return default if value is None else value

    index = flag("messageIndexEnable", default=True)
    return {
        "check_crc": flag("checkCRCOnRecover", default=True),
        "force_property_crc": flag("forceVerifyPropCRC", known=is_5),
        "check_offset_on_recover": flag("checkCommitLogOffsetOnRecover", known=is_5),
        "index_enabled": index and flag("indexFileWriteEnable", default=True, known=is_5),
        "index_safe": index and flag("messageIndexSafe"),
        "recover_max": _positive(config.integer("commitLogRecoverMaxNum"), DEFAULT_RECOVER_MAX),
        "sync_flush": config.values.get("flushDiskType", "").strip() == "SYNC_FLUSH",
        "recheck_reput": flag("recheckReputOffsetFromCq", known=is_5),
        "is_slave": config.values.get("brokerRole", "").strip() == "SLAVE",
        "multi_dispatch": flag("enableMultiDispatch"),
        "lmq": flag("enableLmq"),
        "queue_ext": flag("enableConsumeQueueExt"),
    }


def read_config(config: "str | Path | Mapping[str, object] | BrokerConfig | None") -> BrokerConfig:
    """Reads the broker's keys; see `store.broker_config.load`."""
    return broker_config.load(config)


def _layout(root: Path, config: BrokerConfig) -> layout.StoreLayout | None:
    """Looks at the directory; None if nothing is left in it: a broker makes a new store there."""
    try:
        return layout.detect(root, config)
    except LayoutError:  # a directory of segments is gone: to a broker that is a log without files
        rest = {key: value for key, value in config.values.items() if key not in _COMMIT_LOG_KEYS}
        return layout.detect(root, BrokerConfig(rest, config.directory, config.source))
    except NotAStoreError:
        if root.is_dir() and all(path.name in _LEFT_OVER for path in root.iterdir()):
            return None
        raise


def _commit_log_dirs(root: Path, config: BrokerConfig, found: layout.StoreLayout | None) -> tuple[Path, ...]:
    """Returns where the broker looks for segments: where it is told to, else in commitlog/ and nowhere else."""
    default = root / file_names.COMMIT_LOG
    named = tuple(path for key in _COMMIT_LOG_KEYS for path in config.paths(key))
    detected = found.commit_log_dirs if found else ()
    if named:
        places = {path.name: path for path in detected}
        return tuple(places.get(path.name, root / path.name) for path in named)
    return (default,) if default in detected or not detected else detected


def _known(found: Known | None, default: int) -> Known:
    return found or Known(default, "the broker's default")


def _positive(value: int | None, default: int) -> int:
    return value if value is not None and value > 0 else default


def _index_sizes(root: Path, config: BrokerConfig) -> tuple[int | None, int | None]:
    """Returns slots and entries: configured, the default ones if the files have that size, or what the files tell."""
    slots, entries = config.integer("maxHashSlotNum"), config.integer("maxIndexNum")
    if slots is not None or entries is not None:
        return slots or index_file.DEFAULT_SLOTS, entries or index_file.DEFAULT_ENTRIES
    default = index_file.file_size(index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES)
    directory = root / file_names.INDEX
    sizes = {path.stat().st_size for path in directory.iterdir() if path.is_file()} if directory.is_dir() else set()
    if sizes <= {default}:
        return index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES
    for file in list_index_files(directory)[0]:
        if file.slot_count is not None:
            return file.slot_count, file.max_entries
    return None, None


def _delays(levels: str) -> tuple[int, ...]:
    found = []
    for level in levels.split():
        number, unit = level[:-1], level[-1]
        if not number.isdigit() or unit not in _UNITS:
            raise UsageError(f"messageDelayLevel: expected numbers with s, m, h or d, found {level[:20]!r}")
        found.append(int(number) * _UNITS[unit])
    return tuple(found)
