"""The CommitLog of a broker in DLedger mode: plain segments, if there are any, followed by files of entries.

Source: DLedgerCommitLog (4.9.7, 5.5.0).
"""

from functools import partial

from mqtool.formats import commit_log, dledger
from mqtool.records.record_check import RecordCheck
from mqtool.records.scan_start import ledger_scan_start
from mqtool.recovery.action_log import Action, load_fails
from mqtool.recovery.commit_log import LogRecovery
from mqtool.recovery.dispatch import StartDispatch
from mqtool.recovery.dledger_files import DataFiles, LedgerFiles
from mqtool.recovery.dledger_recovery import LedgerRecovery, LedgerRecoveryResult
from mqtool.recovery.entry_scan import EntryScan
from mqtool.recovery.mapped_files import Segments, SimulatedFile, list_entries
from mqtool.recovery.state import StoreState


class MixedLog(Segments):
    """Both lists as one address space.

    Attributes:
        plain, data: the lists.
        ledger_start: start of the second list; -1 if there is none.
        recovery: result of DLedger's recovery.
    """

    def __init__(self, plain: Segments, data: DataFiles, ledger_start: int, recovery: LedgerRecoveryResult) -> None:
        super().__init__(plain.directory, plain.file_size, plain._actions)
        self.plain = plain
        self.data = data
        self.ledger_start = ledger_start
        self.recovery = recovery
        self.files = [*plain.files, *data.files]

    @property
    def min_offset(self) -> int:
        """Start of the log (DLedgerCommitLog.getMinOffset)."""
        return self.plain.min_offset if self.plain.files else self.data.min_offset

    @property
    def committed(self) -> int:
        """End of the log before there is a leader (DLedgerCommitLog.getMaxOffset)."""
        return (
            self.recovery.committed_position if self.recovery.committed_position > 0 else max(self.data.min_offset, 0)
        )

    @property
    def max_offset(self) -> int:
        """End of the log once this node leads, or the leader agrees: after the last entry."""
        return self.recovery.entry_end if self.recovery.end_index >= 0 else self.committed

    def find(self, offset: int, *, or_first: bool = False) -> SimulatedFile | None:
        """Returns the file with an offset, from the right list."""
        if offset < self.ledger_start:
            return self.plain.find(offset, or_first=or_first)
        return self.data.find(offset, or_first=or_first)


class LedgerLogRecovery:
    """Recovery of a DLedger log, instead of `commit_log.LogRecovery`."""

    def __init__(self, state: StoreState) -> None:
        assert state.settings.dledger is not None
        self._state = state
        self._settings = state.settings
        self._place = state.settings.dledger
        self._data = DataFiles(self._place.data[0], self._settings.segment_size, state.actions)
        self._index = LedgerFiles(self._place.directory / dledger.INDEX, dledger.DEFAULT_INDEX_FILE_SIZE, state.actions)
        self._check = RecordCheck(state.settings, recovering=True)
        self._dispatcher = StartDispatch(state, self._check)

    def run(self) -> MixedLog:
        """Recovers the log and returns it.

        Raises:
            StartFailed: the process ends.
        """
        plain, queues_end = self._state.log, self._state.queues_end
        self._data.load(list_entries(self._data.directory) or [])
        self._index.load(list_entries(self._index.directory) or [])
        if not self._data.files:
            return self._first_time(plain)
        self._state.loaded_segments += tuple(self._data.files)
        ledger_start = self._data.files[0].base
        log = MixedLog(plain, self._data, ledger_start, self._recover_ledger())
        self._state.log = log
        if self._settings.release >= (5, 5) and not self._state.clean_stop:
            self._dispatch_again(self._state.checkpoint.logics_physical_offset)
        elif queues_end >= self._data.max_offset:
            self._truncate_queues(queues_end, self._data.max_offset, "the log ends at")
        return log

    def _recover_ledger(self) -> LedgerRecoveryResult:
        result = LedgerRecovery(self._place.directory, self._data, self._index, self._state.actions).run()
        scanned = self._state.scanned
        scanned.from_offset, scanned.end_offset = result.scan_from, result.end
        scanned.records, scanned.bytes = result.entries, max(0, result.end - result.scan_from)
        return result

    def _truncate_queues(self, reach: int, end: int, words: str) -> None:
        if reach > end:
            self._state.actions.log_reason(
                f"queues reach to {reach}, {words} {end}: every queue loses the units at or beyond that "
                "(DLedgerCommitLog, truncateDirtyLogicFiles)"
            )
        self._state.truncate_queues(end)

    def _dispatch_again(self, reach: int) -> None:
        """Follows dledgerRecoverAbnormally of 5.5, which ignores the entry headers when it adds up how far it has come.

        Args:
            reach: the checkpoint's offset of the queues.
        """
        files = self._data.files
        readers = [partial(self._state.segments.reader, file) for file in files]
        number = ledger_scan_start(readers, self._state.checkpoint, self._settings)
        self._state.actions.log_reason(f"records from file {files[number].path.name} on are dispatched again (5.5)")
        while True:
            file, size = files[number], 0
            scan = EntryScan(self._check, self._state.segments.reader(file), self._settings.segment_size)
            for frames, _ in scan:
                size += int(frames.sizes.sum())
                self._dispatcher.dispatch(frames)
            number += 1
            if not scan.stop.ok or number >= len(files):
                break
        end = file.base + size
        if reach >= end:
            self._truncate_queues(
                reach,
                end,
                "by the checkpoint; 5.5 adds up records without the 48 bytes before each and takes the log to end at",
            )

    def _first_time(self, plain: Segments) -> MixedLog:
        """Handles the first start in DLedger mode: recovers and closes the plain log; DLedger continues after it."""
        normally = True if self._settings.release < (5, 5) else None
        LogRecovery(self._state, normally=normally).run()
        ledger_start = self._close(plain)
        result = LedgerRecoveryResult(ledger_start, ledger_start) if self._data.files else LedgerRecoveryResult()
        return MixedLog(plain, self._data, ledger_start, result)

    def _close(self, plain: Segments) -> int:
        """Ends the plain log with a BLANK and creates the first data file (setRecoverPosition)."""
        last = plain.last
        if last is None:
            return -1
        left = plain.file_size - last.wrote
        if left < commit_log.FRAME.size:
            raise load_fails("load exception java.nio.BufferUnderflowException")
        head = self._state.segments.reader(last)(last.wrote, commit_log.FRAME.size)
        if not commit_log.is_blank(head):
            self._state.actions.do(Action.WRITE, last.path)
        last.wrote = plain.file_size
        ledger_start = last.base + plain.file_size
        self._state.actions.log_reason(f"the plain log is closed with a BLANK; DLedger's begins at {ledger_start}")
        self._data.last_for_append(ledger_start)
        return ledger_start
