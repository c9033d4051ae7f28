"""One task of the data source: reads a partition into Arrow batches of a table. Runs on executors.

Spark accepts Arrow batches only with exactly its own names, order, types and nullability: timestamps in
microseconds, everything nullable.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyarrow import types as arrow_types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mqtool.errors import ExportError, UsageError
from mqtool.export.rows import Rows, compact, rows_of
from mqtool.export.schema import BY_NAME, DAMAGE_SCHEMA, REJECTED_VALUE_SCHEMA, Table
from mqtool.export.sources import Source
from mqtool.export.task import check_tolerated, damage_batch, pieces, read_partition
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.scan.reading import Reading, possible
from mqtool.spark.kafka import column_of, schema_of_columns, source_of_column
from mqtool.spark.offsets import both
from mqtool.spark.options import SourceOptions, narrowed
from mqtool.spark.splits import Split

MICROSECONDS = pa.timestamp("us", "UTC")

LOG = logging.getLogger(__name__)


def spark_type(arrow_type: Any) -> DataType:
    """Returns the Spark type of an Arrow type that an export uses."""
    if arrow_types.is_map(arrow_type):
        return MapType(spark_type(arrow_type.key_type), spark_type(arrow_type.item_type))
    if arrow_types.is_list(arrow_type):
        return ArrayType(spark_type(arrow_type.value_type))
    if arrow_types.is_struct(arrow_type):
        return StructType([StructField(field.name, spark_type(field.type)) for field in arrow_type])
    if arrow_types.is_timestamp(arrow_type):
        return TimestampType()
    plain = {
        pa.int32(): IntegerType(),
        pa.int64(): LongType(),
        pa.string(): StringType(),
        pa.binary(): BinaryType(),
        pa.bool_(): BooleanType(),
    }
    return plain[arrow_type]


def spark_schema(arrow_schema: Any, damage_column: str | None = None) -> StructType:
    """Returns the Spark schema of an Arrow schema, with docs as comments, and with a string column for damage."""
    fields = [
        StructField(field.name, spark_type(field.type), True, {"comment": field.metadata[b"docs"].decode()})
        for field in arrow_schema
    ]
    if damage_column is not None:
        comment = {"comment": "a damaged range of the log as JSON; all other columns but two are null"}
        fields.append(StructField(damage_column, StringType(), True, comment))
    return StructType(fields)


def table_schema(options: SourceOptions) -> StructType:
    """Returns the schema of one of the three tables."""
    if options.table is Table.MESSAGES:
        return spark_schema(schema_of_columns(options.columns, options.read.body), options.damage_column)
    return spark_schema(DAMAGE_SCHEMA if options.table is Table.DAMAGE else REJECTED_VALUE_SCHEMA)


def require_subset(requested: StructType, available: StructType) -> None:
    """Checks a schema that the user specified; raises UsageError if it has other columns, or other types."""
    types = {field.name: field.dataType for field in available}
    for field in requested:
        if field.name not in types:
            raise UsageError(f"unknown column {field.name!r}; known: {', '.join(types)}")
        if field.dataType != types[field.name]:
            expected, requested_type = types[field.name].simpleString(), field.dataType.simpleString()
            raise UsageError(f"column {field.name!r} is {expected}, not {requested_type}; cast it after reading")


def for_spark(batch: Any, names: list[str], more: dict[str, Any] | None = None) -> Any:
    """Returns a `pa.RecordBatch` with the columns that Spark requests, in its order and types; `more` are arrays."""
    arrays = []
    batch = compact(batch)
    for name in names:
        values = more[name] if more and name in more else column_of(batch, name)
        arrays.append(values.cast(MICROSECONDS) if arrow_types.is_timestamp(values.type) else values)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def read_split(split: Split, options: SourceOptions, names: list[str], *, fail_on_loss: bool = False) -> Iterator[Any]:
    """Yields the batches of a task, with the columns that Spark requests, in order.

    `fail_on_loss` raises ExportError for a range without a file; for streams, which never read a range again. Raises
    CorruptionError for damage, in mode failfast.
    """
    shape = _Shape(replace(options, condition=both(options.condition, split.condition)), names)
    for where, damage in split.damage:
        _require_no_loss(damage, where, fail_on_loss=fail_on_loss)
        yield from shape.damage(check_tolerated(damage, options.read), where)
    source = split.source if split.partition is None else split.partition.source
    if source is None:
        return
    for item in _items(split, shape):
        if isinstance(item, Damage):
            _require_no_loss(item, source, fail_on_loss=fail_on_loss)
            yield from shape.damage(item, source)
        else:
            yield from shape.rows(item, source)


def _items(split: Split, shape: "_Shape") -> Iterator[Rows | Damage]:
    """Yields the rows of a task that may match, and damage."""
    if split.partition is not None:
        yield from read_partition(split.partition, shape.request, shape.narrow)
    if split.source is None or split.points is None:
        return
    with split.source.open() as store:
        for item in Reading(store.commit_log).read_points(split.points):
            if isinstance(item, Damage):
                yield check_tolerated(item, shape.request)
                continue
            for frames in pieces(shape.narrow(shape.request.selection.narrow(item)), shape.request):
                rows = rows_of(frames, split.source.broker, shape.request)
                if rows is not None:
                    yield rows


def _require_no_loss(damage: Damage, source: Source, *, fail_on_loss: bool) -> None:
    if fail_on_loss and damage.kind is DamageKind.MISSING:
        lost = (
            f"data loss: {damage.end - damage.start} bytes of the log from physical offset {damage.start} are missing"
        )
        raise ExportError(f"{lost} ({damage.detail}); set failOnDataLoss=false to continue without them", source.path)


class _Shape:
    """Converts rows and damage into batches of the requested table."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._where = options.where
        columns = options.read.columns
        if options.table is Table.MESSAGES:
            columns = tuple(dict.fromkeys(source_of_column(name) for name in names if name != options.damage_column))
        if self._where.test is not None:  # columns that are only tested are dropped again
            tested = BY_NAME if self._where.columns is None else self._where.columns
            columns = tuple(dict.fromkeys((*columns, *tested)))
        self.request = narrowed(options, columns or ("physical_offset",)).read

    def narrow(self, frames: Frames) -> Frames:
        """Filters out records that cannot meet the condition."""
        return possible(frames, self._where.facts)

    def rows(self, rows: Rows, source: Source) -> Iterator[Any]:
        if self._options.table is Table.MESSAGES:
            extra = self._options.damage_column
            batch = rows.batch if self._where.test is None else self._where.test(compact(rows.batch))
            if len(batch):
                yield for_spark(batch, self._names, {extra: pa.nulls(len(batch), pa.string())} if extra else None)
        elif self._options.table is Table.REJECTED_VALUES and rows.rejected_values:
            rejected = [{"broker": source.broker, **value} for value in rows.rejected_values]
            yield for_spark(pa.RecordBatch.from_pylist(rejected, REJECTED_VALUE_SCHEMA), self._names)

    def damage(self, damage: Damage, source: Source) -> Iterator[Any]:
        if self._options.table is Table.DAMAGE:
            yield for_spark(damage_batch([damage], source.broker, source.path), self._names)
            return
        LOG.warning("skipped damage broker=%s %s", source.broker, damage)
        column = self._options.damage_column
        if self._options.table is Table.MESSAGES and column is not None and column in self._names:
            yield self._marked(damage, source, column)

    def _marked(self, damage: Damage, source: Source, column: str) -> Any:
        """Returns a row that reports where messages are missing."""
        row = {"broker": source.broker, "physical_offset": damage.start}
        blank = pa.RecordBatch.from_pylist([row], self.request.schema)
        return for_spark(blank, self._names, {column: pa.array([json.dumps(damage.as_dict())])})
