"""The queues of a store, opened for reading: ConsumeQueue and BatchConsumeQueue."""

import bisect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from mqtool.formats.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, PRE_BLANK_SIZE_FIELD
from mqtool.store.files import MappedFile, ReadFile, list_mapped_files


class Queue:
    """One queue of a topic.

    Attributes:
        topic, queue_id: whose.
        kind: "SimpleCQ" (20-byte units, one a message) or "BatchCQ" (46-byte units, one a record).
        path: its directory.
        files: by file_from_offset.
        strays: what else lies in the directory.
    """

    def __init__(self, topic: str, queue_id: int, kind: str, path: Path, bounds: Callable[[], tuple[int, int]]) -> None:
        """Takes a queue directory.

        Args:
            bounds: returns minimum and maximum physical offset of the CommitLog.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.kind = kind
        self.path = path
        listed = list_mapped_files(path)
        self.files = listed.files
        self.strays = listed.strays
        self._bounds = bounds
        self._unit = CONSUME_QUEUE_UNIT if kind == "SimpleCQ" else BATCH_CONSUME_QUEUE_UNIT
        self._loaded: dict[int, np.ndarray] = {}

    @property
    def is_batch(self) -> bool:
        """Whether units may stand for several messages."""
        return self.kind == "BatchCQ"

    @property
    def file_units(self) -> int:
        """Units that one file holds."""
        return self.files[0].size // self._unit.size if self.files else 0

    def units_of(self, number: int) -> np.ndarray:
        """Returns the units of one file up to the last that is not zero, as a structured array in field order.

        Big-endian fields named as in the layout; the array is read-only.
        """
        if number not in self._loaded:
            file = self.files[number]
            with ReadFile(file.path) as opened:
                data = opened.read(0, min(file.size, -(-opened.data_end() // self._unit.size) * self._unit.size))
            units = np.frombuffer(data, self._unit.dtype, len(data) // self._unit.size)
            if len(self._loaded) > 8:
                self._loaded.clear()
            used = np.flatnonzero(_in_use(units))
            self._loaded[number] = units[: used[-1] + 1] if len(used) else units[:0]
        return self._loaded[number]

    def units(self) -> np.ndarray:
        """Returns all units, files joined; for SimpleCQ item i has queue offset `first_offset + i`."""
        parts = []
        for number in range(len(self.files)):
            part = self.units_of(number)
            if number < len(self.files) - 1 and not self.is_batch:
                part = _padded(part, self.files[number].size // self._unit.size)
            parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, self._unit.dtype)

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit on disk, pre-blank ones included (SimpleCQ)."""
        return self.files[0].base // self._unit.size if self.files else 0

    @cached_property
    def _last(self) -> tuple[int, int, int]:
        """(file number, units in use there, end of the newest record) of the last unit inside the log; (-1, 0, 0)."""
        limit = self._bounds()[1]
        for number in range(len(self.files) - 1, -1, -1):
            units = self.units_of(number)
            inside = np.flatnonzero(_in_use(units) & (units["physical_offset"] < limit) & ~_is_pre_blank(units))
            if len(inside):
                unit = units[inside[-1]]
                return number, int(inside[-1]) + 1, int(unit["physical_offset"]) + int(unit["size"])
        return -1, 0, 0

    @property
    def max_physical_offset(self) -> int:
        """Physical offset after the newest record that a unit names; its start for BatchCQ, as in the broker."""
        number, count, end = self._last
        if number < 0:
            return 0
        return int(self.units_of(number)[count - 1]["physical_offset"]) if self.is_batch else end

    @property
    def max_offset(self) -> int:
        """Queue offset after the last unit."""
        number, count, _ = self._last
        if self.is_batch:
            if number < 0:
                return 0
            unit = self.units_of(number)[count - 1]
            return int(unit["base_queue_offset"]) + int(unit["batch_size"])
        if number < 0:
            return self.first_offset
        return self.files[number].base // self._unit.size + count

    @cached_property
    def min_offset(self) -> int:
        """Queue offset of the first message that the CommitLog still has; equal to max_offset if there is none."""
        limit = self._bounds()[0]
        for number in range(len(self.files)):
            units = self.units_of(number)
            alive = np.flatnonzero((units["physical_offset"] >= limit) & _in_use(units) & ~_is_pre_blank(units))
            if len(alive):
                if self.is_batch:
                    return int(units[alive[0]]["base_queue_offset"])
                return self.files[number].base // self._unit.size + int(alive[0])
        return -1 if self.is_batch else self.max_offset

    def find_file(self, queue_offset: int) -> int | None:
        """Returns the number of the file that holds a unit (SimpleCQ), None if none does."""
        position = queue_offset * self._unit.size
        number = bisect.bisect_right([file.base for file in self.files], position) - 1
        return number if number >= 0 and position < self.files[number].end else None

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return self._unit.size

    def file(self, number: int) -> MappedFile:
        """Returns one of the files."""
        return self.files[number]


def _in_use(units: np.ndarray) -> np.ndarray:
    return (units["size"] > 0) & (units["physical_offset"] >= 0)


def _is_pre_blank(units: np.ndarray) -> np.ndarray:
    return (units["physical_offset"] == 0) & (units["size"] == PRE_BLANK_SIZE_FIELD)


def _padded(units: np.ndarray, count: int) -> np.ndarray:
    if len(units) == count:
        return units
    whole = np.zeros(count, units.dtype)
    whole[: len(units)] = units
    return whole
