"""Queues: every ConsumeQueue and BatchConsumeQueue of a store, by topic and queue id.

Only the dispatcher writes, in record order, through positional writes; any thread may read. Docs page: docs/engine.md.
Source: ConsumeQueue, ConsumeQueueExt, ConsumeQueueStore (4.9.7, 5.5.0), BatchConsumeQueue (5.5.0).
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mqtool.engine.disk.files import ClosedFileError, Files
from mqtool.engine.disk.mapped_files import MappedFile, MappedFileQueue
from mqtool.engine.options import StoreOptions
from mqtool.errors import FormatError
from mqtool.formats import consume_queue, file_names
from mqtool.formats import consume_queue as layout
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    BATCH_UNIT_SIZE,
    LONGEST_EXT_UNIT,
    BatchConsumeQueueUnit,
    ConsumeQueueExtUnit,
)
from mqtool.records.queue_build import UnitPlacement, accepts_batch, batch_min_offset, is_dispatched, placement_of
from mqtool.store.files import list_mapped_files
from mqtool.store.queues.get_message import find_batch_unit, next_file

UNIT = consume_queue.CONSUME_QUEUE_UNIT.struct
UNIT_SIZE = consume_queue.UNIT_SIZE
_PRE_BLANK = consume_queue.CONSUME_QUEUE_UNIT.build(consume_queue.PRE_BLANK)


_CLOSED = layout.END_OF_EXT_FILE.to_bytes(2, "big", signed=True)

_LOG = logging.getLogger(__name__)

_LISTED = 1000
"""Maximum number of topics remembered so that each is logged once."""


class ConsumeQueue:
    """One queue of 20-byte units, found by queue offset.

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

        In the page cache on return, durable after `flush`. If it raises OSError, dispatch may try again.
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
            _LOG.warning("unit already exists queue=%s/%d offset=%d", self.topic, self.queue_id, queue_offset)
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

        The units are complete, their physical offsets ascend, and `end` is the physical offset after the last record.

        Returns False if nothing was written: `put` them one by one. If it raises OSError, some were not written;
        dispatch may try again, `put` skips the others.
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
        """Returns up to `count` units starting at a queue offset, fewer at the end of a file, b"" if not there."""
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
        """Flushes units if at least `least_pages` pages are dirty (0: always); returns whether it wrote something."""
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


