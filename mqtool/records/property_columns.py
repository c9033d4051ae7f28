"""Properties of many records as Arrow columns: one value by name, the words of KEYS, the whole map."""

from typing import Any

import numpy as np
import pyarrow as pa

from mqtool import native
from mqtool.formats import java, properties
from mqtool.records.arrow import binary_view, data_of, text
from mqtool.records.frames import Frames, numbered

MAP = pa.map_(pa.string(), pa.string())
_SHORTEST = 4
"""Bytes of a property with the byte after it."""


class PropertySlices:
    """All properties of some frames, in stored order.

    Attributes:
        data: uint8, the frames' buffer.
        count: number of frames.
        owner: int64, index of the frame of each property; ascending.
        codes, names: int32, the number of each property's name, and the names by number, as stored.
        value_start, value_length: int64 positions in `data`.
    """

    def __init__(self, frames: Frames) -> None:
        """Finds the properties of valid frames."""
        self.data, self.count, self._frames = frames.data, len(frames), frames
        self.owner, starts, lengths, self.value_start, self.value_length = _find(frames)
        self.codes, self.names = numbered(frames.data, starts, lengths)

    def value_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the position of each frame's value for one name.

        Returns:
            int64 start and length per frame; length -1 if the frame has no such property. The last of equal names
            counts.
        """
        stored, starts = name.encode(), np.zeros(self.count, np.int64)
        lengths = np.full(self.count, -1, np.int64)
        if stored in self.names:
            matches = np.flatnonzero(self.codes == self.names.index(stored))
            owner = self.owner[matches]
            starts[owner] = self.value_start[matches]  # ascending: the last one wins
            lengths[owner] = self.value_length[matches]
        return starts, lengths

    def strings(self, name: str) -> Any:
        """Returns the value of one property in each frame as strings, null if the frame does not have it."""
        return text(binary_view(self.data, *self.value_of(name)))

    def keys(self) -> Any:
        """Returns the words of KEYS in each frame, as lists."""
        values = self.strings(properties.KEYS)
        here = np.asarray(values.is_valid())
        if (data_of(values) == ord(properties.KEY_SEPARATOR)).any():
            return _words(values)
        offsets = np.concatenate([[0], np.cumsum(here)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values if here.all() else values.drop_null())

    def maps(self) -> Any:
        """Returns all properties of each frame, name to value, in stored order; the last of equal names counts."""
        names = [java.decode_utf8(name) for name in self.names]
        if self._has_repeats() or len(set(names)) < len(names):
            stored = self._frames.properties_of(slice(None))
            return pa.array([list(properties.decode(encoded).items()) for encoded in stored], MAP)
        offsets = np.searchsorted(self.owner, np.arange(self.count + 1)).astype(np.int32)
        keys = pa.array(names, pa.string()).take(pa.array(self.codes))
        values = text(binary_view(self.data, self.value_start, self.value_length))
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values)

    def _has_repeats(self) -> bool:
        """Whether a frame has two properties of one name."""
        is_same = self.owner[1:] == self.owner[:-1]
        if not (is_same & (self.codes[1:] <= self.codes[:-1])).any():
            return False  # as where all records have the same names, which are numbered in their order
        named = np.sort(self.owner * len(self.names) + self.codes)
        return bool((named[1:] == named[:-1]).any())


def _find(frames: Frames) -> np.ndarray:
    """Returns a table of int64: the frame of each property, start and length of its name, and of its value."""
    spans = (frames.properties_start, frames.properties_length)
    if native.in_use():
        table = np.empty((5, int(spans[1].sum()) // _SHORTEST + len(frames)), np.int64)
        return table[:, : native.logs.properties(frames.data, *spans, table)]
    rows = [
        (row, at + start, split - start, at + split + 1, end - split - 1)
        for row, (at, stored) in enumerate(zip(spans[0].tolist(), frames.properties_of(slice(None)), strict=True))
        for start, split, end in properties.places(stored)
    ]
    return np.array(rows, np.int64).reshape(len(rows), 5).T.copy()


def _words(values: Any) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - costs 30 ms, only needed here

    words = pc.split_pattern(pc.fill_null(values, ""), properties.KEY_SEPARATOR)
    flat, parents = words.flatten(), pc.list_parent_indices(words)
    kept = pc.greater(pc.binary_length(flat), 0)
    counts = np.bincount(np.asarray(pc.filter(parents, kept)), minlength=len(values))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pc.filter(flat, kept))
