"""Writes the files of queues: ConsumeQueue, its extension, BatchConsumeQueue, and the last unit of an expired queue.

A log does not contain queues whose messages have all expired, so a rebuild does not create them. A broker keeps the
last file of such a queue, and gives its next message the queue offset after the last unit, whose record has expired
(MappedFileQueue.deleteExpiredFileByOffset, ConsumeQueue.getMaxOffsetInQueue, 4.9.7 and 5.5.0). In RocksDB it keeps the
bound (RocksDBConsumeQueueOffsetTable.loadMaxConsumeQueueOffsets, 5.5.0). With that unit a copy continues at the same
queue offset.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace

from mqtool.formats import consume_queue, file_names
from mqtool.formats.commit_log import MIN_RECORD_SIZE
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    PRE_BLANK,
    UNIT_SIZE,
    BatchConsumeQueueUnit,
    ConsumeQueueUnit,
)
from mqtool.formats.topics import SCHEDULE_TOPIC, is_lmq
from mqtool.rebuild.files import FileSequence, OutputFiles
from mqtool.rebuild.placement import Claim, Cut, HoleBudget, Note, NoteKind, Placement
from mqtool.rebuild.settings import RebuildSettings
from mqtool.records.queue_build import accepts_batch
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.queues.consume_queue import Queue
from mqtool.store.store import Store, open_store

UNIT = CONSUME_QUEUE_UNIT.size
_FILL = 1 << 16
"""Number of fill units written at a time."""
_BATCH_UNIT = np.array(astuple(BatchConsumeQueueUnit(0, 0, 0, 0, 0, 0)), BATCH_CONSUME_QUEUE_UNIT.dtype)
NOWHERE = 1
"""Physical offset before a log that begins later, for units without a record: 4.9 takes the first file of the log for
0, wherever that begins (CommitLog.getData, 4.9.7)."""


class QueueName(Struct, frozen=True):
    """Identifies a queue: topic and queue id."""

    topic: str
    queue_id: int

    @property
    def is_path(self) -> bool:
        """Whether the topic is usable as a directory name, as the broker would create it."""
        return file_names.is_directory_name(self.topic)

    def below(self, kind: str) -> str:
        """Returns the queue's directory below the directory of a kind of queue, e.g. `consumequeue`."""
        return f"{kind}/{self.topic}/{self.queue_id}"


class UnitBatch(Struct):
    """Units of one queue, in log order."""

    offsets: np.ndarray  # int64, stated queue offsets
    units: np.ndarray  # of `CONSUME_QUEUE_UNIT.dtype`
    times: np.ndarray  # store timestamps, int64
    counts: np.ndarray  # messages in each record, int16
    properties: list[bytes] | None = None  # of each record, as stored; None if they were not requested

    @classmethod
    def empty(cls) -> "UnitBatch":
        """Returns a batch without units."""
        return cls(
            np.empty(0, np.int64), np.empty(0, CONSUME_QUEUE_UNIT.dtype), np.empty(0, np.int64), np.empty(0, np.int16)
        )


