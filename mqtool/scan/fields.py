"""Builds columns that are plain record fields directly from the arrays of frames, without building rows.

`export.rows` builds all other columns.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.export.schema import TIMESTAMP, RecordClass, class_of
from mqtool.formats.commit_log import FIRST_MILLIS, LAST_MILLIS, TRANSACTION_MASK, SysFlag
from mqtool.records.frames import Frames
from mqtool.scan.bounds import Facts
from mqtool.scan.zones import mask_of

SIZE = "store_size"
_FIELDS = {
    "physical_offset": "physical_offset",
    SIZE: "total_size",
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "sys_flag": "sys_flag",
    "body_crc": "body_crc",
    "magic_code": "magic_code",
}
"""Columns that are a field as it is, and its name in a record."""
_TIMES = ("born_timestamp", "store_timestamp")
_PLAIN = frozenset({*_FIELDS, *_TIMES, "topic", "broker"})


def is_plain(names: Iterable[str]) -> bool:
    """Whether all columns are plain record fields."""
    return _PLAIN.issuperset(names)


def plain_batch(frames: Frames, facts: Facts, schema: Any, broker: str, *, every_class: bool) -> Any:
    """Returns columns of the frames that match the bounds, and their sizes; None if fields are not sufficient.

    Args:
        frames: valid records.
        facts: the bounds.
        schema: of the columns; all of them plain.
        broker: value of the column `broker`.
        every_class: include half, rolled-back and system records.

    Returns:
        `pa.RecordBatch` that shares no memory with the frames' buffer, with the columns and `store_size`; None if
        there is an inner batch, whose messages are separate rows, or a time outside the calendar.
    """
    flags = frames.column("sys_flag")
    if (flags & SysFlag.INNER_BATCH).any():
        return None
    keep = mask_of(frames, facts)
    if not every_class:
        keep &= _committed(frames, flags)
    which: np.ndarray | slice = slice(None) if keep.all() else np.flatnonzero(keep)
    names = [*schema.names, *(() if SIZE in schema.names else (SIZE,))]
    columns = []
    for name in names:
        column = _column(frames, name, which, broker)
        if column is None:
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _committed(frames: Frames, flags: np.ndarray) -> np.ndarray:
    """Returns which records are visible to consumers."""
    codes, names = frames.coded_topics
    transactions = flags & TRANSACTION_MASK
    if not transactions.any():
        return np.array([class_of(name, 0) is RecordClass.COMMITTED for name in names], bool)[codes]
    kinds, back = np.unique(codes.astype(np.int64) << 32 | transactions, return_inverse=True)
    committed = [class_of(names[kind >> 32], kind & 0xFFFFFFFF) is RecordClass.COMMITTED for kind in kinds.tolist()]
    return np.array(committed, bool)[back]


def _column(frames: Frames, name: str, which: np.ndarray | slice, broker: str) -> Any:
    if name == "topic":
        codes, names = frames.coded_topics
        return pa.array(names, pa.string()).take(pa.array(codes[which]))
    if name == "broker":
        return pa.repeat(pa.scalar(broker, pa.string()), len(frames.positions[which]))
    if name in _FIELDS:
        return pa.array(frames.column(_FIELDS[name])[which])
    millis = frames.column(name)[which]
    if len(millis) and (millis.min() < FIRST_MILLIS or millis.max() > LAST_MILLIS):
        return None
    return pa.array(millis).view(TIMESTAMP)
