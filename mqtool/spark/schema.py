"""The tables of an export as Spark sees them: its types, and the requirements of its Arrow reader.

Spark accepts Arrow batches only with exactly its own names, order, types and nullability: timestamps in
microseconds, everything nullable.
"""

from typing import Any

import pyarrow as pa
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

from mqtool.errors import UsageError
from mqtool.export.schema import DAMAGE_SCHEMA, REJECTED_VALUE_SCHEMA, ReadRequest, Table, messages_schema
from mqtool.export.views import compact

MICROSECONDS = pa.timestamp("us", "UTC")


def spark_type(arrow_type: Any) -> DataType:
    """Returns the Spark type of an Arrow type that an export uses."""
    if arrow_types.is_map(arrow_type):
        return MapType(spark_type(arrow_type.key_type), spark_type(arrow_type.item_type))
    if arrow_types.is_list(arrow_type):
        return ArrayType(spark_type(arrow_type.value_type))
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
    """Returns the Spark schema of an Arrow schema, with docs as comments.

    Args:
        arrow_schema: of a table.
        damage_column: name of a string column to add at the end.
    """
    fields = [
        StructField(field.name, spark_type(field.type), True, {"comment": field.metadata[b"docs"].decode()})
        for field in arrow_schema
    ]
    if damage_column is not None:
        comment = {"comment": "a damaged range of the log as JSON; all other columns but two are null"}
        fields.append(StructField(damage_column, StringType(), True, comment))
    return StructType(fields)


def table_schema(table: Table, request: ReadRequest, damage_column: str | None) -> StructType:
    """Returns the schema of one of the three tables."""
    if table is Table.MESSAGES:
        return spark_schema(messages_schema(request.columns, request.body), damage_column)
    return spark_schema(DAMAGE_SCHEMA if table is Table.DAMAGE else REJECTED_VALUE_SCHEMA)


def require_subset(requested: StructType, available: StructType) -> None:
    """Checks a schema that the user specified.

    Raises:
        UsageError: it has other columns, or other types.
    """
    types = {field.name: field.dataType for field in available}
    for field in requested:
        if field.name not in types:
            raise UsageError(f"unknown column {field.name!r}; known: {', '.join(types)}")
        if field.dataType != types[field.name]:
            expected, requested_type = types[field.name].simpleString(), field.dataType.simpleString()
            raise UsageError(f"column {field.name!r} is {expected}, not {requested_type}; cast it after reading")


def for_spark(batch: Any, names: list[str], missing: dict[str, Any] | None = None) -> Any:
    """Returns a batch with the columns that Spark requests, in its order and types.

    Args:
        batch: `pa.RecordBatch`.
        names: columns.
        missing: types of columns that the batch does not have; they become null.
    """
    arrays = []
    batch = compact(batch)
    for name in names:
        if missing and name in missing:
            arrays.append(pa.nulls(batch.num_rows, missing[name]))
            continue
        values = batch[name]
        arrays.append(values.cast(MICROSECONDS) if arrow_types.is_timestamp(values.type) else values)
    return pa.RecordBatch.from_arrays(arrays, names=names)
