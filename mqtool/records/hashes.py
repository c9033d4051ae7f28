"""Java's string hash over columns of UTF-8 strings, at memory speed.

The hash of s is the sum of unit[i] · 31^(n-1-i) mod 2^32. 31 has an inverse mod 2^32, so with
running sums of byte[i] · 31^-i the hash of any slice is one subtraction and one product, and no
string is looked at on its own. Only strings with bytes above 0x7F are decoded and hashed one by
one, since Java counts UTF-16 units. Held to `formats.java.string_hash` by tests.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from mqtool.formats import java

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.int32]

_INVERSE_OF_31 = pow(31, -1, 1 << 32)
_CHUNK_SIZE = 1 << 18
"""Bytes that are summed at a time: the tables and temporaries of a chunk stay in the cache."""


def java_hash(data: Bytes, offsets: Offsets) -> Hashes:
    """Returns `String.hashCode()` of every string of a column.

    Args:
        data: the strings' bytes, UTF-8.
        offsets: n + 1 ascending positions in `data`; string i is `data[offsets[i]:offsets[i + 1]]`.

    Returns:
        n hashes; 0 for an empty string.
    """
    return _hash(data, offsets).view(np.int32)


def index_hash(data: Bytes, offsets: Offsets) -> Hashes:
    """Returns the key hash of an index entry for every key text; arguments as `java_hash`."""
    return absolute(java_hash(data, offsets))


def absolute(hashes: Hashes) -> Hashes:
    """Returns `IndexFile.indexKeyHashMethod` of string hashes: absolute, the smallest int becomes 0."""
    return np.where(hashes == java.INT_MIN, np.int32(0), np.abs(hashes)).astype(np.int32)


def tags_codes(data: Bytes, offsets: Offsets) -> npt.NDArray[np.int64]:
    """Returns the tags code of every TAGS value, sign-extended; 0 for an empty one."""
    return java_hash(data, offsets).astype(np.int64)


def joined_hash(left: Hashes, right: Hashes, right_units: npt.NDArray[np.int64]) -> Hashes:
    """Returns the hashes of left + right from those of both parts, e.g. of `topic#` and a key.

    Args:
        left: hashes of the left parts.
        right: hashes of the right parts.
        right_units: lengths of the right parts in UTF-16 units (`utf16_lengths`).
    """
    powers = _powers(31, int(right_units.max(initial=0)) + 1)
    joined: Hashes = (left.view(np.uint32) * powers[right_units] + right.view(np.uint32)).view(np.int32)
    return joined


def utf16_lengths(data: Bytes, offsets: Offsets) -> npt.NDArray[np.int64]:
    """Returns `String.length()` of every string; arguments as `java_hash`."""
    lengths = np.diff(offsets)
    for row in _rows_with_high_bytes(data, offsets):
        lengths[row] = java.length(java.decode_utf8(data[offsets[row] : offsets[row + 1]].tobytes()))
    return lengths


def bytes_and_offsets(column: Any) -> tuple[Bytes, Offsets]:
    """Returns the buffers of an Arrow array of strings or bytes, without a copy of the strings.

    Args:
        column: a `pyarrow.Array` of type (large_)string or (large_)binary; nulls count as empty,
            as Arrow's own builders leave them.
    """
    _, positions, data = column.buffers()
    wide = str(column.type).startswith("large_")
    kind = np.dtype(np.int64 if wide else np.int32)
    if positions is None or positions.size == 0:
        return np.zeros(0, np.uint8), np.zeros(len(column) + 1, np.int64)
    offsets = np.frombuffer(positions, kind, len(column) + 1, column.offset * kind.itemsize).astype(np.int64)
    return (np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), offsets


def _hash(data: Bytes, offsets: Offsets) -> npt.NDArray[np.uint32]:
    count = len(offsets) - 1
    hashes = np.zeros(max(count, 0), np.uint32)
    first = 0
    while first < count:
        # As many whole strings as fit a chunk; a longer one is a chunk of its own.
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK_SIZE, side="right")) - 1
        last = min(max(last, first + 1), count)
        hashes[first:last] = _hash_chunk(data, offsets[first : last + 1])
        first = last
    for row in _rows_with_high_bytes(data, offsets):
        text = java.decode_utf8(data[offsets[row] : offsets[row + 1]].tobytes())
        hashes[row] = java.string_hash(text) & 0xFFFFFFFF
    return hashes


def _hash_chunk(data: Bytes, offsets: Offsets) -> npt.NDArray[np.uint32]:
    start, end = int(offsets[0]), int(offsets[-1])
    size = end - start
    sums = np.zeros(size + 1, np.uint32)
    np.cumsum(data[start:end] * _powers(_INVERSE_OF_31, size), dtype=np.uint32, out=sums[1:])
    ends = offsets[1:] - start
    found: npt.NDArray[np.uint32] = sums[ends] - sums[offsets[:-1] - start]
    # For an empty string the sum is 0, whatever the power.
    found *= _powers(31, size + 1)[np.maximum(ends - 1, 0)]
    return found


_tables: dict[int, npt.NDArray[np.uint32]] = {}


def _powers(base: int, count: int) -> npt.NDArray[np.uint32]:
    """Returns base^0 … base^(count - 1) mod 2^32; tables for whole chunks are kept."""
    table = _tables.get(base)
    if table is None:
        table = _tables[base] = _power_table(base, _CHUNK_SIZE + 1)
    return table[:count] if count <= len(table) else _power_table(base, count)


def _power_table(base: int, count: int) -> npt.NDArray[np.uint32]:
    factors = np.full(count, base, np.uint32)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint32)


def _rows_with_high_bytes(data: Bytes, offsets: Offsets) -> list[int]:
    if len(offsets) < 2:
        return []
    start, end = int(offsets[0]), int(offsets[-1])
    high = np.flatnonzero(data[start:end] & np.uint8(0x80)) + start
    return [int(row) for row in np.unique(np.searchsorted(offsets, high, side="right") - 1)]
