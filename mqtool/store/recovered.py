"""What a broker's start would add to a store that was not shut down cleanly.

The queues of such a store may lack the units of its newest records, and a broker deletes index files that were not
full and builds them again. Answers are those of the broker after its start, so both are computed on first use, from
where recovery would begin to scan. If that is too far back, units are computed from the largest end of a queue on,
which is sufficient after a mere kill, and index files are used as they are. Source: CommitLog.recoverAbnormally,
isMappedFileMatchedRecover, IndexService.load, ConsumeQueue.putMessagePositionInfo (4.9.7, 5.5.0);
DefaultMessageStore.start (4.9.7).
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from mqtool.formats import commit_log, file_names, index_file, java
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.config_files import BATCH_QUEUES, SIMPLE_QUEUES
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    DEFAULT_BATCH_FILE_SIZE,
    DEFAULT_FILE_SIZE,
    PRE_BLANK,
    UNIT_SIZE,
    BatchConsumeQueueUnit,
)
from mqtool.formats.index_file import HEADER, HEADER_SIZE
from mqtool.formats.topics import TopicQueue
from mqtool.records.damage import Damage
from mqtool.records.dispatch import BATCH_FIELDS, Dispatched, Dispatcher, DispatchRules, QueueUnits
from mqtool.records.index_chains import IndexBuilder, IndexFileBuilder
from mqtool.records.queue_build import UnitPlacement, accepts_batch, is_dispatched, placement_of
from mqtool.records.record_check import RecoveryRules
from mqtool.records.scan_start import ledger_scan_start, scan_start
from mqtool.store.files import MappedFile, MappedFileList, ReadFile
from mqtool.store.index_file import IndexFile, Shape
from mqtool.store.layout import StoreLayout
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.queues.consume_queue import Queue, UnitCache

Patch = tuple[int, bytes]
"""Position in a file, and what stands there."""

MAX_QUEUE_BYTES = 128 << 20
"""Bytes of the log that are read for queues: they are asked for whenever a store is described."""

MAX_INDEX_BYTES = 2 << 30


class OverlaidFile(ReadFile):
    """A file, or none, with patches applied in memory; read like `ReadFile`."""

    def __init__(self, path: Path, size: int, patches: list[Patch], *, exists: bool) -> None:
        """Opens the underlying file if it exists; later patches win."""
        self._below = ReadFile(path) if exists else None
        self.path = path
        self.size = size
        self._patches = patches

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position; fewer only at the end of the file."""
        end = min(position + count, self.size)
        if end <= position:
            return b""
        data = bytearray(self._below.read(position, end - position) if self._below else b"")
        data.extend(bytes(end - position - len(data)))
        for at, patch in self._patches:
            low, high = max(at, position), min(at + len(patch), end)
            if low < high:
                data[low - position : high - position] = patch[low - at : high - at]
        return bytes(data)

    def data_end(self) -> int:
        """Returns a position after which there are only zeros."""
        ends = [at + len(patch) for at, patch in self._patches]
        return max([*ends, self._below.data_end() if self._below else 0])

    def close(self) -> None:
        """Closes the underlying file."""
        if self._below is not None:
            self._below.close()


