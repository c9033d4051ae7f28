"""Builds Arrow arrays from fields of many records: byte ranges, strings, times, GUIDs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.records.arrow import binary_view
from mqtool.siblings.tables import Table

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
