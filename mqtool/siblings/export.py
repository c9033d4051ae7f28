"""Writes a table of any kind of store as Arrow record batches or as one Parquet file."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.errors import ExportError
from mqtool.jobs.atomic import replacing
from mqtool.records.damage import Damage
from mqtool.siblings.arrow import arrow_schema
from mqtool.siblings.base import OpenedStore
from mqtool.siblings.tables import Row, Table

__all__ = ["arrow_schema", "batches", "export", "export_part", "write"]

BATCH_ROWS = 8192


def batches(
    opened: OpenedStore,
    table: str | None = None,
    at_damage: Callable[[Damage], None] = lambda _: None,
    *,
    part: str = "",
) -> "Iterator[pa.RecordBatch]":
    """Yields a table's rows as record batches.

    Args:
        opened: the store.
        table: name of the table; by default the first table.
        at_damage: called with each damage between the rows.
        part: one of the table's parts; "" for all.
    """
    chosen = opened.table(table)
    columnar = opened.batches(chosen.name, part)
    if columnar is None:
        yield from _batches_of(_valid(opened, chosen, at_damage), chosen)
        return
    for item in columnar:
        if isinstance(item, Damage):
            at_damage(item)
        else:
            yield item


def _batches_of(rows: Iterator[Row], table: Table) -> "Iterator[pa.RecordBatch]":
    schema = arrow_schema(table)
    while taken := list(islice(rows, BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(taken, schema=schema)


def write(rows: Iterator[Row], table: Table, target: Path) -> int:
    """Writes rows of a table as one Parquet file; returns the number of rows.

    Raises:
        ExportError: the file exists already.
    """
    return _write(_batches_of(rows, table), table, target)


def _write(batches: "Iterator[pa.RecordBatch]", table: Table, target: Path) -> int:
    """Writes a file that gets its name when it is complete; the writer ends a file properly after an error, too."""
    if target.exists():
        raise ExportError("is already there", target)
    count = 0
    with replacing(target) as file, pq.ParquetWriter(file, arrow_schema(table), compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def export(
    opened: OpenedStore,
    target: Path,
    table: str | None = None,
    at_damage: Callable[[Damage], None] = lambda _: None,
) -> int:
    """Writes a table as one Parquet file; returns the number of rows.

    Raises:
        ExportError: the file exists already.
    """
    return export_part(opened, target, table, at_damage)


def export_part(
    opened: OpenedStore,
    target: Path,
    table: str | None = None,
    at_damage: Callable[[Damage], None] = lambda _: None,
    *,
    part: str = "",
) -> int:
    """Writes one part of a table as one Parquet file; returns the number of rows.

    Raises:
        ExportError: the file exists already.
    """
    return _write(batches(opened, table, at_damage, part=part), opened.table(table), target)


def _valid(opened: OpenedStore, table: Table, at_damage: Callable[[Damage], None]) -> Iterator[Row]:
    for item in opened.rows(table.name):
        if isinstance(item, Damage):
            at_damage(item)
        else:
            yield item
