"""Chooses which bytes of a log a query reads: the access path, based on what is proved or trusted.

Why nothing but the log itself is believed unless the caller allows it: docs/decisions/0011-scan-paths.md.
"""

from collections.abc import Collection
from functools import cached_property
from itertools import pairwise

import numpy as np
from msgspec import Struct

from mqtool.choices import Trust
from mqtool.export.schema import RecordClass, class_of
from mqtool.formats import commit_log, java
from mqtool.formats.consume_queue import MAX_EXT_ADDRESS
from mqtool.scan.bounds import Bounds, Facts
from mqtool.store.find import indexed_offsets, uncovered, usable_files
from mqtool.store.log.cuts import Cuts
from mqtool.store.queues.consume_queue import Queue, has_record
from mqtool.store.store import Store

FOREVER = (1 << 63) - 1
"""End of a range that extends to the end of the log."""
_WORTH = 2
"""A queue is followed if its records are at most one part in so many of the log: else a walk costs no more."""
_NEAR = 1 << 20
"""Range in bytes at which the search for a time stops."""

_NOT_QUEUED = (RecordClass.HALF, RecordClass.ROLLED_BACK)
"""Classes whose records may have no unit, by their sys_flag (CommitLogDispatcherBuildConsumeQueue, 4.9.7 and 5.5.0)."""
_NOT_INDEXED = (RecordClass.ROLLED_BACK,)
"""Classes whose records are not indexed (IndexService.buildIndex, 4.9.7 and 5.5.0)."""

_HEAD = 128
"""Bytes of a record up to the end of its store timestamp."""


class RangeScan(Struct, frozen=True):
    """A range of the log that is read sequentially, record by record."""

    low: int  # and high: physical offsets, half-open; a bound may be outside the log
    high: int


class PointReads(Struct, frozen=True):
    """Records that are read individually."""

    offsets: np.ndarray  # int64, physical offsets, ascending and distinct; in the log
    sizes: np.ndarray  # int64, bytes of each
    # The offsets come from an index. Its entries outlive records, so a missing record is not damage.
    by_index: bool = False


class Path(Struct, frozen=True):
    """The access path of a query."""

    name: str  # "nothing", "walk", "queues", "index" or "index and queues"
    why: str  # text that explains the choice
    parts: tuple[RangeScan | PointReads, ...] = ()  # what is read, by physical offset


