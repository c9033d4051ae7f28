"""Finds the DLedger log of a node from the directories in a store and the broker's keys.

Source: DLedgerCommitLog (4.9.7, 5.5.0), DLedgerConfig, DLedgerMmapFileStore (dledger 0.3.1.2, 0.3.2).
"""

from pathlib import Path

from msgspec import Struct

from mqtool.errors import LayoutError, UsageError
from mqtool.formats import dledger, file_names
from mqtool.store.config.broker_config import LEDGER_DATA_KEY, BrokerConfig
from mqtool.store.config.configured_place import place_or_name
from mqtool.store.files import subdirectories


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

    Raises:
        UsageError: the name of the node cannot be one.
        LayoutError: there are several logs, and the configuration does not say which is in use.
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