class SimpleQueueWriter:
    """Writes one ConsumeQueue."""

    def __init__(self, name: QueueName, output: OutputFiles, file_size: int, budget: HoleBudget, claim: Claim) -> None:
        """Starts an empty queue; the size of a file is a multiple of the unit size."""
        self.name = name
        self.placement = Placement(budget, claim, is_light=is_lmq(name.topic))  # decides the queue offsets of units
        self.files = FileSequence(output, name.below(file_names.CONSUME_QUEUE), file_size)
        self.first: int | None = None  # queue offset of its first unit; None before there is one
        self._hole = range(0)  # the last one that was filled

    @property
    def next(self) -> int:
        """The queue offset after the last unit."""
        return self.files.end // UNIT

    def add(self, batch: UnitBatch, *, is_end: bool = False) -> None:
        """Places units and writes them."""
        for step in self.placement.place(batch.offsets, batch.units, is_end=is_end):
            if isinstance(step, Cut):
                self._cut(step.offset)
                continue
            if self.first is None:
                self._start(step.first)
            elif step.first > self.next:
                self._hole = range(self.next, step.first)
                self._fill(self._hole_unit(step.units[:1]), step.first)
            self.files.append(step.units.tobytes())

    def finish(self) -> None:
        """Places the waiting unit, and writes everything."""
        self.add(UnitBatch.empty(), is_end=True)
        self.files.flush()

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs, as JSON; everything else has been written to the files after a flush."""
        placement = self.placement
        waiting = (
            None if placement.waiting is None else [placement.waiting[0].tolist(), placement.waiting[1].tobytes().hex()]
        )
        notes = [[note.kind.value, note.first, note.last, note.physical_offset] for note in placement.notes.items]
        return {
            "first": self.first,
            "hole": [self._hole.start, self._hole.stop],
            "next": self.next,
            "place": placement.next,
            "shift": placement.shift,
            "held": waiting,
            "notes": notes,
            "notes_count": placement.notes.count,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continues after what an earlier run wrote."""
        self.first, self._hole = state["first"], range(*state["hole"])
        self.files.resume((self.first if self.first is not None else state["next"]) * UNIT, state["next"] * UNIT)
        placement = self.placement
        placement.next, placement.shift = state["place"], state["shift"]
        if state["held"] is not None:
            offsets, units = state["held"]
            unit_bytes = bytes.fromhex(units)
            placement.waiting = np.array(offsets, np.int64), np.frombuffer(unit_bytes, CONSUME_QUEUE_UNIT.dtype)
        placement.notes.items = [Note(NoteKind(kind), *rest) for kind, *rest in state["notes"]]
        placement.notes.count = state["notes_count"]

    def _start(self, first: int) -> None:
        """Writes pre-blank units before the first unit, if the queue does not begin at the start of a file."""
        at = first * UNIT
        self.files.start(at - at % self.files.file_size)
        self._fill(np.frombuffer(CONSUME_QUEUE_UNIT.build(PRE_BLANK), CONSUME_QUEUE_UNIT.dtype), first)
        self.first = first

    def _hole_unit(self, following: np.ndarray) -> np.ndarray:
        """Returns the fill unit for lost messages: a copy of the next message's unit, with tags code 0 (no tag).

        A consumer that filters by tag skips it; a consumer of all messages gets the next message again. A unit that
        points nowhere would avoid this duplicate, but a search by time that hits such a unit returns the beginning
        of the queue, and units after it in the first segment are skipped
        (ConsumeQueueStore.binarySearchInQueueByTime, DefaultMessageStore.getMessage,
        ExpressionMessageFilter.isMatchedByConsumeQueue; 4.9.7, 5.5.0).
        """
        if self.name.topic == SCHEDULE_TOPIC:  # there it is the time of delivery
            return following
        unit = following.copy()
        unit["tags_code"] = 0
        return unit

    def _fill(self, unit: np.ndarray, until: int) -> None:
        while self.next < until:
            self.files.append(np.repeat(unit, min(_FILL, until - self.next)).tobytes())

    def _cut(self, offset: int) -> None:
        assert self.first is not None
        if self._hole.start < offset <= self._hole.stop:  # it was filled with the unit that is cut off now
            offset = self._hole.start
        self.files.cut(max(offset, 0) * UNIT)
        if offset <= self.first:
            self.first = None


