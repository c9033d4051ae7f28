"""Trailers of many records, that is topic and properties, copied side by side, and the properties in them.

The body is the largest part of a record and irrelevant for queues and keys. With all trailers in one small buffer,
in rows of equal width, every question about them is array arithmetic inside the cache. Properties follow the rules of
`formats.properties.decode`, the scalar form; a test holds both equal.
"""

from functools import cached_property

import numpy as np

from mqtool.formats import commit_log
from mqtool.formats.properties import NAME_END
from mqtool.records.frames import Frames
from mqtool.records.words import PAD, name_mask, words_of

_LONG_NAME = 64
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ALIGN = 8
_SMALLEST_CLASS = 64
_CLASSES = np.array([_SMALLEST_CLASS << step for step in range(12)], np.int64)
_SPARE = 1 << 20
"""Bytes that one buffer for all rows may waste before rows are parted by length."""


class Trailers:
    """Topic and properties of frames in one buffer.

    Attributes:
        rows: int64, index of the frame of each row; ascending.
        data: uint8: `PAD` zero bytes, the rows of `width` bytes each, `PAD` bytes.
        width: bytes of a row.
        end_in_rows: every row ends where its properties end, so other bytes in it are before the topic.
        row_start, topic_start, topic_length, properties_start, properties_length: int64 positions in `data`, one per
            row.
    """

    def __init__(self, frames: Frames, rows: np.ndarray, width: int) -> None:
        """Copies the trailers of `frames.select(rows)`, each of at most `width` bytes."""
        self.rows = rows
        self.width = width
        count = len(rows)
        buffer = frames.data
        if len(buffer) < width:
            buffer = np.concatenate([buffer, np.zeros(width - len(buffer), np.uint8)])
        first = frames.topic_start.take(rows)
        end = (frames.properties_start + frames.properties_length).take(rows)
        start = end - width
        self.end_in_rows = bool(count) and int(start.min()) >= 0 and int(end.max()) <= len(buffer)
        if not self.end_in_rows:
            np.clip(start, 0, len(buffer) - width, out=start)
        sliding = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
        self.data = np.zeros(PAD + count * width + PAD, np.uint8)
        self.data[PAD : PAD + count * width] = sliding[start].view(np.uint8)
        self.row_start = PAD + np.arange(0, count * width, width, dtype=np.int64)
        self.topic_start = self.row_start + (first - start)
        self.topic_length = frames.topic_length.take(rows)
        self.properties_start = self.topic_start + self.topic_length + commit_log.PROPERTIES_LENGTH.size
        self.properties_length = frames.properties_length.take(rows)

    @property
    def table(self) -> np.ndarray:
        """The rows as a table of bytes."""
        return self.data[PAD : len(self.data) - PAD].reshape(len(self.rows), self.width)

    def row_of(self, positions: np.ndarray) -> np.ndarray:
        """Returns the row in which each position lies."""
        return (positions - PAD) // self.width

    @cached_property
    def property_slices(self) -> "PropertySlices":
        """Names and values of all rows' properties."""
        return PropertySlices(self)


