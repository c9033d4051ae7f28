"""BatchConsumeQueue: one queue of 46-byte units, each for a record of one or more messages.

Files are named by bytes appended, not by queue offset, so units are found by binary search.
Source: BatchConsumeQueue (5.5.0).
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from mqtool.engine.disk.files import Files
from mqtool.engine.disk.mapped_file import MappedFile
from mqtool.engine.disk.mapped_file_queue import MappedFileQueue
from mqtool.formats.batch_consume_queue import BATCH_CONSUME_QUEUE_UNIT, BATCH_UNIT_SIZE, BatchConsumeQueueUnit
from mqtool.records.queue_build import accepts_batch
from mqtool.store.get_message import find_batch_unit


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
    ext = None

    def __init__(self, topic: str, queue_id: int, files: Files, directory: Path, file_size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.files = MappedFileQueue(files, (directory,), file_size, names_at_flush=True)
        self.max_offset = 0
        self.min_offset = -1
        self.max_physical_offset = -1
        self._dirty = False

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
        self._dirty = True

    @property
    def unit_count(self) -> int:
        """Number of existing units, numbered from 0 over all files."""
        return sum(map(len, map(_Units, self.files.files)))

    def unit_at(self, number: int) -> BatchConsumeQueueUnit | None:
        """Returns a unit by its number over all files."""
        for units in map(_Units, self.files.files):
            if number < len(units):
                return units.unit(number)
            number -= len(units)
        return None

    def units_from(self, queue_offset: int) -> Iterator[BatchConsumeQueueUnit]:
        """Yields the units from the one that contains a queue offset to the end of its file."""
        files = ((units, units) for units in map(_Units, reversed(self.files.files)))
        found = find_batch_unit(files, self.max_offset, queue_offset)
        if found is not None:
            units, first = found
            yield from map(units.unit, range(first, len(units)))

    def _last_number(self, test: Callable[[BatchConsumeQueueUnit], bool]) -> int:
        """Returns the number of the last unit that passes a test; -1 if none.

        The test must be true for all units up to some unit, and false for all others.
        """
        low, high = -1, self.unit_count - 1
        while low < high:
            middle = (low + high + 1) // 2
            unit = self.unit_at(middle)
            if unit is not None and test(unit):
                low = middle
            else:
                high = middle - 1
        return low

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Moves `min_offset` to the first unit whose record is still in the log."""
        number = self._last_number(lambda unit: unit.physical_offset < min_physical_offset) + 1
        unit = self.unit_at(number)
        if unit is not None:
            self.min_offset = unit.base_queue_offset
        elif self.unit_count:
            self.min_offset = self.max_offset

    def set_bounds(self, min_offset: int, max_offset: int, max_physical_offset: int) -> None:
        """Sets the bounds that recovery found; the ends of the files are set already."""
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.max_physical_offset = max_physical_offset
        self._dirty = self.files.flushed_offset < self.files.wrote_offset

    def last_physical_offset_of(self, file: MappedFile) -> int:
        """Returns the physical offset in the last unit of a file, -1 if it holds none."""
        at = file.read_position - file.read_position % BATCH_UNIT_SIZE - BATCH_UNIT_SIZE
        if at < 0:
            return -1
        return BATCH_CONSUME_QUEUE_UNIT.parse(file.file.read(at, BATCH_UNIT_SIZE)).physical_offset

    def flush(self, least_pages: int = 0) -> bool:
        """Flushes units if at least `least_pages` pages are dirty; as `ConsumeQueue.flush`."""
        if not self._dirty:
            return False
        before = self.files.flushed_offset
        after = self.files.flush(least_pages)
        self._dirty = after != self.files.wrote_offset
        return after != before

    def close(self) -> None:
        """Closes its files; nothing is flushed."""
        self.files.close()