class Planner(Struct, dict=True):
    """Chooses the access path of one query."""

    store: Store  # to read
    facts: Facts  # bounds of the query's condition
    trust: Collection[Trust] = ()  # what is trusted
    end: int | None = None  # physical offset before which to stop; None for the end of the log
    every_class: bool = True  # include half, rolled-back and system records, not only committed ones

    def path(self) -> Path:
        """Returns the path; reads only queues, index and a few records to choose it."""
        log = self.store.commit_log
        if self.facts.is_impossible or not log.segments:
            why = "the conditions contradict each other" if log.segments else "there is no segment"
            return Path("nothing", why)
        low, high, clock = self._range
        path = self._named(low, high) or self._by_alternatives(low, high)
        if path is None:
            return Path("walk", f"{self._refused}{clock}", (RangeScan(low, high),))
        return Path(path.name, path.why + clock, path.parts)

    @property
    def _refused(self) -> str:
        """Returns why neither the index nor the queues are used."""
        if self._keys and Trust.INDEX not in self.trust:
            return "an index may lack entries; trust the index to use it"
        if self._is_queued and Trust.QUEUES not in self.trust:
            return "queues may lack units; trust the queues to use them"
        if self._is_queued or self._keys:
            return self._distrust_reason or "there is no index"
        return "no condition on a key, a topic or a tag"

    @cached_property
    def _keys(self) -> frozenset[str]:
        return self.facts["unique_key"].values or self.facts["key"].values or frozenset()

    @cached_property
    def _topics(self) -> frozenset[str]:
        return self.facts["topic"].values or frozenset()

    @cached_property
    def _tag_codes(self) -> list[int]:
        """Returns the tags codes of the tags in the condition; empty if any tag matches."""
        return [java.string_hash(tag) for tag in self.facts["tags"].values or ()]

    def _admitted(self, classes: Collection[RecordClass]) -> str:
        """Returns which of some classes of records may match, as words; "" if none."""
        return " and ".join(name for name in classes if self.every_class and self.facts["record_class"].admits(name))

    @property
    def _is_queued(self) -> bool:
        """Whether the condition restricts something that queues distinguish."""
        return bool(self._topics or self._tag_codes)

    def _named(self, low: int, high: int) -> Path | None:
        return self._by_index(low, high) or self._by_queues(low, high)

    def _by_alternatives(self, low: int, high: int) -> Path | None:
        """Returns the path to records that meet one of several conditions, if index or queues cover each of them."""
        common = Facts(self.facts.columns)
        either = [facts for facts in (facts & common for facts in self.facts.either) if not facts.is_impossible]
        alternatives = [
            Planner(self.store, facts, self.trust, every_class=self.every_class)._named(low, high) for facts in either
        ]
        paths = [path for path in alternatives if path is not None]
        if not paths or len(paths) < len(alternatives):
            return None
        parts = _union([part for path in paths for part in path.parts])
        if _extent(parts, self.store) * _WORTH > min(high, self.store.commit_log.max_offset) - low:
            return None
        return Path(" and ".join(sorted({path.name for path in paths})), "; ".join(path.why for path in paths), parts)

    @cached_property
    def _range(self) -> tuple[int, int, str]:
        """Returns the half-open range of physical offsets outside which nothing matches, and how time limited it."""
        log, places = self.store.commit_log, self.facts["physical_offset"]
        low = max(log.min_offset, places.low or 0)
        high = min(self.end if self.end is not None else FOREVER, FOREVER if places.high is None else places.high + 1)
        times = self.facts["store_timestamp"]
        if times.low is None and times.high is None:
            return low, high, ""
        if Trust.CLOCK not in self.trust:
            return low, high, "; store times may go backwards: trust the clock to search by time"
        search = _TimeSearch(self.store)
        if not search.rises:
            return low, high, "; store times go backwards, so the clock is not trusted"
        return max(low, search.first(times)), min(high, search.end(times)), "; range of the log by store time"

    def _by_index(self, low: int, high: int) -> Path | None:
        if not self._keys or Trust.INDEX not in self.trust:
            return None
        files = usable_files(self.store)
        if not files:
            return None
        if classes := self._admitted(_NOT_INDEXED):
            self._distrust_reason = f"{classes} records are not indexed; exclude them by a condition on record_class"
            return None
        if any(queue.is_batch for queue in self.store.queues()):
            self._distrust_reason = "there are queues of batches, and keys inside a batch are not indexed"
            return None
        topics = self._topics or {queue.topic for queue in self.store.queues()} | set(self.store.metadata.topics)
        offsets = np.array(sorted(indexed_offsets(files, topics, self._keys)), np.int64)
        at, parts = max(low, self.store.commit_log.min_offset), list[RangeScan | PointReads]()
        for start, end in [*uncovered(self.store, files.values(), low, high), (high, high)]:
            named = offsets[(offsets >= at) & (offsets < start)]
            if len(named):
                parts.append(self._indexed(named))
            if start < end:
                parts.append(RangeScan(start, end))
            at = end
        return Path("index", f"{len(files)} index files for {len(self._keys)} keys", tuple(parts))

    def _indexed(self, offsets: np.ndarray) -> PointReads:
        """Returns the records at the given offsets, with the sizes that they state."""
        log, size = self.store.commit_log, commit_log.FRAME.size
        heads = [log.read(offset, size) for offset in offsets.tolist()]
        sizes = np.array([commit_log.FRAME.unpack(head)[0] if len(head) == size else 0 for head in heads], np.int64)
        kept = sizes >= commit_log.MIN_RECORD_SIZE
        return PointReads(offsets[kept], sizes[kept], by_index=True)

    @cached_property
    def _named_queues(self) -> list[Queue]:
        ids = self.facts["queue_id"]
        queues, topics = self.store.queues(), self.facts["topic"]
        named = [queue for queue in queues if topics.admits(queue.topic) and ids.admits(queue.queue_id)]
        return [queue for queue in named if self.every_class or class_of(queue.topic, 0) is RecordClass.COMMITTED]

    @cached_property
    def _distrust_reason(self) -> str:
        """Returns the evidence in the queues themselves against trusting them; "" if there is none."""
        if classes := self._admitted(_NOT_QUEUED):
            return f"{classes} records are not in queues; exclude them by a condition on record_class"
        if self.store.rocksdb and self.store.rocksdb.exists:
            return "queues in RocksDB may be incomplete after a crash"
        missing = self._topics - {queue.topic for queue in self.store.queues()}
        if missing:
            return f"topic {min(missing)!r} has no queue, and records of a deleted topic may be left"
        for queue in self._named_queues:
            name = f"{queue.topic}/{queue.queue_id}"
            if queue.is_batch:
                return f"{name} is a queue of batches"
            if any(before.end != after.base for before, after in zip(queue.files, queue.files[1:], strict=False)):
                return f"a file of queue {name} is missing"
        return ""

    def _by_queues(self, low: int, high: int) -> Path | None:
        if not self._is_queued or Trust.QUEUES not in self.trust or self._distrust_reason:
            return None
        parts = [self._units(queue, low, high) for queue in self._named_queues]
        if any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        offsets = np.concatenate([part[0] for part in known]) if known else np.empty(0, np.int64)
        sizes = np.concatenate([part[1] for part in known]) if known else np.empty(0, np.int64)
        extent = min(high, self.store.commit_log.max_offset) - low
        if int(sizes.sum()) * _WORTH > extent > 0:
            self._distrust_reason = "the queues point to most of the log"
            return None
        offsets, which = np.unique(offsets, return_index=True)
        return Path("queues", f"{len(known)} queues with {len(offsets)} units", (PointReads(offsets, sizes[which]),))

    def _units(self, queue: Queue, low: int, high: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns physical offsets and sizes of the units that may match; None if the queue has a hole."""
        places = self.facts["queue_offset"]
        offsets, sizes = [], []
        before = -1
        for number, file in enumerate(queue.files):
            units = queue.units_of(number)
            numbers = np.arange(len(units), dtype=np.int64) + file.base // queue.unit_size
            live = (numbers >= queue.min_offset) & (numbers < queue.max_offset)
            physical = units["physical_offset"].astype(np.int64)
            if not has_record(units)[live].all() or (np.diff(physical[live], prepend=before) <= 0).any():
                self._distrust_reason = f"queue {queue.topic}/{queue.queue_id} has a hole or goes backwards"
                return None
            if live.any():
                before = int(physical[live][-1])
            selected = live & places.mask(numbers) & (physical >= low) & (physical < high)
            if self._tag_codes and class_of(queue.topic, 0) is RecordClass.COMMITTED:  # others keep times there
                codes = units["tags_code"].astype(np.int64)
                selected &= np.isin(codes, self._tag_codes) | (codes <= MAX_EXT_ADDRESS)
            offsets.append(physical[selected])
            sizes.append(units["size"][selected].astype(np.int64))
        if not offsets:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(offsets), np.concatenate(sizes)


def _union(parts: list[RangeScan | PointReads]) -> tuple[RangeScan | PointReads, ...]:
    """Merges parts of several paths: each record once, by physical offset."""
    walks: list[RangeScan] = []
    for walk in sorted((part for part in parts if isinstance(part, RangeScan)), key=lambda walk: walk.low):
        if walks and walk.low <= walks[-1].high:
            walks[-1] = RangeScan(walks[-1].low, max(walk.high, walks[-1].high))
        elif walk.low < walk.high:
            walks.append(walk)
    named = sorted((part for part in parts if isinstance(part, PointReads)), key=lambda part: part.by_index)
    if not named:
        return tuple(walks)
    offsets, first = np.unique(np.concatenate([part.offsets for part in named]), return_index=True)
    sizes = np.concatenate([part.sizes for part in named])[first]
    by_index = np.concatenate([np.full(len(part.offsets), part.by_index) for part in named])[first]
    union: list[RangeScan | PointReads] = list(walks)
    edges = np.array([edge for walk in walks for edge in (walk.low, walk.high)], np.int64)
    gap = np.searchsorted(edges, offsets, side="right")  # odd inside of a walk
    runs = np.flatnonzero((np.diff(gap) != 0) | (np.diff(by_index) != 0)) + 1
    for low, high in pairwise([0, *runs.tolist(), len(offsets)]):
        if low < high and gap[low] % 2 == 0:
            union.append(PointReads(offsets[low:high], sizes[low:high], bool(by_index[low])))
    return tuple(sorted(union, key=lambda part: part.low if isinstance(part, RangeScan) else int(part.offsets[0])))


def _extent(parts: tuple[RangeScan | PointReads, ...], store: Store) -> int:
    """Returns how many bytes of the log the parts read."""
    end = store.commit_log.max_offset
    return sum(
        max(0, min(part.high, end) - part.low) if isinstance(part, RangeScan) else int(part.sizes.sum())
        for part in parts
    )


class _TimeSearch:
    """Finds physical offsets by store timestamp, in a log whose clock is trusted."""

    def __init__(self, store: Store) -> None:
        self._log, self._cuts = store.commit_log, Cuts(store)
        self._segments = self._log.segments[: self._log.last_used + 1]
        self._first = [self._time(segment.first_record) for segment in self._segments]

    def _time(self, physical_offset: int) -> int | None:
        """Returns the store timestamp of a record, read from its first bytes; None if there is no record."""
        data = self._log.read(physical_offset, _HEAD)
        fields = commit_log.head_fields(data.ljust(_HEAD, b"\0"))
        is_record = fields["physical_offset"] == physical_offset and fields["magic_code"] in commit_log.RECORD_MAGICS
        return int(fields["store_timestamp"]) if is_record else None

    @property
    def rises(self) -> bool:
        """Whether the first records of the segments are consistent with ascending times."""
        known = [time for time in self._first if time is not None]
        return known == sorted(known)

    def first(self, times: Bounds) -> int:
        """Returns a physical offset before which all records are older than the times."""
        return 0 if times.low is None else self._place(times.low)

    def end(self, times: Bounds) -> int:
        """Returns a physical offset from which on all records are newer than the times."""
        if times.high is None:
            return FOREVER
        later = [at for at, time in enumerate(self._first) if time is not None and time > times.high]
        limit = self._segments[later[0]].base if later else FOREVER
        index = (later[0] if later else len(self._segments)) - 1
        return min(limit, self._halve(index, times.high, upper=True)) if index >= 0 else limit

    def _place(self, time: int) -> int:
        earlier = [at for at, first in enumerate(self._first) if first is not None and first < time]
        return self._halve(earlier[-1], time, upper=False) if earlier else 0

    def _halve(self, index: int, time: int, *, upper: bool) -> int:
        """Finds a record start near the bound by bisection: the last known below the time, or the first above it."""
        segment = self._segments[index]
        is_last = index == len(self._segments) - 1
        limit = min(segment.end, self._log.max_offset) if is_last else segment.end  # the rest of the last one is unused
        low, high = segment.base, limit
        below, above = segment.base, FOREVER
        while high - low > _NEAR:
            middle = (low + high) // 2
            cut = self._cuts.first_at(middle, limit)
            time_at_cut = None if cut is None else self._time(cut.physical_offset)
            if cut is None or time_at_cut is None or time_at_cut > time or (time_at_cut == time and not upper):
                high = middle
                if cut is not None and time_at_cut is not None and time_at_cut > time:
                    above = min(above, cut.physical_offset)
            else:
                low = middle
                below = max(below, cut.physical_offset)
        return above if upper else below
