"""Options for an existing store: the sizes of its files, and the format of the release that wrote it.

The caller's options must agree with the files: a broker that is started with other sizes refuses the store, or
misreads its index without an error. Docs page: docs/engine.md.
"""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mqtool.choices import Compat
from mqtool.engine.options import StoreOptions, options_from_config
from mqtool.errors import LayoutError, NotAStoreError, UnsupportedFormatError
from mqtool.formats import checkpoint, file_names, index_file
from mqtool.formats.consume_queue import round_up_file_size
from mqtool.formats.release import release_of
from mqtool.recovery.settings import has_timer, with_defaults
from mqtool.store.config import broker_config
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.file_sizes import CONSUME_QUEUE, TIMER_LOG, KnownSize
from mqtool.store.files import list_directory, read_file
from mqtool.store.index_file import list_index_files, shape_of
from mqtool.store.layout import StoreLayout, has_epochs, place_of
from mqtool.store.paths import kind_of, real_path
from mqtool.store.queues.rocksdb_queues import PLACES
from mqtool.store.store import open_store
from mqtool.store.waiting.timer import known_log_file_size

_MARKS = (file_names.LOCK, file_names.ABORT, file_names.ABORT_BACKUP, file_names.CHECKPOINT)
_ROCKSDB_MARKS = ("CURRENT", "MANIFEST-")
_SIZES = {
    "commit_log_file_size": ("mappedFileSizeCommitLog", "commit_log_size"),
    "consume_queue_file_size": ("mappedFileSizeConsumeQueue", "consume_queue_size"),
    "consume_queue_ext_file_size": ("mappedFileSizeConsumeQueueExt", "consume_queue_ext_size"),
    "batch_consume_queue_file_size": ("mapperFileSizeBatchConsumeQueue", "batch_consume_queue_size"),
}
"""Option to the broker's key, and to the layout's attribute with the size of the files."""


_FIRST = frozenset({file_names.LOCK, file_names.ABORT, file_names.ABORT_BACKUP, file_names.ABORT_NEW})
"""Files that a start creates before all others; a kill may leave only these."""


def is_new(root: Path) -> bool:
    """Whether the store does not exist yet: no directory, an empty one, or one whose first start was killed at once."""
    if root.exists() and not root.is_dir():
        raise NotAStoreError("expected a directory, found a file", root)
    return not root.is_dir() or all(entry.name in _FIRST for entry in list_directory(root))


def options_for(
    root: Path,
    config: "str | Path | Mapping[str, object] | BrokerConfig | None" = None,
    compat: Compat | None = None,
    *,
    adds_messages: bool = False,
    **chosen: Any,
) -> StoreOptions:
    """Returns options for opening a store for writing; writes nothing.

    Args:
        root: root directory of the store, which need not exist.
        config: the broker's properties; for a new store they also determine the sizes.
        compat: release whose format to write; None for the release that wrote the store, 5.5 for a new store.
        adds_messages: refuse the configuration of a slave, which takes messages from nobody but its master
            (HookUtils.checkBeforePutMessage, 4.9.7 and 5.5.0).
        chosen: further options, by name; they override the configuration.

    Raises:
        LayoutError: the configuration does not fit the files, names the log of another store, or is that of a slave.
        UnsupportedFormatError: the store belongs to a broker in controller mode.
    """
    keys = broker_config.load(config)
    if adds_messages:
        _refuse_slave(root, keys)
    if is_new(root):
        return options_of_new_store(root, keys, compat or Compat.V5_5, **chosen)
    with open_store(root, _directories(keys)) as store:
        layout = store.layout
        release = compat or (Compat(str(store.version.release)))
    if has_epochs(root, keys):
        raise in_controller_mode(root)
    _refuse_log_of_other_store(root, layout.commit_log_dirs, keys)
    detected = _sizes_of(layout, keys) | _index_sizes_of(root, keys)
    if has_timer(keys, release_of(release.value)):
        _require_size(TIMER_LOG.key, known_log_file_size(root, BrokerConfig()), keys, root)
    if any(list_directory(root / file_names.CONSUME_QUEUE_EXT)):
        detected["consume_queue_ext"] = True
    detected["commit_log_dirs"], detected["read_only_dirs"] = log_directories(layout, keys)
    if layout.commit_log_dirs in ((), (root / file_names.COMMIT_LOG,)):
        detected["commit_log_dirs"] = ()
    return replace(options_from_config(keys, StoreOptions(compat=release)), **detected, **chosen)


