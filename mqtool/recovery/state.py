"""A store during a start: all models together.

Mutable on purpose: recovery, dispatch and start change it step by step, as the broker does; `outcome` is derived
from it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.config_files import BATCH_QUEUES
from mqtool.formats.topics import TopicQueue
from mqtool.records.record_check import Read
from mqtool.recovery.action_log import ActionLog
from mqtool.recovery.index import SimulatedIndex
from mqtool.recovery.mapped_files import QueueFile, Segments, SimulatedFile
from mqtool.recovery.queues import BatchQueue, SimpleQueue
from mqtool.recovery.settings import RecoverySettings
from mqtool.store.files import ReadFile

AnyQueue = SimpleQueue | BatchQueue
_OPEN_FILES = 16


class ScanTotals(Struct):
    """How much recovery and dispatch had to read."""

    from_offset: int | None = None  # physical offset at which the scan began; None if there was nothing to scan
    end_offset: int | None = None  # end of the log according to the scan
    records: int = 0  # and bytes: how many passed the test
    bytes: int = 0
    dispatched: int = 0  # number of records dispatched to queues and index
    has_negative_blank: bool = False  # see `Outcome`


class LastQueued(Struct):
    """The record that was last dispatched to a queue; its time and place go into the checkpoint."""

    store_timestamp: int
    physical_offset: int


class SegmentFiles:
    """Open segments, a few at a time."""

    def __init__(self) -> None:
        self._open: dict[Path, ReadFile] = {}

    def reader(self, file: SimulatedFile) -> Read:
        """Returns the positional read of a segment."""
        opened = self._open.pop(file.path, None) or ReadFile(file.path)
        self._open[file.path] = opened
        if len(self._open) > _OPEN_FILES:
            oldest = next(iter(self._open))
            self._open.pop(oldest).close()
        return opened.read

    def close(self) -> None:
        """Closes all."""
        while self._open:
            self._open.popitem()[1].close()


class StoreState:
    """Everything that a start reads and changes.

    Attributes:
        queues: by topic and queue id, those in directories and those that dispatch made.
        next_offsets: what the next append to each queue takes, as the broker noted it last.
        loaded_segments, loaded_queues: files as they were loaded, before recovery.
    """

    def __init__(
        self, settings: RecoverySettings, actions: ActionLog, checked: Mapping[int, np.ndarray] | None = None
    ) -> None:
        self.settings = settings  # settings and actions: of this start
        self.actions = actions
        self.checked = checked or {}  # records that need not be tested again, see `predict`
        self.clean_stop = True  # no abort file was there
        self.log = Segments(settings.commit_log_dirs[0], settings.segment_size, actions)  # segments with positions
        self.segments = SegmentFiles()
        self.queues: dict[TopicQueue, AnyQueue] = {}
        self.index = SimulatedIndex(settings, actions)  # the index files
        self.loaded_checkpoint: Checkpoint | None = None
        self.checkpoint = Checkpoint()  # as it would be written; `loaded_checkpoint` as it was read, None before that
        self.next_offsets: dict[TopicQueue, int] = {}
        self.flushed_where = 0  # end of the log by recovery
        self.reput_from = 0  # where dispatch stands
        self.is_writeable = True  # no error flag is set
        self.scanned = ScanTotals()  # how much was looked at
        self.queue_types: dict[str, str] = {}  # of topics with queues of another type than SimpleCQ
        self.compacted_topics: frozenset[str] = frozenset()  # those that are served from their own compacted logs
        self.compacted_ends: dict[TopicQueue, int] = {}  # last queue offset in each of these logs that is loaded
        self.last_queued: LastQueued | None = None  # the record that was last given to a queue
        self.loaded_segments: tuple[SimulatedFile, ...] = ()
        self.loaded_queues: dict[TopicQueue, tuple[QueueFile, ...]] = {}

    def queue(self, topic: str, queue_id: int) -> AnyQueue:
        """Returns a queue; creates it in memory if it does not exist (findConsumeQueue, findOrCreateConsumeQueue)."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            kind = (
                BatchQueue
                if self.settings.release >= (5, 0) and self.queue_types.get(topic) == BATCH_QUEUES
                else SimpleQueue
            )
            queue = self.queues[topic, queue_id] = kind(topic, queue_id, self.settings, self.actions)
        return queue

    @property
    def queues_end(self) -> int:
        """Largest physical offset that any queue remembers, -1 without queues."""
        return max((queue.max_physical_offset for queue in self.queues.values()), default=-1)

    def note_loaded(self) -> None:
        """Keeps the lists of files before recovery."""
        self.loaded_segments = tuple(self.log.files)
        self.loaded_queues = {key: tuple(queue.files.files) for key, queue in self.queues.items()}

    def truncate_queues(self, physical_offset: int) -> None:
        """Drops units at or past the end of the log from every queue."""
        for queue in self.queues.values():
            queue.truncate(physical_offset)

    def note_offsets(self) -> None:
        """Notes every queue's next offset and corrects its minimum (recoverTopicQueueTable)."""
        for key, queue in self.queues.items():
            self.next_offsets[key] = queue.max_offset
            queue.correct_min(self.log.min_offset)

    def update_checkpoint(self, **fields: int) -> None:
        """Changes fields of the checkpoint."""
        self.checkpoint = replace(self.checkpoint, **fields)
