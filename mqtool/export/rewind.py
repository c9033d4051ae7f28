"""Undoes what was exported from a part of the log that no longer exists, because the log was truncated.

Each commit contains the watermark that it reached. The newest watermark that still matches the log is where export
and log agree. The store's files from later commits are undone, and the log is exported again from there. Watermarks
of commits that were undone do not count, even if the log matches them again: their rows are no longer in the export.

Retention may have deleted the log at that place. Its rows then exist in the export only. They stay, and the log is
exported again from its beginning, if it is the same log: if its first exported record is the one that was exported.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, field

from mqtool.errors import ExportError, StoreError
from mqtool.export.commit import Manifest, all_manifests
from mqtool.export.parquet import FileEntry
from mqtool.export.plan import log_end
from mqtool.export.schema import PLACES, Table
from mqtool.export.state import Mark, check_mark
from mqtool.export.table_logs import CHANGED, ELSEWHERE
from mqtool.export.target import Target
from mqtool.store import Store
from mqtool.store.log.cuts import Cuts

_IDENTITY = {
    "physical_offset": "physical_offset",
    "store_timestamp": "store_timestamp",
    "store_size": "total_size",
    "queue_id": "queue_id",
}
"""Columns that show that a row is a record, and the record's fields."""


class Rewind(Struct, frozen=True):
    """What is undone for one store."""

    mark: Mark | None  # after which the log is exported again; None for its beginning
    removed: list[FileEntry]  # files that are undone
    # Those of them whose rows before the beginning of the log are written again.
    kept: list[FileEntry] = field(default_factory=list)


class ExportHistory:
    """The commits of an export."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._manifests: list[Manifest] | None = None

    def rewind(self, store: Store, broker: str) -> Rewind:
        """Returns what has to be undone, and where export and log agree, for a store whose log was truncated.

        Raises ExportError if rows would be lost, or it is unknown whether it is the same log.
        """
        if self._manifests is None:
            self._manifests = all_manifests(self._target)
        end = log_end(store, Cuts(store))
        manifests = [manifest for manifest in self._manifests if broker in manifest.stores]
        for manifest in reversed(_not_undone(manifests, broker)):
            mark = manifest.state.marks.get(broker)
            if mark is not None and self._holds(store, mark, end):
                return self._since(store, broker, mark, manifest.state.sequence, mark.offset)
        first = min((int(earlier.stores[broker]["start"]) for earlier in manifests), default=0)
        return self._since(store, broker, None, 0, first)

    def _holds(self, store: Store, mark: Mark, end: int) -> bool:
        try:
            check_mark(store, mark, end)
        except ExportError:
            return False
        return True

    def _since(self, store: Store, broker: str, mark: Mark | None, sequence: int, agreed: int) -> Rewind:
        """Undoes the commits after a sequence number, except for rows before the beginning of the log.

        `mark` is that of the newest commit that stays, None if all are undone; export and log agree up to the physical
        offset `agreed`.
        """
        later = [manifest for manifest in self._manifests or () if manifest.state.sequence > sequence]
        undone = {path for manifest in later for path in manifest.removed}
        entries = [e for manifest in later for e in manifest.files if e.broker == broker and e.path not in undone]
        first = store.commit_log.min_offset
        if first <= agreed:
            return Rewind(mark, entries)
        bounds = [(entry, *self._bounds(entry, store, agreed)) for entry in entries]
        removed = [entry for entry, _, high in bounds if high >= first]
        record = self._first_row([entry for entry in removed if entry.table == Table.MESSAGES], first)
        if not _is_in_log(store, record):
            raise _unknown(store, agreed, "its first exported record is not in the log")
        return Rewind(None, removed, [entry for entry, low, high in bounds if low < first <= high])

    @contextmanager
    def _file(self, entry: FileEntry) -> Iterator[Any]:
        try:
            source = self._target.open(entry.path)
        except FileNotFoundError as error:
            raise ExportError(
                f"is missing, although the export published it: {CHANGED}; {ELSEWHERE}", entry.path
            ) from error
        with source, pq.ParquetFile(source) as file:
            yield file

    def _bounds(self, entry: FileEntry, store: Store, agreed: int) -> tuple[int, int]:
        """Returns the smallest and the largest physical offset of the rows of a file."""
        with self._file(entry) as file:
            if PLACES[Table(entry.table)] not in file.schema_arrow.names:
                raise _unknown(store, agreed, "the export has no column physical_offset")
            limits = pc.min_max(file.read([PLACES[Table(entry.table)]]).column(0)).as_py()
        return (0, -1) if limits["min"] is None else (limits["min"], limits["max"])

    def _first_row(self, entries: list[FileEntry], first: int) -> dict[str, Any]:
        """Returns the row with the smallest physical offset from a place on; empty if there is none."""
        rows: list[dict[str, Any]] = []
        for entry in entries:
            with self._file(entry) as file:
                names = [name for name in _IDENTITY if name in file.schema_arrow.names]
                table = file.read(names)
            table = table.filter(pc.field("physical_offset") >= first)
            rows += table.take(pc.select_k_unstable(table, 1, [("physical_offset", "ascending")])).to_pylist()
        return min(rows, key=lambda row: int(row["physical_offset"]), default={})


def before(entry: FileEntry, end: int) -> Callable[[Any], Any]:
    """Returns a function that returns which rows of a file's table are before a physical offset."""
    return lambda table: pc.less(table[PLACES[Table(entry.table)]], end)


def _is_in_log(store: Store, row: dict[str, Any]) -> bool:
    """Whether the log has the record of a row: at the same offset, with the same store timestamp, size and queue."""
    if row.get("store_timestamp") is None:
        return False
    try:
        record = store.commit_log.record(row["physical_offset"])
    except StoreError:
        return False
    stored = {name: getattr(record, attribute) for name, attribute in _IDENTITY.items() if name in row}
    return stored == row | {"store_timestamp": round(row["store_timestamp"].timestamp() * 1000)}


def _unknown(store: Store, agreed: int, reason: str) -> ExportError:
    first = store.commit_log.min_offset
    return ExportError(
        f"the log agrees with the export up to physical offset {agreed} and begins at {first} now: {reason}, so "
        "whether it is the log that was exported is unknown; export into a new directory, with a new state",
        store.path,
    )


def _not_undone(manifests: list[Manifest], broker: str) -> list[Manifest]:
    """Returns the commits whose rows are still in the export; a commit that starts before their end undoes them.

    Files that a commit removes would not show this, because a commit may cover a range of the log without rows. The
    manifests cover the store, oldest first.
    """
    remaining: list[Manifest] = []
    for manifest in manifests:
        while remaining and int(remaining[-1].stores[broker]["end"]) > int(manifest.stores[broker]["start"]):
            remaining.pop()
        remaining.append(manifest)
    return remaining
