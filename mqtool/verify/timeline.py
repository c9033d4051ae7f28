"""Counts messages by topic and time while the log is read; only for reports."""

from collections import Counter

import numpy as np
from msgspec import Struct, field

MINUTE_MS = 60_000
MAX_SLOTS = 200_000
"""Maximum number of (topic, minute) pairs; further ones are counted only in the topic's total."""


class Timeline(Struct):
    """Counts.

    Attributes:
        topics: records and bytes by topic.
    """

    messages: Counter[tuple[str, int]] = field(default_factory=Counter)  # by (topic, minute since epoch)
    records: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, topics: np.ndarray, times: np.ndarray, sizes: np.ndarray, names: list[str]) -> None:
        """Counts the records of one window.

        Args:
            topics: topic number of each record.
            times: store timestamps in ms.
            sizes: bytes of each record.
            names: of the topic numbers.
        """
        counts = np.bincount(topics, minlength=len(names))
        volume = np.bincount(topics, sizes, minlength=len(names))
        for number in np.flatnonzero(counts).tolist():
            self.records[names[number]] += int(counts[number])
            self.bytes[names[number]] += int(volume[number])
        minutes = np.clip(times // MINUTE_MS, 0, (1 << 40) - 1)
        slots, numbers = np.unique((topics.astype(np.int64) << 40) | minutes, return_counts=True)
        for slot, count in zip(slots.tolist(), numbers.tolist(), strict=True):
            key = (names[slot >> 40], slot & ((1 << 40) - 1))
            if key in self.messages or len(self.messages) < MAX_SLOTS:
                self.messages[key] += count

    def merge(self, other: "Timeline") -> None:
        """Adds another's counts."""
        self.messages.update(other.messages)
        self.records.update(other.records)
        self.bytes.update(other.bytes)
