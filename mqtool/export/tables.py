"""Exports as tables of Delta Lake or Iceberg: the Parquet files are unchanged, and the table's log refers to them.

The table follows the manifests: each commit of the export becomes exactly one commit of the table. If a run ended
between the two, the next one catches up. Needs `deltalake` or `pyiceberg`, both extras.
"""

import json
import posixpath
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqtool.choices import TableFormat
from mqtool.commands import with_extra
from mqtool.errors import ExportError, StoreError, UnavailableError, UsageError
from mqtool.export.commit import Manifest, MessageCommit, message_commits
from mqtool.export.parquet import SORTED, FileEntry, WriteOptions, rewrite, stored_value
from mqtool.export.schema import PLACES, Table
from mqtool.export.table_logs import (
    APPLICATION,
    CATALOGUE,
    CATALOGUE_FILE,
    CHANGED,
    ELSEWHERE,
    LOG,
    METADATA,
    NAME,
    NAMESPACE,
    NEVER,
    SEQUENCE,
    DeltaFile,
    IcebergTable,
    delta_files,
    delta_sequence,
)
from mqtool.export.target import LocalTarget, RemoteTarget, Target
from mqtool.store.paths import real_path
from mqtool.store.remote import is_url

ICEBERG_NAME = (NAMESPACE, NAME)

_PLACE = PLACES[Table.MESSAGES]
_SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss")
"""Of the object stores that deltalake and pyiceberg know under the same URLs as fsspec."""
_PROPERTIES = {"delta.checkpointInterval": "10"}
"""As Spark does by default; deltalake's own 100 lets every reader read up to 100 versions."""
_FOOTERS, _FOOTER = 64, 256 << 10
"""Footers that are read at a time; bytes within which most of them are."""
_LIBRARIES = {TableFormat.DELTA: "deltalake", TableFormat.ICEBERG: "pyiceberg"}


def require(kind: TableFormat, target: Target) -> None:
    """Checks that a table can be written, before anything else is written.

    Raises UnavailableError if its library is not installed; UsageError if there are no tables in targets of this kind,
    the catalogue of pyiceberg's configuration cannot be used, or its table belongs to another export; StoreError if
    the object store or a table there cannot be read.
    """
    if isinstance(target, RemoteTarget):
        if target.scheme not in _SCHEMES:
            where = (
                f"tables can only be written to local directories and {', '.join(f'{name}://' for name in _SCHEMES)}"
            )
            raise UsageError(f"{target.url}: {where}; register the files in your own catalogue")
        if kind is TableFormat.DELTA and "%" in target.url:
            raise UsageError(f"{target.url}: deltalake cannot read a table below a name with %; choose another prefix")
        target.require_prefix()
    library = _LIBRARIES[kind]
    try:
        import_module(library)
    except ImportError as error:
        raise UnavailableError(f"{kind} tables need {library}: {with_extra(kind.value)}") from error
    if kind is TableFormat.DELTA:
        _Delta(target).require_readable()
    else:
        configured_table(target)


def existing(target: Target) -> TableFormat | None:
    """Returns the format of a table that refers to the files of an export."""
    if target.names(f"{Table.MESSAGES}/{LOG}"):
        return TableFormat.DELTA
    is_iceberg = CATALOGUE_FILE in target.names("") or target.names(f"{Table.MESSAGES}/{METADATA}")
    return TableFormat.ICEBERG if is_iceberg else None


