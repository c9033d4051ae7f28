"""The properties of many records at once: every name and value as positions in the buffer.

The broker's rules, as in `formats.properties.decode`, which a test holds this to: pieces end at 0x02 or at
the end of the string; a piece counts if its first 0x01 is neither its first nor its last byte.
"""

from functools import cached_property

import numpy as np

from mqtool.formats import properties as names

_NAME_END, _VALUE_END = names.NAME_END, names.VALUE_END


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
        """Bool per record: some name occurs twice, so the last one must win."""
        # equal names of one record have equal (owner, length, first and last byte); those few are compared whole
        key = np.stack([self.owner, self.name_length, self.data[self.name_start].astype(np.int64),
                        self.data[self.name_start + self.name_length - 1].astype(np.int64)], axis=1)  # fmt: skip
        found = np.zeros(self.count, bool)
        order = np.lexsort(key.T[::-1])
        same = np.flatnonzero((key[order[1:]] == key[order[:-1]]).all(axis=1))
        for owner in np.unique(key[order[same], 0]).tolist():
            texts = [self._name(piece) for piece in np.flatnonzero(self.owner == owner).tolist()]
            found[owner] = len(set(texts)) != len(texts)
        return found

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
