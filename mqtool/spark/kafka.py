"""Columns with the names and types of Spark's Kafka source, so that a job for Kafka reads a store."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from mqtool.export.schema import Body, messages_schema

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


class KafkaColumn(Struct, frozen=True):
    """A column that is made from a column of an export."""

    source: str  # name of that column
    type: Any = None  # Arrow type; None for that of the source
    docs: str = ""  # "" for those of the source
    convert: Callable[[Any], Any] = lambda values: values  # from an array of the source; null from null


def _binary(values: Any) -> Any:
    return values.cast(pa.binary())


def _key(keys: Any) -> Any:
    joined = _binary(pc.binary_join(keys, " "))
    return pc.if_else(pc.greater(pc.list_value_length(keys), 0), joined, pa.scalar(None, pa.binary()))


def _headers(properties: Any) -> Any:
    entries = pa.StructArray.from_arrays([properties.keys, _binary(properties.items)], fields=list(_HEADER))
    return pa.ListArray.from_arrays(properties.offsets, entries, mask=properties.is_null())


KAFKA = {
    "key": KafkaColumn("keys", pa.binary(), "words of KEYS; null without", _key),
    "value": KafkaColumn("body", pa.binary(), convert=_binary),
    "partition": KafkaColumn("queue_id"),
    "offset": KafkaColumn("queue_offset"),
    "timestamp": KafkaColumn("store_timestamp"),
    "timestampType": KafkaColumn(
        "queue_id",
        docs="1: the time at which the log took the message",
        convert=lambda ids: pc.if_else(ids.is_valid(), pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32())),
    ),
    "headers": KafkaColumn("properties", pa.list_(_HEADER), convert=_headers),
}
"""By name. The topic is as in an export."""

VIEW = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""What `columns=kafka` stands for, in Kafka's order; `headers` follows where it is asked for."""


def source_of_column(name: str) -> str:
    """Returns the column of an export that a column is made from; most are one themselves."""
    return KAFKA[name].source if name in KAFKA else name


def schema_of_columns(names: Iterable[str], body: Body) -> Any:
    """Returns the Arrow schema of columns of an export and of Kafka, with the docs as field metadata."""
    names = tuple(names)
    known = messages_schema(dict.fromkeys(map(source_of_column, names)), body)
    fields = []
    for name in names:
        field, column = known.field(source_of_column(name)), KAFKA.get(name, KafkaColumn(name))
        docs = {"docs": column.docs} if column.docs else field.metadata
        fields.append(pa.field(name, column.type or field.type, metadata=docs))
    return pa.schema(fields)


def column_of(batch: Any, name: str) -> Any:
    """Returns a column from a `pa.RecordBatch` that has it, or its source."""
    return batch[name] if name in batch.schema.names else KAFKA[name].convert(batch[KAFKA[name].source])