def publish(kind: TableFormat | None, target: Target) -> bool:
    """Brings the table, if there is one, up to the last commit; returns whether one was missing. Safe to repeat.

    Raises UsageError if which commits an Iceberg table has is unknown, it belongs to another export, or its catalogue
    cannot be used.
    """
    if kind is None:
        return False
    table = _table(kind, target)
    done = table.sequence()
    later = message_commits(target, done)
    missing = [commit for commit in later if commit.files or (commit.removed and done > NEVER)]
    commits = message_commits(target) if done > NEVER and any(commit.removed for commit in missing) else later
    published = _paths(commit for commit in commits if commit.manifest.state.sequence <= done)
    for commit in missing:
        present = table.files() if commit.removed and done > NEVER else {}
        undone = [path for path in commit.removed if path in present]
        files = [file for file in commit.files if file.copy_of not in published or file.copy_of in present]
        for number, path in enumerate(sorted(present.keys() - _paths(commits))):
            to = f"{posixpath.dirname(path)}/part-{commit.manifest.state.sequence:08d}-merged-{number:04d}.parquet"
            copy = _without_undone(target, path, to, commit.manifest)
            if copy is not None:
                undone.append(path)
                files.append(copy)
        try:
            table.apply(commit.manifest, files, {path: present[path] for path in undone})
        except Exception as error:  # whatever the libraries raise
            if table.sequence() < commit.manifest.state.sequence:  # else another run has added it in the meantime
                raise ExportError(
                    f"the files of commit {commit.manifest.state.sequence} are published, but could not be added to "
                    f"the {kind} table: {_one_line(error)}; run this again, which adds them",
                    target.url,
                ) from error
    table.close()
    return bool(missing)


def _paths(commits: Iterable[MessageCommit]) -> set[str]:
    return {entry.path for commit in commits for entry in commit.manifest.files}


def _without_undone(target: Target, path: str, to: str, manifest: Manifest) -> FileEntry | None:
    """Copies a file in which another program has merged files of the export, without the rows that a commit undoes.

    Returns the copy; None if the file has no such rows.
    """
    starts = {broker: int(part["start"]) for broker, part in manifest.stores.items()}

    def keep(rows: Any) -> Any:
        undone = [pc.and_(pc.equal(rows["broker"], b), pc.greater_equal(rows[_PLACE], at)) for b, at in starts.items()]
        return pc.invert(pc.fill_null(reduce(pc.or_, undone), False))  # rows of others may have nulls

    with target.open(path) as source, pq.ParquetFile(source) as file:
        if pc.all(keep(file.read(["broker", _PLACE]))).as_py():
            return None
    rows, size = rewrite(target, path, to, keep, WriteOptions().level, in_order=False)
    return FileEntry(Table.MESSAGES, to, "", rows, size, {}, copy_of=path)


def require_removable(kind: TableFormat | None, target: Target) -> None:
    """Checks that rows can be removed from the table, if there is one, before the export removes their files.

    Raises ExportError if another program forbids this, has deleted single rows, or has merged files without the columns
    that are needed; UsageError as `publish`.
    """
    if kind is None:
        return
    table = _table(kind, target)
    others = (table.files() if table.sequence() > NEVER else {}).keys() - _paths(message_commits(target))
    table.close()
    for path in sorted(others):
        with target.open(path) as source:
            names = pq.read_schema(source).names
        if not {"broker", _PLACE} <= set(names):
            raise ExportError(f"has no column broker, or no {_PLACE}: {CHANGED}; {ELSEWHERE}", path)


def configured_table(target: Target) -> IcebergTable | None:
    """Returns what the catalogue of pyiceberg's configuration states about the table of an export.

    None if there is no table, no such catalogue, or no pyiceberg. Raises UsageError if the catalogue cannot be used, or
    the table belongs to another export.
    """
    try:
        is_configured = bool(_configured())
    except ImportError:
        return None
    if not is_configured and isinstance(target, LocalTarget):
        return None
    table = _Iceberg(target)
    try:
        return table.table()
    finally:
        table.close()


def _table(kind: TableFormat, target: Target) -> "_Delta | _Iceberg":
    return _Delta(target) if kind is TableFormat.DELTA else _Iceberg(target)


