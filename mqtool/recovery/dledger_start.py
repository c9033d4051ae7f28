"""A broker's start in DLedger mode, until its node leads or follows.

Source: DefaultMessageStore.start, DLedgerServer.startup, DLedgerMmapFileStore.persistCheckPoint (4.9.7, 5.5.0;
dledger 0.3.1.2, 0.3.2).
"""

from mqtool.errors import FormatError, StoreError
from mqtool.formats import dledger, file_names, java
from mqtool.recovery.action_log import Action, StartHung, throws
from mqtool.recovery.dledger_log import LedgerLogRecovery, MixedLog
from mqtool.recovery.reput import dispatch_on
from mqtool.recovery.start import Start
from mqtool.store.files import read_file


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
        if self.settings.release < (5, 5) or self.settings.recheck_reput:
            state.reput_from = max(log.min_offset, state.queues_end, 0)
        else:
            state.reput_from = max(log.committed, log.min_offset)
            self.actions.log_reason(
                f"dispatch continues from {state.reput_from}, what was committed; queues that end before get "
                "nothing (DefaultMessageStore.start, 5.5)"
            )
        try:
            dispatch_on(state)
        except StartHung as hang:
            if state.reput_from < log.committed:
                raise
            self.actions.log_accepted(f"dispatch comes no further than {state.reput_from}: {hang.where}")
        state.note_offsets()
        self.actions.log_undecided(
            "what the other nodes of the group hold: entries that the one that leads does not have are cut off later; "
            "a node that is alone leads by itself"
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
