"""Stores of other systems on Spark: one task for each part of a table that can be read independently.

Times in these stores have no zone, so they are TIMESTAMP_NTZ.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType, TimestampNTZType

from mqtool.errors import UsageError
from mqtool.records.damage import Damage
from mqtool.siblings import Table
from mqtool.siblings.arrow import arrow_schema, batches, export_part
from mqtool.siblings.registry import Kind, recognise
from mqtool.spark.job import SparkJob, SparkJobError
from mqtool.spark.reading import spark_type
from mqtool.store.remote import is_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)
GROUP = "mqtool-export"
KNOWN = ("path", "paths", "store", "table", "columns")
_MICROSECONDS = pa.timestamp("us")


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads: a part of a table of a store."""

    root: str = ""
    table: str = ""
    name: str = ""


class KindSource:
    """The request of a `load()` of another system's store: some columns of one of its tables, in order."""

    def __init__(self, root: str, kind: Kind, options: Mapping[str, str]) -> None:
        """Parses the options, whose names are in lower case.

        Raises UsageError for an option that such a store does not support, and for an unknown table or column.
        """
        unknown = [name for name in options if name not in KNOWN]
        if unknown:
            raise UsageError(
                f"option {unknown[0]!r} does not apply to a store of kind {kind.name}; known: {', '.join(KNOWN)}"
            )
        self.root = root
        self.table = _chosen(kind.tables, options.get("table", kind.tables[0].name))
        names = [column.name for column in self.table.columns]
        columns = [name.strip() for name in options.get("columns", "").split(",") if name.strip()] or names
        for name in columns:
            if name not in names:
                raise UsageError(f"unknown column {name!r}; known: {', '.join(names)}")
        self.columns = tuple(columns)

    def schema(self) -> StructType:
        """Returns the Spark schema, with docs as comments."""
        known = arrow_schema(self.table)
        return StructType([_field(known.field(name)) for name in self.columns])


class KindReader(DataSourceReader):
    """Reads one table of a store once."""

    def __init__(self, source: KindSource, names: list[str]) -> None:
        """Opens nothing, because the reader is copied to every task."""
        self._source = source
        self._names = names

    def partitions(self) -> list[Part]:
        """Returns the tasks."""
        return parts_of(self._source.root, self._source.table)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yields the Arrow batches of a part; damage is logged."""
        if not isinstance(partition, Part):
            return
        with _kind_of(partition.root).open(Path(partition.root)) as opened:
            for batch in batches(opened, partition.table, _warn, part=partition.name):
                arrays = [batch[name] for name in self._names]
                cast = [
                    column.cast(_MICROSECONDS) if pa.types.is_timestamp(column.type) else column for column in arrays
                ]
                yield pa.RecordBatch.from_arrays(cast, names=self._names)


def source_of(options: Mapping[str, str]) -> KindSource | None:
    """Returns the request if the path is a store of another system; None if it is not."""
    given = {name.lower(): str(value) for name, value in dict(options).items()}
    root = given.get("path", given.get("store", ""))
    if not root or is_url(root):
        return None
    kind = recognise(Path(root))
    return None if kind is None else KindSource(root, kind, given)


def parts_of(root: str, table: Table) -> list[Part]:
    """Returns the parts of a table of a store."""
    with _kind_of(root).open(Path(root)) as opened:
        return [Part(root, table.name, name) for name in opened.parts(table.name)]


class WriteResult(Struct, frozen=True):
    """A part that was written: number of rows, and its damage as text."""

    rows: int
    damage: tuple[str, ...]


def export_table(session: "SparkSession", root: str, table: Table, target: Path) -> list[WriteResult]:
    """Writes a table as a new directory of Parquet files, one per part, on executors of a classic session.

    Store and target must be reachable by every executor under the same names. Raises SparkJobError if Spark gave up, or
    an executor wrote into a directory of its own.
    """
    target.mkdir(parents=True)
    writer = _Writer(target)
    job: SparkJob[tuple[int, Part], WriteResult] = SparkJob(session, GROUP, writer, lambda _: 1)
    results = job.run(list(enumerate(parts_of(root, table))), f"export {table.name}")
    for number in range(len(results)):
        if not writer.file(number).exists():
            raise SparkJobError(
                f"{writer.file(number)}: an executor wrote this file, but it is not here; all executors must reach the "
                "target under this path, on one file system"
            )
    return results


class _Writer(Struct, frozen=True):
    """Writes parts on an executor."""

    target: Path

    def file(self, number: int) -> Path:
        """Returns the path of a part's file."""
        return self.target / f"part-{number:05}.parquet"

    def __call__(self, items: Iterable[tuple[int, Part]]) -> Iterator[WriteResult]:
        for number, part in items:
            file = self.file(number)
            file.unlink(missing_ok=True)  # of an attempt that failed
            damage: list[Damage] = []
            with _kind_of(part.root).open(Path(part.root)) as opened:
                rows = export_part(opened, file, part.table, damage.append, part=part.name)
            yield WriteResult(rows, tuple(map(str, damage)))


def _chosen(tables: tuple[Table, ...], name: str) -> Table:
    for table in tables:
        if table.name == name:
            return table
    raise UsageError(f"option 'table': expected {' or '.join(table.name for table in tables)}, found {name!r}")


def _kind_of(root: str) -> Kind:
    kind = recognise(Path(root))
    if kind is None:
        raise UsageError(f"{root}: is no longer a store of a known kind")
    return kind


def _field(field: Any) -> StructField:
    plain = TimestampNTZType() if pa.types.is_timestamp(field.type) else spark_type(field.type)
    return StructField(field.name, plain, True, {"comment": field.metadata[b"doc"].decode()})


def _warn(damage: Damage) -> None:
    LOG.warning("skipped damage %s", damage)
