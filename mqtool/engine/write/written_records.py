"""WrittenRecords: where the records are that were just appended as columns, and their fields.

Dispatch uses this instead of looking for the records in the log. It is optional: if it is missing or late, dispatch
reads the log.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from mqtool.records.frames import Frames

MAX = 1 << 18
"""Maximum number of records kept; a dispatcher that lags more than that reads the log."""

AT_ONCE = 1 << 13
"""Records after which no further ones are taken with them: their columns stay in the processor's second cache."""


class WrittenColumns(NamedTuple):
    """Records that were written together, as columns, one row a record."""

    base: int  # physical offset of the first byte of the buffer to which positions refer
    store_timestamp: int  # of all, ms
    sizes: np.ndarray  # bytes of each record
    sys_flag: np.ndarray  # and queue_id, queue_offset: of each
    queue_id: np.ndarray
    queue_offset: np.ndarray
    positions: np.ndarray  # of each record in the buffer
    topic_start: np.ndarray  # and topic_length, properties_start, properties_length: positions in the buffer, and bytes
    topic_length: np.ndarray
    properties_start: np.ndarray
    properties_length: np.ndarray

    @property
    def start(self) -> int:
        """Physical offset of the first record."""
        return self.base + int(self.positions[0])

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return self.base + int(self.positions[-1] + self.sizes[-1])


class WrittenRecords:
    """Records noted under the append lock, and taken by the dispatcher.

    Every access is a single atomic queue operation, so no other lock is needed.
    """

    def __init__(self) -> None:
        self._parts: deque[WrittenColumns] = deque()

    def note(self, written: WrittenColumns) -> None:
        """Keeps the next records of the log, up to the maximum."""
        if sum(len(part.sizes) for part in tuple(self._parts)) > MAX:
            self._parts.clear()
        self._parts.append(written)

    def upcoming(self, start: int) -> int | None:
        """Discards parts that start below a physical offset; returns the start of the first part left."""
        while (part := self._first()) is not None:
            if part.start >= start:
                return part.start
            self._pop()
        return None

    def take(self, view: memoryview, base: int) -> Frames | None:
        """Returns the noted records with which a view of the log begins; None if it begins with none.

        Args:
            view: bytes of the log; records that do not end in it are left.
            base: physical offset of its first byte.
        """
        parts: list[WrittenColumns] = []
        start, records = base, 0
        while records < AT_ONCE and (part := self._first()) is not None:
            if part.start != start or part.end > base + len(view):
                break
            parts.append(part)
            start = part.end
            records += len(part.sizes)
            self._pop()
        return _frames(parts, view, base) if parts else None

    def _first(self) -> WrittenColumns | None:
        try:
            return self._parts[0]
        except IndexError:  # none, or the writer has just cleared it
            return None

    def _pop(self) -> None:
        with suppress(IndexError):
            self._parts.popleft()


def _frames(parts: list[WrittenColumns], view: memoryview, base: int) -> Frames:
    def joined(column_of: Callable[[WrittenColumns], np.ndarray]) -> np.ndarray:
        return np.concatenate([column_of(part) for part in parts])

    positions, sizes = joined(lambda part: part.positions + (part.base - base)), joined(lambda part: part.sizes)
    columns = {
        "total_size": sizes.astype(np.int32),
        "queue_id": joined(lambda part: part.queue_id).astype(np.int32),
        "sys_flag": joined(lambda part: part.sys_flag),
        "queue_offset": joined(lambda part: part.queue_offset),
        "physical_offset": positions + base,
        "store_timestamp": np.repeat([part.store_timestamp for part in parts], [len(part.sizes) for part in parts]),
        "topic_start": joined(lambda part: part.topic_start + (part.base - base)),
        "topic_length": joined(lambda part: part.topic_length),
        "properties_start": joined(lambda part: part.properties_start + (part.base - base)),
        "properties_length": joined(lambda part: part.properties_length),
    }
    frames = Frames(view, base, positions, sizes, columns)
    frames.valid = np.ones(len(frames), bool)
    return frames
