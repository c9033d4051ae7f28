"""Dispatch during a start: records into queues and index, by recovery and by reput.

The rule for a record is in `records.dispatch`; this module applies its result as a start does. Source:
DefaultMessageStore.doDispatch, CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex,
ConsumeQueue.multiDispatchLmqQueue, MultiDispatchUtils (4.9.7, 5.5.0).
"""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from mqtool.formats import java, properties
from mqtool.formats.config_files import BATCH_QUEUES
from mqtool.records.dispatch import (
    Dispatcher,
    DispatchRules,
    FurtherQueues,
    QueueUnits,
    further_queues,
    queue_id_of,
    rules_for,
)
from mqtool.records.frames import Frames
from mqtool.records.number_sets import among, distinct
from mqtool.records.queue_build import batch_units, is_dispatched, queue_numbers
from mqtool.records.record_check import RecordCheck
from mqtool.recovery.action_log import StartFailed, load_fails
from mqtool.recovery.batch_queues import BatchQueue
from mqtool.recovery.mapped_files import obstacle
from mqtool.recovery.queue_files import FileBlocked
from mqtool.recovery.queues import SimpleQueue
from mqtool.recovery.state import LastQueued, StoreState

_NAMES_QUEUES = properties.INNER_MULTI_DISPATCH.encode()


class DispatchFailed(StartFailed):
    """The broker throws while it dispatches a record; no later record has been dispatched.

    Attributes:
        physical_offset: of the record.
    """

    def __init__(self, failure: StartFailed, physical_offset: int) -> None:
        super().__init__(failure.exit, failure.refusal)
        self.physical_offset = physical_offset


class StartDispatch:
    """Dispatches one window after another into the queues and the index of a state."""

    def __init__(self, state: StoreState, check: RecordCheck) -> None:
        """Prepares dispatch.

        Args:
            state: changed by dispatch.
            check: the test that the records have passed; it knows which delay levels the broker has read by then.
        """
        self._state = state
        settings = state.settings
        self._rules = rules_for(
            settings.release,
            multi_dispatch=settings.multi_dispatch,  # what the starting broker does: false where not configured
            light_queues=settings.lmq,
            drops_paths=settings.release >= (5, 5),
            delay_levels=check.delay_levels,
        )
        self._columns = Dispatcher(self._own_queue_rules())

    def dispatch(self, frames: Frames) -> None:
        """Dispatches records in order.

        Raises:
            DispatchFailed: a record's list of queues cannot be parsed. It has a unit in its own queue and in those that
                it names before that, and no entry in the index.
        """
        failing = self._first_failing(frames) if self._rules.multi_dispatch else None
        if failing is None:
            self._dispatch(frames, index=self._state.settings.index_enabled)
            return
        row, place = failing
        self._dispatch(frames.select(np.arange(row)), index=self._state.settings.index_enabled)
        self._dispatch(frames.select(np.array([row])), index=False)
        words = f'load exception java.lang.NumberFormatException: For input string: "{place}"'
        raise DispatchFailed(load_fails(words), int(frames.column("physical_offset")[row]))

    def _first_failing(self, frames: Frames) -> tuple[int, str] | None:
        """Returns the first record that the broker cannot dispatch, and the queue offset that is not a number."""
        rows = frames.rows_with(_NAMES_QUEUES)
        if not len(rows):
            return None
        units = self._columns.dispatch(frames, keys=False).units
        for number in np.flatnonzero(np.isin(units.row, rows)).tolist():
            place = self._further(frames, units, number).not_a_number
            if place is not None:
                return int(units.row[number]), place
        return None

    def _dispatch(self, frames: Frames, *, index: bool) -> None:
        if not len(frames):
            return
        state = self._state
        state.scanned.dispatched += len(frames)
        self._columns.rules = self._own_queue_rules()
        dispatched = self._columns.dispatch(frames, keys=index)
        rows = self._queue(frames, dispatched.units)
        if len(rows):
            last = int(rows[-1])
            stored, physical = frames.column("store_timestamp"), frames.column("physical_offset")
            state.last_queued = LastQueued(int(stored[last]), int(physical[last]))
        if index:
            state.index.put(dispatched.keys, len(frames))
            if state.index.is_broken:
                state.is_writeable = False

    def _own_queue_rules(self) -> DispatchRules:
        """Returns the rules for the queue that a record states; further queues are dispatched after all of those."""
        state = self._state
        batches = {topic for (topic, _), queue in state.queues.items() if isinstance(queue, BatchQueue)}
        batches |= {topic for topic, kind in state.queue_types.items() if kind == BATCH_QUEUES}
        return replace(self._rules, multi_dispatch=False, batch_topics=frozenset(batches))

    def _queue(self, frames: Frames, units: QueueUnits) -> np.ndarray:
        """Puts units into their queues; returns the rows of the records whose unit was added."""
        state, refused = self._state, []
        for topic, queue_id, which in by_queue(units.topic, units.queue_id, self._columns.topics.names):
            queue = state.queue(topic, queue_id)
            mine = units.select(which)
            blocked = None if queue.files.files else obstacle(queue.files.directory)
            if blocked is not None:
                _refuse(state, queue, f"{blocked.relative_to(state.settings.root).as_posix()} is not a directory")
                refused.append(mine.row)
                continue
            try:
                if isinstance(queue, SimpleQueue):
                    _put_simple(queue, frames, mine)
                else:
                    _put_batch(queue, mine)
            except FileBlocked as block:
                _refuse(state, queue, f"{block.path.relative_to(state.settings.root).as_posix()} is a directory")
                ends = mine.physical_offset + (mine.size if isinstance(queue, SimpleQueue) else 0)
                refused.append(mine.row[~is_dispatched(ends, queue.max_physical_offset)])
        if self._rules.multi_dispatch:
            for number in np.flatnonzero(np.isin(units.row, frames.rows_with(_NAMES_QUEUES))).tolist():
                self._multi_dispatch(frames, units, number)
        return distinct(units.row[~among(units.row, np.concatenate(refused))]) if refused else units.row

    def _further(self, frames: Frames, units: QueueUnits, number: int) -> FurtherQueues:
        """Returns the further queues that the record of a unit names."""
        stored = properties.decode(frames.properties_of(units.row[[number]])[0])
        names = stored.get(properties.INNER_MULTI_DISPATCH, "")
        offsets = stored.get(properties.INNER_MULTI_QUEUE_OFFSET, "")
        topic = self._columns.topics.names[int(units.topic[number])]
        return further_queues(topic, names, offsets, self._rules)

    def _multi_dispatch(self, frames: Frames, units: QueueUnits, number: int) -> None:
        """Dispatches a record to the further queues that it names, with the same number of units each."""
        state, rules = self._state, self._rules
        for name, offset in self._further(frames, units, number).queues:
            queue = state.queue(name, queue_id_of(name, int(units.queue_id[number]), rules))
            if isinstance(queue, SimpleQueue) and (queue.files.files or obstacle(queue.files.directory) is None):
                physical, size = int(units.physical_offset[number]), int(units.size[number])
                try:
                    queue.put(physical, size, int(units.tags_code[number]), offset)
                except FileBlocked as block:
                    path = block.path.relative_to(state.settings.root).as_posix()
                    _refuse(state, queue, f"{path} is a directory")


