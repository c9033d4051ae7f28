"""Recovery of the CommitLog: what the scan dispatches, and where the log ends (where it begins: `records.scan_start`).

Covers clean shutdowns and crashes, with the rules of either release. Source: CommitLog.recoverNormally,
recoverAbnormally, isMappedFileMatchedRecover, StoreCheckpoint, ConsumeQueueStore.isMappedFileMatchedRecover,
IndexService.isMappedFileMatchedRecover (4.9.7, 5.5.0).
"""

from functools import partial

import numpy as np

from mqtool.records.frames import Frames
from mqtool.records.record_check import NEGATIVE_BLANK, RecordCheck
from mqtool.records.scan_start import scan_start
from mqtool.recovery.dispatch import StartDispatch
from mqtool.recovery.log_scan import SegmentScan
from mqtool.recovery.mapped_files import SimulatedFile
from mqtool.recovery.state import StoreState

_LARGE_ARRAY = 64 << 20
"""No record is so long; a heap may not have that much in one piece."""


class LogRecovery:
    """One recovery of the log."""

    def __init__(self, state: StoreState, *, normally: bool | None = None) -> None:
        """Takes a store whose queues have been recovered; by default the abort file says how to recover."""
        self._state = state
        self._normally = state.clean_stop if normally is None else normally
        self._settings = state.settings
        self._check = RecordCheck(state.settings, recovering=True)
        self._dispatcher = StartDispatch(state, self._check)
        self._files = state.log.files
        self.queues_end = state.queues_end  # largest end of any queue after the queues were recovered

    def run(self) -> None:
        """Scans, dispatches, moves positions back, deletes what follows the end."""
        state = self._state
        if not self._files:
            state.actions.log_reason(
                "there is no segment: the broker deletes all queue files and starts the log at 0 (CommitLog: The "
                "commitlog files are deleted, and delete the consume queue files)"
            )
            for queue in state.queues.values():
                queue.destroy()
            return
        number = self._start()
        state.scanned.from_offset = self._files[number].base
        end = self._scan(number)
        state.scanned.end_offset = end
        if self._settings.release >= (5, 0):
            self._truncate_queues(state.queues_end if self._settings.release >= (5, 4) else self.queues_end, end)
        self._cut(end)
        if self._settings.release < (5, 0):
            self._truncate_queues(self.queues_end, end)

    def _truncate_queues(self, queues_end: int, end: int) -> None:
        if queues_end < end:
            return
        if queues_end > end:
            self._state.actions.log_reason(
                f"a queue points up to {queues_end}, but the log ends at {end}: every queue loses its units at or "
                "beyond the log's end (truncateDirtyLogicFiles)"
            )
        self._state.truncate_queues(end)

    def _cut(self, end: int) -> None:
        state = self._state
        before = {file.path for file in state.log.files}
        state.flushed_where = end
        state.log.truncate_dirty(end)
        deleted = len(before) - len(state.log.files)
        if deleted:
            state.actions.log_reason(
                f"{deleted} segment(s) that begin after the end of the log, {end}, are deleted "
                "(MappedFileQueue.truncateDirtyFiles)"
            )

    def _start(self) -> int:
        """Returns the number of the segment at which the scan begins."""
        state, limit = self._state, self._settings.discarded_from
        files = [file for file in self._files if limit is None or file.base <= limit] or self._files[:1]  # oldest first
        chosen = scan_start(
            [partial(state.segments.reader, file) for file in files],
            self._settings.segment_size,
            state.checkpoint,
            self._settings,
            clean_stop=self._normally,
            queues_end=self.queues_end,
            bases=[file.base for file in files],
        )
        name = self._files[chosen.segment].path.name
        state.actions.log_reason(f"the scan starts at segment {name}: {chosen.reason}")
        return chosen.segment

    def _scan(self, number: int) -> int:
        """Returns the physical offset at which the log ends."""
        confirm = self._first_confirm(number)
        while True:
            file = self._files[number]
            reader = self._state.segments.reader(file)
            scan = SegmentScan(self._check, reader, self._settings.segment_size, self._first_position(file))
            cut = self._scan_segment(file, scan)
            if scan.last_start is not None:
                confirm = file.base + scan.last_start
            if cut or not scan.stop.ok:
                break
            if scan.stop is NEGATIVE_BLANK:
                self._state.scanned.has_negative_blank = True
                self._state.actions.log_accepted(
                    f"segment {file.path.name} ends at {file.base + scan.end} in {scan.stop.reason}: 5.5.1 would end "
                    "the log there (CommitLog.checkMessageAndReturnSize)"
                )
            if number + 1 >= len(self._files):
                break
            number += 1
        end = file.base + scan.end
        self._note_end(file, scan, end)
        self._note_memory()
        if self._settings.release >= (5, 0) and self._settings.dledger is None:
            self._state.update_checkpoint(confirm_physical_offset=confirm)
        return end

    def _first_position(self, file: SimulatedFile) -> int:
        """Returns the first position to scan in a segment, after records that are known to pass."""
        known = self._state.checked.get(file.base)
        if known is None or not self._normally or self._settings.force_property_crc:
            return 0
        number = int(np.searchsorted(known, self.queues_end, side="right")) - 1
        return int(known[number]) - file.base if number >= 0 else 0

    def _first_confirm(self, number: int) -> int:
        if not self._normally:
            return self._files[number].base
        return 0 if self._settings.sync_flush else self._state.log.max_offset

    def _scan_segment(self, file: SimulatedFile, scan: SegmentScan) -> bool:
        """Scans and dispatches one segment; returns whether a wrong stated offset ended it (5.5, on request)."""
        for frames, at in scan:
            taken, foreign = self._inside(file, frames)
            self._count(file, taken, at)
            self._dispatch(taken)
            if foreign:
                scan.end = at + int(taken.positions[-1] + taken.sizes[-1]) if len(taken) else at
                scan.last_start = at + int(taken.positions[-1]) if len(taken) else None
                return True
        return False

    def _inside(self, file: SimulatedFile, frames: Frames) -> tuple[Frames, bool]:
        if self._normally or not self._settings.check_offset_on_recover:
            return frames, False
        stated = frames.column("physical_offset")
        inside = (stated >= file.base) & (stated <= file.base + self._settings.segment_size)
        if inside.all():
            return frames, False
        return frames.select(slice(0, int(np.argmin(inside)))), True

    def _count(self, file: SimulatedFile, frames: Frames, at: int) -> None:
        scanned = self._state.scanned
        scanned.records += len(frames)
        scanned.bytes += int(frames.sizes.sum())
        lying = np.flatnonzero(frames.column("physical_offset") != frames.positions + (file.base + at))
        if len(lying):
            where = file.base + at + int(frames.positions[lying[0]])
            self._state.actions.log_accepted(
                f"{len(lying)} record(s) state a physical offset that is not their own, the first at {where}: "
                "recovery does not check this"
            )

    def _dispatch(self, frames: Frames) -> None:
        if self._normally:
            if self._settings.release < (5, 0):
                return
            unqueued = frames.column("physical_offset") > self.queues_end
            frames = frames.select(unqueued)
            if len(frames):
                self._state.actions.log_reason(
                    f"records that state a physical offset above {self.queues_end}, the largest end of a queue, are "
                    "dispatched; the one exactly there is not (CommitLog.recoverNormally, 5.5)"
                )
        self._dispatcher.dispatch(frames)

    def _note_memory(self) -> None:
        requested = self._check.largest_array
        if requested > _LARGE_ARRAY:
            self._state.actions.log_undecided(
                f"whether the broker can allocate the {requested} bytes that an invalid record requires: if not, it "
                f"ends with an OutOfMemoryError; assumed heap: {self._settings.heap_bytes} bytes (--heap)"
            )

    def _note_end(self, file: SimulatedFile, scan: SegmentScan, end: int) -> None:
        reason = "a BLANK ends the last segment" if scan.stop.ok else (scan.stop.reason or "no record")
        self._state.actions.log_reason(
            f"the log ends at {end}, position {scan.end} of segment {file.path.name}: {reason} "
            "(CommitLog.checkMessageAndReturnSize)"
        )
