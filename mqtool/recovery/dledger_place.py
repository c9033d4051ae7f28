"""Finds a node's DLedger log from the files and the broker's keys. Source: DLedgerConfig (dledger 0.3.1.2, 0.3.2)."""

from pathlib import Path

from msgspec import Struct

from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.formats import dledger, file_names
from mqtool.store.broker_config import BrokerConfig


class LedgerPlace(Struct, frozen=True):
    """The place of a node's DLedger log.

    Attributes:
        directory: dledger-<node>.
        data: directory of its data files.
    """

    directory: Path
    data: Path


def ledger_place(root: Path, config: BrokerConfig) -> LedgerPlace | None:
    """Returns the place of the DLedger log that contains a broker's messages, None for a broker without one.

    Raises:
        UsageError: the node cannot be determined.
        UnsupportedFormatError: its data files are in several directories.
    """
    is_enabled = config.flag("enableDLegerCommitLog")
    found = sorted(root.glob(f"{file_names.DLEDGER_PREFIX}*/"))
    if is_enabled is False or (is_enabled is None and not found):
        return None
    own = config.text("dLegerSelfId")
    if own is None and len(found) != 1:
        raise UsageError("which node of the DLedger group this is, is not known: give --config with dLegerSelfId")
    if own is not None and not file_names.is_directory_name(own):
        raise UsageError(f"dLegerSelfId: expected the name of a node, such as n0, found {own[:80]!r}")
    directory = found[0] if own is None else root / f"{file_names.DLEDGER_PREFIX}{own}"
    named = config.paths("storePathDLedgerCommitLog")
    if len(named) > 1:
        raise UnsupportedFormatError(f"{root}: DLedger's data files are in several directories, which is not supported")
    return LedgerPlace(directory, named[0] if named else directory / dledger.DATA)