def options_of_new_store(root: Path, keys: BrokerConfig, compat: Compat = Compat.V5_5, **chosen: Any) -> StoreOptions:
    """Returns options for creating a store; the arguments are those of `options_for`.

    With the configuration of another store, the directories of the log are below `root`.
    """
    configured = options_from_config(keys, StoreOptions(compat=compat))
    directories: dict[str, Any] = {}
    if _other_root(root, keys) is not None:
        named = tuple(dict.fromkeys(keys.places_in_copy(path, root)[0] for path in keys.paths("storePathCommitLog")))
        is_default = named == (root / file_names.COMMIT_LOG,)
        directories = {"commit_log_dirs": () if is_default else named, "read_only_dirs": ()}
    return replace(configured, **(directories | chosen))


def config_for_reading(
    config: "str | Path | Mapping[str, object] | BrokerConfig | None", options: StoreOptions
) -> BrokerConfig:
    """Returns the configuration with which `store.open_store` reads the log that a writer with `options` writes."""
    keys = broker_config.load(config)
    if not options.commit_log_dirs:
        return keys
    values = {key: value for key, value in keys.values.items() if key not in broker_config.PATH_KEYS}
    values["storePathCommitLog"] = ",".join(str(path) for path in options.commit_log_dirs + options.read_only_dirs)
    return replace(keys, values=values)


def _other_root(root: Path, keys: BrokerConfig) -> Path | None:
    """Returns the root of the store that the configuration is for; None if that is this store, or not stated."""
    stated = next(iter(keys.paths("storePathRootDir")), None)
    return stated if stated is not None and real_path(stated) != real_path(root) else None


def _refuse_slave(root: Path, keys: BrokerConfig) -> None:
    if keys.text("brokerRole") != "SLAVE":
        return
    where = keys.source or "the configuration"
    reason = (
        f"cannot take messages: brokerRole is SLAVE in {where}, so its log is a copy of its master's, which would "
        "continue it after other messages. Append to the master; or, if this store takes its place, set "
        "brokerRole=ASYNC_MASTER"
    )
    raise LayoutError(reason, root)


def _refuse_log_of_other_store(root: Path, directories: tuple[Path, ...], keys: BrokerConfig) -> None:
    """Raises LayoutError if a directory of the log belongs to the store that the configuration is for.

    That store's lock, which keeps out others that write, is in its own root.
    """
    other = _other_root(root, keys)
    if other is None or not other.is_dir():
        return
    its_own = {real_path(path) for path in (*keys.commit_log_paths, other / file_names.COMMIT_LOG)}
    for directory in directories:
        if real_path(directory) in its_own:
            reason = (
                f"is the log of the store {other}, which storePathRootDir of {keys.source} names, not of {root}. Copy "
                "the log too, or give a configuration with the directories of this store"
            )
            raise LayoutError(reason, directory)


