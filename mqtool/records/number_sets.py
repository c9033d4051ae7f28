"""Sets of offsets as sorted arrays, and dense numbers of words and topics.

Since numpy 2.3 `numpy.unique` uses a hash table, which takes half a second for a million physical offsets. Sorting
them takes two milliseconds, because offsets are mostly ascending already. `numpy.isin` uses the same table.
"""

from functools import cached_property

import numpy as np

from mqtool import native
from mqtool.formats import index_file, java

_AT_ONCE = 1 << 18


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Returns the distinct numbers, ascending."""
    ordered = np.sort(numbers, kind="stable")  # in one pass where they ascend
    kept = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered[kept]


def union(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the distinct numbers of two arrays, ascending."""
    return distinct(np.concatenate([left, right]))


def among(numbers: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Returns a bool for each number: whether it is in `candidates`."""
    if not len(candidates) or not len(numbers):
        return np.zeros(len(numbers), bool)
    ordered = candidates if (candidates[1:] >= candidates[:-1]).all() else np.sort(candidates)
    contained = np.empty(len(numbers), bool)
    for start in range(0, len(numbers), _AT_ONCE):  # places need as much memory as the numbers
        part = numbers[start : start + _AT_ONCE]
        at = np.minimum(np.searchsorted(ordered, part), len(ordered) - 1)
        np.equal(ordered[at], part, out=contained[start : start + _AT_ONCE])
    return contained


def within(numbers: np.ndarray, start: int | None, end: int | None) -> np.ndarray:
    """Returns a bool for each number: whether it is in a range; None for no bound."""
    kept = np.ones(len(numbers), bool) if start is None else numbers >= start
    return kept if end is None else kept & (numbers < end)


def run_starts(numbers: np.ndarray) -> np.ndarray:
    """Returns the rows at which runs of equal numbers begin, int64; there must be a row."""
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(numbers[1:] != numbers[:-1]) + 1])


def stable_order(numbers: np.ndarray) -> np.ndarray:
    """Returns the rows in ascending order of their numbers, int64; equal numbers stay in the order of their rows.

    numpy sorts 16 bits by radix. Two such passes take 10 ns a row; its other sorts take 10 to 60, most on processors
    with slow AVX-512.
    """
    lowest, highest = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if lowest < 0 or highest >= 1 << 32:
        return np.argsort(numbers, kind="stable")
    order = np.argsort(numbers.astype(np.uint16), kind="stable")  # by the lower bits: the cast drops the others
    if highest >= 1 << 16:
        order = order[np.argsort((numbers >> 16).astype(np.uint16)[order], kind="stable")]
    return order


class WordTable:
    """Assigns dense numbers to 64-bit values in the order in which they are first seen."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._numbers: dict[int, int] = {}
        self._resize(1 << 12)

    def _resize(self, size: int) -> None:
        self._shift = np.uint64(64 - size.bit_length() + 1)
        self._keys = np.zeros(size, np.uint64)
        self._at = np.full(size, -1, np.int32)
        for number, value in enumerate(self.values):
            self._place(value, number)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, int]:
        """The table as `native.logs` takes it: values and numbers by slot, and the shift that makes a slot."""
        return self._keys, self._at, int(self._shift)

    def _place(self, value: int, number: int) -> None:
        slot, mask = int(self._slots(np.array([value], np.uint64))[0]), len(self._at) - 1
        while self._at[slot] >= 0:  # `numbers_of` looks at the first place alone; the compiled pass continues from it
            slot = (slot + 1) & mask
        self._keys[slot], self._at[slot] = value, number

    def _slots(self, values: np.ndarray) -> np.ndarray:
        return ((values * np.uint64(0x9E3779B97F4A7C15)) >> self._shift).view(np.int64)

    def numbers_of(self, values: np.ndarray) -> np.ndarray:
        """Returns the number of each uint64 value, int32; new values get the next ones."""
        slots = self._slots(values)
        result = self._at.take(slots)
        missed = np.flatnonzero((self._keys.take(slots) != values) | (result < 0))
        if len(missed):
            distinct, first, inverse = np.unique(values[missed], return_index=True, return_inverse=True)
            numbers = np.empty(len(distinct), np.int32)
            for index in np.argsort(first).tolist():
                numbers[index] = self._number(int(distinct[index]))
            result[missed] = numbers[inverse]
        return result

    def _number(self, value: int) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
            if len(self.values) * 4 > len(self._keys):
                self._resize(len(self._keys) * 4)
            else:
                self._place(value, number)
        return number


class TopicTable:
    """Numbers topics in the order in which they are first seen.

    Attributes:
        names: topic of each number, decoded as Java does.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number_of(self, name: str) -> int:
        """Returns the number of a topic, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    @cached_property
    def slots(self) -> "native.logs.TopicSlots":
        """The topics by their bytes as `native.logs` takes them; `learn` adds one."""
        return native.logs.TopicSlots()

    def learn(self, raw: bytes) -> None:
        """Adds a new topic to `slots`, by its bytes."""
        name = java.decode_utf8(raw)
        before = index_file.key_text(name, ""), index_file.tag_key_text(name, "")
        self.slots.learn(raw, self.number_of(name), *(java.string_hash(text) & 0xFFFFFFFF for text in before))
