"""Reads from the metadata of an Iceberg table whether it has all rows of an export, without Iceberg's library.

The catalogue in `iceberg.db` names the newest metadata file, whose snapshots state totals. Which files they consist of
is in Avro files and not read: totals and the kinds of the changes suffice to see that another program deleted or
changed rows. Source: the table specification of Iceberg (format version 2), the SQL catalogue of pyiceberg.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from mqtool.errors import ExportError
from mqtool.export.delta_log import ELSEWHERE, NEVER

CATALOGUE = "mqtool"
CATALOGUE_FILE = "iceberg.db"
NAMESPACE, NAME = "rocketmq", "messages"
METADATA = "metadata"
"""Directory of the table's metadata, in that of the table."""
SEQUENCE = "mqtool.sequence"
"""Property of the table, and of the snapshots that add a commit of the export: the sequence number of that commit."""

_APPEND, _REPLACE = "append", "replace"


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
        """Returns what the contents of a metadata file state.

        Raises:
            KeyError, TypeError, ValueError: they are not valid.
        """
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

    Raises:
        ExportError: catalogue or metadata cannot be read.
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
