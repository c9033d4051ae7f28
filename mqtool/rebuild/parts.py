"""Parts of a CommitLog that can be walked independently, and the walk over them, in one process or several.

A part begins at a record. Inside a segment, a record start is searched for and assumed correct until the walk over
the previous part ends exactly there. If it does not, the two parts are walked as one. The records of a window are
dispatched and sorted by queue: such a batch is the unit of work that is passed between processes.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import pairwise

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import StoreError
from mqtool.formats.commit_log import SysFlag
from mqtool.jobs.pool import PART_BYTES, ignore_interrupts, in_order, worker_pool
from mqtool.rebuild.queue_writer import QueueName, UnitBatch
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatched, Dispatcher, DispatchRules, IndexKeys, Oddity, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.number_sets import WordTable
from mqtool.records.queue_build import pack, queue_numbers, queue_of
from mqtool.store.files import ReadFile
from mqtool.store.log.commit_log import CommitLog, Segment, gap_between
from mqtool.store.log.cuts import cuts_of
from mqtool.store.log.log_walk import walk_file
from mqtool.store.log.selection import Globs

_AHEAD = 2
"""Number of parts, in addition to one per process, that may be walked before the writer reaches them."""
_of_process: "list[BatchBuilder]" = []


class RebuildScope(Struct, frozen=True):
    """Which derived files to rebuild, and from which records."""

    queues: bool = True  # and index: whether to rebuild queues and index
    index: bool = True
    topics: tuple[str, ...] = ()  # globs; only queues of matching topics. Empty for all.
    queue_id: int | None = None  # only queues with this id
    start: int | None = None  # and end: only records in this range of physical offsets; None for no bound
    end: int | None = None
    # Whether units are accompanied by their records' properties, which a ConsumeQueueExt needs.
    properties: bool = False


class DispatchBatch(Struct):
    """The dispatch result of some records."""

    end: int  # physical offset up to which the log has been processed
    records: int = 0  # number of records
    last_time: int = 0  # store timestamp of the last record; 0 if there is none
    # Units by queue, in the order in which the queues first occurred.
    queues: list[tuple[QueueName, UnitBatch]] = field(default_factory=list)
    keys: IndexKeys | None = None  # for the index
    damage: list[Damage] = field(default_factory=list)  # and oddities: found in these records
    oddities: list[Oddity] = field(default_factory=list)
    # Topics with inner batches that `rules` does not list as batch topics.
    batch_topics: set[str] = field(default_factory=set)


WindowObserver = Callable[[Dispatcher, Frames, Dispatched], None]
"""Receives some frames and their dispatch result; the frames' bytes are valid only during the call."""


class BatchBuilder:
    """Converts windows of records into dispatch batches."""

    def __init__(self, rules: DispatchRules, scope: RebuildScope, observer: WindowObserver | None = None) -> None:
        """Starts before the first record. The observer is also called with every window."""
        self._dispatcher = Dispatcher(rules)
        self._scope = scope
        self._observer = observer
        self._queues = WordTable()
        self._globs = Globs(scope.topics)
        self._chosen = np.empty(0, bool)

    def batch(self, frames: Frames) -> DispatchBatch:
        """Returns the dispatch batch of valid frames."""
        dispatched = self._dispatcher.dispatch(frames, keys=self._scope.index)
        if self._observer is not None:
            self._observer(self._dispatcher, frames, dispatched)
        batch = DispatchBatch(frames.base + int(frames.positions[-1] + frames.sizes[-1]), len(frames))
        batch.last_time = int(frames.select(slice(-1, None)).column("store_timestamp")[0])
        batch.oddities.extend(dispatched.oddities)
        batch.batch_topics = self._unknown_batches(frames, dispatched.topic)
        if self._scope.index:
            batch.keys = dispatched.keys
        if self._scope.queues:
            batch.queues = self._by_queue(frames, self._selected(dispatched.units))
        return batch

    def _unknown_batches(self, frames: Frames, topic: np.ndarray) -> set[str]:
        rows = np.flatnonzero(frames.column("sys_flag") & SysFlag.INNER_BATCH)
        names = {self._dispatcher.topics.names[number] for number in np.unique(topic[rows]).tolist()}
        return names - self._dispatcher.rules.batch_topics

    def _selected(self, units: QueueUnits) -> QueueUnits:
        if self._scope.queue_id is not None:
            units = units.select(units.queue_id == self._scope.queue_id)
        if self._globs.is_everything:
            return units
        fresh = self._dispatcher.topics.names[len(self._chosen) :]
        chosen = np.array([self._globs.matches(name) for name in fresh], bool)
        self._chosen = np.concatenate([self._chosen, chosen])
        return units.select(self._chosen[units.topic])

    def _by_queue(self, frames: Frames, units: QueueUnits) -> list[tuple[QueueName, UnitBatch]]:
        if not len(units):
            return []
        number = self._queues.numbers_of(queue_numbers(units.topic, units.queue_id).view(np.uint64))
        packed = pack(units, number.astype(np.int64))
        order = packed.order
        offsets, times, counts = units.queue_offset[order], units.store_timestamp[order], units.batch_size[order]
        batches, topics = [], self._dispatcher.topics.names
        for first, (start, end) in zip(packed.firsts.tolist(), pairwise([0, *packed.stops.tolist()]), strict=True):
            name = QueueName(*queue_of(self._queues.values[int(number[first])], topics))
            part = slice(start, end)
            batch = UnitBatch(offsets[part], packed.units[part], times[part], counts[part])
            if self._scope.properties:
                batch.properties = frames.properties_of(units.row[order[part]])
            batches.append((name, batch))
        return batches