class BatchQueueWriter:
    """Writes one BatchConsumeQueue: one unit per record, consecutively, whatever their queue offsets.

    Attributes:
        files: that are written.
    """

    def __init__(self, name: QueueName, output: OutputFiles, file_size: int) -> None:
        """Starts an empty queue; `file_size` in bytes."""
        self.name = name
        self.last_physical = -1  # physical offset of the last unit's record; -1 before there is one
        unit = BATCH_CONSUME_QUEUE_UNIT.size
        self.files = FileSequence(output, name.below(file_names.BATCH_CONSUME_QUEUE), file_size // unit * unit)

    def add(self, batch: UnitBatch) -> None:
        """Appends the units that the broker accepts."""
        kept = accepts_batch(batch.units["physical_offset"], batch.offsets, batch.counts, self.last_physical)
        units = np.full(np.count_nonzero(kept), _BATCH_UNIT)
        if not len(units):
            return
        for name in CONSUME_QUEUE_UNIT.dtype.names or ():
            units[name] = batch.units[name][kept]
        units["store_timestamp"] = batch.times[kept]
        units["base_queue_offset"] = batch.offsets[kept]
        units["batch_size"] = batch.counts[kept]
        self.files.append(units.tobytes())
        self.last_physical = int(units["physical_offset"][-1])

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs, as JSON."""
        return {"end": self.files.end, "last_physical": self.last_physical}

    def resume(self, state: dict[str, Any]) -> None:
        """Continues after what an earlier run wrote."""
        self.last_physical = state["last_physical"]
        self.files.resume(0, state["end"])

    def finish(self) -> None:
        """Writes everything."""
        self.files.flush()


class ExtensionWriter:
    """Writes the ConsumeQueueExt of one queue: one ext unit per queue unit, whose address replaces the tags code.

    Attributes:
        files: that are written; their end is the address of the next ext unit.
    """

    def __init__(self, name: QueueName, output: OutputFiles, file_size: int) -> None:
        """Starts an empty extension; `file_size` in bytes."""
        self.files = FileSequence(output, name.below(file_names.CONSUME_QUEUE_EXT), file_size)

    def add(self, batch: UnitBatch, bit_maps: list[bytes]) -> None:
        """Writes an ext unit for each queue unit, whose tags code becomes the address (ConsumeQueueExt.put).

        The bit maps are one per unit, empty if no filter is known.
        """
        addresses = []
        tags_codes = batch.units["tags_code"].tolist()
        for fields in zip(tags_codes, batch.times.tolist(), bit_maps, strict=True):
            unit = consume_queue.make_ext_unit(*fields)
            left = self.files.file_size - self.files.end % self.files.file_size
            if unit.size > left - consume_queue.EXT_END_BLANK_SIZE:
                end_of_file = self.files.end + left
                self.files.append(consume_queue.END_OF_EXT_FILE.to_bytes(2, "big", signed=True))
                self.files.skip_to(end_of_file)
            addresses.append(consume_queue.ext_address(self.files.end))
            self.files.append(consume_queue.build_ext_unit(unit))
        batch.units["tags_code"] = addresses

    def finish(self) -> None:
        """Writes everything."""
        self.files.flush()


class ExpiredQueue(Struct, frozen=True):
    """The last unit of a queue that has no message left."""

    name: QueueName
    is_batch: bool  # whether it is a BatchConsumeQueue
    queue_offset: int  # of the unit
    physical_offset: int  # of its record, before the start of the log
    unit: bytes  # as a file stores it, with a tags code of 0, since nothing reads it any more

    def moved(self) -> "ExpiredQueue":
        """Returns the same for a store whose records have other physical offsets: its record is before all of them."""
        if self.is_batch:
            batch = BATCH_CONSUME_QUEUE_UNIT.parse(self.unit)
            unit = BATCH_CONSUME_QUEUE_UNIT.build(replace(batch, physical_offset=NOWHERE))
        else:
            plain = CONSUME_QUEUE_UNIT.parse(self.unit)
            unit = CONSUME_QUEUE_UNIT.build(replace(plain, physical_offset=NOWHERE))
        return replace(self, physical_offset=NOWHERE, unit=unit)


def expired_queues(store: Store, existing: Collection[QueueName], log_start: int) -> Iterator[ExpiredQueue]:
    """Yields the queues of a store that have units, none of which a new log or its queues contain."""
    known, queues = set(existing), store.disk_queues()
    bounds = {bound.name: bound for bound in _bounds(store, log_start)}
    for queue in queues:
        name = QueueName(queue.topic, queue.queue_id)
        expired = None if name in known or not name.is_path else _last_of(queue, name, log_start)
        newer = bounds.get(name)  # compaction may have deleted only the newest units
        if expired is not None and (newer is None or newer.queue_offset <= expired.queue_offset):
            known.add(name)
            yield expired
    for name, bound in bounds.items():
        if name not in known and name.is_path:
            yield bound


def _last_of(queue: Queue, name: QueueName, log_start: int) -> ExpiredQueue | None:
    last = queue.last_unit(lambda units: units["physical_offset"] < log_start)
    if last is None:
        return None
    number, index, stored = last
    unit = stored.copy()
    unit["tags_code"] = 0
    offset = int(unit["base_queue_offset"]) if queue.is_batch else queue.files[number].base // UNIT_SIZE + index
    return ExpiredQueue(name, queue.is_batch, offset, int(unit["physical_offset"]), unit.tobytes())


def _bounds(store: Store, log_start: int) -> Iterator[ExpiredQueue]:
    """Yields the queues of which RocksDB has only the bound: compaction deletes units before the start of the log."""
    database = store.rocksdb.database if store.rocksdb else None
    if database is None or store.rocksdb is None or store.rocksdb.problem:
        return
    for name, bound in database.ends().items():
        if 0 <= bound.physical_offset < log_start and bound.queue_offset >= 0:
            plain = ConsumeQueueUnit(bound.physical_offset, MIN_RECORD_SIZE, 0)  # the bound does not state the size
            unit = CONSUME_QUEUE_UNIT.build(plain)
            yield ExpiredQueue(QueueName(*name), False, bound.queue_offset, bound.physical_offset, unit)


def write_expired_queues(
    stores: Iterable[Store],
    target: Path,
    settings: RebuildSettings,
    config: BrokerConfig | None = None,
    *,
    expired_before: int | None = None,
    without_topics: Collection[str] = (),
) -> None:
    """Writes the ends of queues whose messages have expired into a new store that has its log and its other queues.

    The first of the stores, the old one and its copies, that has the end of a queue decides. If records have other
    physical offsets in the new store, those before `expired_before` in the old ones have expired. Queues of
    `without_topics` begin at 0 again.
    """
    with open_store(target, config) as opened:
        existing = {QueueName(queue.topic, queue.queue_id) for queue in opened.disk_queues()}
        log_start = opened.commit_log.min_offset if expired_before is None else expired_before
    with OutputFiles(target) as output:
        for store in stores:
            for expired in expired_queues(store, existing, log_start):
                existing.add(expired.name)
                if expired.name.topic not in without_topics:
                    write_expired(expired if expired_before is None else expired.moved(), output, settings)


def has_expired_queue(store: Store, expired_before: int) -> bool:
    """Whether a store has a queue of which no message is left, if records before a physical offset have expired."""
    left = {
        QueueName(queue.topic, queue.queue_id)
        for queue in store.disk_queues()
        if queue.last_unit(lambda units: units["physical_offset"] >= expired_before) is not None
    }
    return next(expired_queues(store, left, expired_before), None) is not None


def write_expired(queue: ExpiredQueue, output: OutputFiles, settings: RebuildSettings) -> None:
    """Writes the file of a queue that ends with its expired unit."""
    if queue.is_batch:
        unit = BATCH_CONSUME_QUEUE_UNIT.size
        size = settings.batch_consume_queue_size // unit * unit
        files = FileSequence(output, queue.name.below(file_names.BATCH_CONSUME_QUEUE), size)
    else:
        files = FileSequence(output, queue.name.below(file_names.CONSUME_QUEUE), settings.consume_queue_size)
        before = queue.queue_offset % (files.file_size // UNIT_SIZE)
        files.start((queue.queue_offset - before) * UNIT_SIZE)
        files.append(CONSUME_QUEUE_UNIT.build(PRE_BLANK) * before)
    files.append(queue.unit)
    files.flush()