def log_directories(layout: StoreLayout, keys: BrokerConfig) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Returns the CommitLog directories of a store in which files are created, and those that are only read."""
    read_only = {place_of(path, layout.root, keys) for path in keys.paths("readOnlyCommitLogStorePaths")}
    return (
        tuple(path for path in layout.commit_log_dirs if path not in read_only),
        tuple(path for path in layout.commit_log_dirs if path in read_only),
    )


def _directories(keys: BrokerConfig) -> dict[str, object]:
    """Returns the keys of directories, without those of sizes, which are read from the files."""
    named = {name: keys.paths(name) for name in broker_config.PATH_KEYS}
    return {name: ",".join(map(str, paths)) for name, paths in named.items() if paths}


def _sizes_of(layout: StoreLayout, keys: BrokerConfig) -> dict[str, Any]:
    """Returns the sizes of files by option; see `_require_size`."""
    sizes: dict[str, Any] = {}
    for option, (key, attribute) in _SIZES.items():
        known: KnownSize | None = getattr(layout, attribute)
        if known is not None:
            sizes[option] = known.value
            _require_size(key, known, keys, layout.root)
    return sizes


def _require_size(key: str, known: KnownSize | None, keys: BrokerConfig, root: Path) -> None:
    """Raises LayoutError if a broker with a configuration expects files of another size than they have."""
    configured = with_defaults(keys).integer(key)
    if configured is not None and key == CONSUME_QUEUE.key:
        configured = round_up_file_size(configured)
    if configured is not None and known is not None and configured != known.value:
        raise LayoutError(
            f"{keys.stated(key)} in {keys.source}: a broker expects files of {configured} bytes, but "
            f"{known.evidence} have {known.value}: set {key}={known.value}",
            root,
        )


def _index_sizes_of(root: Path, keys: BrokerConfig) -> dict[str, Any]:
    """Returns slots and entries of the index by option; {} if there is no index file.

    Raises LayoutError if their size contradicts the configuration, or does not determine the number of slots.
    """
    directory = root / file_names.INDEX
    files = list_index_files(directory)[0] if directory.is_dir() else []
    if not any(file.size for file in files):
        return {}
    shape = shape_of(files, with_defaults(keys))
    if shape is None:
        raise LayoutError("does not state its number of slots: set maxHashSlotNum and maxIndexNum", files[0].path)
    for file in files:
        if file.size and file.size != shape.file_size:
            raise LayoutError(
                f"{keys.stated('maxHashSlotNum')}, {keys.stated('maxIndexNum')} in {keys.source}: a broker expects "
                f"index files of {shape.file_size} bytes, but this one has {file.size}",
                file.path,
            )
    return {"index_slots": shape.slots, "index_entries": shape.places}


def check_admission(root: Path, options: StoreOptions) -> None:
    """Refuses a store that the engine must not write to, by the files in it.

    Raises UnsupportedFormatError if its log or its queues are of another kind, or of an unknown release, and
    LayoutError if its index files have another size than the options state; the broker would misread them.
    """
    for name in _MARKS:
        try:
            mode = (root / name).stat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise LayoutError(f"expected a regular file, found a {kind_of(mode)}; move it elsewhere", root / name)
    names = [entry.name for entry in list_directory(root)]
    if any(name.startswith(file_names.DLEDGER_PREFIX) for name in names):
        raise UnsupportedFormatError(f"{root}: contains a DLedger log; convert it with `mqtool convert dledger` first")
    if file_names.EPOCH_FILE in names:
        raise in_controller_mode(root)
    queue_names = [entry.name for place in PLACES for entry in list_directory(root / place)]
    if any(name.startswith(_ROCKSDB_MARKS) for name in queue_names):
        raise UnsupportedFormatError(
            f"{root}: its ConsumeQueues are in RocksDB; convert it with `mqtool convert rocksdb-queues` first"
        )
    _check_checkpoint(root / file_names.CHECKPOINT)
    if options.index:
        _check_index(root / file_names.INDEX, index_file.file_size(options.index_slots, options.index_entries))


def in_controller_mode(root: Path) -> UnsupportedFormatError:
    """Returns the error about a store that has an epoch file."""
    return UnsupportedFormatError(
        f"{root}: belongs to a broker in controller mode, whose epochs mqtool cannot continue; use a broker"
    )


def _check_checkpoint(path: Path) -> None:
    if not path.is_file():
        return
    data = read_file(path)
    known = checkpoint.CHECKPOINT.size
    if any(data[known:]):
        at = known + next(number for number, byte in enumerate(data[known:]) if byte)
        raise UnsupportedFormatError(
            f"{path}: expected zeros from byte {known} on, found {data[at]:#04x} at {at}: "
            "it was written by an unknown release; use a newer mqtool"
        )


def _check_index(directory: Path, expected: int) -> None:
    for entry in list_directory(directory):
        if not file_names.is_index_file_name(entry.name) or not entry.is_file():
            continue
        size = entry.stat().st_size
        if size not in (0, expected):
            raise LayoutError(
                f"expected an index file of {expected} bytes, found {size}; "
                "open the store with the index_slots and index_entries that it was created with",
                entry.path,
            )