class _Delta:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._root = f"{_root(target)}/{Table.MESSAGES}"
        self._url = self._root  # deltalake decodes URLs
        self._options = None
        if isinstance(target, RemoteTarget):
            self._url, self._options = quote(self._root, safe=":/@"), target.delta_options()

    def _open(self) -> Any:
        if not self._target.names(f"{Table.MESSAGES}/{LOG}"):
            return None
        deltalake = import_module("deltalake")
        try:
            return deltalake.DeltaTable(self._url, storage_options=self._options)
        except deltalake.exceptions.TableNotFoundError:
            return None
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise StoreError(f"the Delta table cannot be read: {_one_line(error)}", self._root) from error

    def require_readable(self) -> None:
        """Raises StoreError if the table, if there is one, cannot be read."""
        self._open()

    def sequence(self) -> int:
        if (stated := delta_sequence(self._target, Table.MESSAGES)) is not None:
            return stated
        table = self._open()
        version = None if table is None else table.transaction_version(APPLICATION)
        return NEVER if version is None else int(version)

    def files(self) -> dict[str, DeltaFile]:
        """Returns the files of the table, by their paths in the export; ExportError if rows cannot be removed."""
        if self._open().metadata().configuration.get("delta.appendOnly") == "true":
            raise ExportError("the table's property delta.appendOnly forbids removing rows; change it", self._root)
        table = delta_files(self._target, Table.MESSAGES)
        if table.partial:
            raise _rows_deleted(f"{self._root}/{min(table.partial)}")
        return {f"{Table.MESSAGES}/{path}": file for path, file in table.files.items()}

    def apply(self, manifest: Manifest, files: list[FileEntry], undone: Mapping[str, DeltaFile]) -> None:
        """Adds files, and removes others, in one version of the table; a copy has the partition of its original."""
        deltalake, transaction = import_module("deltalake"), import_module("deltalake.transaction")
        by = _partition_columns(manifest)
        table = self._open()
        if files:
            schema = deltalake.Schema.from_arrow(_with_partitions(self._target, files, by))
            table = table or deltalake.DeltaTable.create(
                self._url, schema=schema, partition_by=by, storage_options=self._options, configuration=_PROPERTIES
            )
            known = {field.name for field in table.schema().fields}
            if added := [field for field in schema.fields if field.name not in known]:
                table.alter.add_columns(added)
        now = int(time.time() * 1000)
        actions = [
            transaction.RemoveAction(_name(path), True, now, file.size, file.partition) for path, file in undone.items()
        ]
        for entry, footer in _footers(self._target, [entry for entry in files if entry.rows]):
            partition = undone[entry.copy_of].partition if entry.copy_of in undone else entry.partition
            statistics = self._statistics(footer, partition)
            actions.append(transaction.AddAction(_name(entry.path), entry.size, partition, 0, True, statistics))
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(APPLICATION, manifest.state.sequence)]
        )
        table.create_write_transaction(
            actions, mode="append", schema=table.schema(), partition_by=by or None, commit_properties=properties
        )

    def _statistics(self, footer: Any, partition: Mapping[str, str | None]) -> str:
        """Returns the statistics of a file in the form of PROTOCOL.md, so that readers can skip it.

        Columns inside of others have none, and neither have those that are partition columns of the table.
        """
        bounds: dict[str, tuple[Any, Any]] = {}
        nulls: dict[str, int] = {}
        for at in range(footer.num_columns):
            name = footer.schema.column(at).path
            parts = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
            if "." in name or name in partition or any(part is None for part in parts):
                continue
            nulls[name] = sum(part.null_count for part in parts)
            valued = [part for part in parts if part.num_values]
            if valued and all(part.has_min_max and not isinstance(part.min, bool | bytes) for part in valued):
                bounds[name] = min(part.min for part in valued), max(part.max for part in valued)
        statistics = {"numRecords": footer.num_rows, "nullCount": nulls}
        for kind, side in (("minValues", 0), ("maxValues", 1)):
            statistics[kind] = {name: _json_value(values[side]) for name, values in bounds.items()}
        return json.dumps(statistics)

    def close(self) -> None:
        """Does nothing, because nothing is open."""


