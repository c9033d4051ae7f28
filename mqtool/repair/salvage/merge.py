"""The provable records of one store, or of several copies of it, in the order of their physical offsets.

What the first copy lacks is taken from the next one that has it at the same offset. Copies are only merged where
they agree: a record that is in both must be the same message; otherwise the copies have diverged. The new log has the
records at their old physical offsets with holes filled, or moved together.
"""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from mqtool.errors import CorruptionError, RefusedError
from mqtool.formats import commit_log
from mqtool.formats.commit_log import MAGIC_V1, MIN_RECORD_SIZE, Record, SysFlag
from mqtool.rebuild.files import OutputFiles, Segments, SegmentWriter
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.repair.salvage.unit_evidence import ChangedFrames, ForeignRecords, UnitEvidence, add_fields
from mqtool.repair.staged_files import Moves
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.misplaced_bytes import DisplacedRecords
from mqtool.store.queues.get_message import next_file
from mqtool.store.store import Store
from mqtool.verify.record_rules import impossible_fields, not_compressed

_COMPRESSION = int(SysFlag.COMPRESSED) | commit_log.COMPRESSION_MASK
_BEHIND_PORT = {"born_port": "store_timestamp", "store_port": "reconsume_times"}
"""The field after a port, which is the last part of a host."""


_EVER = 1 << 62
NOTED = 1000
"""Conflicts that are listed; all are counted."""


TOPIC = b"MQTOOL_HOLE"
LARGEST = 4 << 20
"""Bytes of one filler at most; a broker reads a record as a whole."""
_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))
IsBlank = Callable[[int, int], bool]
"""Whether a BLANK that is right leads from one old physical offset to another."""


def correct_fields(frames: Frames, time: int, corrected: dict[int, set[str]]) -> Frames:
    """Returns frames with corrected fields, and adds their names to those by physical offset of the record.

    A store time becomes that of the record before, a born time the store time, a port 0. `time` is the store time of
    the record before all of them, 0 if there is none.
    """
    times, shapes = frames.column("store_timestamp"), frames.host_shape
    changes = ChangedFrames(frames)
    for field in impossible_fields(frames, times):
        for row in np.flatnonzero(field.broken).tolist():
            near, shape = _near(times, row, time), int(shapes[row])
            if field.name in _BEHIND_PORT:
                changes.write(row, field.name, commit_log.field_offset(_BEHIND_PORT[field.name], shape) - 4, 0, width=4)
            elif field.name != "queue_id" and near > 0:
                changes.write(row, field.name, commit_log.field_offset(field.name, shape), near)
    for row, _ in not_compressed(frames):
        flags = int(frames.column("sys_flag")[row]) & ~_COMPRESSION
        changes.write(row, "sys_flag", commit_log.field_offset("sys_flag", int(shapes[row])), flags, width=4)
    add_fields(corrected, changes.fields)
    return changes.result()


def _near(times: np.ndarray, row: int, before: int) -> int:
    """Returns the valid store time nearest to a record, preferring earlier records."""
    earlier = np.flatnonzero(times[: row + 1] > 0)
    if len(earlier):
        return int(times[earlier[-1]])
    later = np.flatnonzero(times[row:] > 0)
    return before or (int(times[row + later[0]]) if len(later) else 0)


class Run(Struct, frozen=True):
    """Consecutive records without a gap."""

    source: int  # number of the copy that they come from
    frames: Frames  # the records

    @property
    def start(self) -> int:
        """Physical offset of the first record."""
        return int(self.frames.base + self.frames.positions[0])

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return int(self.frames.base + self.frames.positions[-1] + self.frames.sizes[-1])

    @property
    def data(self) -> memoryview:
        """Bytes of all records."""
        first, last = int(self.frames.positions[0]), int(self.frames.positions[-1] + self.frames.sizes[-1])
        return self.frames.view[first:last]

    def without_first(self) -> "Run | None":
        """Returns the run without its first record."""
        return None if len(self.frames) == 1 else Run(self.source, self.frames.select(slice(1, None)))


