"""A window of records, dispatched and sorted by queue: the unit of work that is passed between worker processes."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from mqtool.formats.commit_log import SysFlag
from mqtool.rebuild.queue_writer import QueueName, UnitBatch
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Dispatched, Dispatcher, DispatchRules, IndexKeys, Oddity, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.number_sets import WordTable
from mqtool.records.queue_build import pack, queue_numbers, queue_of
from mqtool.store.globs import Globs


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
        """Starts before the first record.

        Args:
            rules: for dispatch.
            scope: which files to rebuild.
            observer: also called with every window.
        """
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
