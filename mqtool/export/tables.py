"""Exports as tables of Delta Lake or Iceberg: the Parquet files are unchanged, and the table's log refers to them.

The table follows the manifests: each commit of the export becomes exactly one commit of the table. If a run ended
between the two, the next one catches up. Needs `deltalake` or `pyiceberg`, both extras.
"""

import json
import re
import time
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.choices import TableFormat
from mqtool.errors import UnavailableError, UsageError
from mqtool.export.commit import MessageCommit, message_commits
from mqtool.export.delta_log import APPLICATION, LOG, NEVER, delta_files
from mqtool.export.iceberg_log import CATALOGUE, CATALOGUE_FILE, METADATA, NAME, NAMESPACE, SEQUENCE, IcebergTable
from mqtool.export.parquet import SORTED, FileEntry
from mqtool.export.partitioning import stored_value
from mqtool.export.schema import Table
from mqtool.export.target import LocalTarget, Target
from mqtool.store.real_path import real_path

ICEBERG_NAME = (NAMESPACE, NAME)

_LIBRARIES = {TableFormat.DELTA: "deltalake", TableFormat.ICEBERG: "pyiceberg"}


def require(kind: TableFormat, target: Target) -> None:
    """Checks that a table can be written, before anything else is written.

    Raises:
        UnavailableError: its library is not installed.
        UsageError: the target is not a directory of this machine, the catalogue of pyiceberg's configuration cannot be
            used, or its table belongs to another export.
    """
    if not isinstance(target, LocalTarget):
        where = "tables are made in local directories; register the files in a catalogue of your own"
        raise UsageError(f"{target.url}: {where}")
    library = _LIBRARIES[kind]
    try:
        import_module(library)
    except ImportError as error:
        raise UnavailableError(f'{kind} tables need {library}: pip install "rocketmq-mqtool[{kind}]"') from error
    if kind is TableFormat.ICEBERG:
        configured_table(Path(target.url))


def existing(target: Target) -> TableFormat | None:
    """Returns the format of a table that refers to the files of an export."""
    if target.names(f"{Table.MESSAGES}/{LOG}"):
        return TableFormat.DELTA
    is_iceberg = CATALOGUE_FILE in target.names("") or target.names(f"{Table.MESSAGES}/{METADATA}")
    return TableFormat.ICEBERG if is_iceberg else None


def publish(kind: TableFormat, target: Target) -> bool:
    """Brings the table up to the last commit of the export; safe to repeat.

    Returns:
        Whether any commit was missing.

    Raises:
        UsageError: which commits an Iceberg table has is unknown, it belongs to another export, or its catalogue cannot
            be used.
    """
    table: _Delta | _Iceberg = _Delta(target) if kind is TableFormat.DELTA else _Iceberg(target)
    done = table.sequence()
    missing = [
        commit
        for commit in message_commits(target)
        if commit.manifest.state.sequence > done and (commit.files or (commit.removed and done > NEVER))
    ]
    for commit in missing:
        table.apply(commit)
    table.close()
    return bool(missing)


def configured_table(root: Path) -> IcebergTable | None:
    """Returns what the catalogue of pyiceberg's configuration states about the table of an export.

    Returns:
        None if there is no table, no such catalogue, or no pyiceberg.

    Raises:
        UsageError: the catalogue cannot be used, or the table belongs to another export.
    """
    try:
        is_configured = bool(_configured())
    except ImportError:
        return None
    if not is_configured:
        return None
    table = _Iceberg(LocalTarget(str(root)))
    try:
        return table.table()
    finally:
        table.close()


