"""ConsumeQueue: one topic-queue of 20-byte units, found by queue offset.

Only the dispatcher writes, in record order, through positional writes; any thread may read. Docs page:
docs/engine.md. Source: ConsumeQueue (4.9.7, 5.5.0).
"""

import logging
from pathlib import Path

from mqtool.engine.disk.files import Files
from mqtool.engine.disk.mapped_file import MappedFile
from mqtool.engine.disk.mapped_file_queue import MappedFileQueue
from mqtool.engine.queue.consume_queue_ext import ConsumeQueueExt
from mqtool.formats import consume_queue
from mqtool.records.queue_build import UnitPlacement, is_dispatched, placement_of

_LOG = logging.getLogger(__name__)

UNIT = consume_queue.CONSUME_QUEUE_UNIT.struct
UNIT_SIZE = consume_queue.UNIT_SIZE
_PRE_BLANK = consume_queue.CONSUME_QUEUE_UNIT.build(consume_queue.PRE_BLANK)


class ConsumeQueue:
    """One queue.

    Attributes:
        topic, queue_id: which queue.
        files: its files; offsets there are bytes, `queue offset × 20`.
        max_physical_offset: physical offset after the newest record that has a unit; -1 if there is none.
        min_offset: first queue offset whose record is still in the log.
        ext: its extension, None if it has none.
    """

    is_batch = False
    unit_size = UNIT_SIZE

    def __init__(self, topic: str, queue_id: int, files: Files, directory: Path, file_size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.files = MappedFileQueue(files, (directory,), file_size, names_at_flush=True)
        self.max_physical_offset = -1
        self.min_offset = 0
        self.ext: ConsumeQueueExt | None = None

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message."""
        return self.files.max_offset // UNIT_SIZE

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        """Appends the unit of one record; skips a record that already has one.

        In the page cache on return, durable after `flush`.

        Raises:
            OSError: it was not written; dispatch may try again.
        """
        if is_dispatched(physical_offset + size, self.max_physical_offset):
            return
        expected = queue_offset * UNIT_SIZE
        file = self._file_for(expected)
        if file.wrote == 0 and file is self.files.files[0] and queue_offset:
            self._pre_blank(file, expected - file.file_from_offset)
        current = file.file_from_offset + file.wrote
        place = placement_of(queue_offset, current)
        if place is UnitPlacement.PRESENT:
            _LOG.warning("unit is there already queue=%s/%d offset=%d", self.topic, self.queue_id, queue_offset)
            return
        if place is UnitPlacement.AFTER_GAP:
            # The broker logs this and continues: from here on a unit's index differs from its record's queue offset.
            _LOG.error(
                "unit out of order topic=%s queue=%d expected=%d next=%d",
                self.topic,
                self.queue_id,
                queue_offset,
                current // UNIT_SIZE,
            )
        file.append(UNIT.pack(physical_offset, size, tags_code))
        self.max_physical_offset = physical_offset + size

    def put_run(self, queue_offset: int, units: bytes, end: int) -> bool:
        """Appends units of consecutive queue offsets at once, if the first is the queue's next offset.

        Args:
            queue_offset: of the first.
            units: complete units, physical offsets ascending.
            end: physical offset after the record of the last.

        Returns:
            False if nothing was written: `put` them one by one.

        Raises:
            OSError: some were not written; dispatch may try again, `put` skips the others.
        """
        (first,) = consume_queue.CONSUME_QUEUE_UNIT.struct.unpack_from(units)[:1]
        at = queue_offset * UNIT_SIZE
        if first < self.max_physical_offset or at != self.files.max_offset or (queue_offset and not self.files.files):
            return False
        done = 0
        while done < len(units):
            file = self._file_for(at + done)
            piece = units[done : done + file.size - file.wrote]
            file.append(piece)
            done += len(piece)
        self.max_physical_offset = end
        return True

    def _file_for(self, expected: int) -> MappedFile:
        last = self.files.last
        if last is None or last.is_full:
            last = self.files.create(expected)
        return last

    def _pre_blank(self, file: MappedFile, until: int) -> None:
        """Writes pre-blank units into a new queue's first file up to its first message, as readers expect."""
        file.append(_PRE_BLANK * (until // UNIT_SIZE))
        self.min_offset = (file.file_from_offset + until) // UNIT_SIZE
        self.files.set_end(file.file_from_offset + until)

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, queue_offset: int, count: int) -> bytes:
        """Returns up to `count` units starting at a queue offset, as bytes; fewer at the end of a file.

        Empty if they are not there, or the file is deleted meanwhile.
        """
        offset = queue_offset * UNIT_SIZE
        file = self.files.find(offset)
        if file is None:
            return b""
        position = offset - file.file_from_offset
        size = min(count * UNIT_SIZE, file.read_position - position)
        return file.peek(position, size) if size > 0 else b""

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Returns (physical offset, size, tags code) of one unit, None if it is not there."""
        data = self.read(queue_offset, 1)
        return UNIT.unpack(data) if len(data) == UNIT_SIZE else None

    # -- upkeep --------------------------------------------------------------------------------------------------

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Moves `min_offset` to the first unit whose record is still in the log (ConsumeQueue.correctMinOffset)."""
        files = self.files.files
        highest = self.max_offset
        if not files or self.min_offset >= highest:
            return
        lowest = max(self.min_offset, files[0].file_from_offset // UNIT_SIZE)
        newest = self.unit(highest - 1)
        if newest is None or newest[0] < min_physical_offset:
            self.min_offset = highest
            return
        low, high = lowest, highest - 1
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and unit[0] >= min_physical_offset:
                high = middle
            else:
                low = middle + 1
        self.min_offset = low

    def set_bounds(self, min_offset: int, max_offset: int, max_physical_offset: int) -> None:
        """Sets the bounds that recovery found, and those of the extension; the ends of the files are set already."""
        assert self.max_offset == max_offset
        self.min_offset = min_offset
        self.max_physical_offset = max_physical_offset
        if self.ext is not None:
            self.ext.load(self._last_address(min_offset, max_offset))

    def _last_address(self, lowest: int, highest: int) -> int | None:
        """Returns the newest extension address in the queue, None if there is none."""
        for number in range(highest - 1, lowest - 1, -1):
            unit = self.unit(number)
            if unit is not None and consume_queue.is_ext_address(unit[2]):
                return unit[2]
        return None

    def flush(self, least_pages: int = 0) -> bool:
        """Flushes units if at least `least_pages` pages are dirty (0: always). Durable on return.

        Returns:
            Whether something was written.

        Raises:
            OSError: units after the flushed position may be lost.
        """
        before = self.files.flushed_offset
        if not self.files.is_dirty and (self.ext is None or not self.ext.files.is_dirty):
            return False
        after = self.files.flush(least_pages)
        if self.ext is not None:
            self.ext.files.flush()
        return after != before

    def close(self) -> None:
        """Closes its files; nothing is flushed."""
        self.files.close()
        if self.ext is not None:
            self.ext.close()
