"""Reads the parts of a path: records that may match, damage, and which segments were read.

A log is only appended to, so a segment that is followed by another one never changes. Its zone, the times and topics
in it, lets later queries skip it if it cannot contain a match. Nothing is written to disk; zones last as long as the
process.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.formats.commit_log import SysFlag
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.scan.bounds import NO_FACTS, Facts
from mqtool.scan.paths import Path, PointReads, RangeScan
from mqtool.store.log.commit_log import CommitLog, Segment, gap_between
from mqtool.store.remote import is_url

_MAX_TOPICS = 1000


_GAP, _REMOTE_GAP = 1 << 8, 1 << 20
"""Maximum gap in bytes that is read rather than skipped, on local disks and in object storage."""

_SPAN, _RUN = 1 << 30, 8 << 20
"""Maximum bytes of log, and of records, in one set of frames."""


class Zone(Struct):
    """A segment that was walked completely."""

    first_time: int | None = None  # and last_time: minimum and maximum store timestamp of its records, ms since epoch
    last_time: int | None = None
    topics: set[str] | None = field(default_factory=set)  # of its records; None if there are too many to keep
    damage: list[Damage] = field(default_factory=list)  # in it; also reported if the segment is skipped
    checked: bool = True  # whether a wrong body CRC counted as damage

    def add(self, item: Frames | Damage) -> None:
        """Adds the next item of the walk."""
        if isinstance(item, Damage):
            self.damage.append(item)
            return
        times = item.column("store_timestamp")
        first, last = int(times.min()), int(times.max())
        self.first_time = first if self.first_time is None else min(first, self.first_time)
        self.last_time = last if self.last_time is None else max(last, self.last_time)
        if self.topics is not None:
            self.topics.update(item.coded_topics[1])
            if len(self.topics) > _MAX_TOPICS:
                self.topics = None

    def excludes(self, facts: Facts) -> bool:
        """Whether no record of the segment can match."""
        if self.first_time is None:
            return True
        if not facts["store_timestamp"].overlaps(self.first_time, self.last_time):
            return True
        return self.topics is not None and not any(map(facts["topic"].admits, self.topics))


class Zones:
    """Zones of the segments of one store, keyed by what identifies a file's contents."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], Zone] = {}

    def get(self, segment: Segment) -> Zone | None:
        """Returns the zone of a segment; None if it has not been walked."""
        return self._known.get(_identity(segment))

    def put(self, segment: Segment, zone: Zone) -> None:
        """Stores the zone of a segment."""
        self._known[_identity(segment)] = zone


def _identity(segment: Segment) -> tuple[str, int, int]:
    try:
        return str(segment.path), segment.size, segment.path.stat().st_mtime_ns
    except OSError:
        return str(segment.path), segment.size, -1


def mask_of(frames: Frames, facts: Facts) -> np.ndarray:
    """Returns which frames match the bounds of topic, queue, time and physical offset."""
    keep = np.ones(len(frames), bool)
    if "physical_offset" in facts.columns:
        keep &= facts["physical_offset"].mask(frames.positions + frames.base)
    for column in ("queue_id", "store_timestamp"):
        if column in facts.columns:
            keep &= facts[column].mask(frames.column(column))
    if "queue_offset" in facts.columns:  # messages of an inner batch count on from the record's
        inner = (frames.column("sys_flag") & SysFlag.INNER_BATCH) != 0
        keep &= inner | facts["queue_offset"].mask(frames.column("queue_offset"))
    if "topic" in facts.columns and len(frames):
        codes, names = frames.coded_topics
        keep &= np.array([facts["topic"].admits(name) for name in names], bool)[codes]
    return keep


def possible(frames: Frames, facts: Facts) -> Frames:
    """Returns the frames that match the bounds of topic, queue, time and physical offset."""
    keep = mask_of(frames, facts)
    return frames if keep.all() else frames.select(keep)


