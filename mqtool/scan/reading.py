"""Reads the parts of a path: records that may match, damage, and which segments were read."""

from collections.abc import Iterator

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.records.damage import Damage, DamageKind
from mqtool.records.frames import Frames
from mqtool.scan.bounds import NO_FACTS, Facts
from mqtool.scan.paths import Path, PointReads, RangeScan
from mqtool.scan.point_reads import frames_at_offsets
from mqtool.scan.zones import Zone, Zones
from mqtool.store.log.commit_log import CommitLog, Segment, gap_between


class Reading:
    """The reading of one path.

    Attributes:
        segments_read: base offsets of the segments read so far; grows during iteration.
    """

    def __init__(
        self, log: CommitLog, facts: Facts = NO_FACTS, zones: Zones | None = None, *, fields: bool = False
    ) -> None:
        """Reads nothing yet.

        Args:
            log: to read.
            facts: bounds of the condition.
            zones: what earlier scans of the log have proved; None to record nothing.
            fields: let plain records be without their bytes, see `CommitLog.walk`.
        """
        self.segments_read: set[int] = set()
        self._log = log
        self._facts = facts
        self._zones = zones
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
            if known is not None and known.excludes(self._facts):
                yield from known.damage
                continue
            self.segments_read.add(segment.base)
            yield from self._walk_one(segment, part, notes=is_all and known is None)

    def _walk_one(self, segment: Segment, part: RangeScan, *, notes: bool) -> Iterator[Frames | Damage]:
        zone = Zone()
        start, end = max(part.low, segment.base), min(part.high, segment.end)
        for item in self._log.walk(start, end, refills=True, fields=self._fields):
            if notes and self._zones is not None:
                zone.add(item)
            yield item
        if notes and self._zones is not None:
            self._zones.put(segment, zone)


def _bases(log: CommitLog, offsets: np.ndarray) -> set[int]:
    """Returns the base offsets of the segments that contain the given physical offsets."""
    bases = np.array([segment.base for segment in log.segments], np.int64)
    return set(bases[np.unique(np.searchsorted(bases, offsets, side="right") - 1)].tolist())
