"""Arrow columns as the buffers that they are: built over a buffer without copying values, and taken apart."""

import numpy as np
import pyarrow as pa

_INLINE = 12
_WORD = 8
_U64 = np.uint64
_HALF = _U64(32)
_HEADS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], _U64)
"""Masks that keep the first 0 … 8 bytes of a word whose first byte is lowest."""


def binary_view(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> "pa.BinaryViewArray":
    """Returns ranges of a buffer as a `binary_view` array that points into it.

    A view has 16 bytes: the length, then the value itself if it has up to 12 bytes, else its first four, the number
    of the buffer and the position in it. Here they are made as two words of eight bytes.

    Args:
        data: uint8 buffer of less than 2 GiB.
        starts: int64 positions.
        lengths: int64; a negative length is null.
    """
    null = lengths < 0
    has_null = bool(null.any())
    size = np.where(null, 0, lengths) if has_null else lengths
    padded = data if len(data) >= _INLINE else np.concatenate([data, np.zeros(_INLINE, np.uint8)])
    at = np.minimum(starts, len(padded) - _INLINE)
    words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    views = np.empty((len(starts), 2), _U64)
    first = words[at] & _HEADS[np.minimum(size, 4)]
    views[:, 0] = size.astype(_U64) | (first << _HALF)
    views[:, 1] = starts.astype(_U64) << _HALF
    short = np.flatnonzero(size <= _INLINE)
    if len(short):
        rest = words[at[short] + 4] & _HEADS[np.clip(size[short] - 4, 0, _WORD)]
        views[short, 1] = rest
    for index in np.flatnonzero(at != starts).tolist():  # a word would have left the buffer, so the value is short
        value = data[starts[index] : starts[index] + size[index]].tobytes().ljust(_INLINE, b"\0")
        low = int.from_bytes(value[:4], "little") << 32
        views[index] = int(size[index]) | low, int.from_bytes(value[4:], "little")
    validity = pa.array(~null).buffers()[1] if has_null else None
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def offsets_of(values: "pa.Array") -> np.ndarray:
    """Returns the start of each value in a binary array's data, and the end of the last; int64."""
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)


def data_of(values: "pa.Array") -> np.ndarray:
    """Returns the data of a binary array as uint8."""
    buffer = values.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def text(values: "pa.Array") -> "pa.Array":
    """Returns binary values as strings; invalid UTF-8 becomes U+FFFD as in Java."""
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms that column-less callers need not pay

    plain = values.cast(pa.binary())
    try:
        return pc.cast(plain, pa.string())
    except pa.ArrowInvalid:
        from mqtool.formats.java import decode_utf8  # noqa: PLC0415

        return pa.array([None if v is None else decode_utf8(v) for v in plain.to_pylist()], pa.string())