class _Iceberg:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._root = _root(target)
        self._catalog = _catalogue(target)

    def sequence(self) -> int:
        table = self.table()
        if table is None:
            return NEVER
        if table.sequence == NEVER and not table.is_empty:
            raise UsageError(
                f"{self._root}: mqtool cannot know which commits of the export the Iceberg table has: no snapshot "
                f"states it any more. Set its property {SEQUENCE!r} to the number of the last one, N of "
                f"_mqtool/commit-N.json, or 0 for none"
            )
        return table.sequence

    def table(self) -> IcebergTable | None:
        """Returns what the catalogue states about the table; None if there is none.

        Raises UsageError if the table belongs to another export, or its metadata cannot be read.
        """
        try:
            table = self._catalog.load_table(ICEBERG_NAME) if self._catalog.table_exists(ICEBERG_NAME) else None
        except FileNotFoundError as error:
            raise UsageError(
                f"{self._root}: the metadata of the Iceberg table cannot be read: {_one_line(error)}. An export with "
                f"an Iceberg table cannot be moved: move it back, or export into a new directory"
            ) from error
        except Exception as error:  # whatever the client of a catalogue raises
            raise _unusable(error) from error
        if table is None:
            return None
        location = table.location()
        if _real(location) != f"{self._root}/{Table.MESSAGES}":
            raise UsageError(
                f"{self._root}: the Iceberg table {'.'.join(ICEBERG_NAME)} of the catalogue has the files of another "
                f"directory, {location}; use one catalogue for each export, and do not move an export"
            )
        return IcebergTable.of(json.loads(table.metadata.model_dump_json()))

    def files(self) -> dict[str, Any]:
        """Returns the data files of the table, by their paths in the export.

        Raises ExportError if another program has deleted single rows.
        """
        tasks = list(self._catalog.load_table(ICEBERG_NAME).scan().plan_files())
        if partial := [task.file.file_path for task in tasks if task.delete_files]:
            raise _rows_deleted(min(partial))
        paths = (_real(task.file.file_path).removeprefix(f"{self._root}/") for task in tasks)
        return {path: task.file for path, task in zip(paths, tasks, strict=True)}

    def apply(self, manifest: Manifest, files: list[FileEntry], undone: Mapping[str, Any]) -> None:
        """Adds files, and deletes others, in one change of the table; see `_Delta.apply`."""
        properties = import_module("pyiceberg.table").TableProperties
        by = _partition_columns(manifest)
        if self._catalog.table_exists(ICEBERG_NAME):
            table = self._catalog.load_table(ICEBERG_NAME)
        else:
            self._catalog.create_namespace_if_not_exists(ICEBERG_NAME[0])
            schema = _with_partitions(self._target, files, by)
            location = _url(f"{self._root}/{Table.MESSAGES}")
            table = self._catalog.create_table(ICEBERG_NAME, schema=schema, location=location)
        if isinstance(self._target, RemoteTarget):
            # in this copy only: a retry would add files that another run has added in the meantime, a second time
            table.metadata.properties[properties.COMMIT_NUM_RETRIES] = "0"
        filled = [entry for entry in files if entry.rows]
        sequence = {SEQUENCE: str(manifest.state.sequence)}
        with table.transaction() as transaction:
            if files:
                with transaction.update_schema() as update:
                    update.union_by_name(_with_partitions(self._target, files, [] if table.metadata.snapshots else by))
                self._arrange(transaction, by)
            transaction.set_properties(sequence)  # snapshots expire
            if not filled and not undone:
                return
            if transaction.table_metadata.name_mapping() is None:  # the files do not have Iceberg's field ids
                mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
                transaction.set_properties({properties.DEFAULT_NAME_MAPPING: mapping})
            change = transaction.update_snapshot(snapshot_properties=sequence)
            with change.overwrite() if undone else change.fast_append() as snapshot:
                for data_file in undone.values():
                    snapshot.delete_data_file(data_file)
                for entry, footer in _footers(self._target, filled):
                    copied = undone.get(entry.copy_of)
                    snapshot.append_data_file(self._data_file(transaction.table_metadata, entry, footer, copied))

    def _arrange(self, transaction: Any, partition_by: list[str]) -> None:
        """Declares partitions and order of the rows of a table without a snapshot; tables keep what they have."""
        metadata = transaction.table_metadata
        if metadata.snapshots or metadata.spec().fields or metadata.sort_order().fields:
            return
        if partition_by:
            with transaction.update_spec() as spec:
                for name in partition_by:
                    spec.add_identity(name)
        if set(SORTED) <= set(metadata.schema().column_names):
            transforms, sorting = import_module("pyiceberg.transforms"), import_module("pyiceberg.table.sorting")
            with transaction.update_sort_order() as order:
                for name in SORTED:
                    order.asc(name, transforms.IdentityTransform(), sorting.NullOrder.NULLS_LAST)

    def _data_file(self, metadata: Any, entry: FileEntry, footer: Any, copied: Any) -> Any:
        """Returns a file as Iceberg describes it.

        Partition values come from the export, or from the file of the table of which it is a copy, not from columns.
        """
        manifests, arrow = import_module("pyiceberg.manifest"), import_module("pyiceberg.io.pyarrow")
        schema, spec = metadata.schema(), metadata.spec()
        statistics = arrow.data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=arrow.compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=arrow.parquet_path_to_id_mapping(schema),
        )
        values = [stored_value(field.name, entry.partition.get(field.name)) for field in spec.fields]
        record = import_module("pyiceberg.typedef").Record(*values)
        return manifests.DataFile.from_args(
            content=manifests.DataFileContent.DATA,
            file_path=_url(f"{self._root}/{entry.path}"),
            file_format=manifests.FileFormat.PARQUET,
            partition=record if copied is None else copied.partition,
            file_size_in_bytes=entry.size,
            sort_order_id=metadata.default_sort_order_id if copied is None else copied.sort_order_id,
            spec_id=spec.spec_id if copied is None else copied.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def close(self) -> None:
        self._catalog.close()


def _catalogue(target: Target) -> Any:
    """Returns the catalogue `mqtool` of pyiceberg's configuration; if there is none, one in a file in a local target.

    Raises UsageError if the catalogue cannot be reached or read, or its configuration is missing or incomplete.
    """
    configured, root = _configured(), _root(target)
    if isinstance(target, RemoteTarget):
        if not configured:
            raise UsageError(
                f"{root}: an Iceberg table in object storage needs a catalogue; configure {CATALOGUE!r} for pyiceberg "
                "(PYICEBERG_CATALOG__MQTOOL__TYPE, PYICEBERG_CATALOG__MQTOOL__URI, or .pyiceberg.yaml)"
            )
        configured = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", **configured}  # the driver that wrote the files
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
    return " ".join(re.sub(r"\x1b\[\d+m|↳", "", str(error)).split()) or type(error).__name__


def _configured() -> Any:
    """Returns the catalogue `mqtool` in pyiceberg's configuration, as a mapping; empty or None if there is none."""
    return import_module("pyiceberg.utils.config").Config().get_catalog_config(CATALOGUE)


def _partition_columns(manifest: Manifest) -> list[str]:
    return list(manifest.state.shape["partition-by"])


def _footers(target: Target, entries: list[FileEntry]) -> Iterator[tuple[FileEntry, Any]]:
    """Yields files with their `pq.FileMetaData`, which is at their end."""
    for start in range(0, len(entries), _FOOTERS):
        part = entries[start : start + _FOOTERS]
        for entry, data in zip(part, target.ends({entry.path: entry.size for entry in part}, _FOOTER), strict=True):
            size = int.from_bytes(data[-8:-4], "little") + 8
            (end,) = [data] if size <= len(data) else target.ends({entry.path: entry.size}, size)
            yield entry, pq.read_metadata(pa.BufferReader(end))


def _with_partitions(target: Target, entries: list[FileEntry], partition_by: list[str]) -> Any:
    """Returns the schema of the files, plus partition columns that exist only as directories."""
    ((_, footer),) = _footers(target, entries[:1])
    schema = footer.schema.to_arrow_schema()
    for name in partition_by:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.date32() if name == "date" else pa.string()))
    return schema


def _name(path: str) -> str:
    """Returns the path of a file in the table, from that in the export."""
    return path.removeprefix(f"{Table.MESSAGES}/")


def _json_value(value: Any) -> Any:
    """Returns a minimum or maximum as Delta writes it: times in milliseconds, which is what the files have."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value


def _rows_deleted(file: str) -> ExportError:
    return ExportError(f"rows of this file have been deleted in the table: {CHANGED}; {ELSEWHERE}", file)


def _root(target: Target) -> str:
    """Returns the place of an export as the table's log states it: a path without symbolic links, or the URL."""
    return _real(target.url)


def _real(url: str) -> str:
    """Returns the same place for all forms of a path or URL that engines write."""
    url = re.sub("^file:/+", "/", url.rstrip("/"))
    return re.sub("^s3[an]:", "s3:", url) if is_url(url) else str(real_path(Path(url)))


def _url(place: str) -> str:
    """Returns a URL as pyiceberg expects it: without escaping."""
    return place if is_url(place) else f"file://{place}"
