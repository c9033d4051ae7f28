"""The properties of many records at once: every name and value as positions in the buffer.

The broker's rules, as in `formats.properties.decode`, which a test holds this to: pieces end at 0x02 or at
the end of the string; a piece counts if its first 0x01 is neither its first nor its last byte.
"""

from functools import cached_property

import numpy as np

from mqtool.formats import properties as names

_NAME_END, _VALUE_END = names.NAME_END, names.VALUE_END
_LONG_NAME = 64
_MIX = np.uint64(0x9E3779B97F4A7C15)


class PropertyPieces:
    """All name-value pieces of n records, in stored order.

    Attributes:
        owner: int64, which record (0 … n-1) each piece belongs to; ascending.
        name_start, name_length, value_start, value_length: int64 positions in the view.
        count: n.
    """

    def __init__(self, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Cuts the strings `data[starts[i]:starts[i]+lengths[i]]`.

        Args:
            data: uint8, the buffer.
            starts: int64, ascending and not overlapping.
            lengths: int64, not negative, inside the buffer.
        """
        self.data = data
        self.count = len(starts)
        ends = starts + lengths
        ones, cuts = _separators(data, starts, ends)
        # every string's end closes its last piece; one that ends in 0x02 gets an empty piece, dropped below
        piece_end = np.concatenate([ends, cuts])
        order = np.argsort(piece_end, kind="stable")
        piece_end = piece_end[order]
        owner = np.concatenate([np.arange(self.count), np.searchsorted(ends, cuts, side="right")])[order]
        piece_start = np.empty_like(piece_end)
        piece_start[1:] = piece_end[:-1] + 1
        first = np.ones(len(piece_end), bool)
        first[1:] = owner[1:] != owner[:-1]
        piece_start[first] = starts[owner[first]]
        at = np.searchsorted(ones, piece_start, side="left")
        split = ones[np.minimum(at, len(ones) - 1)] if len(ones) else np.full(len(piece_start), -1)
        kept = (at < len(ones)) & (split > piece_start) & (split < piece_end - 1)
        self.owner = owner[kept]
        self.name_start = piece_start[kept]
        self.name_length = split[kept] - self.name_start
        self.value_start = split[kept] + 1
        self.value_length = piece_end[kept] - self.value_start

    @cached_property
    def has_repeats(self) -> np.ndarray:
        """Bool per record: some name occurs twice, so the last one must win.

        Records of one producer have the same names in the same order; each such pattern is looked at once.
        """
        patterns, first, which = np.unique(self.name_patterns, return_index=True, return_inverse=True)
        repeated = np.zeros(len(patterns), bool)
        for number, record in enumerate(first.tolist()):
            low, high = np.searchsorted(self.owner, [record, record + 1]).tolist()
            texts = [self._name(piece) for piece in range(low, high)]
            repeated[number] = len(set(texts)) != len(texts)
        return repeated[which]

    @cached_property
    def name_patterns(self) -> np.ndarray:
        """A 64-bit mark per record: equal names in equal order give equal ones, others hardly ever."""
        marks = self._name_marks * (self._rank.astype(np.uint64) * np.uint64(2) + np.uint64(1))
        totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(marks, dtype=np.uint64)])
        return np.diff(totals[np.searchsorted(self.owner, np.arange(self.count + 1))])

    @cached_property
    def _rank(self) -> np.ndarray:
        """Place of each piece in its record."""
        first = np.searchsorted(self.owner, np.arange(self.count))
        return np.arange(len(self.owner)) - first[self.owner]

    @cached_property
    def _name_marks(self) -> np.ndarray:
        """A 64-bit mark of each name: equal names have equal ones, others hardly ever."""
        marks = self.name_length.astype(np.uint64)
        long = np.flatnonzero(self.name_length > _LONG_NAME)
        marks[long] = (np.uint64(1) << np.uint64(63)) + long.astype(np.uint64)  # makes its record's pattern unique
        for index in range(min(_LONG_NAME, int(self.name_length.max(initial=0)))):
            inside = self.name_length > index
            byte = self.data[np.minimum(self.name_start + index, len(self.data) - 1)].astype(np.uint64)
            marks = np.where(inside, (marks ^ byte) * _MIX, marks)
        return marks

    def _name(self, piece: int) -> bytes:
        start = self.name_start[piece]
        return self.data[start : start + self.name_length[piece]].tobytes()

    def value_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns where each record's value of one name is.

        Returns:
            int64 start and length per record; length -1 where the record has no such property.
        """
        wanted = np.frombuffer(name.encode(), np.uint8)
        pieces = np.flatnonzero(self.name_length == len(wanted))
        for index, byte in enumerate(wanted.tolist()):
            pieces = pieces[self.data[self.name_start[pieces] + index] == byte]
        starts = np.zeros(self.count, np.int64)
        lengths = np.full(self.count, -1, np.int64)
        starts[self.owner[pieces]] = self.value_start[pieces]  # ascending: the last one wins
        lengths[self.owner[pieces]] = self.value_length[pieces]
        return starts, lengths


def _separators(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of all 0x01 and of all 0x02 inside the strings, ascending."""
    if not len(starts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = int(starts[0]), int(ends[-1])
    region = data[low:high]
    found = np.flatnonzero((region == _NAME_END) | (region == _VALUE_END)) + low
    owner = np.searchsorted(ends, found, side="right")
    inside = found >= starts[np.minimum(owner, len(starts) - 1)]
    found = found[inside]
    is_name_end = data[found] == _NAME_END
    return found[is_name_end], found[~is_name_end]
