"""Writes the new log: records at their old physical offsets with holes filled, or moved together."""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from mqtool.formats import commit_log
from mqtool.formats.commit_log import MAGIC_V1, MIN_RECORD_SIZE, Record, SysFlag
from mqtool.rebuild.files import OutputFiles, Segments, SegmentWriter
from mqtool.records.frames import Frames
from mqtool.repair.salvage.merge import Run
from mqtool.repair.staged_files import Moves
from mqtool.store.queues.get_message import next_file

TOPIC = b"MQTOOL_HOLE"
LARGEST = 4 << 20
"""Bytes of one filler at most; a broker reads a record as a whole."""

_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))


def fillers(start: int, end: int, time: int) -> Iterator[bytes]:
    """Yields records that fill a range of at least `MIN_RECORD_SIZE` bytes exactly, with a store time in ms."""
    at = start
    while at < end:
        size = end - at if end - at <= LARGEST else min(LARGEST, end - at - MIN_RECORD_SIZE)
        yield _filler(at, size, time)
        at += size


def _filler(physical_offset: int, size: int, time: int) -> bytes:
    topic = TOPIC[: size - MIN_RECORD_SIZE]
    body = bytes(size - MIN_RECORD_SIZE - len(topic))
    return commit_log.build_record(
        Record(
            total_size=size,
            magic_code=MAGIC_V1,
            body_crc=commit_log.body_crc(body),
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=physical_offset,
            sys_flag=int(SysFlag.TRANSACTION_ROLLBACK),
            born_timestamp=time,
            born_host=_HOST,
            store_timestamp=time,
            store_host=_HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_length=len(body),
            body=body,
            topic_length=len(topic),
            topic=topic,
            properties_length=0,
            properties=b"",
        )
    )


IsBlank = Callable[[int, int], bool]
"""Whether a BLANK that is right leads from one old physical offset to another."""


class Hole(Struct, frozen=True):
    """A range of the old log without a provable record."""

    start: int  # and end: physical offsets, half-open
    end: int
    filled: str  # "filler" records, a "BLANK", or "" if the range is not in the new log


class KeptLog:
    """A new log whose records keep their physical offsets.

    Attributes:
        unplaced: physical offsets of records that were left out because the hole before them is too short for a filler.
    """

    def __init__(self, files: OutputFiles, segment_size: int, is_blank: IsBlank) -> None:
        """Takes an empty directory, the segment size, and a test for the unused end of a segment."""
        self._is_blank = is_blank
        self.holes: list[Hole] = []  # ranges without a record, in order
        self.records = 0  # number of records written, without fillers
        self.end: int | None = None  # physical offset after the last record; None before the first
        self.unplaced: list[int] = []
        self._segments = Segments(files, segment_size)
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
    """A new log whose records are moved together; see `rebuild.files` for what changes in them.

    Attributes:
        old_start, old_end: physical offsets of the first record and after the last record in the old log; old_end is
            None before the first.
    """

    def __init__(self, files: OutputFiles, segment_size: int, is_blank: IsBlank, *, start: int = 0) -> None:
        """Takes an empty directory, the segment size, a test for the unused end of one, and where the log begins."""
        self._is_blank = is_blank
        self.holes: list[Hole] = []  # ranges of the old log without a record, in order
        self.records = 0  # number of records written
        self.old_start = 0
        self.old_end: int | None = None
        self.moves = Moves(start)  # new places of the records
        self.unplaced: list[int] = []
        self._segment_size = segment_size
        self._writer = SegmentWriter(files, start, segment_size)

    @property
    def end(self) -> int | None:
        """Physical offset after the last record in the old log, as in `KeptLog`."""
        return self.old_end

    def add(self, run: Run, left_out: np.ndarray | None = None) -> None:
        """Appends records, without those at the positions `left_out` of their frames."""
        if self.old_end is None:
            self.old_start = run.start
        elif run.start > self.old_end:
            segment_end = next_file(self.old_end, self._segment_size)
            start = segment_end if self._is_blank(self.old_end, segment_end) else self.old_end
            if start < run.start:
                self.holes.append(Hole(start, run.start, ""))
        frames = run.frames
        kept = frames if left_out is None else frames.select(~np.isin(frames.positions, left_out))
        places = self._writer.place(kept.sizes)
        old = kept.base + kept.positions
        for row in zip(old.tolist(), places.tolist(), kept.sizes.tolist(), strict=True):
            self.moves.add(*row)
        self._writer.append(kept, places, self._prepared(kept))
        self.records += len(kept)
        self.old_end = run.end

    def _prepared(self, frames: Frames) -> np.ndarray:
        """Returns where the half messages of records are now; 0 for those that are left out."""
        stored = frames.column("prepared_transaction_offset").astype(np.int64)
        rows = np.flatnonzero(stored > 0)
        if len(rows):
            stored[rows] = np.maximum(self.moves.records(stored[rows]), 0)
        return stored