class Part(Struct, frozen=True):
    """A range of one segment."""

    segment: Segment  # path, base and size of the file
    start: int  # position of a record in it, or 0
    end: int | None  # position of the next part's first record; None for the end of the segment
    is_last: bool  # no segment follows this one
    gap: Damage | None = None  # missing range before the segment


def parts_of(log: CommitLog, scope: RebuildScope, *, cut: bool) -> Iterator[Part]:
    """Yields the parts of a log, restricted by the scope, in order.

    With `cut`, segments are divided into parts of about `PART_BYTES`; data files of a DLedger log are never divided.
    """
    before: Segment | None = None
    for index, segment in enumerate(log.segments[: log.last_used + 1]):
        gap = None if before is None else gap_between(before, segment)
        before = segment
        if (scope.start is not None and segment.end <= scope.start) or (
            scope.end is not None and segment.base >= scope.end
        ):
            continue
        start = _start_in(log, segment, scope.start)
        is_last = index == log.last_used
        for position in cuts_of(segment, start, PART_BYTES) if cut and not segment.entries else ():
            if scope.end is None or segment.base + position < scope.end:
                yield Part(segment, start, position, is_last=False, gap=gap)
                start, gap = position, None
        yield Part(segment, start, None, is_last, gap)


def _start_in(log: CommitLog, segment: Segment, start: int | None) -> int:
    """Returns `start` if a record begins there, else the segment's start; earlier records are filtered out later."""
    if start is None or start <= segment.base:
        return 0
    try:
        log.record(start)
    except StoreError:
        return 0
    return start - segment.base


def walk_part(part: Part, builder: BatchBuilder, scope: RebuildScope) -> Iterator[DispatchBatch]:
    """Walks a part; yields a batch for each window, and for damage.

    The `end` of the last batch is where the walk ended. It differs from the part's end if no record begins there.
    """
    segment = part.segment
    with ReadFile(segment.path) as file:
        is_last = part.is_last and part.end is None
        walk = walk_file(file, segment, start=part.start, end=part.end, is_last=is_last, crc=False, refills=True)
        if part.gap is not None:
            yield DispatchBatch(segment.base, damage=[part.gap])
        for item in walk:
            if isinstance(item, Damage):
                if item.overlaps(scope.start, scope.end):
                    yield DispatchBatch(item.end, damage=[item.at(segment.path, segment.base)])
                continue
            frames = item.between(scope.start, scope.end)
            if len(frames):
                yield builder.batch(frames)
        yield DispatchBatch(walk.end)


def batches_of_workers(
    parts: list[Part], rules: DispatchRules, scope: RebuildScope, jobs: int
) -> Iterator[DispatchBatch]:
    """Yields the batches of all parts in order, as a single process without parts would.

    If the walk over a part does not end where the next one begins, the cut was not at a record. This process then
    walks the rest of the segment from there.
    """
    last_of = {part.segment: part for part in parts}
    broken: Segment | None = None
    with worker_pool(jobs, _start, (rules, scope)) as pool:
        begun = (_Walk(part, pool.submit(_walk, part, scope)) for part in parts)
        for walk in in_order(begun, jobs + _AHEAD):
            part = walk.part
            if part.segment == broken:
                continue
            batches = walk.future.result()
            if part.end is None or batches[-1].end == part.segment.base + part.end:
                yield from batches
                continue
            broken = part.segment
            rest = replace(part, end=None, is_last=last_of[broken].is_last)
            yield from walk_part(rest, BatchBuilder(rules, scope), scope)


class _Walk(Struct, frozen=True):
    """A part that a worker walks."""

    part: Part
    future: "Future[list[DispatchBatch]]"

    def done(self) -> bool:
        """See `pool.StartedTask`."""
        return self.future.done()


def _start(rules: DispatchRules, scope: RebuildScope) -> None:
    ignore_interrupts()
    _of_process.append(BatchBuilder(rules, scope))


def _walk(part: Part, scope: RebuildScope) -> list[DispatchBatch]:
    return list(walk_part(part, _of_process[0], scope))
