"""The first dispatch after recovery: where it starts, which bytes it covers, and whether it ends.

4.9 starts it at the largest end of any queue and waits for it; 5.5 does so only on request
(recheckReputOffsetFromCq).
Source: DefaultMessageStore.start, ReputMessageService.doReput (4.9.7, 5.5.0).
"""

from mqtool.formats import dledger, java
from mqtool.records.record_check import HeapExhausted, RecordCheck
from mqtool.recovery.action_log import StartHung
from mqtool.recovery.dispatch import DispatchFailed, StartDispatch
from mqtool.recovery.entry_scan import scan_of
from mqtool.recovery.mapped_files import SimulatedFile
from mqtool.recovery.state import StoreState

_WAIT = "start() waits for dispatch"


def dispatch_from_queues(state: StoreState) -> None:
    """Dispatches everything after the largest end of any queue.

    Raises:
        StartHung: dispatch cannot reach the end of the log.
    """
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
    """Dispatches from the present position to the end of the log.

    Raises:
        StartHung: dispatch cannot reach it.
    """
    check = RecordCheck(state.settings, recovering=False)
    dispatcher = StartDispatch(state, check)
    while state.reput_from < state.log.max_offset:
        before = state.reput_from
        try:
            _reput(state, check, dispatcher)
        except DispatchFailed as failure:
            words = f"{_WAIT}, which fails at {state.reput_from} again and again: {failure.refusal}"
            raise StartHung(words) from None
        except HeapExhausted as end_of_thread:
            raise StartHung(f"{_WAIT}, which died: {end_of_thread.refusal}") from None
        if state.reput_from == before:
            raise StartHung(f"{_WAIT} at {before}, which finds nothing there; the log ends at {state.log.max_offset}")


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
        f"dispatch skips {rest} bytes from {state.reput_from} on, to the end of the segment: no record there; "
        "everything after it in that segment gets into no queue (ReputMessageService.doReput)"
    )
    state.reput_from += rest