def by_queue(topic: np.ndarray, queue_id: np.ndarray, names: list[str]) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yields each queue, sorted, with its rows, ascending.

    Args:
        topic: number in `names` of each row.
        queue_id: of each row.
        names: of the topics.
    """
    distinct, group = np.unique(queue_numbers(topic, queue_id), return_inverse=True)
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(len(distinct) + 1))
    queues = [(names[key >> 32], key & 0xFFFFFFFF, number) for number, key in enumerate(distinct.tolist())]
    for name, unsigned, number in sorted(queues):
        yield name, java.to_int32(unsigned), order[edges[number] : edges[number + 1]]


def _refuse(state: StoreState, queue: SimpleQueue | BatchQueue, reason: str) -> None:
    """Notes that a queue gets no file because something else is in place of it or of its directory."""
    words = (
        f"queue {queue} gets no file, as {reason}: its messages are in no queue, and the broker "
        "accepts no more (30 tries of a second, then makeLogicsQueueError; ConsumeQueue.putMessagePositionInfoWrapper)"
    )
    if words not in state.actions.accepted:
        state.actions.log_accepted(words)
    state.is_writeable = False


def _put_simple(queue: SimpleQueue, frames: Frames, units: QueueUnits) -> None:
    # the maximum only grows, so the others would be dropped one by one
    units = units.select(~is_dispatched(units.physical_offset + units.size, queue.max_physical_offset))
    stated = frames.column("queue_offset")[units.row]
    columns = (units.physical_offset, units.size, units.tags_code, stated)
    for physical, size, tags, offset in zip(*(column.tolist() for column in columns), strict=True):
        queue.put(physical, size, tags, offset)


def _put_batch(queue: BatchQueue, units: QueueUnits) -> None:
    for unit in batch_units(units):
        queue.put(unit)