class ConsumeQueueExt:
    """The extension of one queue. Only the dispatcher writes.

    Attributes:
        files: its files; offsets there count their bytes, including the padding at the end of each file.
    """

    def __init__(self, files: Files, directory: Path, file_size: int) -> None:
        self.directory = directory
        self._files = files
        self.files = MappedFileQueue(files, (directory,), file_size, names_at_flush=True)
        self._start = 0

    def clear(self) -> None:
        """Deletes the files that a queue of the same name left when a start cut all of it."""
        for file in list_mapped_files(self.directory).files:
            self._files.remove(file.path)

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int:
        """Appends a unit, in the page cache on return.

        Returns its address, for the ConsumeQueue unit's tags code; the tags code itself if no unit can be that long.
        """
        unit = layout.make_ext_unit(tags_code, store_timestamp, bit_map)
        if unit.size > min(LONGEST_EXT_UNIT, self.files.file_size - layout.EXT_END_BLANK_SIZE):
            return tags_code
        file = self.files.last
        if file is None or file.is_full:
            file = self.files.create(self._start)
        if unit.size > file.size - file.wrote - layout.EXT_END_BLANK_SIZE:
            file.file.write(file.wrote, _CLOSED)
            file.wrote = file.committed = file.size
            file = self.files.create()
        offset = file.file_from_offset + file.wrote
        file.append(layout.build_ext_unit(unit))
        return layout.ext_address(offset)

    def get(self, address: int) -> ConsumeQueueExtUnit | None:
        """Returns the unit at an address, None if there is none."""
        offset = layout.ext_offset(address)
        file = self.files.find(offset) if offset >= 0 else None
        if file is None:
            return None
        data = file.read(offset - file.file_from_offset, LONGEST_EXT_UNIT)
        try:
            return layout.parse_ext_unit(data)
        except FormatError:
            return None

    def load(self, newest: int | None) -> None:
        """Opens the files and sets the end after the last unit that the queue refers to, by its address.

        If that unit is damaged or missing, all files are kept and units go to a new file: a unit at an address that the
        queue already contains would give another message's tags to the filters. The broker writes at such addresses. If
        the queue refers to none, the extension becomes empty.
        """
        self.files.load()
        end = 0
        if newest is not None:
            offset, unit = layout.ext_offset(newest), self.get(newest)
            if unit is not None:
                end = offset + unit.size
            else:
                end, self._start = self.files.max_offset, next_file(offset, self.files.file_size)
        self.files.truncate(end)

    def close(self) -> None:
        """Closes its files."""
        self.files.close()


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
    """One queue of 46-byte units, each for a record of one or more messages.

    Files are named by bytes appended, not by queue offset, so units are found by binary search.

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
        """Appends the unit of one record if `accepts_batch`; raises as `ConsumeQueue.put`."""
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


AnyQueue = ConsumeQueue | BatchQueue


class Queues:
    """All queues of a store. Only the dispatcher adds queues and writes.

    Attributes:
        by_key: (topic, queue id) to queue.
        unwritable: topics of records that are not usable as directory names. Their queues are never created: the
            broker would create such a directory outside the store (`../../x`), or stop dispatching (a NUL in the
            name).
    """

    def __init__(self, options: StoreOptions, files: Files, root: Path, batch_topics: frozenset[str]) -> None:
        self.by_key: dict[tuple[str, int], AnyQueue] = {}
        self.unwritable: set[str] = set()
        self._options = options
        self._files = files
        self._root = root
        self._batch_topics = batch_topics

    def add_batch_topic(self, topic: str) -> None:
        """Makes the queues of a topic BatchConsumeQueues; the topic must have no queues yet."""
        self._batch_topics |= {topic}

    def add_recovered(self, topic: str, queue_id: int, *, is_batch: bool) -> AnyQueue | None:
        """Adds a queue that recovery found and returns it; None if its topic cannot be a directory name.

        The queue is still empty; recovery fills it.
        """
        if not self._is_writable(topic):
            return None
        queue = self.by_key[topic, queue_id] = self._make(topic, queue_id, is_batch=is_batch)
        return queue

    def get(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Returns a queue, None if there is none; for a topic of batches an empty one, as a broker creates it."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None and topic in self._batch_topics:
            return self._make(topic, queue_id, is_batch=True)
        return queue

    def find_or_create(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Returns a queue; a new one has no file until its first unit. None if its topic cannot be a directory name."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            if not self._is_writable(topic):
                return None
            queue = self._make(topic, queue_id, is_batch=topic in self._batch_topics)
            if queue.ext is not None:
                queue.ext.clear()
            self.by_key[topic, queue_id] = queue
        return queue

    def _is_writable(self, topic: str) -> bool:
        if file_names.is_directory_name(topic):
            return True
        if topic not in self.unwritable and len(self.unwritable) < _LISTED:
            _LOG.warning("no queue for topic=%.200r: it is not a valid directory name", topic)
            self.unwritable.add(topic)
        return False

    def _make(self, topic: str, queue_id: int, *, is_batch: bool) -> AnyQueue:
        options, place = self._options, f"{topic}/{queue_id}"
        if is_batch:
            directory = self._root / file_names.BATCH_CONSUME_QUEUE / place
            return BatchQueue(topic, queue_id, self._files, directory, options.batch_consume_queue_file_size)
        directory = self._root / file_names.CONSUME_QUEUE / place
        queue = ConsumeQueue(topic, queue_id, self._files, directory, options.consume_queue_file_size)
        if options.consume_queue_ext:
            ext = self._root / file_names.CONSUME_QUEUE_EXT / place
            queue.ext = ConsumeQueueExt(self._files, ext, options.consume_queue_ext_file_size)
        return queue

    def all(self) -> tuple[AnyQueue, ...]:
        """Returns all queues that exist now."""
        return tuple(self.by_key.values())

    def flush(self, least_pages: int = 0) -> int:
        """Flushes every queue as `ConsumeQueue.flush`; returns how many had something to write."""
        return sum(queue.flush(least_pages) for queue in self.all())

    def delete(self, queue: AnyQueue) -> None:
        """Removes a queue with its files and empty directories.

        Whoever still uses the queue finds it without files, so a new queue of this name is safe from it.
        """
        del self.by_key[queue.topic, queue.queue_id]
        for part in (queue, queue.ext):
            if part is not None:
                part.files.delete_all()
                self._files.remove_directory(part.directory)
                self._files.remove_directory(part.directory.parent)

    def close(self) -> None:
        """Closes every file; nothing is flushed."""
        for queue in self.all():
            queue.close()