def frames_at_offsets(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> Iterator[Frames | Damage]:
    """Yields the records at the given offsets, and damage where there is no record.

    Offsets are int64, ascending and distinct, and in the log; sizes are those that the queue or index states.
    """
    for low, high in pairwise(_edges(log, offsets, sizes)):
        yield from _run(log, offsets[low:high], sizes[low:high])


def _edges(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> list[int]:
    """Returns where sets of frames begin and end: at segment boundaries, and after a maximum number of bytes."""
    if not len(offsets):
        return [0]
    bases = np.array([segment.base for segment in log.segments], np.int64)
    breaks = np.diff(np.searchsorted(bases, offsets, side="right")) > 0
    breaks |= np.diff((offsets - offsets[0]) // _SPAN) > 0
    breaks |= np.diff(np.cumsum(sizes) // _RUN) > 0
    return [0, *(np.flatnonzero(breaks) + 1).tolist(), len(offsets)]


def _run(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> Iterator[Frames | Damage]:
    start = int(offsets[0])
    index = log.segment_at(start)
    limit = start if index is None else log.segments[index].end
    inside = offsets + sizes <= limit
    for offset, size in zip(offsets[~inside].tolist(), sizes[~inside].tolist(), strict=True):
        yield _damage(log, offset, offset + size, "a unit states more bytes than the segment has")
    offsets, sizes = offsets[inside], sizes[inside]
    if not len(offsets):
        return
    data, was_read = _read(log, offsets, sizes)
    for offset, size in zip(offsets[~was_read].tolist(), sizes[~was_read].tolist(), strict=True):
        yield _damage(log, offset, offset + size, "the file ends inside this record", DamageKind.MISSING)
    frames = Frames(data, start, offsets[was_read] - start, sizes[was_read])
    if not len(frames):
        return
    valid = frames.valid & np.isin(frames.column("magic_code"), commit_log.RECORD_MAGICS)
    valid &= frames.column("total_size") == frames.sizes
    matches = valid.copy()
    some = frames.select(valid)
    matches[valid] = some.crc_matches | (some.column("body_crc") == 0)
    for at in np.flatnonzero(~matches).tolist():
        offset, size = int(frames.positions[at]) + start, int(frames.sizes[at])
        if valid[at]:
            yield _damage(log, offset, offset + size, "the body's CRC differs from the stored one", DamageKind.BAD_CRC)
        else:
            yield _damage(log, offset, offset + size, "no record where a unit states one")
    if matches.any():
        yield frames.select(matches)


def _read(log: CommitLog, offsets: np.ndarray, sizes: np.ndarray) -> tuple[memoryview, np.ndarray]:
    """Returns the bytes from the first to the last record, with zeros between them, and which records are complete."""
    start, ends = int(offsets[0]), np.maximum.accumulate(offsets + sizes)
    data = np.zeros(int(ends[-1]) - start, np.uint8).data
    index = log.segment_at(start)
    is_remote = index is not None and is_url(str(log.segments[index].path))
    breaks = np.flatnonzero(offsets[1:] - ends[:-1] > (_REMOTE_GAP if is_remote else _GAP)) + 1
    was_read = np.ones(len(offsets), bool)
    for low, high in pairwise([0, *breaks.tolist(), len(offsets)]):
        first, end = int(offsets[low]), int(ends[high - 1])
        window = log.read(first, end - first)
        data[first - start : first - start + len(window)] = window
        was_read[low:high] = offsets[low:high] + sizes[low:high] <= first + len(window)
    return data, was_read


def _damage(log: CommitLog, start: int, end: int, detail: str, kind: DamageKind = DamageKind.BAD_HEADER) -> Damage:
    index = log.segment_at(start)
    if index is None:
        return Damage(start, end, DamageKind.MISSING, "no segment contains the record that a unit names")
    segment = log.segments[index]
    return Damage(start, end, kind, detail, segment.path, start - segment.base)


class Reading:
    """The reading of one path; `crc` and `fields` are those of `CommitLog.walk`.

    Attributes:
        segments_read: base offsets of the segments read so far; grows during iteration.
    """

    def __init__(
        self,
        log: CommitLog,
        facts: Facts = NO_FACTS,
        zones: Zones | None = None,
        *,
        crc: bool = True,
        fields: bool = False,
    ) -> None:
        self.segments_read: set[int] = set()
        self._log = log
        self._facts = facts
        self._zones = zones
        self._crc = crc
        self._fields = fields

    def items(self, path: Path) -> Iterator[Frames | Damage]:
        """Yields records that may match, by physical offset, and damage; frames are valid until the next item."""
        for part in path.parts:
            yield from self._walk(part) if isinstance(part, RangeScan) else self.read_points(part)

    def read_points(self, part: PointReads) -> Iterator[Frames | Damage]:
        """Yields the records that a queue or an index names."""
        self.segments_read.update(_bases(self._log, part.offsets))
        for item in frames_at_offsets(self._log, part.offsets, part.sizes):
            if not part.by_index:
                yield item
            elif isinstance(item, Frames):
                kept = item.select(np.array([self._is_outermost(item, at) for at in range(len(item))], bool))
                if len(kept):
                    yield kept
            elif item.kind is DamageKind.BAD_CRC:
                yield item

    def _is_outermost(self, frames: Frames, at: int) -> bool:
        """Whether a record is not inside the body of another record."""
        start = int(frames.positions[at])
        record = commit_log.parse_record(frames.view[start : start + int(frames.sizes[at])])
        if self._log.is_named is not None and self._log.is_named(record):
            return True
        try:
            self._log.record_at(frames.base + start)
        except StoreError:
            return False
        return True

    def _walk(self, part: RangeScan) -> Iterator[Frames | Damage]:
        """Walks segment by segment, skips those that cannot contain a match, and records the zones of complete ones."""
        log, low, high = self._log, part.low, part.high
        if low >= high:
            return
        for index, segment in enumerate(log.segments[: log.last_used + 1]):
            gap = gap_between(log.segments[index - 1], segment) if index else None
            if gap is not None and gap.end > low and gap.start < high:
                yield gap
            if segment.end <= low or segment.base >= high:
                continue
            is_all = low <= segment.base and segment.end <= high and index < log.last_used
            known = self._zones.get(segment) if is_all and self._zones is not None else None
            if known is not None and self._crc and not known.checked:
                known = None
            if known is not None and known.excludes(self._facts):
                yield from known.damage
                continue
            self.segments_read.add(segment.base)
            crc = self._crc and (known is None or bool(known.damage))  # what was intact needs no second check
            yield from self._walk_one(segment, part, crc=crc, notes=is_all and known is None)

    def _walk_one(self, segment: Segment, part: RangeScan, *, crc: bool, notes: bool) -> Iterator[Frames | Damage]:
        zone = Zone(checked=crc)
        start, end = max(part.low, segment.base), min(part.high, segment.end)
        for item in self._log.walk(start, end, crc=crc, refills=True, fields=self._fields):
            if notes and self._zones is not None:
                zone.add(item)
            yield item
        if notes and self._zones is not None:
            self._zones.put(segment, zone)


def _bases(log: CommitLog, offsets: np.ndarray) -> set[int]:
    """Returns the base offsets of the segments that contain the given physical offsets."""
    bases = np.array([segment.base for segment in log.segments], np.int64)
    return set(bases[np.unique(np.searchsorted(bases, offsets, side="right") - 1)].tolist())
