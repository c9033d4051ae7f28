"""Records at another physical offset than before: what changes in their bytes.

A record states its own physical offset, a commit or rollback record also that of its half message, and a broker with
enabledAppendPropCRC adds a CRC over all of this as the property `__CRC32#`. Source: MessageExtEncoder.encode,
CommitLog.DefaultAppendMessageCallback.doAppend (5.5.0).
"""

import numpy as np

from mqtool.formats import commit_log, properties
from mqtool.records.frames import Frames

_OFFSET_AT = commit_log.field_offset("physical_offset")
_PREPARED_AT = commit_log.field_offsets("prepared_transaction_offset")
"""Position of prepared_transaction_offset in a record, by which of the two hosts are IPv6."""


def moved(frames: Frames, places: np.ndarray, prepared: np.ndarray) -> bytes:
    """Returns the bytes of records in a row, changed for their new places.

    Args:
        frames: records of any log.
        places: new physical offset of each, without gaps between the records.
        prepared: new prepared_transaction_offset of each.
    """
    view, sizes = frames.view, frames.sizes.tolist()
    pieces = [view[at : at + size] for at, size in zip(frames.positions.tolist(), sizes, strict=True)]
    data = np.frombuffer(bytearray().join(pieces), np.uint8)
    starts = places - places[0]
    _put(data, starts + _OFFSET_AT, places)
    for shape, at in enumerate(_PREPARED_AT):
        rows = np.flatnonzero(frames.host_shape == shape)
        _put(data, starts[rows] + at, prepared[rows])
    for row in frames.rows_with_crc32().tolist():
        record = data[starts[row] : starts[row] + sizes[row]]
        record[:] = np.frombuffer(properties.with_crc32(record.tobytes()), np.uint8)
    return data.tobytes()


def _put(data: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
    """Writes values as 8 big-endian bytes at the given positions."""
    raw = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    data[at[:, None] + np.arange(8)] = raw
