"""Places that a broker's configuration names, found also in a copy of the store at another place.

They are directories of the log, files of controller mode, and the DLedger log of a node. Source:
MessageStoreConfig.getStorePathEpochFile, getStorePathBrokerIdentity (5.5.0); DLedgerCommitLog (4.9.7, 5.5.0),
DLedgerConfig, DLedgerMmapFileStore (dledger 0.3.1.2, 0.3.2).
"""

from pathlib import Path

from msgspec import Struct

from mqtool.errors import LayoutError, UsageError
from mqtool.formats import dledger, file_names
from mqtool.store.config.broker_config import LEDGER_DATA_KEY, BrokerConfig
from mqtool.store.files import subdirectories
from mqtool.store.paths import named_below
from mqtool.store.remote import is_remote

KEYS = {"storePathEpochFile": file_names.EPOCH_FILE, "storePathBrokerIdentity": file_names.BROKER_IDENTITY}
"""Broker key to the name of the file below the root, where it is by default."""


def possible_places(path: Path, root: Path, config: BrokerConfig) -> tuple[Path, ...]:
    """Returns where a configured path may be, also in a copy of the store at another place, the likeliest first."""
    *likely, same_name = config.places_in_copy(path, root)
    return (*likely, path, same_name)


def place_of(path: Path, root: Path, config: BrokerConfig) -> Path | None:
    """Returns where a configured directory is, also in a copy of the store at another place; None if it is missing."""
    directory = next((place for place in possible_places(path, root, config) if place.is_dir()), None)
    return directory if directory is None or is_remote(root) else named_below(root, directory)


def place_or_name(path: Path, root: Path, config: BrokerConfig) -> Path:
    """Returns where a configured directory is; below the root under its own name if it is missing."""
    return place_of(path, root, config) or root / path.name


def require_place(path: Path, root: Path, config: BrokerConfig, what: str) -> Path:
    """Returns where a configured directory is, see `place_of`; raises LayoutError if it is missing."""
    place = place_of(path, root, config)
    if place is None:
        tried = f"neither it nor {root / path.name} exists"
        raise LayoutError(f"{config.source} names this {what} directory, but {tried}", path)
    return place


def epoch_file(root: Path, config: BrokerConfig) -> Path:
    """Returns where a store's epoch file is, or would be; its backup has the same name with `.bak`."""
    return _place(root, config, "storePathEpochFile")


def broker_identity(root: Path, config: BrokerConfig) -> Path:
    """Returns where a store's broker identity is, or would be."""
    return _place(root, config, "storePathBrokerIdentity")


def has_epochs(root: Path, config: BrokerConfig) -> bool:
    """Whether there is an epoch file or its backup: the store belongs to a broker in controller mode."""
    return _exists(epoch_file(root, config))


def files_outside(root: Path, config: BrokerConfig) -> list[tuple[str, Path]]:
    """Returns key and path of each existing file of controller mode that is not below the root."""
    places = [(key, _place(root, config, key)) for key in KEYS]
    return [(key, path) for key, path in places if _exists(path) and not path.is_relative_to(root)]


def _place(root: Path, config: BrokerConfig, key: str) -> Path:
    """Returns the configured place, also in a copy of the store at another place, or the default one."""
    configured = next(iter(config.paths(key)), None)
    if configured is None:
        return root / KEYS[key]
    places = possible_places(configured, root, config)
    return next((path for path in places if _exists(path)), places[0])


def _exists(path: Path) -> bool:
    return path.exists() or path.with_name(path.name + file_names.BACKUP_SUFFIX).exists()


class LedgerPlace(Struct, frozen=True):
    """The place of a node's DLedger log. Its directories need not exist."""

    directory: Path  # dledger-<node>, with the index and the small files
    data: tuple[Path, ...]  # directories of its data files; several with a multi-path log


def ledger_directories(root: Path) -> tuple[Path, ...]:
    """Returns the directories `dledger-*` of a store, by name."""
    names = (entry.name for entry in subdirectories(root))
    return tuple(root / name for name in names if name.startswith(file_names.DLEDGER_PREFIX))


def ledger_place(root: Path, config: BrokerConfig) -> LedgerPlace | None:
    """Returns the place of the DLedger log that contains a broker's messages; None without a log or a known node.

    Raises UsageError if the name of the node cannot be one; LayoutError if there are several logs, and the
    configuration does not say which is in use.
    """
    is_enabled = config.flag("enableDLegerCommitLog")
    directories = ledger_directories(root)
    if is_enabled is False or (is_enabled is None and not directories):
        return None
    own = config.text("dLegerSelfId")
    if own is not None and not file_names.is_directory_name(own):
        raise UsageError(f"dLegerSelfId: expected the name of a node, such as n0, found {own[:80]!r}")
    if own is None and len(directories) > 1:
        names = ", ".join(path.name for path in directories)
        raise LayoutError(
            f"is one of several DLedger logs ({names}); dLegerSelfId of a broker.conf chooses", directories[0]
        )
    if own is None and not directories:
        return None
    directory = directories[0] if own is None else root / f"{file_names.DLEDGER_PREFIX}{own}"
    named = tuple(place_or_name(path, root, config) for path in config.paths(LEDGER_DATA_KEY))
    return LedgerPlace(directory, named or (directory / dledger.DATA,))