class _Delta:
    def __init__(self, target: Target) -> None:
        self._root = real_path(Path(target.url)) / Table.MESSAGES

    def _open(self) -> Any:
        deltalake = import_module("deltalake")
        return deltalake.DeltaTable(str(self._root)) if deltalake.DeltaTable.is_deltatable(str(self._root)) else None

    def sequence(self) -> int:
        table = self._open()
        version = None if table is None else table.transaction_version(APPLICATION)
        return NEVER if version is None else int(version)

    def apply(self, commit: MessageCommit) -> None:
        """Adds the files of a commit, and removes those that it undoes, in one version of the table."""
        deltalake, transaction = import_module("deltalake"), import_module("deltalake.transaction")
        by = _partition_columns(commit)
        table = self._open()
        if commit.files:
            schema = deltalake.Schema.from_arrow(_with_partitions(self._root, commit.files, by))
            table = table or deltalake.DeltaTable.create(str(self._root), schema=schema, partition_by=by)
            known = {field.name for field in table.schema().fields}
            if added := [field for field in schema.fields if field.name not in known]:
                table.alter.add_columns(added)
        present, now = delta_files(self._root).paths, int(time.time() * 1000)
        actions = [
            transaction.RemoveAction(_name(entry), True, now, entry.size, entry.partition)
            for entry in commit.removed
            if _name(entry) in present
        ]
        actions += [
            transaction.AddAction(_name(entry), entry.size, entry.partition, 0, True, self._statistics(entry))
            for entry in commit.files
            if entry.rows
        ]
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(APPLICATION, commit.manifest.state.sequence)]
        )
        table.create_write_transaction(
            actions, mode="append", schema=table.schema(), partition_by=by or None, commit_properties=properties
        )

    def _statistics(self, entry: FileEntry) -> str:
        """Returns the statistics of a file in the form of PROTOCOL.md, so that readers can skip it.

        Columns inside of others have none, and neither have those that are partition columns of the table.
        """
        footer = pq.read_metadata(self._root.parent / entry.path)
        bounds: dict[str, tuple[Any, Any]] = {}
        nulls: dict[str, int] = {}
        for at in range(footer.num_columns):
            name = footer.schema.column(at).path
            parts = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
            if "." in name or name in entry.partition or any(part is None for part in parts):
                continue
            nulls[name] = sum(part.null_count for part in parts)
            valued = [part for part in parts if part.num_values]
            if valued and all(part.has_min_max and not isinstance(part.min, bool | bytes) for part in valued):
                bounds[name] = min(part.min for part in valued), max(part.max for part in valued)
        statistics = {"numRecords": entry.rows, "nullCount": nulls}
        for kind, side in (("minValues", 0), ("maxValues", 1)):
            statistics[kind] = {name: _json_value(values[side]) for name, values in bounds.items()}
        return json.dumps(statistics)

    def close(self) -> None:
        """Does nothing, because nothing is open."""