class Merge:
    """Merges copies of a log.

    Attributes:
        common: bytes that are equal in the first copy and in another one, by number of the other one.
        conflicts: number of records that differ between copies in fields without a checksum; those of the first copy
            are taken.
    """

    def __init__(self, copies: list[Store], displaced: "list[Store]") -> None:
        """Takes copies of one log, the most trusted first, and files of theirs whose place in the log another file has.

        These fill what all copies lack, and are not compared: the file in the right place is trusted.
        """
        self._copies, stores = len(copies), [*copies, *displaced]
        self.common = [0] * len(stores)
        self.conflicts = 0
        self.conflict_offsets: list[int] = []  # physical offsets of some of them
        self.displaced: list[int] = []  # physical offsets of records that were found in displaced blocks
        self._blocks: dict[int, tuple[int, DisplacedRecords]] = {}
        self._changed: dict[int, set[str]] = {}
        self._times = [0] * len(stores)
        self._logs = [store.commit_log for store in stores]
        self._evidence = [UnitEvidence(store, keeps_foreign=len(copies) == 1) for store in stores]
        self._paths = [store.path for store in stores]

    def runs(self) -> Iterator[Run]:
        """Yields all records; raises RefusedError if two copies hold different messages at the same offset."""
        for run in self._runs(0, None, None):
            if run.source == 0:
                self._compare(run)
            yield run

    def is_blank(self, start: int, end: int) -> bool:
        """Whether a BLANK in any copy leads from one offset to another."""
        if any(blank_between(log, start, end) for log in self._logs):
            return True
        blocks = (self._blocks_of(number, log.segment_at(start)) for number, log in enumerate(self._logs))
        return any(part is not None and part.is_blank(start, end) for part in blocks)

    def check_history(self, used: set[int]) -> None:
        """Raises RefusedError if a copy contributed records but shares none with the first copy."""
        for number in sorted(used.intersection(range(1, self._copies))):
            if not self.common[number] and self._logs[0].segments:
                raise RefusedError(
                    "history",
                    f"shares no record with {self._paths[0]}: nothing proves that it is a copy of the same log; "
                    "salvage it separately",
                    self._paths[number],
                )

    def _runs(self, number: int, start: int | None, end: int | None) -> Iterator[Run]:
        """Yields what lies completely between two physical offsets, from one copy and then from those after it."""
        if number == len(self._logs):
            return
        log, at = self._logs[number], start
        for item in self._frames(number, start, end):
            for run in _split(item, number, end):
                if at is None or (run.start > at and not blank_between(log, at, run.start)):
                    yield from self._runs(number + 1, at, run.start)
                yield run
                at = run.end
        if end is None or at is None or at < end:
            yield from self._runs(number + 1, at, end)

    def _frames(self, number: int, start: int | None, end: int | None) -> Iterator[Frames]:
        """Yields the records of one copy: those that prove themselves, and those that only units confirm."""
        log, evidence = self._logs[number], self._evidence[number]
        last = log.min_offset if start is None else start
        for item in log.walk(start, end):
            if isinstance(item, Damage):
                yield from self._in_damage(number, item.start, item.end)
                last = max(last, item.end)
            else:
                yield self._correct(number, evidence.queued(item))
                last = int(item.base + item.positions[-1] + item.sizes[-1]) if len(item) else last
        if end is None and log.tail.length:
            yield from self._in_damage(number, last, _EVER)
        elif end is None:
            yield from self._only_here(number, evidence.records(last, _EVER))

    def _in_damage(self, number: int, start: int, end: int) -> Iterator[Frames]:
        """Yields the records of a damaged range: those of displaced blocks, and those that only units confirm."""
        evidence = self._evidence[number]
        for record in self._displaced_records(number, start, end):
            yield from self._only_here(number, evidence.records(start, record.base))
            yield self._correct(number, evidence.queued(record))
            start = record.base + int(record.sizes[0])
            self.displaced.append(record.base)
        yield from self._only_here(number, evidence.records(start, end))

    def _displaced_records(self, number: int, start: int, end: int) -> Iterator[Frames]:
        blocks = self._blocks_of(number, self._logs[number].segment_at(start))
        return iter(()) if blocks is None else blocks.between(start, end)

    def _blocks_of(self, number: int, segment: int | None) -> DisplacedRecords | None:
        """Returns the displaced records of a segment of one copy that has damage, None without a segment."""
        if segment is None or self._logs[number].segments[segment].entries:
            return None
        if number not in self._blocks or self._blocks[number][0] != segment:
            self._blocks[number] = segment, DisplacedRecords.of_segment(self._logs[number], segment)
        return self._blocks[number][1]

    @property
    def corrected(self) -> dict[int, set[str]]:
        """Names of the fields without a checksum that were corrected, by physical offset of the record, ascending."""
        corrected: dict[int, set[str]] = {}
        for part in (self._changed, *(evidence.corrected for evidence in self._evidence)):
            add_fields(corrected, part)
        return dict(sorted(corrected.items()))

    @property
    def foreign(self) -> list[tuple[int, ForeignRecords]]:
        """Segments of other brokers' logs, with the number of the copy that they are in."""
        return [(number, part) for number, evidence in enumerate(self._evidence) for part in evidence.foreign]

    def _correct(self, number: int, frames: Frames) -> Frames:
        if not len(frames):
            return frames
        corrected = correct_fields(frames, self._times[number], self._changed)
        self._times[number] = int(corrected.column("store_timestamp")[-1])
        return corrected

    def _only_here(self, number: int, records: Iterator[Frames]) -> Iterator[Frames]:
        """Leaves out records that are intact in another copy."""
        others = [log for other, log in enumerate(self._logs) if other != number]
        for record in records:
            if all(_valid_record(log, record.base) is None for log in others):
                yield record

    def _compare(self, run: Run) -> None:
        """Compares the first copy's records with those of the other copies."""
        for number in range(1, self._copies):
            other = self._logs[number].read(run.start, run.end - run.start)
            if other == run.data:
                self.common[number] += len(other)
            elif other:
                self._compare_each(run, number)

    def _compare_each(self, run: Run, number: int) -> None:
        for position, size in zip(run.frames.positions.tolist(), run.frames.sizes.tolist(), strict=True):
            mine = run.frames.view[position : position + size]
            offset = run.frames.base + position
            if self._logs[number].read(offset, size) == mine:
                self.common[number] += size
                continue
            other = _valid_record(self._logs[number], offset)
            if other is None:
                continue
            if _identity(other) != _identity(commit_log.parse_record(mine)):
                raise RefusedError(
                    "diverged",
                    f"has another message at physical offset {offset} than {self._paths[0]}: the copies are not of "
                    "the same log; run mqtool diff to see where they diverge",
                    self._paths[number],
                )
            self.conflicts += 1
            if len(self.conflict_offsets) < NOTED:
                self.conflict_offsets.append(offset)


