"""Dispatch during a start: records into queues and index, by recovery and by reput, the first dispatch after it.

The rule for a record is in `records.dispatch`; this module applies its result as a start does. 4.9 starts reput at the
largest end of any queue and waits for it; 5.5 does so only on request (recheckReputOffsetFromCq). Source:
DefaultMessageStore.doDispatch, CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex,
ConsumeQueue.multiDispatchLmqQueue, MultiDispatchUtils, DefaultMessageStore.start, ReputMessageService.doReput (4.9.7,
5.5.0).
"""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from mqtool.formats import dledger, java, properties
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
from mqtool.records.record_check import HeapExhausted, RecordCheck
from mqtool.recovery.action_log import StartFailed, StartHung, load_fails
from mqtool.recovery.log_scan import scan_of
from mqtool.recovery.mapped_files import FileBlocked, SimulatedFile, obstacle
from mqtool.recovery.queues import BatchQueue, SimpleQueue
from mqtool.recovery.state import LastQueued, StoreState

_NAMES_QUEUES = properties.INNER_MULTI_DISPATCH.encode()
_WAIT = "start() waits for dispatch"


class DispatchFailed(StartFailed):
    """The broker throws while it dispatches a record; no later record has been dispatched."""

    def __init__(self, failure: StartFailed, physical_offset: int) -> None:
        super().__init__(failure.exit, failure.refusal)
        self.physical_offset = physical_offset  # of the record


class StartDispatch:
    """Dispatches one window after another into the queues and the index of a state."""

    def __init__(self, state: StoreState, check: RecordCheck) -> None:
        """Takes the state to change, and the test that the records have passed, which knows the delay levels."""
        self._state = state
        settings = state.settings
        self._rules = rules_for(
            settings.release,
            multi_dispatch=settings.multi_dispatch,  # what the starting broker does: false where not configured
            light_queues=settings.lmq,
            drops_paths=settings.release >= (5, 0),
            delay_levels=check.delay_levels,
        )
        self._columns = Dispatcher(self._own_queue_rules())

    def dispatch(self, frames: Frames) -> None:
        """Dispatches records in order; raises DispatchFailed if a record's list of queues cannot be parsed.

        That record has a unit in its own queue and in those that it names before that, and no entry in the index.
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
    """Yields each queue, sorted, with its rows, ascending. A topic is its number in `names`."""
    distinct, group = np.unique(queue_numbers(topic, queue_id), return_inverse=True)
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(len(distinct) + 1))
    queues = [(names[key >> 32], key & 0xFFFFFFFF, number) for number, key in enumerate(distinct.tolist())]
    for name, unsigned, number in sorted(queues):
        yield name, java.to_int32(unsigned), order[edges[number] : edges[number + 1]]


def _refuse(state: StoreState, queue: SimpleQueue | BatchQueue, reason: str) -> None:
    """Notes that a queue gets no file because something else is in place of it or of its directory."""
    words = (
        f"queue {queue} gets no file, because {reason}: its messages are in no queue, and the broker accepts no more "
        "for it (30 tries of a second, then makeLogicsQueueError; ConsumeQueue.putMessagePositionInfoWrapper)"
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


def dispatch_from_queues(state: StoreState) -> None:
    """Dispatches everything after the largest end of any queue; raises StartHung if it cannot reach the end."""
    state.reput_from = max(state.log.min_offset, state.queues_end, 0)
    end = state.log.max_offset
    if state.reput_from < end:
        state.actions.log_reason(
            f"dispatch continues from {state.reput_from}, the largest end of any queue, to {end}; start() waits for "
            "it (DefaultMessageStore.start)"
        )
    dispatch_on(state)
    if state.reput_from != state.log.max_offset:
        state.actions.log_reason(
            f"dispatch is at {state.reput_from}, the log ends at {state.log.max_offset}: abort remains after a "
            "clean shutdown"
        )


def dispatch_on(state: StoreState) -> None:
    """Dispatches from the present position to the end of the log; raises StartHung if it cannot reach it."""
    check = RecordCheck(state.settings, recovering=False)
    dispatcher = StartDispatch(state, check)
    while state.reput_from < state.log.max_offset:
        before = state.reput_from
        try:
            _reput(state, check, dispatcher)
        except DispatchFailed as failure:
            words = f"{_WAIT}, which keeps failing at {state.reput_from}: {failure.refusal}"
            raise StartHung(words) from None
        except HeapExhausted as end_of_thread:
            raise StartHung(f"{_WAIT}, which died: {end_of_thread.refusal}") from None
        if state.reput_from == before:
            raise StartHung(f"{_WAIT} at {before}, which finds no record there; the log ends at {state.log.max_offset}")


def _reput(state: StoreState, check: RecordCheck, dispatcher: StartDispatch) -> None:
    """Dispatches the readable rest of one segment (one buffer of doReput)."""
    state.reput_from = max(state.reput_from, state.log.min_offset)
    file = state.log.find(state.reput_from, or_first=state.reput_from == 0)
    if file is None:
        return
    position = state.log.remainder(state.reput_from)
    if not 0 <= position < file.wrote:
        return
    state.reput_from = file.base + position
    _reput_segment(state, check, dispatcher, file, position)


def _reput_segment(
    state: StoreState, check: RecordCheck, dispatcher: StartDispatch, file: SimulatedFile, position: int
) -> None:
    size, done = file.wrote - position, 0
    while True:
        scan = scan_of(check, state.segments.reader(file), file, file.wrote, position)
        for frames, _ in scan:
            try:
                dispatcher.dispatch(frames)
            except DispatchFailed as failure:
                state.reput_from = failure.physical_offset - (dledger.ENTRY_HEADER_SIZE if file.entries else 0)
                raise
            state.scanned.bytes += int(frames.sizes.sum())
        passed = scan.end - position
        done += passed
        position = scan.end
        state.reput_from += passed
        if done >= size:
            return
        if scan.stop.ok:
            segment = state.settings.segment_size
            state.reput_from += segment - (state.reput_from - java.divide(state.reput_from, segment) * segment)
            return
        if scan.stop.size <= 0:
            _skip_rest(state, size - done)
            return
        # a half message: the offset moves by what it states, the buffer by what was read of it
        state.actions.log_accepted(f"dispatch skips a record at {file.base + position}: {scan.stop.reason}")
        state.reput_from += scan.stop.size
        position += scan.stop.consumed


def _skip_rest(state: StoreState, rest: int) -> None:
    """Skips the rest of the buffer after a record that cannot be read; only a master does."""
    if not state.settings.is_master and state.settings.dledger is None:
        return
    state.actions.log_accepted(
        f"dispatch skips {rest} bytes from {state.reput_from} to the end of the segment: no record starts there, so "
        "everything after it in that segment gets into no queue (ReputMessageService.doReput)"
    )
    state.reput_from += rest
