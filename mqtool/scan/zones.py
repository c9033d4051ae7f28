"""Zone maps: which times and topics occur in complete segments, as proved by earlier scans.

A log is only appended to, so a segment that is followed by another one never changes. Later queries skip segments
that cannot contain a match. Nothing is written to disk; zones last as long as the process.
"""

import numpy as np
from msgspec import Struct, field

from mqtool.formats.commit_log import SysFlag
from mqtool.records.damage import Damage
from mqtool.records.frames import Frames
from mqtool.scan.bounds import Facts
from mqtool.store.log.commit_log import Segment

_MAX_TOPICS = 1000


class Zone(Struct):
    """A segment that was walked completely."""

    first_time: int | None = None  # and last_time: minimum and maximum store timestamp of its records, ms since epoch
    last_time: int | None = None
    topics: set[str] | None = field(default_factory=set)  # of its records; None if there are too many to keep
    damage: list[Damage] = field(default_factory=list)  # in it; also reported if the segment is skipped

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
