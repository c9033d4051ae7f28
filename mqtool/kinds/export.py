"""A table of any kind of store as Arrow record batches, or as one Parquet file."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.errors import ExportError
from mqtool.kinds.base import Damage, Opened, Row, Table

BATCH_ROWS = 8192

_TYPES = {
    "int32": pa.int32(), "int64": pa.int64(), "boolean": pa.bool_(), "string": pa.string(), "bytes": pa.binary(),
    "time": pa.timestamp("ms"),
}  # fmt: skip


def arrow_schema(table: Table) -> "pa.Schema":
    """Returns the Arrow schema of a table; times have no zone, as EQueue stores local ones."""
    return pa.schema([pa.field(c.name, _TYPES[c.type], metadata={"doc": c.doc}) for c in table.columns])


def batches(
    opened: Opened, table: str | None = None, at_damage: Callable[[Damage], None] = lambda _: None,
) -> "Iterator[pa.RecordBatch]":  # fmt: skip
    """Yields a table's rows as record batches.

    Args:
        opened: the store.
        table: by name; by default its first.
        at_damage: told of damage between the rows.
    """
    chosen = opened.table(table)
    schema = arrow_schema(chosen)
    rows = _sound(opened, chosen, at_damage)
    while taken := list(islice(rows, BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(taken, schema=schema)


def write(rows: Iterator[Row], table: Table, target: Path) -> int:
    """Writes rows of a table as one Parquet file and returns their number.

    Raises:
        ExportError: the file is already there.
    """
    if target.exists():
        raise ExportError("is already there", target)
    schema, count = arrow_schema(table), 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        while taken := list(islice(rows, BATCH_ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(taken, schema=schema))
            count += len(taken)
    return count


def export(
    opened: Opened, target: Path, table: str | None = None, at_damage: Callable[[Damage], None] = lambda _: None,
) -> int:  # fmt: skip
    """Writes a table as one Parquet file and returns the number of rows.

    Raises:
        ExportError: the file is already there.
    """
    chosen = opened.table(table)
    return write(_sound(opened, chosen, at_damage), chosen, target)


def _sound(opened: Opened, table: Table, at_damage: Callable[[Damage], None]) -> Iterator[Row]:
    for item in opened.rows(table.name):
        if isinstance(item, Damage):
            at_damage(item)
        else:
            yield item
