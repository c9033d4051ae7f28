"""A start in DLedger mode, until the node leads or follows: plain segments, if there are any, then files of entries.

Source: DLedgerCommitLog, DefaultMessageStore.start, DLedgerServer.startup, DLedgerMmapFileStore.persistCheckPoint
(4.9.7, 5.5.0; dledger 0.3.1.2, 0.3.2).
"""

from functools import partial

from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log, dledger, file_names, java
from mqtool.records.record_check import RecordCheck
from mqtool.records.scan_start import ledger_scan_start
from mqtool.recovery.action_log import Action, StartHung, load_fails, throws
from mqtool.recovery.commit_log import LogRecovery
from mqtool.recovery.dispatch import StartDispatch, dispatch_on
from mqtool.recovery.dledger_recovery import DataFiles, LedgerFiles, LedgerRecovery, LedgerRecoveryResult
from mqtool.recovery.log_scan import EntryScan
from mqtool.recovery.mapped_files import Segments, SimulatedFile, list_entries
from mqtool.recovery.start import Start
from mqtool.recovery.state import StoreState
from mqtool.store.files import read_file


class MixedLog(Segments):
    """Both lists as one address space."""

    def __init__(self, plain: Segments, data: DataFiles, ledger_start: int, recovery: LedgerRecoveryResult) -> None:
        super().__init__(plain.directory, plain.file_size, plain._actions)
        self.plain = plain  # plain and data: the lists
        self.data = data
        self.ledger_start = ledger_start  # start of the second list; -1 if there is none
        self.recovery = recovery  # result of DLedger's recovery
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
        """Recovers the log and returns it."""
        plain, queues_end = self._state.log, self._state.queues_end
        self._data.load(list_entries(self._data.directory) or [])
        self._index.load(list_entries(self._index.directory) or [])
        if not self._data.files:
            return self._first_time(plain)
        self._state.loaded_segments += tuple(self._data.files)
        ledger_start = self._data.files[0].base
        log = MixedLog(plain, self._data, ledger_start, self._recover_ledger())
        self._state.log = log
        if self._settings.release >= (5, 0) and not self._state.clean_stop:
            self._dispatch_again(queues_end)
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
                f"queues point up to {reach}, {words} {end}: every queue loses its units at or beyond that "
                "(DLedgerCommitLog, truncateDirtyLogicFiles)"
            )
        self._state.truncate_queues(end)

    def _dispatch_again(self, queues_end: int) -> None:
        """Follows dledgerRecoverAbnormally of 5.x, which ignores entry headers when it adds up how far it has come."""
        files = self._data.files
        readers = [partial(self._state.segments.reader, file) for file in files]
        number = ledger_scan_start(readers, self._state.checkpoint, self._settings)
        self._state.actions.log_reason(f"records from file {files[number].path.name} on are dispatched again (5.x)")
        while True:
            file, size = files[number], 0
            scan = EntryScan(self._check, self._state.segments.reader(file), self._settings.segment_size)
            for frames, _ in scan:
                size += int(frames.sizes.sum())
                self._dispatcher.dispatch(frames)
            number += 1
            if not scan.stop.ok or number >= len(files):
                break
        end, words = file.base + size, ""
        if self._settings.release >= (5, 5):
            queues_end, words = self._state.checkpoint.logics_physical_offset, "by the checkpoint; "
        if queues_end >= end:
            words += "5.x adds up records without the 48 bytes before each and takes the log to end at"
            self._truncate_queues(queues_end, end, words)

    def _first_time(self, plain: Segments) -> MixedLog:
        """Handles the first start in DLedger mode: recovers and closes the plain log; DLedger continues after it."""
        normally = True if self._settings.release < (5, 0) else None
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


class LedgerStart(Start):
    """One start of one store in DLedger mode."""

    def _construct(self) -> None:
        self._check_node()
        super()._construct()

    def _check_node(self) -> None:
        """Checks that a number follows the first character of the node's name.

        Source: BrokerController.getBrokerIdentity (5.5.0) and the constructor of DLedgerCommitLog (4.9.7), both run.
        """
        place = self.settings.dledger
        assert place is not None
        number = place.directory.name.removeprefix(file_names.DLEDGER_PREFIX)[1:]
        try:
            java.parse_int(number)
        except FormatError:
            raise throws(f'java.lang.NumberFormatException: For input string: "{number}"') from None

    def _recover_log(self) -> None:
        log = LedgerLogRecovery(self.state).run()
        self.state.log = log

    @property
    def _log(self) -> MixedLog:
        assert isinstance(self.state.log, MixedLog)
        return self.state.log

    @property
    def _confirm_offset(self) -> int:
        return self.state.log.max_offset

    def _dispatch_rest(self) -> None:
        """Dispatches up to what counts as committed before there is a leader, then to the end of the log."""
        state, log = self.state, self._log
        if self.settings.release < (5, 0) or self.settings.recheck_reput:
            state.reput_from = max(log.min_offset, state.queues_end, 0)
        else:
            state.reput_from = max(log.committed, log.min_offset)
            self.actions.log_reason(
                f"dispatch continues from {state.reput_from}, which was committed; queues that end earlier get "
                "nothing (DefaultMessageStore.start, 5.5)"
            )
        try:
            dispatch_on(state)
        except StartHung as hang:
            if state.reput_from < log.committed:
                raise
            self.actions.log_accepted(f"dispatch gets no further than {state.reput_from}: {hang.where}")
        state.note_offsets()
        self.actions.log_undecided(
            "what the other nodes of the group have: entries that the leader does not have are cut off later; a "
            "single node becomes leader by itself"
        )
        self.actions.log_undecided("currterm and checkpoint.bak, which an election and a timer write")

    def _stop(self) -> None:
        super()._stop()
        if self.result.runs:
            self._write_ledger_checkpoint()

    def _write_ledger_checkpoint(self) -> None:
        place = self.settings.dledger
        assert place is not None
        path = place.directory / dledger.CHECKPOINT
        end = self._log.recovery.end_index
        try:
            is_current = dledger.is_state_of(read_file(path), end) if path.exists() else None
        except StoreError:
            is_current = False
        if is_current is None:
            self.actions.do(Action.CREATE, path)
        elif not is_current:
            self.actions.do(Action.WRITE, path)
