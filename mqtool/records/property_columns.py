"""Properties of many records as Arrow columns: one value by name, the words of KEYS, the whole map."""

from typing import Any

import numpy as np
import pyarrow as pa

from mqtool.formats import java, properties
from mqtool.records.arrow import binary_view, data_of, text
from mqtool.records.trailers import PropertySlices, Trailers
from mqtool.records.words import name_mask, words_of

MAP = pa.map_(pa.string(), pa.string())
_MAX_GROUPS = 64


def value_column(trailers: Trailers, name: str) -> Any:
    """Returns the value of one property in each row as strings, null if the row does not have it."""
    return text(binary_view(trailers.data, *trailers.property_slices.value_of(name)))


def key_column(trailers: Trailers) -> Any:
    """Returns the words of KEYS in each row, as lists."""
    starts, lengths = trailers.property_slices.value_of(properties.KEYS)
    values = text(binary_view(trailers.data, starts, lengths))
    here = lengths >= 0
    if _holds(values, ord(properties.KEY_SEPARATOR)):
        return _words(values)
    offsets = np.concatenate([[0], np.cumsum(here)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values if here.all() else values.drop_null())


def _holds(values: Any, byte: int) -> bool:
    return bool((data_of(values) == byte).any())


def _words(values: Any) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms, only needed here

    words = pc.split_pattern(pc.fill_null(values, ""), properties.KEY_SEPARATOR)
    flat, parents = words.flatten(), pc.list_parent_indices(words)
    kept = pc.greater(pc.binary_length(flat), 0)
    counts = np.bincount(np.asarray(pc.filter(parents, kept)), minlength=len(values))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pc.filter(flat, kept))


def map_column(trailers: Trailers) -> Any:
    """Returns all properties of each row, name to value, in stored order; the last of equal names counts."""
    slices = trailers.property_slices
    groups = name_groups(slices)
    shared = groups[0].names if len(groups) == 1 else None
    if shared is not None and len(set(shared)) == len(shared):
        names = _repeated(shared, slices.count)
        offsets = (np.arange(slices.count + 1) * len(shared)).astype(np.int32)
    else:
        names = binary_view(trailers.data, slices.name_start, slices.name_length).cast(pa.binary())
        offsets = np.searchsorted(slices.owner, np.arange(slices.count + 1)).astype(np.int32)
        if slices.has_repeats.any() or not _is_utf8(names):
            return _decoded(trailers)
        names = names.cast(pa.string())
    values = text(binary_view(trailers.data, slices.value_start, slices.value_length))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


class NameGroup:
    """Rows whose properties have the same names in the same order.

    Attributes:
        rows: int64, ascending.
        names: decoded; None if the rows are too different to be grouped.
    """

    def __init__(self, slices: PropertySlices, rows: np.ndarray, names: list[str] | None, places: np.ndarray) -> None:
        """Takes rows, and the slices of each: (n, number of names)."""
        self.rows = rows
        self.names = names
        self._slices = slices
        self._places = places

    def values(self, data: np.ndarray) -> list[Any]:
        """Returns the values of each name as a binary array."""
        starts, lengths = self._slices.value_start[self._places], self._slices.value_length[self._places]
        columns = range(self._places.shape[1])
        return [binary_view(data, starts[:, n], lengths[:, n]).cast(pa.binary()) for n in columns]


def name_groups(slices: PropertySlices) -> list[NameGroup]:
    """Groups rows by the names of their properties. Records of one producer have the same names in the same order."""
    each, rest = divmod(len(slices.owner), max(1, slices.count))
    rows = np.arange(slices.count)
    places = np.arange(0 if rest else len(slices.owner)).reshape(slices.count, -1 if each and not rest else 0)
    names = None if rest else _shared_names(slices, rows, places)
    if names is not None:
        return [NameGroup(slices, rows, names, places)]
    patterns, which = np.unique(slices.name_patterns, return_inverse=True)
    edges = np.searchsorted(slices.owner, np.arange(slices.count + 1))
    groups = []
    for number in range(len(patterns) if len(patterns) <= _MAX_GROUPS else 0):
        rows = np.flatnonzero(which == number)
        first = int(rows[0])
        places = edges[rows][:, None] + np.arange(edges[first + 1] - edges[first])
        groups.append(NameGroup(slices, rows, _shared_names(slices, rows, places), places))
    return groups or [NameGroup(slices, np.arange(slices.count), None, np.empty((slices.count, 0), np.int64))]


def _shared_names(slices: PropertySlices, rows: np.ndarray, places: np.ndarray) -> list[str] | None:
    """Returns the names at places (n, number of names) if all rows have exactly these, otherwise None."""
    if places.size and int(places[-1, -1]) >= len(slices.owner):
        return None  # equal patterns by accident
    starts, lengths, each = slices.name_start[places], slices.name_length[places], places.shape[1]
    if (slices.owner[places] != rows[:, None]).any() or (lengths != lengths[:1]).any():
        return None
    words = words_of(slices.data)
    for number in range(each):
        start, length = starts[:, number], int(lengths[0, number])
        for done in range(0, length, 8):
            word = words[start + done] & name_mask(np.array([length - done]))
            if (word != word[0]).any():
                return None
    spans = [(int(starts[0, n]), int(lengths[0, n])) for n in range(each)]
    return [java.decode_utf8(slices.data[start : start + length].tobytes()) for start, length in spans]


def _repeated(names: list[str], count: int) -> Any:
    """Returns the names, repeated `count` times."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    width = int(ends[-1]) if len(ends) else 0
    offsets = np.concatenate([[0], (np.arange(count)[:, None] * width + ends).ravel()]).astype(np.int32)
    data = b"".join(encoded) * count
    return pa.StringArray.from_buffers(len(names) * count, pa.py_buffer(offsets), pa.py_buffer(data))


def _is_utf8(values: Any) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(trailers: Trailers) -> Any:
    """Decodes row by row: for repeated names and invalid UTF-8."""
    spans = zip(trailers.properties_start.tolist(), trailers.properties_length.tolist(), strict=True)
    stored = (trailers.data[start : start + length].tobytes() for start, length in spans)
    return pa.array([list(properties.decode(encoded).items()) for encoded in stored], MAP)
