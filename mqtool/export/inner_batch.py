"""Inner batches: a record that contains several messages becomes one row per message, as consumers receive them.

Source: MessageDecoder.decodeMessage (5.5.0); hosts, timestamps and physical offset are the record's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.errors import FormatError
from mqtool.export.schema import BY_NAME
from mqtool.formats import message_batch, properties
from mqtool.formats.message_batch import BatchedMessage
from mqtool.records.columns import BY_NAME as SCAN_COLUMNS
from mqtool.records.columns import PROPERTY_COLUMNS, Rows

BODY = SCAN_COLUMNS["body"]

Reject = Callable[[Any, int, str, str], None]
"""Takes the batch, the row, the column and the reason of a rejected value."""

Part = tuple[int, int | None, BatchedMessage | None]
"""Row of the record, position in its batch, and the message; None if the record is not an inner batch."""


def explode(columns: Any, rows: Rows, inner: np.ndarray, reject: Reject) -> Any:
    """Returns the columns with inner batches expanded into one row per message, in CommitLog order.

    A batch that cannot be parsed stays one row with its body as stored, and is reported as a rejected value.

    Args:
        columns: a row for each record.
        rows: the records.
        inner: which records are inner batches.
        reject: called with rejected values.
    """
    bodies = columns["body"] if "body" in columns.schema.names else BODY.build(rows)
    parts: list[Part] = []
    for index, packed in enumerate(inner.tolist()):
        messages: list[BatchedMessage] = []
        if packed:
            try:
                messages = list(message_batch.split(bodies[index].as_py()))
            except FormatError as error:
                reject(columns, index, "body", f"the inner batch cannot be taken apart: {error}")
        parts.extend((index, place, message) for place, message in enumerate(messages))
        if not messages:
            parts.append((index, None, None))
    return _with_parts(columns.take(pa.array([index for index, _, _ in parts], pa.int64())), parts)


def _with_parts(rows: Any, parts: list[Part]) -> Any:
    inside = {at: message for at, (_, _, message) in enumerate(parts) if message is not None}
    decoded = {at: properties.decode(message.properties) for at, message in inside.items()}
    values: dict[str, dict[int, Any]] = {
        "flag": {at: message.flag for at, message in inside.items()},
        "body": {at: message.body for at, message in inside.items()},
        "properties": {at: list(named.items()) for at, named in decoded.items()},
        "keys": {at: list(properties.keys_of(named)) for at, named in decoded.items()},
    }
    for column, name in PROPERTY_COLUMNS.items():
        values[column] = {at: named.get(name) for at, named in decoded.items()}
    names = rows.schema.names
    patched = {name: _patched(rows[name], new, BY_NAME[name].type) for name, new in values.items() if name in names}
    places = [place for _, place, _ in parts]
    patched["batch_index"] = pa.array(places, pa.int32())
    patched["queue_offset"] = pa.array(np.asarray(rows["queue_offset"]) + np.array([place or 0 for place in places]))
    return pa.RecordBatch.from_arrays([patched.get(name, rows[name]) for name in names], names=names)


def _patched(column: Any, new: dict[int, Any], arrow_type: Any) -> Any:
    """Returns a column with some values replaced."""
    values = column.to_pylist()
    for at, value in new.items():
        values[at] = value
    return pa.array(values, arrow_type)
