"""Exports as tables of Delta Lake or Iceberg: the Parquet files are unchanged, and the table's log refers to them.

The table follows the manifests: each commit of the export becomes exactly one commit of the table. If a run ended
between the two, the next one catches up. Needs `deltalake` or `pyiceberg`, both extras.
"""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.choices import TableFormat
from mqtool.errors import UnavailableError, UsageError
from mqtool.export.commit import Manifest, message_entries
from mqtool.export.delta_log import APPLICATION, LOG, NEVER
from mqtool.export.iceberg_log import CATALOGUE, CATALOGUE_FILE, METADATA, NAME, NAMESPACE, SEQUENCE, IcebergTable
from mqtool.export.parquet import FileEntry
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
        (manifest, entries)
        for manifest, entries in message_entries(target)
        if manifest.state.sequence > done and entries
    ]
    for manifest, entries in missing:
        table.add(manifest, entries)
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

    def add(self, manifest: Manifest, entries: list[FileEntry]) -> None:
        deltalake, transaction = import_module("deltalake"), import_module("deltalake.transaction")
        by = list(manifest.state.shape["partition-by"])
        schema = deltalake.Schema.from_arrow(_with_partitions(self._root, entries, by))
        table = self._open() or deltalake.DeltaTable.create(str(self._root), schema=schema, partition_by=by)
        known = {field.name for field in table.schema().fields}
        if added := [field for field in schema.fields if field.name not in known]:
            table.alter.add_columns(added)
        actions = [
            transaction.AddAction(
                entry.path.removeprefix(f"{Table.MESSAGES}/"),
                entry.size,
                entry.partition,
                0,
                True,
                json.dumps({"numRecords": entry.rows}),
            )
            for entry in entries
            if entry.rows
        ]
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(APPLICATION, manifest.state.sequence)]
        )
        table.create_write_transaction(
            actions, mode="append", schema=table.schema(), partition_by=by or None, commit_properties=properties
        )

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

    def add(self, manifest: Manifest, entries: list[FileEntry]) -> None:
        self._catalog.create_namespace_if_not_exists(ICEBERG_NAME[0])
        location = _url(self._root / Table.MESSAGES)
        schema = _with_partitions(self._root / Table.MESSAGES, entries, [])
        table = self._catalog.create_table_if_not_exists(ICEBERG_NAME, schema=schema, location=location)
        sequence = {SEQUENCE: str(manifest.state.sequence)}
        paths = [_url(self._root / entry.path) for entry in entries if entry.rows]
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            transaction.set_properties(sequence)  # snapshots expire
            if paths:
                transaction.add_files(paths, snapshot_properties=sequence)

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


def _with_partitions(root: Path, entries: list[FileEntry], partition_by: list[str]) -> Any:
    """Returns the schema of the files, plus partition columns that exist only as directories."""
    schema = pq.read_schema(root.parent / entries[0].path)
    for name in partition_by:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.string()))
    return schema


def _url(path: Path) -> str:
    """Returns a URL as pyiceberg expects it: without escaping."""
    return f"file://{path}"
