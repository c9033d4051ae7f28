"""Topic names of many records as numbers. There are few distinct topics, so each is decoded once."""

from functools import cached_property
from typing import Any

import numpy as np

from mqtool.formats import index_file, java
from mqtool.native import native
from mqtool.records.trailers import Trailers
from mqtool.records.words import WordTable, name_mask, words_of

_MIX, _FOLD = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)
"""A step multiplies by an odd number, and combines the lower half of the product with the upper one by XOR."""


class TopicTable:
    """Numbers topics in the order in which they are first seen.

    Attributes:
        names: topic of each number, decoded as Java does.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._mixes = WordTable()
        self._topic_of_mix = np.empty(0, np.int32)
        self._size_of_mix = np.empty(0, np.int64)
        self._words_at = np.empty(0, np.int64)
        self._words = np.empty(0, np.uint64)
        self._key_hashes = np.empty(0, np.uint32)
        self._tag_hashes = np.empty(0, np.uint32)

    def number_of(self, name: str) -> int:
        """Returns the number of a topic, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    @property
    def key_hashes(self) -> np.ndarray:
        """Java hash of `topic#`, the prefix of a key's text: uint32 by topic number."""
        self._hash_new()
        return self._key_hashes

    @property
    def tag_hashes(self) -> np.ndarray:
        """Java hash of `topic#T#`, the prefix of a tag's text: uint32 by topic number."""
        self._hash_new()
        return self._tag_hashes

    def _hash_new(self) -> None:
        fresh = self.names[len(self._key_hashes) :]
        if fresh:
            keys = [java.string_hash(index_file.key_text(name, "")) & 0xFFFFFFFF for name in fresh]
            tags = [java.string_hash(index_file.tag_key_text(name, "")) & 0xFFFFFFFF for name in fresh]
            self._key_hashes = np.append(self._key_hashes, np.array(keys, np.uint32))
            self._tag_hashes = np.append(self._tag_hashes, np.array(tags, np.uint32))

    @cached_property
    def slots(self) -> Any:
        """The topics by their bytes as `native.logs` takes them; `learn` adds one."""
        compiled = native()
        assert compiled is not None, "only the compiled form asks for it"
        return compiled.logs.TopicSlots()

    def learn(self, raw: bytes) -> None:
        """Adds a new topic to `slots`, by its bytes."""
        name = java.decode_utf8(raw)
        number = self.number_of(name)
        self.slots.learn(raw, number, int(self.key_hashes[number]), int(self.tag_hashes[number]))

    def numbers_of(self, trailers: Trailers) -> np.ndarray:
        """Returns the number of each row's topic, int32."""
        words = words_of(trailers.data)
        size = trailers.topic_length
        mix = size.astype(np.uint64)
        columns = []
        for done in range(0, int(size.max(initial=0)), 8):
            which = np.flatnonzero(size > done) if done else np.arange(len(size))
            word = words[trailers.topic_start[which] + done] & name_mask(size[which] - done)
            columns.append((which, word))
            mixed = (mix[which] ^ word) * _MIX
            mix[which] = mixed ^ (mixed >> _FOLD)
        entries = self._mixes.numbers_of(mix)
        if len(self._mixes.values) > len(self._topic_of_mix):
            self._learn(trailers, entries)
        numbers = self._topic_of_mix[entries]
        for row in np.flatnonzero(~self._agree(size, columns, entries)).tolist():
            numbers[row] = self.number_of(_name(trailers, row))  # another topic has the same mix
        return numbers

    def _agree(self, size: np.ndarray, columns: list[tuple[np.ndarray, np.ndarray]], entries: np.ndarray) -> np.ndarray:
        same = self._size_of_mix[entries] == size
        for index, (which, word) in enumerate(columns):
            at = np.minimum(self._words_at[entries[which]] + index, len(self._words) - 1)
            same[which] &= self._words[at] == word
        return same

    def _learn(self, trailers: Trailers, entries: np.ndarray) -> None:
        """Adds the topics of entries not seen before, each from its first row."""
        known = len(self._topic_of_mix)
        fresh = np.flatnonzero(entries >= known)
        _, first = np.unique(entries[fresh], return_index=True)
        words, topics, sizes, starts = words_of(trailers.data), [], [], []
        parts, total = [self._words], len(self._words)
        for row in fresh[first].tolist():
            size, start = int(trailers.topic_length[row]), int(trailers.topic_start[row])
            steps = np.arange(0, size, 8)
            parts.append(words[start + steps] & name_mask(size - steps))
            topics.append(self.number_of(_name(trailers, row)))
            sizes.append(size)
            starts.append(total)
            total += len(steps)
        self._words = np.concatenate(parts)
        self._topic_of_mix = np.concatenate([self._topic_of_mix, np.array(topics, np.int32)])
        self._size_of_mix = np.concatenate([self._size_of_mix, np.array(sizes, np.int64)])
        self._words_at = np.concatenate([self._words_at, np.array(starts, np.int64)])


def _name(trailers: Trailers, row: int) -> str:
    start = int(trailers.topic_start[row])
    return java.decode_utf8(trailers.data[start : start + int(trailers.topic_length[row])].tobytes())
