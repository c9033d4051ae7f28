"""Builds JSON text by array operations: finds strings that need no escaping, and joins columns to lines."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqtool.records.arrow import data_of, offsets_of

_PIECE = 1 << 18
"""Bytes looked at together: they and the answers stay in the processor's cache."""
_WIDE = 64


def is_constant(values: Any) -> bool:
    """Whether all values of a binary array without nulls are equal; long values are not compared."""
    offsets = offsets_of(values)
    size = int(offsets[1] - offsets[0])
    if size > _WIDE or not (np.diff(offsets) == size).all():
        return False
    rows = data_of(values)[offsets[0] : offsets[-1]].reshape(len(values), size)
    return bool((rows[0] == rows[-1]).all() and (rows == rows[:1]).all())


def needs_escape(values: Any) -> np.ndarray | None:
    """Returns which values need escaping in a JSON string or are invalid UTF-8; None if no value does.

    Args:
        values: binary, without nulls.
    """
    offsets = offsets_of(values)
    low, high = int(offsets[0]), int(offsets[-1])
    data = data_of(values)
    flags: np.ndarray | None = None
    is_ascii = True
    masks = np.empty((2, min(_PIECE, high - low)), bool)
    for start in range(low, high, _PIECE):
        piece = data[start : min(start + _PIECE, high)]
        quotes, slashes = masks[:, : len(piece)]
        np.equal(piece, 0x22, out=quotes)
        np.equal(piece, 0x5C, out=slashes)
        is_ascii = is_ascii and int(piece.max()) < 0x80
        if int(piece.min()) < 0x20 or quotes.any() or slashes.any():
            at = np.flatnonzero(quotes | slashes | (piece < 0x20)) + start
            flags = np.zeros(len(values), bool) if flags is None else flags
            flags[np.searchsorted(offsets, at, side="right") - 1] = True
    return flags if is_ascii else _with_invalid(values, flags)


def _with_invalid(values: Any, flags: np.ndarray | None) -> np.ndarray | None:
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        flags = np.zeros(len(values), bool) if flags is None else flags
        for index in np.flatnonzero(~flags).tolist():
            flags[index] = not _is_utf8(values[index].as_py())
    return flags


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def replaced(values: Any, which: np.ndarray, texts: list[bytes]) -> Any:
    """Returns a binary array with other texts in marked places."""
    return pc.replace_with_mask(values, pa.array(which), pa.array(texts, pa.binary()))


class Lines:
    """Lines built from constant text and columns in turn. A column with one value becomes constant text."""

    def __init__(self, count: int) -> None:
        """Starts `count` lines, at least one."""
        self.count = count
        self._parts: list[Any] = []

    def text(self, text: str | bytes) -> "Lines":
        """Adds constant text."""
        added = text.encode() if isinstance(text, str) else text
        if self._parts and isinstance(self._parts[-1], bytes):
            self._parts[-1] += added
        else:
            self._parts.append(added)
        return self

    def integers(self, values: np.ndarray) -> "Lines":
        """Adds a column of integers."""
        if (values == values[0]).all():
            return self.text(str(int(values[0])))
        return self._column(pc.cast(pa.array(values), pa.string()))

    def values(self, values: Any) -> "Lines":
        """Adds a column of text: string, binary, or dictionary-encoded."""
        if pa.types.is_dictionary(values.type):
            if len(values.dictionary) == 1:
                return self.text(values.dictionary[0].as_py())
            return self._column(values.dictionary.take(values.indices))
        plain = values.cast(pa.binary())
        return self.text(plain[0].as_py()) if is_constant(plain) else self._column(plain)

    def _column(self, values: Any) -> "Lines":
        self._parts.append(values.cast(pa.binary()))
        return self

    def joined(self) -> Any:
        """Returns the lines as one binary array."""
        parts = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in self._parts]
        if all(isinstance(part, pa.Scalar) for part in parts):
            return pa.array(self._parts * self.count, pa.binary())
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))

    def data(self) -> memoryview:
        """Returns all lines as one buffer."""
        joined = self.joined()
        offsets = offsets_of(joined)
        return memoryview(joined.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