class RecoveredQueue(Queue):
    """A queue as a broker's recovery leaves it, with units that are not on disk.

    Attributes:
        disk: the queue on disk; without files if there is none.
        pending: the units that are only in memory, as the layout's fields.
    """

    def __init__(
        self, disk: Queue, pending: np.ndarray, first: int, file_size: int, bounds: Callable[[], tuple[int, int]]
    ) -> None:
        """Adds units to a queue.

        `first` is the queue offset of the first of them; in a BatchConsumeQueue they follow the last unit instead.
        `file_size` is in bytes, at least one unit.
        """
        listed = MappedFileList(disk.files, disk.strays)
        super().__init__(disk.topic, disk.queue_id, disk.kind, disk.path, bounds, UnitCache(), listed)
        self.disk = disk
        self.pending = pending
        self._patches: dict[int, list[Patch]] = {}
        size = file_size // disk.unit_size * disk.unit_size
        at, data = (self._batch_end() if disk.is_batch else first * disk.unit_size), pending.tobytes()
        if not disk.files and not disk.is_batch:
            data = CONSUME_QUEUE_UNIT.build(PRE_BLANK) * (at % size // disk.unit_size) + data
            at -= at % size
        known = {file.base: file for file in disk.files}
        while data:
            base = at - at % size
            if base not in known or known[base].size < size:  # none yet, or created and never given its size
                known[base] = MappedFile(disk.path / f"{base:020d}", base, size)
            self._patches.setdefault(base, []).append((at - base, data[: base + size - at]))
            at, data = base + size, data[base + size - at :]
        self.files = tuple(known[base] for base in sorted(known))
        self._on_disk = {file.base for file in disk.files}

    def _batch_end(self) -> int:
        last = self.disk.last_unit()
        if last is None:
            return self.disk.files[0].base if self.disk.files else 0
        return self.disk.files[last[0]].base + (last[1] + 1) * BATCH_CONSUME_QUEUE_UNIT.size

    def modified_ms(self, number: int) -> int:
        """Returns the modification time of a file; for files with pending units that is in the future."""
        return java.LONG_MAX if self.files[number].base in self._patches else super().modified_ms(number)

    def _open(self, number: int) -> ReadFile:
        file = self.files[number]
        return OverlaidFile(file.path, file.size, self._patches.get(file.base, []), exists=file.base in self._on_disk)


class RecoveredIndexFile(IndexFile):
    """An index file as a broker's recovery leaves it: continued or rebuilt."""

    def __init__(self, path: Path, builder: IndexFileBuilder, entries: list[Patch], *, exists: bool) -> None:
        """Takes the result of a builder; `entries` are not on disk, older ones are if the file `exists`."""
        self.path = path
        self.size = index_file.file_size(builder.slots, builder.capacity)
        self.header = builder.header
        self._configured = builder.slots
        self._patches = [(0, HEADER.build(builder.header)), (HEADER_SIZE, builder.slot_bytes()), *entries]
        self._exists = exists

    def _open(self) -> ReadFile:
        return OverlaidFile(self.path, self.size, self._patches, exists=self._exists)


class PendingUnits(Struct, frozen=True):
    """The units that one queue lacks."""

    first: int  # queue offset of the first
    units: np.ndarray  # structured array of the queue's layout


def pending_units(
    log: CommitLog, queues: list[Queue], rules: DispatchRules, scan_from: int
) -> dict[TopicQueue, PendingUnits]:
    """Returns the units that queues lack, by topic and queue id; empty if too much would have to be read.

    `scan_from` is where recovery begins, see `recovery_start`.
    """
    start = scan_from
    if log.max_offset - start > MAX_QUEUE_BYTES:
        end = max((_dispatched_to(queue) for queue in queues), default=log.min_offset)
        start = _next_record(log, max(end, log.min_offset))
    if start >= log.max_offset or log.max_offset - start > MAX_QUEUE_BYTES:
        return {}
    lacking = _MissingUnits({(queue.topic, queue.queue_id): queue for queue in queues}, rules)
    dispatcher = Dispatcher(rules)
    for dispatched in _dispatch(log, dispatcher, start, keys=False):
        lacking.add(dispatcher, dispatched.units)
    return lacking.units()


def _dispatched_to(queue: Queue) -> int:
    """Physical offset after the newest record that a queue names."""
    last = queue.last_unit()
    return 0 if last is None else int(last[2]["physical_offset"]) + int(last[2]["size"])


def _next_record(log: CommitLog, offset: int) -> int:
    """Returns the start of the next record if a BLANK is at an offset: in the next segment."""
    head = log.read(offset, commit_log.FRAME.size)
    index = log.segment_at(offset)
    if len(head) == commit_log.FRAME.size and commit_log.is_blank(head):
        return log.segments[index].end if index is not None else offset
    return offset


def _dispatch(log: CommitLog, dispatcher: Dispatcher, start: int, *, keys: bool) -> Iterator[Dispatched]:
    for item in log.walk(start, log.max_offset, crc=False):
        if not isinstance(item, Damage):
            yield dispatcher.dispatch(item, keys=keys)


class _MissingUnits:
    """Appends units to queues by the broker's rules, in memory."""

    def __init__(self, queues: dict[TopicQueue, Queue], rules: DispatchRules) -> None:
        self._queues = queues
        self._rules = rules
        self._next: dict[TopicQueue, int] = {}
        self._first: dict[TopicQueue, int] = {}
        self._end: dict[TopicQueue, int] = {}
        self._rows: dict[TopicQueue, list[tuple[int, ...]]] = {}

    def add(self, dispatcher: Dispatcher, units: QueueUnits) -> None:
        """Appends units in order."""
        for topic, queue_id, *rest in units.tuples("topic", "queue_id", *BATCH_FIELDS):
            name = dispatcher.topics.names[topic]
            if name in self._rules.batch_topics:
                self._add_batch((name, queue_id), BatchConsumeQueueUnit(*rest))
            else:
                self._add_simple((name, queue_id), rest)

    def _add_simple(self, key: TopicQueue, stored: list[int]) -> None:
        """ConsumeQueue.putMessagePositionInfo: existing units are skipped, a gap is filled."""
        physical_offset, size, tags_code, _, offset, _ = stored
        if key not in self._next:
            queue = self._queues.get(key)
            self._next[key] = self._first[key] = queue.max_offset if queue and queue.files else offset
            self._end[key] = queue.max_physical_offset if queue else 0
        if is_dispatched(physical_offset + size, self._end[key]):
            return
        if placement_of(offset, self._next[key] * UNIT_SIZE) is UnitPlacement.PRESENT:
            return
        self._next[key] += 1
        self._end[key] = physical_offset + size
        self._rows.setdefault(key, []).append((physical_offset, size, tags_code))

    def _add_batch(self, key: TopicQueue, unit: BatchConsumeQueueUnit) -> None:
        queue = self._queues.get(key)
        self._first.setdefault(key, 0)
        last = self._end.setdefault(key, queue.max_physical_offset if queue and queue.last_unit() else -1)
        if accepts_batch(unit.physical_offset, unit.base_queue_offset, unit.batch_size, last):
            self._end[key] = unit.physical_offset
            self._rows.setdefault(key, []).append(astuple(unit))

    def units(self) -> dict[TopicQueue, PendingUnits]:
        """Returns the collected units."""
        layouts = (CONSUME_QUEUE_UNIT, BATCH_CONSUME_QUEUE_UNIT)
        return {
            key: PendingUnits(self._first[key], np.array(rows, layouts[key[0] in self._rules.batch_topics].dtype))
            for key, rows in self._rows.items()
        }


def recovered_queues(
    log: CommitLog, disk: dict[TopicQueue, Queue], rules: DispatchRules, layout: StoreLayout, scan_from: int
) -> dict[TopicQueue, Queue]:
    """Returns the queues that a broker's start adds units to, by topic and queue id, including new ones."""
    queues: dict[TopicQueue, Queue] = {}
    bounds = (log.min_offset, log.max_offset)

    def bounds_of() -> tuple[int, int]:
        return bounds

    for key, pending in pending_units(log, list(disk.values()), rules, scan_from).items():
        if not file_names.is_directory_name(key[0]):
            continue  # no broker could make such a queue
        is_batch = key[0] in rules.batch_topics
        known = layout.batch_consume_queue_size if is_batch else layout.consume_queue_size
        size = known.value if known else DEFAULT_BATCH_FILE_SIZE if is_batch else DEFAULT_FILE_SIZE
        kind, name = (
            (BATCH_QUEUES, file_names.BATCH_CONSUME_QUEUE) if is_batch else (SIMPLE_QUEUES, file_names.CONSUME_QUEUE)
        )
        path = layout.root / name / key[0] / str(key[1])
        below = disk.get(key) or Queue(*key, kind, path, bounds_of)
        queues[key] = RecoveredQueue(below, pending.units, pending.first, size, bounds_of)
    return queues


def recovered_index(
    log: CommitLog,
    disk: list[IndexFile],
    known_until: int,
    rules: DispatchRules,
    shape: Shape,
    scan_from: int,
) -> list[IndexFile]:
    """Returns the index files that a broker's start leaves.

    They are those that the checkpoint covers, and those built from the records that recovery scans. It returns the
    files of `disk`, oldest first, if too much would have to be read. `known_until` is the checkpoint's
    indexMsgTimestamp, 0 if there is none; `scan_from` is where recovery begins, see `recovery_start`.
    """
    kept = [file for file in disk if file.header.end_timestamp <= known_until]
    if log.max_offset - scan_from > MAX_INDEX_BYTES or any(not file.slot_count for file in kept[-1:]):
        return disk
    last = kept[-1] if kept else None
    resumed = None
    if last is not None:
        resumed = IndexFileBuilder.resumed(last.header, last.slots, last.max_entries or 0)
    builder = IndexBuilder(shape.slots, shape.places, resumed)
    builders: dict[int, tuple[IndexFileBuilder, list[Patch]]] = {}
    dispatcher = Dispatcher(rules)
    for item in log.walk(scan_from, log.max_offset, crc=False):
        if isinstance(item, Damage):
            continue
        keys = dispatcher.dispatch(item).keys
        for file, entries in builder.add(keys, len(item)):
            patches = builders.setdefault(id(file), (file, []))[1]
            patches.append((index_file.entry_position(entries.first, file.slots), entries.entries.tobytes()))
    files: list[IndexFile] = list(kept)
    directory = disk[0].path.parent if disk else log.segments[0].path.parent
    for number, (file, patches) in enumerate(builders.values()):
        is_resumed = file is resumed and last is not None
        path = last.path if is_resumed and last is not None else directory / f"pending-{number}"
        if is_resumed:
            files.pop()
        files.append(RecoveredIndexFile(path, file, patches, exists=is_resumed))
    return files


def recovery_start(log: CommitLog, segment_size: int, checkpoint: Checkpoint, rules: RecoveryRules) -> int:
    """Returns the physical offset at which recovery after a crash begins to dispatch; the log must have segments."""
    ledger = [number for number, segment in enumerate(log.segments) if segment.entries]
    if ledger:
        if rules.release < (5, 0):
            return log.min_offset
        number = ledger_scan_start([partial(log.reader, number) for number in ledger], checkpoint, rules)
        return log.segments[ledger[number]].base
    readers = [partial(log.reader, number) for number in range(len(log.segments))]
    return log.segments[scan_start(readers, segment_size, checkpoint, rules, clean_stop=False).segment].base
