"""Arrow columns over a buffer, without copying what is not asked for."""

import numpy as np
import pyarrow as pa

_INLINE = 12
_VIEW = np.dtype([("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE_VIEW = np.dtype([("length", "<i4"), ("bytes", "V12")])


def binary_view(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> "pa.BinaryViewArray":
    """Returns the ranges of a buffer as a `binary_view` array that points into it.

    Args:
        data: uint8 buffer of less than 2 GiB.
        starts: int64 positions.
        lengths: int64; a negative length is null.

    Returns:
        One value per range. Values of up to 12 bytes are held in the view itself, as the Arrow format wants.
    """
    count = len(starts)
    null = lengths < 0
    size = np.where(null, 0, lengths).astype("<i4")
    padded = data if len(data) >= _INLINE else np.concatenate([data, np.zeros(_INLINE, np.uint8)])
    at = np.minimum(starts, len(padded) - _INLINE)
    windows = np.ndarray((len(padded) - _INLINE + 1,), "V12", padded, strides=(1,))
    heads = windows[at].view(np.uint8).reshape(count, _INLINE).copy()
    late = np.flatnonzero(at != starts)  # the window would have left the buffer
    for index in late.tolist():
        rest = data[starts[index] :][:_INLINE]
        heads[index] = 0
        heads[index, : len(rest)] = rest
    views = np.zeros(count, _INLINE_VIEW)
    views["length"] = size
    short = size <= _INLINE
    heads[short] *= np.arange(_INLINE) < size[short, None]
    views["bytes"] = heads.reshape(-1).view("V12")
    long = views.view(_VIEW)
    long["buffer"][~short] = 0
    long["offset"][~short] = starts[~short]
    validity = pa.array(~null).buffers()[1] if null.any() else None
    return pa.Array.from_buffers(pa.binary_view(), count, [validity, pa.py_buffer(views), pa.py_buffer(data)])


def text(values: "pa.Array") -> "pa.Array":
    """Returns binary values as strings; invalid UTF-8 becomes U+FFFD as in Java."""
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms that column-less callers need not pay

    plain = values.cast(pa.binary())
    try:
        return pc.cast(plain, pa.string())
    except pa.ArrowInvalid:
        from mqtool.formats.java import decode_utf8  # noqa: PLC0415

        return pa.array([None if v is None else decode_utf8(v) for v in plain.to_pylist()], pa.string())
