"""Follows the entries of one DLedger data file as recovery and dispatch do: by the records in them.

Of an entry's header only the two numbers are read that distinguish an entry, its blank end and a plain record.
Source:
DLedgerCommitLog.checkMessageAndReturnSize (4.9.7, 5.5.0).
"""

import struct

from mqtool.formats import commit_log
from mqtool.formats.dledger import BLANK_ENTRY, BLANK_ENTRY_SIZE, ENTRY_HEADER_SIZE, MAGIC_BLANK_ENTRY
from mqtool.records.entries import scan_entries
from mqtool.records.frame_scan import FrameScan
from mqtool.records.frames import Frames
from mqtool.records.record_check import BLANK, CheckResult, HeapExhausted, Read, RecordCheck
from mqtool.recovery.log_scan import SegmentScan
from mqtool.recovery.mapped_files import SimulatedFile

_TWO: struct.Struct = BLANK_ENTRY.struct


class EntryScan(SegmentScan):
    """Iterator over the records of a data file that pass the test; the next entry would begin at `end`."""

    def _scan(self, view: memoryview) -> FrameScan:
        return scan_entries(view, 0)

    def _one(self) -> tuple[Frames, int] | None:
        before = self._before()
        try:
            self.stop = BLANK if before is None else self._check.check(self._read, self.end + before, self._limit)
        except HeapExhausted as error:  # the caller catches every Throwable
            self.stop = CheckResult(-1, ok=False, reason=error.refusal)
        if before is None or not (self.stop.ok and self.stop.size > 0):
            return None
        return self._take(self.end + before)

    def _before(self) -> int | None:
        """Returns the number of bytes before the record at `end`; None if a blank entry ends the file."""
        data = self._read(self.end, BLANK_ENTRY_SIZE)
        if len(data) < BLANK_ENTRY_SIZE or self.end + BLANK_ENTRY_SIZE > self._limit:
            return ENTRY_HEADER_SIZE  # too short for either; the test says so
        first, second = _TWO.unpack(data)
        if second in (commit_log.MAGIC_BLANK, commit_log.MAGIC_V1, *self._newer_magics):
            return 0
        return None if first == MAGIC_BLANK_ENTRY else ENTRY_HEADER_SIZE

    @property
    def _newer_magics(self) -> tuple[int, ...]:
        return (commit_log.MAGIC_V2,) if self._check.rules.release >= (5, 5) else ()


def scan_of(check: RecordCheck, read: Read, file: SimulatedFile, limit: int, start: int = 0) -> SegmentScan:
    """Returns the right scan for a file of the log, see `SegmentScan`."""
    return (EntryScan if file.entries else SegmentScan)(check, read, limit, start)
