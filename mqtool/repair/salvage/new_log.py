"""Writes the new log: records at their old physical offsets with holes filled, or moved together."""

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from mqtool.formats import commit_log, file_names, properties
from mqtool.formats.commit_log import FRAME, MIN_RECORD_SIZE
from mqtool.rebuild.files import OutputFiles
from mqtool.repair.moves import Moves
from mqtool.repair.salvage.filler import fillers
from mqtool.repair.salvage.merge import Run

SEGMENT_END = FRAME.size
"""Bytes that every segment keeps free for a BLANK (CommitLog.END_FILE_MIN_BLANK_LENGTH, 4.9.7 and 5.5.0)."""

IsBlank = Callable[[int, int], bool]
"""Whether a BLANK that is right leads from one old physical offset to another."""

_BUFFER = 4 << 20
_OFFSET_AT = commit_log.field_offset("physical_offset")
_PREPARED_AT = commit_log.field_offsets("prepared_transaction_offset")
_FLAG_AT = commit_log.field_offset("sys_flag")


class Hole(Struct, frozen=True):
    """A range of the old log without a provable record.

    Attributes:
        start, end: physical offsets, half-open.
        filled: "filler" records, a "BLANK", or "" if the range is not in the new log.
    """

    start: int
    end: int
    filled: str


class _Segments:
    """Segments of one size, written by physical offset."""

    def __init__(self, files: OutputFiles, segment_size: int) -> None:
        self.size = segment_size
        self._files = files

    def base(self, physical_offset: int) -> int:
        return physical_offset - physical_offset % self.size

    def write(self, physical_offset: int, data: "bytes | memoryview") -> None:
        """Writes bytes that end inside their segment."""
        base = self.base(physical_offset)
        name = f"{file_names.COMMIT_LOG}/{file_names.mapped_file_name(base)}"
        self._files.write(name, self.size, physical_offset - base, data)


class KeptLog:
    """A new log whose records keep their physical offsets.

    Attributes:
        holes: ranges without a record, in order.
        records: number of records written, without fillers.
        end: physical offset after the last record; None before the first.
        unplaced: physical offsets of records that were left out because the hole before them is too short for a
            filler.
    """

    def __init__(self, files: OutputFiles, segment_size: int, is_blank: IsBlank) -> None:
        """Takes an empty directory, the segment size, and a test for the unused end of a segment."""
        self._is_blank = is_blank
        self.holes: list[Hole] = []
        self.records = 0
        self.end: int | None = None
        self.unplaced: list[int] = []
        self._segments = _Segments(files, segment_size)
        self._time = 0

    def add(self, run: Run) -> None:
        """Appends records of one segment."""
        rest: Run | None = run
        if self.end is None:
            self.end = self._segments.base(run.start)
        while rest is not None and 0 < rest.start - max(self.end, self._segments.base(rest.start)) < MIN_RECORD_SIZE:
            self.unplaced.append(rest.start)
            rest = rest.without_first()
        if rest is None:
            return
        times = rest.frames.select(slice(0, None, max(1, len(rest.frames) - 1))).column("store_timestamp")
        self._fill(rest.start, self._time or int(times[0]))
        self._segments.write(rest.start, rest.data)
        self.records += len(rest.frames)
        self.end, self._time = rest.end, int(times[-1])

    def _fill(self, until: int, time: int) -> None:
        assert self.end is not None
        at = self.end
        while at < until:
            segment_end = self._segments.base(at) + self._segments.size
            end = min(segment_end, until)
            if end < segment_end:
                self._write_fillers(at, end, time)
                self.holes.append(Hole(at, end, "filler"))
            else:
                self._segments.write(at, commit_log.build_blank(end - at))
                if not self._is_blank(at, end):
                    self.holes.append(Hole(at, end, "BLANK"))
            at = end

    def _write_fillers(self, start: int, end: int, time: int) -> None:
        at = start
        for filler in fillers(start, end, time):
            self._segments.write(at, filler)
            at += len(filler)


class MovedLog:
    """A new log whose records are moved together; only their physical offsets change.

    Attributes:
        holes: ranges of the old log without a record, in order.
        records: number of records written.
        old_start, old_end: physical offsets of the first record and after the last record in the old log; old_end is
            None before the first.
        moves: new places of the records.
    """

    def __init__(self, files: OutputFiles, segment_size: int, is_blank: IsBlank, *, start: int = 0) -> None:
        """Takes an empty directory.

        Args:
            files: takes the segments.
            segment_size: of old and new segments.
            is_blank: test for the unused end of a segment.
            start: physical offset at which the new log begins; a multiple of the segment size.
        """
        self._is_blank = is_blank
        self.holes: list[Hole] = []
        self.records = 0
        self.old_start = 0
        self.old_end: int | None = None
        self.moves = Moves(start)
        self.unplaced: list[int] = []
        self._segments = _Segments(files, segment_size)
        self._at = start
        self._parts: list[bytes] = []
        self._buffered = 0

    @property
    def end(self) -> int | None:
        """Physical offset after the last record in the old log, as in `KeptLog`."""
        return self.old_end

    def add(self, run: Run, left_out: np.ndarray | None = None) -> None:
        """Appends records.

        Args:
            run: the records.
            left_out: positions in the run's frames of records that are left out on request; None for none.
        """
        if self.old_end is None:
            self.old_start = run.start
        elif run.start > self.old_end:
            segment_end = self._segments.base(self.old_end) + self._segments.size
            start = segment_end if self._is_blank(self.old_end, segment_end) else self.old_end
            if start < run.start:
                self.holes.append(Hole(start, run.start, ""))
        frames = run.frames
        kept = frames if left_out is None else frames.select(~np.isin(frames.positions, left_out))
        for position, size in zip(kept.positions.tolist(), kept.sizes.tolist(), strict=True):
            self._put(run.frames.base + position, bytearray(run.frames.view[position : position + size]))
        self.old_end = run.end

    def flush(self) -> None:
        """Writes all buffered bytes to the files."""
        if self._parts:
            self._segments.write(self._at - self._buffered, b"".join(self._parts))
            self._parts, self._buffered = [], 0

    def _put(self, old: int, record: bytearray) -> None:
        left = self._segments.size - self._at % self._segments.size
        if len(record) + SEGMENT_END > left:
            self._append(commit_log.build_blank(left))
            self.flush()
            self._at += left - SEGMENT_END
        self.moves.add(old, self._at, len(record))
        record[_OFFSET_AT : _OFFSET_AT + 8] = self._at.to_bytes(8, "big")
        shape = commit_log.host_shape(int.from_bytes(record[_FLAG_AT : _FLAG_AT + 4], "big"))
        field = slice(_PREPARED_AT[shape], _PREPARED_AT[shape] + 8)
        half = int.from_bytes(record[field], "big", signed=True)
        if half > 0:  # where its half message was
            record[field] = (self.moves.new_offset(half) or 0).to_bytes(8, "big")
        self._append(properties.renew_crc32(bytes(record)))
        self.records += 1

    def _append(self, data: bytes) -> None:
        self._parts.append(data)
        self._buffered += len(data)
        self._at += len(data)
        if self._buffered >= _BUFFER:
            self.flush()
