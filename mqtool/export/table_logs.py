"""Reads from the logs of Delta and Iceberg tables which rows belong to the table, without their libraries.

Delta's log consists of actions: lines of JSON in `_delta_log/VERSION.json`. A file `VERSION.checkpoint.parquet`
replaces the actions up to its version. Source: PROTOCOL.md of Delta Lake. Checkpoints of several parts are not read.

Iceberg's catalogue in `iceberg.db` names the newest metadata file, whose snapshots state totals. Which files they
consist of is in Avro files and not read: totals and the kinds of the changes suffice to see that another program
deleted or changed rows. Source: the table specification of Iceberg (format version 2), the SQL catalogue of pyiceberg.
"""

import json
import posixpath
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from mqtool.errors import ExportError
from mqtool.export.target import Target

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

CATALOGUE = "mqtool"
CATALOGUE_FILE = "iceberg.db"
NAMESPACE, NAME = "rocketmq", "messages"
METADATA = "metadata"
"""Directory of the table's metadata, in that of the table."""
SEQUENCE = "mqtool.sequence"
"""Property of the table, and of the snapshots that add a commit of the export: the sequence number of that commit."""

_APPEND, _REPLACE = "append", "replace"


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


def delta_files(target: Target, table: str = "") -> DeltaFiles:
    """Returns the files of a Delta table in a directory of a target; ExportError if its log cannot be read."""
    log = posixpath.join(table, LOG)
    place = posixpath.join(target.url, log)
    try:
        names = target.names(log)
        first = max((int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))), default=-1)
        numbers = [int(match[1]) for name in names if (match := _ACTIONS.fullmatch(name))]
        versions = sorted(number for number in numbers if number > first)
        if versions != list(range(first + 1, first + 1 + len(versions))) or (first < 0 and not versions):
            raise ExportError(
                f"which files belong to the Delta table is unknown: expected all versions from {first + 1} on, found "
                f"{versions[:3]}; {ELSEWHERE}",
                place,
            )
        files = DeltaFiles()
        if first >= 0:
            with target.open(f"{log}/{first:020d}.checkpoint.parquet") as file, pq.ParquetFile(file) as checkpoint:
                files.apply(checkpoint.read(_COLUMNS).to_pylist())
        for version in versions:
            files.apply(_actions(target, f"{log}/{version:020d}.json"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise ExportError(f"the log of the Delta table cannot be read: {error!r}; {ELSEWHERE}", place) from error
    return files


def _actions(target: Target, version: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (target.read(version) or b"").splitlines() if line.strip()]


def delta_sequence(target: Target, table: str) -> int | None:
    """Returns the `sequence` of `DeltaFiles`, from the newest version that states it; None if only a checkpoint may."""
    log = posixpath.join(table, LOG)
    for name in sorted(filter(_ACTIONS.fullmatch, target.names(log)), reverse=True):
        files = DeltaFiles()
        files.apply(_actions(target, f"{log}/{name}"))
        if files.sequence > NEVER:
            return files.sequence
    return None


class IcebergTable(Struct, frozen=True):
    """What the metadata states about a table."""

    sequence: int  # of the last commit of the export that was published to the table; `NEVER` if this is not known
    is_empty: bool  # it never had a snapshot
    # rows, files, deletes: of its current snapshot: rows, data files, and files that mark rows as deleted; -1 if this
    # is not known.
    rows: int
    files: int
    deletes: int
    # Kinds of the changes by other programs that led to its current snapshot, other than those that add or only rewrite
    # rows.
    changes: frozenset[str]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "IcebergTable":
        """Returns what the contents of a metadata file state; raises KeyError, TypeError or ValueError if invalid."""
        snapshots = {int(snapshot["snapshot-id"]): snapshot for snapshot in metadata.get("snapshots") or ()}
        summaries = [snapshot.get("summary") or {} for snapshot in snapshots.values()]
        known = [metadata.get("properties") or {}, *summaries]
        sequence = max(int(properties.get(SEQUENCE, NEVER)) for properties in known)
        current = metadata.get("current-snapshot-id")
        if current in (None, -1):
            return cls(sequence, not snapshots, 0, 0, 0, frozenset())
        summary = snapshots[int(current)].get("summary") or {}
        totals = [int(summary.get(f"total-{name}", -1)) for name in ("records", "data-files", "delete-files")]
        line = [snapshot.get("summary") or {} for snapshot in _line(snapshots, int(current))]
        kinds = {summary.get("operation", "unknown") for summary in line if SEQUENCE not in summary}
        return cls(sequence, False, totals[0], totals[1], totals[2], frozenset(kinds - {_APPEND, _REPLACE}))


def _line(snapshots: Mapping[int, Any], current: int) -> Iterator[Any]:
    """Yields a snapshot and those before it, as far as they have not expired."""
    at: Any = current
    while at is not None and (snapshot := snapshots.get(int(at))) is not None:
        yield snapshot
        at = snapshot.get("parent-snapshot-id")


def local_table(root: Path) -> IcebergTable | None:
    """Returns what the catalogue in an export directory states about the table; None if it has none.

    Raises ExportError if catalogue or metadata cannot be read.
    """
    catalogue = root / CATALOGUE_FILE
    if not catalogue.is_file():
        return None
    query = (
        "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
    )
    try:
        with closing(sqlite3.connect(f"file:{quote(str(catalogue.absolute()))}?mode=ro", uri=True)) as connection:
            row = connection.execute(query, (CATALOGUE, NAMESPACE, NAME)).fetchone()
        if row is None:
            return None
        # the location states where the export was when it was written; it may have been copied since
        name = str(row[0]).rpartition("/")[2]
        return IcebergTable.of(json.loads((root / NAME / METADATA / name).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, sqlite3.Error) as error:
        raise ExportError(
            f"the catalogue of the Iceberg table cannot be read: {error!r}; {ELSEWHERE}", catalogue
        ) from error
