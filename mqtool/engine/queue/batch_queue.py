"""BatchConsumeQueue: one queue of 46-byte units, each for a record of one or more messages.

Files are named by bytes appended, not by queue offset, so units are found by binary search.
Source: BatchConsumeQueue (5.5.0).
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mqtool.engine.disk.files import ClosedFileError, Files
from mqtool.engine.disk.mapped_file import MappedFile
from mqtool.engine.disk.mapped_file_queue import MappedFileQueue
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, BATCH_UNIT_SIZE, BatchConsumeQueueUnit
from mqtool.records.queue_build import accepts_batch, batch_min_offset
from mqtool.store.queues.get_message import find_batch_unit


class _Units:
    """The units of one file, and their queue offsets (`get_message.Offsets`)."""

    def __init__(self, file: MappedFile) -> None:
        self._file = file

    def __len__(self) -> int:
        return self._file.read_position // BATCH_UNIT_SIZE

    def __getitem__(self, index: int) -> int:
        return self.unit(index).base_queue_offset

    def unit(self, index: int) -> BatchConsumeQueueUnit:
        return BATCH_CONSUME_QUEUE_UNIT.parse(self._file.file.read(index * BATCH_UNIT_SIZE, BATCH_UNIT_SIZE))


class BatchQueue:
    """One queue.

    Attributes:
        topic, queue_id: which queue.
        files: its files; offsets there are bytes.
        max_offset: queue offset of the next message.
        min_offset: first queue offset whose record is still in the log; -1 in a queue that has no unit.
        max_physical_offset: physical offset of the newest record (its start, not its end); -1 if there is none.
    """

    is_batch = True
    unit_size = BATCH_UNIT_SIZE
    ext = None

    def __init__(self, topic: str, queue_id: int, files: Files, directory: Path, file_size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.files = MappedFileQueue(files, (directory,), file_size, names_at_flush=True)
        self.max_offset = 0
        self.min_offset = -1
        self.max_physical_offset = -1

    def put_batch(self, unit: BatchConsumeQueueUnit) -> None:
        """Appends the unit of one record if `accepts_batch`.

        In the page cache on return, durable after `flush`.

        Raises:
            OSError: it was not written; dispatch may try again.
        """
        if not accepts_batch(unit.physical_offset, unit.base_queue_offset, unit.batch_size, self.max_physical_offset):
            return
        file = self.files.last
        if file is None or file.size - file.wrote < BATCH_UNIT_SIZE:
            file = self.files.create()
        file.append(BATCH_CONSUME_QUEUE_UNIT.build(unit))
        self.max_physical_offset = unit.physical_offset
        self.max_offset = unit.base_queue_offset + unit.batch_size
        if self.min_offset < 0:
            self.min_offset = unit.base_queue_offset

    def units_from(self, queue_offset: int) -> Iterator[BatchConsumeQueueUnit]:
        """Yields the units from the one that contains a queue offset to the end of its file.

        It ends early if the file is deleted meanwhile.
        """
        files = ((units, units) for units in map(_Units, reversed(self.files.files)))
        with suppress(ClosedFileError):
            hit = find_batch_unit(files, self.max_offset, queue_offset)
            if hit is not None:
                units, first = hit
                yield from map(units.unit, range(first, len(units)))

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Moves `min_offset` to the first message whose record is still in the log; see `batch_min_offset`."""
        files = self.files.files
        if files:
            used = files[0].read_position - files[0].read_position % BATCH_UNIT_SIZE
            with suppress(ClosedFileError):  # the topic was deleted meanwhile
                units = BATCH_CONSUME_QUEUE_UNIT.rows(files[0].file.read(0, used))
                self.min_offset = batch_min_offset(units, min_physical_offset)

    def set_bounds(self, min_offset: int, max_offset: int, max_physical_offset: int) -> None:
        """Sets the bounds that recovery found; the ends of the files are set already."""
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.max_physical_offset = max_physical_offset

    def flush(self, least_pages: int = 0) -> bool:
        """Flushes units if at least `least_pages` pages are dirty; as `ConsumeQueue.flush`."""
        before = self.files.flushed_offset
        return self.files.is_dirty and self.files.flush(least_pages) != before

    def close(self) -> None:
        """Closes its files; nothing is flushed."""
        self.files.close()
