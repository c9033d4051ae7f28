"""Follows the records of one segment or DLedger data file as recovery does, up to the first that fails.

`records.frame_scan.scan_frames` finds the chain by magic code and TOTALSIZE. Complete windows of it are tested by array
arithmetic with numpy, with the same results as `record_check`, which decides wherever the chain ends. Of the header of
an entry only the two numbers are read that distinguish an entry, its blank end and a plain record. Source:
DLedgerCommitLog.checkMessageAndReturnSize (4.9.7, 5.5.0).
"""

import struct
from collections.abc import Iterator

import numpy as np

from mqtool.formats import commit_log, properties, topics
from mqtool.formats.dledger import BLANK_ENTRY, BLANK_ENTRY_SIZE, ENTRY_HEADER_SIZE, MAGIC_BLANK_ENTRY
from mqtool.records.entries import scan_entries
from mqtool.records.frame_scan import FrameScan, Stop, scan_frames
from mqtool.records.frames import Frames
from mqtool.records.record_check import BLANK, CheckResult, HeapExhausted, Read, RecordCheck
from mqtool.recovery.mapped_files import SimulatedFile

WINDOW = 8 << 20
_SCHEDULE_TOPIC = topics.SCHEDULE_TOPIC.encode()
_INNER_BASE = properties.INNER_BASE.encode()
_TWO: struct.Struct = BLANK_ENTRY.struct


class SegmentScan:
    """Iterator over the records of a segment that pass the test, in order, window by window."""

    def __init__(self, check: RecordCheck, read: Read, limit: int, start: int = 0) -> None:
        """Prepares a scan from the position of the first record to the end of a segment's buffer."""
        self._check = check
        self._read = read
        self._limit = limit
        self.end = start  # position after the last record that passed
        self.stop = CheckResult(-1, ok=False)  # result of the test there; known after the last item
        self.last_start: int | None = None  # position of the last record that passed; None if none did

    def __iter__(self) -> Iterator[tuple[Frames, int]]:
        """Yields records that passed, and the position in the segment of their view's first byte."""
        if self._check.rules.force_property_crc:
            yield from self._one_by_one()
            return
        while True:
            at = self.end
            view = memoryview(self._read(at, min(WINDOW, self._limit - at)))
            chain = self._scan(view)
            frames = Frames(view, 0, chain.positions, chain.sizes)
            good = self._passing(frames)
            if good:
                self.last_start = at + int(chain.positions[good - 1])
                self.end = at + int(chain.positions[good - 1] + chain.sizes[good - 1])
                yield frames.select(slice(0, good)), at
            if good == len(frames) and good and chain.stop in (Stop.MORE, Stop.END) and at + len(view) < self._limit:
                continue
            window = self._one()
            if window is None:
                return
            yield window

    def _scan(self, view: memoryview) -> FrameScan:
        return scan_frames(view, 0)

    def _one_by_one(self) -> Iterator[tuple[Frames, int]]:
        """Tests each record exactly: a CRC over a whole record has no columnar form."""
        while (window := self._one()) is not None:
            yield window

    def _one(self) -> tuple[Frames, int] | None:
        """Returns the record at `end` if it passes the exact test; used for instance if it is longer than a window."""
        self.stop = self._check.check(self._read, self.end, self._limit)
        if not (self.stop.ok and self.stop.size > 0):
            return None
        return self._take(self.end)

    def _take(self, start: int) -> tuple[Frames, int]:
        """Returns the record that has passed the test, and its position; `end` moves after it."""
        size = self.stop.size
        frames = Frames(memoryview(self._read(start, size)), 0, np.zeros(1, np.int64), np.array([size], np.int64))
        self.last_start, self.end = start, start + size
        return frames, start

    def _passing(self, frames: Frames) -> int:
        """Returns the number of leading records that pass."""
        if not len(frames):
            return 0
        good = frames.adds_up
        if self._check.rules.release < (5, 0):
            good = good & (frames.column("magic_code") == commit_log.MAGIC_V1)
        if self._check.check_crc:
            good = good & frames.crc_matches
        passing = len(good) if good.all() else int(np.argmin(good))
        return self._before_bad_number(frames, passing)

    def _before_bad_number(self, frames: Frames, passing: int) -> int:
        """Returns the index of the first record with a property that the broker fails to parse as a number."""
        if passing < len(frames):
            frames = frames.select(slice(0, passing))
        rows = frames.rows_of(_SCHEDULE_TOPIC)
        if self._check.rules.release >= (5, 0):
            rows = sorted({*rows, *frames.rows_with(_INNER_BASE)})
        for row, topic, stored in zip(rows, frames.topics_of(rows), frames.properties_of(rows), strict=True):
            if not self._check.numbers_pass(topic, stored):
                return row
        return passing


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
        return (commit_log.MAGIC_V2,) if self._check.rules.release >= (5, 0) else ()


def scan_of(check: RecordCheck, read: Read, file: SimulatedFile, limit: int, start: int = 0) -> SegmentScan:
    """Returns the right scan for a file of the log, see `SegmentScan`."""
    return (EntryScan if file.entries else SegmentScan)(check, read, limit, start)
