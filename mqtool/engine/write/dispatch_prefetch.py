"""DispatchPrefetch: queue units and index keys of records appended as columns, computed when the records are built.

When dispatch reaches such records it uses these instead of reading the log. They are optional: if they are missing
or late, dispatch reads the log.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np

from mqtool.kernels import Kernels
from mqtool.records.compiled_trailers import TrailerArrays, TrailerPositions, read_trailers
from mqtool.records.dispatch import Dispatcher
from mqtool.records.dispatched import DispatchRules, IndexKeys, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.words import index_hashes

C = TypeVar("C", QueueUnits, IndexKeys)

MOST = 1 << 18
"""Maximum number of records kept; a dispatcher that lags more than that reads the log."""


class WrittenRecords(NamedTuple):
    """Records that were just written, as columns, one row a record.

    Attributes:
        view, base: the bytes that contain them, and the physical offset of the first byte.
        store_timestamp: of all of them, ms since epoch.
        sizes, rooms: bytes of each record, and of its properties.
        queue_id: of each.
        positions: of each record in the view.
        physical_offset, queue_offset: of each.
        topic_start, topic_length, properties_start: positions in the view, and bytes.
    """

    view: memoryview
    base: int
    store_timestamp: int
    sizes: np.ndarray
    rooms: np.ndarray
    queue_id: np.ndarray
    positions: np.ndarray
    physical_offset: np.ndarray
    queue_offset: np.ndarray
    topic_start: np.ndarray
    topic_length: np.ndarray
    properties_start: np.ndarray


class PrefetchedUnits(NamedTuple):
    """Units and index keys of consecutive records.

    Attributes:
        start, end: physical offsets of the first record and after the last.
        records: how many.
        units, keys: for dispatch; topics by their number in `DispatchPrefetch.topics`.
    """

    start: int
    end: int
    records: int
    units: QueueUnits
    keys: IndexKeys


class DispatchPrefetch:
    """Prefetched units and keys, written under the append lock and read by the dispatcher.

    Every access is a single atomic queue operation, so no other lock is needed.

    Attributes:
        topics: name of each topic number.
    """

    def __init__(self, rules: DispatchRules, *, keys: bool) -> None:
        """Starts empty.

        Args:
            rules: of the store.
            keys: whether keys are indexed.
        """
        self._columns = Dispatcher(rules)
        self._keys = keys
        self._parts: deque[PrefetchedUnits] = deque()
        self._key_rows, self._key_hashes = np.empty(0, np.int64), np.empty(0, np.uint32)
        self.topics = self._columns.topics.names

    def change_rules(self, rules: DispatchRules) -> None:
        """Applies other rules from now on. The rules must not change for topics of records already stored here."""
        self._columns.rules = rules

    def note(self, compiled: Kernels, written: WrittenRecords) -> None:
        """Computes and stores units and keys of the next records of the log, up to the maximum."""
        found = self._by_kernel(compiled, written) or self._by_arrays(written)
        if found is None:
            return
        if sum(part.records for part in tuple(self._parts)) > MOST:
            self._parts.clear()
        first, end = int(written.physical_offset[0]), int(written.physical_offset[-1] + written.sizes[-1])
        self._parts.append(PrefetchedUnits(first, end, len(written.sizes), *found))

    def _by_kernel(self, compiled: Kernels, written: WrittenRecords) -> tuple[QueueUnits, IndexKeys] | None:
        """Computes units and keys with a kernel; None if the kernel does not support some record."""
        count, columns = len(written.sizes), self._columns
        place = TrailerPositions(written.topic_start, written.topic_length, written.properties_start, written.rooms)
        if len(self._key_rows) < (room := place.most_keys):
            self._key_rows, self._key_hashes = np.empty(2 * room, np.int64), np.empty(2 * room, np.uint32)
        topic, tags = np.empty(count, np.int32), np.empty(count, np.int64)
        data, options = np.frombuffer(written.view, np.uint8), (columns.schedule, self._keys, columns.rules.index_tags)
        found = TrailerArrays(topic, tags, self._key_rows, self._key_hashes)
        keys, others = read_trailers(compiled, columns.topics, data, place, options, found)
        if len(others):
            return None
        physical, times = written.physical_offset, np.full(count, written.store_timestamp, np.int64)
        units = QueueUnits(
            np.arange(count),
            topic,
            written.queue_id.astype(np.int32),
            written.queue_offset,
            physical,
            written.sizes.astype(np.int32),
            tags,
            times,
            np.ones(count, np.int16),
        )
        rows = self._key_rows[:keys].copy()
        return units, IndexKeys(rows, index_hashes(self._key_hashes[:keys]), physical[rows], times[rows])

    def _by_arrays(self, written: WrittenRecords) -> tuple[QueueUnits, IndexKeys] | None:
        """Computes units and keys as dispatch does for records that it reads; None if some need the scalar path."""
        frames = Frames(written.view, written.base, written.positions, written.sizes)
        found = self._columns.dispatch(frames, keys=self._keys)
        return None if found.oddities else (found.units, found.keys)

    def upcoming(self, start: int) -> int | None:
        """Discards parts that start below a physical offset; returns the start of the first part left."""
        while (part := self._first()) is not None:
            if part.start >= start:
                return part.start
            self._pop()
        return None

    def take(self, start: int, end: int) -> PrefetchedUnits | None:
        """Returns everything from `start` up to the first gap, and below `end`."""
        parts: list[PrefetchedUnits] = []
        while (part := self._first()) is not None and part.start == start and part.end <= end:
            parts.append(part)
            start = part.end
            self._pop()
        return _joined(parts) if parts else None

    def _first(self) -> PrefetchedUnits | None:
        try:
            return self._parts[0]
        except IndexError:  # none, or the writer has just cleared it
            return None

    def _pop(self) -> None:
        with suppress(IndexError):
            self._parts.popleft()


def _joined(parts: list[PrefetchedUnits]) -> PrefetchedUnits:
    if len(parts) == 1:
        return parts[0]
    before = [0, *accumulate(part.records for part in parts)]
    units = _rows_of(QueueUnits, [part.units for part in parts], before)
    keys = _rows_of(IndexKeys, [part.keys for part in parts], before)
    return PrefetchedUnits(parts[0].start, parts[-1].end, before[-1], units, keys)


def _rows_of(kind: type[C], parts: Sequence[C], before: Sequence[int]) -> C:
    """Returns the rows of all parts; `before` is the number of records before each part."""
    rows = np.concatenate([part.row + number for part, number in zip(parts, before, strict=False)])
    others = (np.concatenate([getattr(part, name) for part in parts]) for name in kind.__struct_fields__[1:])
    return kind(rows, *others)
