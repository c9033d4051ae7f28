"""Keeps bodies in the buffers into which they were read until they are written: Arrow views into the log's bytes.

The body is by far the largest part of a record. A view of 16 bytes is sorted without moving the body, which is
copied only when the file is encoded. Arrow has no `take` for views yet, so they are taken as opaque 16-byte values.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as arrow_types

WRITABLE = int(pa.__version__.split(".")[0]) >= 22
"""Whether the Parquet writer of this Arrow release supports views (19 does not)."""

_DENSE = 2
"""Views are worth their keep where they use at least one part in so many of the bytes that they keep in memory."""


def is_dense(used: int, kept: int) -> bool:
    """Whether views of `used` bytes in total justify keeping a buffer of `kept` bytes in memory."""
    return used * _DENSE >= kept


def take(batch: Any, order: Any) -> Any:
    """Returns the rows of a batch in another order.

    Args:
        batch: `pa.RecordBatch`.
        order: Arrow array of row numbers.
    """
    columns = [_taken(column, order) if _is_view(column) else column.take(order) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _taken(column: Any, order: Any) -> Any:
    """Returns views without nulls in another order; they refer to the same buffers."""
    _, stored, *buffers = column.buffers()
    views = np.frombuffer(stored, "V16")[column.offset : column.offset + len(column)]
    chosen = views.take(np.asarray(order))
    return pa.Array.from_buffers(column.type, len(chosen), [None, pa.py_buffer(chosen), *buffers])


def concatenate(batches: list[Any]) -> Any:
    """Returns batches as one batch; its bodies are views only if they are in all of the batches."""
    if len({batch.schema for batch in batches}) > 1:
        batches = [compact(batch) for batch in batches]
    return pa.concat_batches(batches)


def compact(batch: Any) -> Any:
    """Returns a batch with bodies copied out of the read buffers, as binary."""
    for index, column in enumerate(batch.columns):
        if _is_view(column):
            field = batch.schema.field(index).with_type(pa.binary())
            batch = batch.set_column(index, field, column.cast(pa.binary()))
    return batch


def writable(batch: Any) -> Any:
    """Returns a batch with the types of `writable_schema`."""
    if not WRITABLE:
        return compact(batch)
    for index, column in enumerate(batch.columns):
        if column.type == pa.binary():
            field = batch.schema.field(index).with_type(pa.binary_view())
            batch = batch.set_column(index, field, column.cast(pa.binary_view()))
    return batch


def writable_schema(schema: Any) -> Any:
    """Returns a schema with the types in which binary columns are passed to the Parquet writer."""
    fields = [field.with_type(pa.binary_view()) if field.type == pa.binary() else field for field in schema]
    return pa.schema(fields, schema.metadata) if WRITABLE else schema


def size_of(batch: Any) -> int:
    """Returns the bytes of a batch; views count with the bytes they show, not with the buffers they keep."""
    return sum(_shown(column) if _is_view(column) else column.nbytes for column in batch.columns)


def _shown(column: Any) -> int:
    words = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
    lengths = words[column.offset : column.offset + len(column), 0]
    return int(lengths.sum(dtype=np.int64)) + 16 * len(column)


def _is_view(column: Any) -> bool:
    return bool(arrow_types.is_binary_view(column.type))
