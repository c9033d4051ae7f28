"""The queues during a start: recovered, truncated, appended to, their minimum corrected.

Models: units are read, appended in memory, and never written. Differences between the two releases are marked. Source:
ConsumeQueue (4.9.7, 5.5.0); BatchConsumeQueue (5.5.0), whose units represent records with several messages.
"""

import numpy as np
from msgspec.structs import astuple

from mqtool.formats import file_names, java
from mqtool.formats.config_files import BATCH_QUEUES, SIMPLE_QUEUES
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    CONSUME_QUEUE_UNIT,
    PRE_BLANK,
    PRE_BLANK_SIZE_FIELD,
    UNIT_SIZE,
    BatchConsumeQueueUnit,
)
from mqtool.formats.release import V5_5
from mqtool.records.queue_build import UnitPlacement, accepts_batch, batch_min_offset, is_dispatched, placement_of
from mqtool.recovery.action_log import Action, ActionLog
from mqtool.recovery.mapped_files import Entry, QueueFile, QueueFiles, Segments, list_entries
from mqtool.recovery.settings import RecoverySettings


class SimpleQueue:
    """A ConsumeQueue of 20-byte units."""

    kind = SIMPLE_QUEUES

    def __init__(self, topic: str, queue_id: int, settings: RecoverySettings, actions: ActionLog) -> None:
        directory = settings.root / file_names.CONSUME_QUEUE / topic / str(queue_id)
        self.topic = topic  # topic and queue_id: names the queue
        self.queue_id = queue_id
        self.files = QueueFiles(directory, settings.queue_file_size, CONSUME_QUEUE_UNIT, actions)
        self.max_physical_offset = -1  # end of the record of the last unit, as the broker remembers it; -1 at first
        self._extension: Segments | None = None
        if settings.queue_ext_file_size is not None:
            directory = settings.root / file_names.CONSUME_QUEUE_EXT / topic / str(queue_id)
            self._extension = Segments(directory, settings.queue_ext_file_size, actions)
        self._min_logic = 0
        self._release = settings.release
        self._actions = actions

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    @property
    def min_offset(self) -> int:
        """Queue offset from which the broker serves."""
        return java.divide(self._min_logic, UNIT_SIZE)

    @property
    def max_offset(self) -> int:
        """Queue offset after the last unit."""
        return java.divide(self.files.max_offset, UNIT_SIZE)

    @property
    def min_logic(self) -> int:
        """The minimum in bytes; the broker looks up nothing below it."""
        return self._min_logic

    def load(self, entries: list[Entry]) -> None:
        """Loads the files, then those of the extension; raises StartFailed if the broker refuses one."""
        self.files.load(entries, release=self._release)
        if self._extension is not None:
            self._extension.load(list_entries(self._extension.directory) or (), release=self._release)

    def recover(self) -> None:
        """Finds the end from the units, beginning with the third last file; deletes files after it."""
        if not self.files.files:
            return
        number, run, last, rest = self.files.follow_units(_valid)
        if last is not None:
            self.max_physical_offset = _end_of(last)
        self._note_early_end(number, run, rest)
        self.files.truncate_dirty(self.files.files[number].base + run * UNIT_SIZE)

    def _note_early_end(self, number: int, run: int, rest: np.ndarray) -> None:
        has_more = bool((rest["physical_offset"] != 0).any()) or bool((rest["size"] != 0).any())
        if has_more or number + 1 < len(self.files.files):
            at = java.divide(self.files.files[number].base, UNIT_SIZE) + run
            self._actions.log_reason(
                f"queue {self} ends before unit {at}, the first with an offset below 0 or a size of 0 or less; units "
                "after it are overwritten later, and files after it are deleted (ConsumeQueue.recover)"
            )

    def truncate(self, physical_offset: int) -> None:
        """Drops the units at or past the log's end; see `QueueFiles.truncate_units`."""
        last = self.files.truncate_units(physical_offset, _valid, "ConsumeQueue")
        self.max_physical_offset = physical_offset if last is None else _end_of(last)
        if last is not None and int(self.files.files[-1].unit_at(0)["size"]) <= 0:
            number = java.divide(self.files.files[-1].base, UNIT_SIZE)
            self._actions.log_accepted(f"queue {self}: unit {number} is empty, but counts (truncateDirtyLogicFiles)")

    def correct_min(self, min_physical_offset: int) -> None:
        """Finds the first unit that points into the log (ConsumeQueue.correctMinOffset)."""
        if self._release >= (5, 0):
            self._correct_min_5(min_physical_offset)
            return
        if not self.files.files or not self.files.files[0].wrote:
            return
        file = self.files.files[0]
        inside = file.units()["physical_offset"][: file.wrote // UNIT_SIZE] >= min_physical_offset
        if inside.any():
            self._min_logic = file.base + int(np.argmax(inside)) * UNIT_SIZE

    def _correct_min_5(self, min_physical_offset: int) -> None:
        if self._min_logic >= self.files.max_offset or not self.files.files:
            return
        last = self.files.files[-1]
        if last.wrote >= UNIT_SIZE:
            newest = int(last.unit_at(last.wrote // UNIT_SIZE - 1)["physical_offset"])
            if newest < min_physical_offset:
                self._min_logic = last.base + last.wrote
                return
        first = self.files.files[0]
        start = self._min_logic - first.base
        intact = start >= 0
        start = max(start, 0)
        if start + UNIT_SIZE > first.wrote:  # nothing is there, or less than a unit: its name is not a multiple of one
            return
        if intact and int(first.unit_at(start // UNIT_SIZE)["physical_offset"]) >= min_physical_offset:
            return
        offsets = first.units()["physical_offset"][start // UNIT_SIZE : first.wrote // UNIT_SIZE]
        index = _first_at_or_after(offsets, min_physical_offset)
        if index is not None:
            self._min_logic = first.base + start + index * UNIT_SIZE

    def put(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Adds a unit if the broker would (ConsumeQueue.putMessagePositionInfo)."""
        end = java.to_int64(physical_offset + size)
        if is_dispatched(end, self.max_physical_offset):
            return
        expected = java.to_int64(queue_offset * UNIT_SIZE)
        file = self.files.last_for_append(expected)
        if file.is_first and queue_offset != 0 and file.wrote == 0:
            self._pre_blank(file, expected)
        current = file.wrote + file.base
        place = placement_of(queue_offset, current)
        if place is UnitPlacement.PRESENT:
            return
        if place is UnitPlacement.AFTER_GAP:
            self._actions.log_accepted(
                f"queue {self}: a record that states queue offset {queue_offset} is put at "
                f"{java.divide(current, UNIT_SIZE)}; all later ones are shifted too"
            )
        self.max_physical_offset = end
        if file.changed_from is None:
            self._actions.do(Action.APPEND, file.path, file.wrote)
        file.append((physical_offset, size, tags_code))

    def _pre_blank(self, file: QueueFile, expected: int) -> None:
        """Fills the front of a new queue's first file (ConsumeQueue.fillPreBlank)."""
        self._min_logic = expected
        until = self.files.remainder(expected)
        if until > 0:
            self._actions.do(Action.APPEND, file.path, 0, until // UNIT_SIZE)
            self._actions.log_reason(
                f"queue {self} is created again from queue offset {java.divide(expected, UNIT_SIZE)}; the start of "
                f"its file is filled with blank units of size {PRE_BLANK_SIZE_FIELD} (ConsumeQueue.fillPreBlank)"
            )
        for _ in range(0, until, UNIT_SIZE):
            file.append((PRE_BLANK.physical_offset, PRE_BLANK.size, PRE_BLANK.tags_code))

    def destroy(self) -> None:
        """Deletes every file."""
        self.files.destroy()
        self.max_physical_offset = -1
        self._min_logic = 0


def _valid(units: np.ndarray) -> np.ndarray:
    valid: np.ndarray = (units["physical_offset"] >= 0) & (units["size"] > 0)
    return valid


def _end_of(unit: np.void) -> int:
    return java.to_int64(int(unit["physical_offset"]) + int(unit["size"]))


def _first_at_or_after(offsets: np.ndarray, offset: int) -> int | None:
    """Returns the unit that 5.5's search finds, which is the first one only if offsets ascend."""
    low, high = 0, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) // 2
        value = int(offsets[middle])
        if value == offset:
            low = high = middle
        elif value > offset:
            high = middle
        else:
            low = middle
    return next((at for at in range(low, high + 1) if int(offsets[at]) >= offset), None)


class BatchQueue:
    """A BatchConsumeQueue of 46-byte units.

    Attributes:
        files: with positions; their bases count bytes and are unrelated to queue offsets.
    """

    kind = BATCH_QUEUES

    def __init__(self, topic: str, queue_id: int, settings: RecoverySettings, actions: ActionLog) -> None:
        directory = settings.root / file_names.BATCH_CONSUME_QUEUE / topic / str(queue_id)
        self.topic = topic  # topic and queue_id: names the queue
        self.queue_id = queue_id
        self.files = QueueFiles(directory, settings.batch_file_size, BATCH_CONSUME_QUEUE_UNIT, actions)
        self.max_physical_offset = -1  # *start* of the record of the last unit; -1 at first
        self.min_offset = -1  # min_offset and max_offset: queue offsets; -1 and 0 for an empty queue
        self.max_offset = 0
        self._actions = actions

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    def load(self, entries: list[Entry]) -> None:
        """Loads the files; raises StartFailed if the broker refuses one."""
        self.files.load(entries, release=V5_5)

    def recover(self) -> None:
        """Finds the end from the units, beginning with the third last file; deletes files after it."""
        if not self.files.files:
            return
        number, run, last, _ = self.files.follow_units(_valid_batches)
        if last is not None:
            self.max_physical_offset = int(last["physical_offset"])
        self.files.truncate_dirty(self.files.files[number].base + run * BATCH_UNIT_SIZE)
        self._revise()

    def truncate(self, physical_offset: int) -> None:
        """Drops the units at or past the log's end; see `QueueFiles.truncate_units`."""
        last = self.files.truncate_units(physical_offset, _valid_batches, "BatchConsumeQueue")
        self.max_physical_offset = physical_offset - 1 if last is None else int(last["physical_offset"])
        self._revise()

    def _revise(self) -> None:
        self.correct_min()
        newest = next((file for file in reversed(self.files.files[-2:]) if file.wrote >= BATCH_UNIT_SIZE), None)
        if newest is None:
            self.max_offset = 0
            return
        unit = newest.unit_at(newest.wrote // BATCH_UNIT_SIZE - 1)
        self.max_offset = int(unit["base_queue_offset"]) + int(unit["batch_size"])

    def correct_min(self, min_physical_offset: int = java.LONG_MIN) -> None:
        """Finds the first queue offset in the log; see `batch_min_offset`."""
        if not self.files.files:
            self.min_offset, self.max_offset = -1, 0
            return
        first = self.files.files[0]
        self.min_offset = batch_min_offset(first.units()[: first.wrote // BATCH_UNIT_SIZE], min_physical_offset)

    def put(self, unit: BatchConsumeQueueUnit) -> None:
        """Adds the unit of a record if `accepts_batch`."""
        if not accepts_batch(unit.physical_offset, unit.base_queue_offset, unit.batch_size, self.max_physical_offset):
            return
        file = self.files.last_for_append(self.files.max_offset)
        if file.changed_from is None:
            self._actions.do(Action.APPEND, file.path, file.wrote)
        file.append(astuple(unit))
        self.max_physical_offset = unit.physical_offset
        self.max_offset = unit.base_queue_offset + unit.batch_size
        if file.is_first and self.min_offset == -1:
            self.correct_min()

    def destroy(self) -> None:
        """Deletes every file."""
        self.files.destroy()
        self.max_physical_offset, self.min_offset, self.max_offset = -1, -1, 0


def _valid_batches(units: np.ndarray) -> np.ndarray:
    valid: np.ndarray = (
        (units["physical_offset"] >= 0)
        & (units["size"] > 0)
        & (units["base_queue_offset"] >= 0)
        & (units["batch_size"] > 0)
    )
    return valid