class _Iceberg:
    def __init__(self, target: Target) -> None:
        self._root = real_path(Path(target.url))
        self._catalog = _catalogue(self._root)

    def sequence(self) -> int:
        table = self.table()
        if table is None:
            return NEVER
        if table.sequence == NEVER and not table.is_empty:
            raise UsageError(
                f"{self._root}: which commits of the export the Iceberg table has is unknown: no snapshot states it "
                f"any more. Set its property {SEQUENCE!r} to the number of the last one, N of "
                f"_mqtool/commit-N.json, or 0 for none"
            )
        return table.sequence

    def table(self) -> IcebergTable | None:
        """Returns what the catalogue states about the table; None if there is none.

        Raises:
            UsageError: the table belongs to another export, or its metadata cannot be read.
        """
        try:
            table = self._catalog.load_table(ICEBERG_NAME) if self._catalog.table_exists(ICEBERG_NAME) else None
        except FileNotFoundError as error:
            raise UsageError(
                f"{self._root}: the metadata of the Iceberg table cannot be read: {_one_line(error)}. An export with "
                f"an Iceberg table must stay where it is: move it back, or export into a new directory"
            ) from error
        except Exception as error:  # whatever the client of a catalogue raises
            raise _unusable(error) from error
        if table is None:
            return None
        location, expected = table.location(), self._root / Table.MESSAGES
        if real_path(Path(re.sub("^file:/+", "/", location))) != expected:
            raise UsageError(
                f"{self._root}: the Iceberg table {'.'.join(ICEBERG_NAME)} of the catalogue has the files of another "
                f"directory, {location}; use a catalogue of its own for each export, and leave an export where it is"
            )
        return IcebergTable.of(json.loads(table.metadata.model_dump_json()))

    def apply(self, commit: MessageCommit) -> None:
        """Adds the files of a commit, and deletes those that it undoes, in one change of the table."""
        snapshots = import_module("pyiceberg.table")
        self._catalog.create_namespace_if_not_exists(ICEBERG_NAME[0])
        location, sequence = _url(self._root / Table.MESSAGES), {SEQUENCE: str(commit.manifest.state.sequence)}
        files = [entry for entry in commit.files if entry.rows]
        if commit.files:
            schema = _with_partitions(self._root / Table.MESSAGES, commit.files, _partition_columns(commit))
            plain = _with_partitions(self._root / Table.MESSAGES, commit.files, [])
            table = self._catalog.create_table_if_not_exists(ICEBERG_NAME, schema=schema, location=location)
        else:
            table = self._catalog.load_table(ICEBERG_NAME)
        removed = {_url(self._root / entry.path) for entry in commit.removed}
        undone = [task.file for task in table.scan().plan_files() if task.file.file_path in removed] if removed else []
        with table.transaction() as transaction:
            if commit.files:
                with transaction.update_schema() as update:
                    update.union_by_name(plain)
                self._arrange(transaction, schema.names, _partition_columns(commit))
            transaction.set_properties(sequence)  # snapshots expire
            if files or undone:
                name = snapshots.TableProperties.DEFAULT_NAME_MAPPING
                if transaction.table_metadata.name_mapping() is None:  # the files do not have Iceberg's field ids
                    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
                    transaction.set_properties({name: mapping})
                change = transaction.update_snapshot(snapshot_properties=sequence)
                with change.overwrite() if undone else change.fast_append() as snapshot:
                    for data_file in undone:
                        snapshot.delete_data_file(data_file)
                    for entry in files:
                        snapshot.append_data_file(self._data_file(transaction.table_metadata, entry))

    def _arrange(self, transaction: Any, columns: list[str], partition_by: list[str]) -> None:
        """Declares partitions and order of the rows of a table without a snapshot; tables keep what they have."""
        metadata = transaction.table_metadata
        if metadata.snapshots or metadata.spec().fields or metadata.sort_order().fields:
            return
        if partition_by:
            with transaction.update_spec() as spec:
                for name in partition_by:
                    spec.add_identity(name)
        if set(SORTED) <= set(columns):
            transforms, sorting = import_module("pyiceberg.transforms"), import_module("pyiceberg.table.sorting")
            with transaction.update_sort_order() as order:
                for name in SORTED:
                    order.asc(name, transforms.IdentityTransform(), sorting.NullOrder.NULLS_LAST)

    def _data_file(self, metadata: Any, entry: FileEntry) -> Any:
        """Returns a file as Iceberg describes it; partition values come from the export, not from columns."""
        manifests, arrow = import_module("pyiceberg.manifest"), import_module("pyiceberg.io.pyarrow")
        schema, spec = metadata.schema(), metadata.spec()
        statistics = arrow.data_file_statistics_from_parquet_metadata(
            parquet_metadata=pq.read_metadata(self._root / entry.path),
            stats_columns=arrow.compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=arrow.parquet_path_to_id_mapping(schema),
        )
        values = [stored_value(field.name, entry.partition.get(field.name)) for field in spec.fields]
        return manifests.DataFile.from_args(
            content=manifests.DataFileContent.DATA,
            file_path=_url(self._root / entry.path),
            file_format=manifests.FileFormat.PARQUET,
            partition=import_module("pyiceberg.typedef").Record(*values),
            file_size_in_bytes=entry.size,
            sort_order_id=metadata.default_sort_order_id,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def close(self) -> None:
        self._catalog.close()


def _catalogue(root: Path) -> Any:
    """Returns the catalogue `mqtool` of pyiceberg's configuration; if there is none, one in a file in the target.

    Raises:
        UsageError: the catalogue cannot be reached or read, or its configuration is incomplete.
    """
    configured = _configured()
    if not configured:
        sql = import_module("pyiceberg.catalog.sql")
        try:
            return sql.SqlCatalog(CATALOGUE, uri=f"sqlite:///{root}/{CATALOGUE_FILE}", warehouse=_url(root))
        except Exception as error:  # whatever the driver of the database raises
            raise UsageError(
                f"{root}/{CATALOGUE_FILE}: cannot be used as a catalogue: {_one_line(error)}; export into a new "
                "directory"
            ) from error
    try:
        return import_module("pyiceberg.catalog").load_catalog(CATALOGUE, **configured)
    except Exception as error:  # whatever the client of a catalogue raises
        raise _unusable(error) from error


def _unusable(error: Exception) -> UsageError:
    return UsageError(f"the catalogue {CATALOGUE!r} of pyiceberg's configuration cannot be used: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _configured() -> Any:
    """Returns the catalogue `mqtool` in pyiceberg's configuration, as a mapping; empty or None if there is none."""
    return import_module("pyiceberg.utils.config").Config().get_catalog_config(CATALOGUE)


def _partition_columns(commit: MessageCommit) -> list[str]:
    return list(commit.manifest.state.shape["partition-by"])


def _with_partitions(root: Path, entries: list[FileEntry], partition_by: list[str]) -> Any:
    """Returns the schema of the files, plus partition columns that exist only as directories."""
    schema = pq.read_schema(root.parent / entries[0].path)
    for name in partition_by:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.date32() if name == "date" else pa.string()))
    return schema


def _name(entry: FileEntry) -> str:
    """Returns the path of a file in the table."""
    return entry.path.removeprefix(f"{Table.MESSAGES}/")


def _json_value(value: Any) -> Any:
    """Returns a minimum or maximum as Delta writes it: times in milliseconds, which is what the files have."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value


def _url(path: Path) -> str:
    """Returns a URL as pyiceberg expects it: without escaping."""
    return f"file://{path}"