class PropertySlices:
    """Names and values of all properties, in stored order, as positions in the buffer of the trailers.

    A property ends at 0x02 or at the end of the string. It counts if its first 0x01 is neither its first nor its
    last byte.

    Attributes:
        data: uint8, the buffer.
        owner: int64, row (0 … count-1) of each property; ascending.
        name_start, name_length, value_start, value_length: int64 positions in `data`.
        count: number of rows.
    """

    def __init__(self, trailers: Trailers) -> None:
        """Finds the properties of all rows."""
        self.data = data = trailers.data
        self.count = len(trailers.rows)
        starts, ends = trailers.properties_start, trailers.properties_start + trailers.properties_length
        marks = np.flatnonzero((data - np.uint8(NAME_END)) < 2)  # 0x01 and 0x02; none in the bytes around the rows
        row = trailers.row_of(marks)
        inside = marks >= starts.take(row)
        if not trailers.end_in_rows:
            inside &= marks < ends.take(row)
        if not inside.all():
            marks, row = marks.compress(inside), row.compress(inside)
        closes = data.take(marks) != NAME_END
        opens_row = np.ones(len(marks), bool)
        np.not_equal(row[1:], row[:-1], out=opens_row[1:])
        after_close = opens_row.copy()
        after_close[1:] |= closes[:-1]
        splits = np.flatnonzero(after_close & ~closes)  # the first 0x01 of each property
        owner, split = row.take(splits), marks.take(splits)
        start = marks.take(splits - 1, mode="clip") + 1
        opening = np.flatnonzero(opens_row.take(splits))
        start[opening] = starts.take(owner.take(opening))
        end = _next_close(marks, closes, splits)
        np.minimum(end, ends.take(owner), out=end)
        kept = (split > start) & (split < end - 1)
        if not kept.all():
            owner, start, split, end = (column.compress(kept) for column in (owner, start, split, end))
        self.owner = owner
        self.name_start = start
        self.name_length = split - start
        self.value_start = split + 1
        self.value_length = end - self.value_start

    @cached_property
    def has_repeats(self) -> np.ndarray:
        """Bool per row: a name occurs twice, so the last one must win.

        Records of one producer have the same names in the same order; each such pattern is checked once.
        """
        patterns, first, which = np.unique(self.name_patterns, return_index=True, return_inverse=True)
        repeated = np.zeros(len(patterns), bool)
        for number, row in enumerate(first.tolist()):
            low, high = np.searchsorted(self.owner, [row, row + 1]).tolist()
            texts = [self._name(at) for at in range(low, high)]
            repeated[number] = len(set(texts)) != len(texts)
        return repeated[which]

    @cached_property
    def name_patterns(self) -> np.ndarray:
        """A 64-bit hash per row: equal names in equal order have equal hashes; collisions are very unlikely."""
        marks = self._name_marks * (self._rank.astype(np.uint64) * np.uint64(2) + np.uint64(1))
        totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(marks, dtype=np.uint64)])
        return np.diff(totals[np.searchsorted(self.owner, np.arange(self.count + 1))])

    @cached_property
    def _rank(self) -> np.ndarray:
        """Index of each property in its row."""
        first = np.searchsorted(self.owner, np.arange(self.count))
        return np.arange(len(self.owner)) - first[self.owner]

    @cached_property
    def _name_marks(self) -> np.ndarray:
        """A 64-bit hash of each name; collisions are very unlikely."""
        marks = self.name_length.astype(np.uint64)
        long = np.flatnonzero(self.name_length > _LONG_NAME)
        marks[long] = (np.uint64(1) << np.uint64(63)) + long.astype(np.uint64)  # makes its row's pattern unique
        for index in range(min(_LONG_NAME, int(self.name_length.max(initial=0)))):
            inside = self.name_length > index
            byte = self.data[np.minimum(self.name_start + index, len(self.data) - 1)].astype(np.uint64)
            marks = np.where(inside, (marks ^ byte) * _MIX, marks)
        return marks

    def _name(self, at: int) -> bytes:
        start = self.name_start[at]
        return self.data[start : start + self.name_length[at]].tobytes()

    @cached_property
    def _first_words(self) -> np.ndarray:
        return words_of(self.data)[self.name_start] & name_mask(self.name_length)

    def named(self, name: str) -> np.ndarray:
        """Returns the indexes of the properties with a name, in stored order."""
        encoded = name.encode()
        first = np.uint64(int.from_bytes(encoded[:8], "little"))
        matches = np.flatnonzero((self._first_words == first) & (self.name_length == len(encoded)))
        for at in range(8, len(encoded)):
            matches = matches[self.data[self.name_start[matches] + at] == encoded[at]]
        return matches

    def value_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the position of each row's value for one name.

        Returns:
            int64 start and length per row; length -1 if the row has no such property. The last of equal names
            counts.
        """
        matches = self.named(name)
        starts = np.zeros(self.count, np.int64)
        lengths = np.full(self.count, -1, np.int64)
        owner = self.owner.take(matches)
        starts[owner] = self.value_start.take(matches)  # ascending: the last one wins
        lengths[owner] = self.value_length.take(matches)
        return starts, lengths


def _next_close(marks: np.ndarray, closes: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Returns the position of the first 0x02 after each split, a huge one if there is none."""
    following = splits + 1
    if len(splits) and following[-1] < len(marks) and closes.take(following).all():  # no value holds a 0x01
        return marks.take(following)
    return np.append(marks.compress(closes), np.iinfo(np.int64).max).take(np.cumsum(closes).take(splits))


def trailers_of(frames: Frames) -> list[Trailers]:
    """Returns the trailers of all frames, in one buffer if their lengths are similar, otherwise in several."""
    if not len(frames):
        return []
    sizes = np.maximum(frames.topic_length, 0) + commit_log.PROPERTIES_LENGTH.size + frames.properties_length
    widest = int(sizes.max())
    if widest * len(frames) <= 3 * int(sizes.sum()) + _SPARE:
        return [Trailers(frames, np.arange(len(frames)), _aligned(widest))]
    kind = np.searchsorted(_CLASSES, sizes)
    groups = (np.flatnonzero(kind == number) for number in np.unique(kind).tolist())
    return [Trailers(frames, rows, _aligned(int(sizes[rows].max()))) for rows in groups]


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
