"""Tables of any kind of store as Arrow record batches, or as one Parquet file.

Arrow arrays are built from fields of many records at once: byte ranges, strings, times, GUIDs.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mqtool.errors import ExportError
from mqtool.jobs.atomic import replacing
from mqtool.records.columns import binary_view
from mqtool.records.damage import Damage
from mqtool.siblings import Row, Table
from mqtool.siblings.base import OpenedStore

TYPES: Mapping[str, Any] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "time": pa.timestamp("ms"),
}

_EPOCH_TICKS, _TICKS_PER_MS = 621_355_968_000_000_000, 10_000
_GUID_ORDER = np.array([3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_GUID_PLACES = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])

BATCH_ROWS = 8192


def arrow_schema(table: Table) -> Any:
    """Returns the Arrow schema of a table. Times have no time zone, since EQueue stores local times."""
    return pa.schema([pa.field(c.name, TYPES[c.type], metadata={"doc": c.doc}) for c in table.columns])


def record_batch(table: Table, columns: Mapping[str, Any]) -> Any:
    """Returns a record batch of a table from its columns, which are numpy or Arrow arrays by name."""
    schema = arrow_schema(table)
    arrays = [
        column if isinstance(column := columns[field.name], pa.Array) else pa.array(column, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def raw(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Any:
    """Returns ranges of a buffer as a binary array."""
    return binary_view(data, starts, lengths).cast(pa.binary())


def texts(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Any:
    """Returns ranges of a buffer as a string array; invalid UTF-8 becomes replacement characters, as in .NET."""
    try:
        return raw(data, starts, lengths).cast(pa.string())
    except pa.ArrowInvalid:
        values = raw(data, starts, lengths).to_pylist()
        return pa.array([None if value is None else value.decode("utf-8", "replace") for value in values], pa.string())


def times(ticks: np.ndarray) -> Any:
    """Converts .NET ticks to a timestamp array."""
    return pa.array((ticks - _EPOCH_TICKS) // _TICKS_PER_MS, pa.timestamp("ms"))


def nullable(values: np.ndarray, mask: np.ndarray, kind: str) -> Any:
    """Returns numbers as an array of a column's type; values that are not `mask` are null."""
    return pa.array(values, TYPES[kind], mask=~mask)


def guids(data: np.ndarray, starts: np.ndarray, mask: np.ndarray) -> Any:
    """Returns GUIDs, 16 mixed-endian bytes each, as strings in .NET's format; values that are not `mask` are null."""
    values = data[starts[:, None] + _GUID_ORDER]
    shown = np.full((len(starts), 36), ord("-"), np.uint8)
    shown[:, _GUID_PLACES[0::2]] = _DIGITS[values >> 4]
    shown[:, _GUID_PLACES[1::2]] = _DIGITS[values & 15]
    offsets = np.arange(len(starts) + 1, dtype=np.int32) * 36
    validity = None if mask.all() else pa.array(mask).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(shown))]
    return pa.Array.from_buffers(pa.string(), len(starts), buffers)


def batches(
    opened: OpenedStore,
    table: str | None = None,
    at_damage: Callable[[Damage], None] = lambda _: None,
    *,
    part: str = "",
) -> "Iterator[pa.RecordBatch]":
    """Yields rows of a table, by default the first one, or of one of its parts, as record batches.

    `at_damage` is called with each damage between the rows.
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
    """Writes rows of a table as one Parquet file; returns the number of rows, raises ExportError if it exists."""
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
    opened: OpenedStore, target: Path, table: str | None = None, at_damage: Callable[[Damage], None] = lambda _: None
) -> int:
    """Writes a table as one Parquet file; returns the number of rows, raises ExportError if it exists."""
    return export_part(opened, target, table, at_damage)


def export_part(
    opened: OpenedStore,
    target: Path,
    table: str | None = None,
    at_damage: Callable[[Damage], None] = lambda _: None,
    *,
    part: str = "",
) -> int:
    """Writes one part of a table as a Parquet file; returns the number of rows, raises ExportError if it exists."""
    return _write(batches(opened, table, at_damage, part=part), opened.table(table), target)


def _valid(opened: OpenedStore, table: Table, at_damage: Callable[[Damage], None]) -> Iterator[Row]:
    for item in opened.rows(table.name):
        if isinstance(item, Damage):
            at_damage(item)
        else:
            yield item