def blank_between(log: CommitLog, start: int, end: int) -> bool:
    """Whether a valid BLANK leads from one offset to another, the start of the next segment."""
    number = log.segment_at(start)
    if number is None or log.segments[number].end != end:
        return False
    head = log.read(start, commit_log.FRAME.size)
    return head == commit_log.build_blank(end - start)


def _split(frames: Frames, number: int, end: int | None) -> Iterator[Run]:
    """Splits frames into runs without a gap. A record that reaches past `end` is left out."""
    ends = frames.positions + frames.sizes
    breaks = (np.flatnonzero(frames.positions[1:] != ends[:-1]) + 1).tolist()
    for first, last in zip([0, *breaks], [*breaks, len(frames)], strict=True):
        part = frames.select(slice(first, last))
        if end is not None:
            part = part.select(part.base + part.positions + part.sizes <= end)
        if len(part):
            yield Run(number, part)


def _valid_record(log: CommitLog, physical_offset: int) -> Record | None:
    """Returns the record at an offset if its frame and body are valid."""
    try:
        record = log.record_at(physical_offset)
    except CorruptionError:
        return None
    return record if record.body_crc == commit_log.body_crc(record.body) else None


def _identity(record: Record) -> tuple[object, ...]:
    """Returns the fields in which two copies of a message must agree; other fields have no checksum."""
    return record.total_size, record.body_crc, record.born_timestamp, record.store_timestamp


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
