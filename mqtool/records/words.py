"""Strings in a buffer, eight bytes at a time: Java's hash and equality without a loop over bytes.

The hash of a string is the sum of byte[i] · 31^(n-1-i) mod 2^32. The string is read from its end in words of eight
bytes,
and the share of a word is computed inside it: pairs, then quads, then the whole, by shifts and masks. Strings with
bytes above 0x7F are decoded and hashed one by one, because Java counts UTF-16 units.
"""

import numpy as np

from mqtool.formats import java

PAD = 64
"""Bytes that a buffer has before the first and after the last string, so that no word leaves it."""

_U64 = np.uint64
_ALL = (1 << 64) - 1
_HEADS = np.array([(1 << 8 * size) - 1 for size in range(9)], _U64)
_TAILS = np.array([_ALL << 8 * (8 - size) & _ALL for size in range(9)], _U64)
_HIGH = _U64(0x8080808080808080)
_PAIRS, _QUADS, _HALVES = _U64(0x00FF00FF00FF00FF), _U64(0x0000FFFF0000FFFF), _U64(0xFFFFFFFF)
_31, _31_2, _31_4 = _U64(31), _U64(31**2), _U64(31**4)
_8, _16, _32 = _U64(8), _U64(16), _U64(32)
_PER_WORD = pow(31, 8, 1 << 32)


def words_of(data: np.ndarray) -> np.ndarray:
    """Returns the word at every position of a buffer, its first byte in the lowest bits."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


def name_mask(lengths: np.ndarray) -> np.ndarray:
    """Returns the mask that keeps the first `length` bytes of a word, all eight for longer strings."""
    return _HEADS.take(np.clip(lengths, 0, 8))


def java_hashes(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns `String.hashCode()` and `String.length()` of strings.

    Args:
        data: uint8, with `PAD` bytes before the first string.
        starts: int64 positions.
        lengths: int64 bytes, not negative.

    Returns:
        uint32 hashes (the two's complement of Java's int), int64 lengths in UTF-16 units.
    """
    words, ends = words_of(data), starts + lengths
    hashes = np.zeros(len(starts), np.uint32)
    units = lengths.copy()
    seen = np.zeros(len(starts), _U64)
    which = np.arange(len(starts))
    factor, shortest = 1, int(lengths.min(initial=java.INT_MAX))
    for done in range(0, int(lengths.max(initial=0)), 8):
        if done:
            which = which[lengths[which] > done]
        is_all = len(which) == len(starts)
        word = words[(ends if is_all else ends[which]) - (done + 8)]
        if done + 8 > shortest:
            rest = (lengths if is_all else lengths[which]) - done
            word &= _TAILS.take(np.minimum(rest, 8))
        share = _word_hash(word) * np.uint32(factor)
        if is_all:
            hashes += share
            seen |= word
        else:
            hashes[which] += share
            seen[which] |= word
        factor = factor * _PER_WORD & 0xFFFFFFFF
    for row in np.flatnonzero(seen & _HIGH).tolist():
        text = java.decode_utf8(data[starts[row] : ends[row]].tobytes())
        hashes[row] = java.string_hash(text) & 0xFFFFFFFF
        units[row] = java.length(text)
    return hashes, units


def index_hashes(hashes: np.ndarray) -> np.ndarray:
    """Returns int32 key hashes of index entries from uint32 string hashes; columnar form of `java.index_hash`."""
    signed = hashes.view(np.int32)
    return np.where(signed == java.INT_MIN, np.int32(0), np.abs(signed)).astype(np.int32)


def _word_hash(word: np.ndarray) -> np.ndarray:
    pairs = (word & _PAIRS) * _31 + ((word >> _8) & _PAIRS)
    quads = (pairs & _QUADS) * _31_2 + ((pairs >> _16) & _QUADS)
    return ((quads & _HALVES) * _31_4 + (quads >> _32)).astype(np.uint32)


class WordTable:
    """Assigns dense numbers to 64-bit values in the order in which they are first seen."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._numbers: dict[int, int] = {}
        self._resize(1 << 12)

    def _resize(self, size: int) -> None:
        self._shift = _U64(64 - size.bit_length() + 1)
        self._keys = np.zeros(size, _U64)
        self._at = np.full(size, -1, np.int32)
        for number, value in enumerate(self.values):
            self._place(value, number)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, int]:
        """The table as `native.logs` takes it: values and numbers by slot, and the shift that makes a slot."""
        return self._keys, self._at, int(self._shift)

    def _place(self, value: int, number: int) -> None:
        slot, mask = int(self._slots(np.array([value], _U64))[0]), len(self._at) - 1
        while (
            self._at[slot] >= 0
        ):  # array operations look at the first place alone; the compiled pass goes on from there
            slot = (slot + 1) & mask
        self._keys[slot], self._at[slot] = value, number

    def _slots(self, values: np.ndarray) -> np.ndarray:
        return ((values * _U64(0x9E3779B97F4A7C15)) >> self._shift).view(np.int64)

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
