"""Reads from the log of a Delta table which files belong to the table, without Delta's library.

The log consists of actions: lines of JSON in `_delta_log/VERSION.json`. A file `VERSION.checkpoint.parquet` replaces
the actions up to its version. Source: PROTOCOL.md of Delta Lake. Checkpoints of several parts are not read.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from mqtool.errors import ExportError

LOG = "_delta_log"
APPLICATION = "mqtool"
"""Under which the table's log keeps the sequence number of the last commit of the export."""

NEVER = -1
"""Less than the sequence number of any commit."""
CHANGED = "another program has changed the files (DELETE, OPTIMIZE, VACUUM, rewrite_data_files)"
ELSEWHERE = (
    "export the store again into a new directory, or write the rows as Parquet into another one with the table's own "
    "engine, and give that"
)
"""What to do about an export whose files another program has replaced."""

_ACTIONS = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_COLUMNS = [
    "add.path",
    "add.size",
    "add.partitionValues",
    "add.deletionVector.storageType",
    "txn.appId",
    "txn.version",
]


class DeltaFile(Struct, frozen=True):
    """A file of a table."""

    size: int  # in bytes
    partition: dict[str, str | None]  # value as text by partition column; None for null


class DeltaFiles(Struct):
    """What a table consists of."""

    # Whose rows all belong to the table, by path relative to it.
    files: dict[str, DeltaFile] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)  # paths of files of which rows are deleted
    sequence: int = NEVER  # of the last commit of the export that was published to the table; `NEVER` if there is none

    def apply(self, actions: list[dict[str, Any]]) -> None:
        """Applies the actions of a version; a file may be removed and added in one, with other deleted rows."""
        for removed in _values(actions, "remove"):
            self._remove(unquote(removed["path"]))
        for added in _values(actions, "add"):
            vector = added.get("deletionVector")
            path = unquote(added["path"])
            self._remove(path)
            if vector and any(vector.values()):
                self.partial.add(path)
            else:
                self.files[path] = DeltaFile(int(added["size"]), dict(added["partitionValues"] or {}))
        for transaction in _values(actions, "txn"):
            if transaction["appId"] == APPLICATION:
                self.sequence = int(transaction["version"])

    def _remove(self, path: str) -> None:
        self.files.pop(path, None)
        self.partial.discard(path)


def _values(actions: list[dict[str, Any]], name: str) -> Iterable[dict[str, Any]]:
    """Returns the actions of a kind; a checkpoint has all kinds in a row, and null for what it is not."""
    values = (action.get(name) for action in actions)
    return (value for value in values if value and (value.get("path") or value.get("appId")))


def delta_files(table: Path) -> DeltaFiles:
    """Returns the files of a Delta table in a local directory.

    Raises:
        ExportError: the log cannot be read, or versions are missing.
    """
    log = table / LOG
    try:
        names = [path.name for path in log.iterdir()]
        first = max((int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))), default=-1)
        numbers = [int(match[1]) for name in names if (match := _ACTIONS.fullmatch(name))]
        versions = sorted(number for number in numbers if number > first)
        if versions != list(range(first + 1, first + 1 + len(versions))) or (first < 0 and not versions):
            raise ExportError(
                f"which files belong to the Delta table is unknown: expected all versions from {first + 1} on, found "
                f"{versions[:3]}; {ELSEWHERE}",
                log,
            )
        files = DeltaFiles()
        if first >= 0:
            with pq.ParquetFile(log / f"{first:020d}.checkpoint.parquet") as checkpoint:
                files.apply(checkpoint.read(_COLUMNS).to_pylist())
        for version in versions:
            lines = (log / f"{version:020d}.json").read_bytes().splitlines()
            files.apply([json.loads(line) for line in lines if line.strip()])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise ExportError(f"the log of the Delta table cannot be read: {error!r}; {ELSEWHERE}", log) from error
    return files
