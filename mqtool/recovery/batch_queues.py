"""One BatchConsumeQueue during a start of 5.5: its units represent records with several messages.

A model like `queues`, with the same method names. Source: BatchConsumeQueue (5.5.0).
"""

import numpy as np
from msgspec.structs import astuple

from mqtool.formats import file_names, java
from mqtool.formats.config_files import BATCH_QUEUES
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, BATCH_UNIT_SIZE, BatchConsumeQueueUnit
from mqtool.formats.release import V5_5
from mqtool.records.queue_build import accepts_batch, batch_min_offset
from mqtool.recovery.action_log import Action, ActionLog
from mqtool.recovery.mapped_files import Entry
from mqtool.recovery.queue_files import QueueFiles
from mqtool.recovery.settings import RecoverySettings


class BatchQueue:
    """A BatchConsumeQueue of 46-byte units.

    Attributes:
        topic, queue_id: names the queue.
        files: with positions; their bases count bytes and are unrelated to queue offsets.
        max_physical_offset: *start* of the record of the last unit; -1 at first.
        min_offset, max_offset: queue offsets; -1 and 0 for an empty queue.
    """

    kind = BATCH_QUEUES

    def __init__(self, topic: str, queue_id: int, settings: RecoverySettings, actions: ActionLog) -> None:
        directory = settings.root / file_names.BATCH_CONSUME_QUEUE / topic / str(queue_id)
        self.topic = topic
        self.queue_id = queue_id
        self.files = QueueFiles(directory, settings.batch_file_size, BATCH_CONSUME_QUEUE_UNIT, actions)
        self.max_physical_offset = -1
        self.min_offset = -1
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
        number, run, last, _ = self.files.follow_units(_valid)
        if last is not None:
            self.max_physical_offset = int(last["physical_offset"])
        self.files.truncate_dirty(self.files.files[number].base + run * BATCH_UNIT_SIZE)
        self._revise()

    def truncate(self, physical_offset: int) -> None:
        """Drops the units at or past the log's end; see `QueueFiles.truncate_units`."""
        last = self.files.truncate_units(physical_offset, _valid, "BatchConsumeQueue")
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


def _valid(units: np.ndarray) -> np.ndarray:
    valid: np.ndarray = (
        (units["physical_offset"] >= 0)
        & (units["size"] > 0)
        & (units["base_queue_offset"] >= 0)
        & (units["batch_size"] > 0)
    )
    return valid
