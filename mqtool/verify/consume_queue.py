"""Reads one queue once: what its units show without the CommitLog, and their checksums for the comparison with the log.

Units of ConsumeQueueExt are compared with the log directly. Source of the rules of validity: ConsumeQueue.recover,
BatchConsumeQueue.recover, MappedFileQueue.doLoad (4.9.7, 5.5.0).
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from mqtool.errors import FormatError, StoreError
from mqtool.formats import commit_log
from mqtool.formats.commit_log import Record
from mqtool.formats.consume_queue import (
    EXT_HEAD_SIZE,
    MAX_EXT_ADDRESS,
    PRE_BLANK_SIZE_FIELD,
    ConsumeQueueExtUnit,
    ext_offset,
    parse_ext_unit,
)
from mqtool.jobs.progress import Throttle
from mqtool.records.segment_bytes import page_aligned
from mqtool.store.file_sizes import KnownSize
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.queues.consume_queue import ExtUnits
from mqtool.store.queues.filter_bit_maps import FilterBitMaps
from mqtool.verify.checksums import Buckets, Sums, mix_batches, mix_units, queue_key
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.survey import CHUNK_BYTES, QueueFiles, Survey, unit_chunks

_LARGEST_RECORD = 1 << 28
_FARTHEST = 1 << 45
"""A unit up to this many bytes past the end of the log counts as one whose record was lost, not as invalid."""

_WINDOW = 1 << 20


class Run(Struct, frozen=True):
    """Consecutive units of one kind."""

    first: int  # and last: numbers of units (for ConsumeQueues: queue offsets), inclusive
    last: int
    first_offset: int  # and last_offset: queue offsets, inclusive
    last_offset: int
    start: int = 0  # and end: minimum physical offset in the units, and maximum end of a record
    end: int = 0
    bytes: int = 0  # sum of the sizes of their records

    @property
    def messages(self) -> int:
        """Number of messages that the units represent."""
        return self.last_offset - self.first_offset + 1


class QueueFacts(Struct):
    """Facts about one queue's files."""

    topic: str  # and queue_id, is_batch: which queue
    queue_id: int
    is_batch: bool
    units: int = 0  # number of units that refer to a record
    first: int = 0  # number of the first unit on disk
    used_end: int = 0  # number after the last unit in use
    # min_offset, max_offset: queue offsets of the first unit that the log still has and after the last one inside it.
    min_offset: int | None = None
    max_offset: int = 0
    newest_end: int = 0  # physical offset after the newest record inside the log that a unit names, 0 if none
    holes: list[Run] = field(default_factory=list)  # zero units before the last one in use
    bad: list[Run] = field(default_factory=list)  # invalid units
    ahead: list[Run] = field(default_factory=list)  # units that point at or beyond the end of the log
    lost: list[Run] = field(default_factory=list)  # units that point between segments
    late: list[Run] = field(default_factory=list)  # units older than the log that follow newer ones
    # (extension offset, code, evidence) of addresses without a unit in the extension.
    ext_problems: list[tuple[int, str, str]] = field(default_factory=list)
    ext_unread: str = ""  # why tags codes in the extension are unknown; "" if they are known
    # (file number, first unit in it, how many, least and largest physical offset) of each block read.
    chunks: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    failure: str = ""  # and failed_file: why reading stopped, and at which file; "" if it did not
    failed_file: str = ""

    @property
    def end(self) -> int:
        """The queue offset after the last unit, including units that point past or before the log."""
        ahead_end = max((run.last_offset + 1 for run in self.ahead), default=0)
        expired = self.used_end if self.min_offset is None else 0
        return max(self.max_offset, ahead_end, expired)


def check_queue(survey: Survey, queue: QueueFiles, buckets: Buckets, sums: Sums, throttle: Throttle) -> QueueFacts:
    """Reads all units of a queue and adds those inside the log to the sums; a read error is stored, not raised."""
    scan = _Scan(survey, queue, buckets, sums, throttle)
    try:
        scan.run()
    except StoreError as error:
        key = queue.topic, queue.queue_id, queue.is_batch
        return QueueFacts(*key, failure=error.reason, failed_file=str(error.path))
    return scan.facts


class _Scan:
    def __init__(self, survey: Survey, queue: QueueFiles, buckets: Buckets, sums: Sums, throttle: Throttle) -> None:
        self._survey = survey
        self._queue = queue
        self._buckets = buckets
        self._sums = sums
        self._throttle = throttle
        self._key = np.array([queue_key(*queue.key)], np.uint64)
        self._ext = ExtUnits(survey.root, queue.topic, queue.queue_id)
        self._zeros_from: int | None = None
        self.facts = QueueFacts(
            *queue.key,
            queue.is_batch,
            first=queue.first_offset,
            used_end=queue.first_offset,
            max_offset=0 if queue.is_batch else queue.first_offset,
        )

    def run(self) -> None:
        position, memory = self._queue.first_offset, page_aligned(CHUNK_BYTES).data
        for number, file in enumerate(self._queue.files):
            start = file.base // self._queue.unit.size
            if start != position:
                self._zeros_from = None  # a file is missing: that is another finding
            position = start
            for first, units in unit_chunks(file, self._queue.unit, memory):
                self._throttle.spend(units.nbytes)
                self._take(number, first, start + first, units)
                position = start + first + len(units)
            capacity = start + file.size // self._queue.unit.size
            if position < capacity and self._zeros_from is None:
                self._zeros_from = position
            position = capacity

    def _take(self, number: int, first: int, start: int, units: np.ndarray) -> None:
        """Processes consecutive units, the first of which has the number `start`."""
        if self._queue.is_batch or not self._take_plain(number, first, start, units):
            self._take_any(number, first, start, units)

    def _take_plain(self, number: int, first: int, start: int, units: np.ndarray) -> bool:
        """Fast path: adds the units if a single test shows that all refer to records; returns whether it did."""
        seen = self._buckets.add_plain_units(self._sums, units, start, self._key[0], self._survey.end)
        if seen is None:
            return False
        facts, (low, high, end) = self.facts, seen
        self._zeros(np.zeros(len(units), bool), start, len(units))
        facts.units += len(units)
        facts.min_offset = start if facts.min_offset is None else facts.min_offset
        facts.max_offset = start + len(units)
        facts.newest_end = max(facts.newest_end, end)
        facts.chunks.append((number, first, len(units), low, high))
        return True

    def _take_any(self, number: int, first: int, start: int, units: np.ndarray) -> None:
        kinds = Kinds(units, self._survey, self._queue.is_batch)
        self._zeros(kinds.zero, start, len(units))
        offsets = kinds.offsets(start)
        facts = self.facts
        inside = np.flatnonzero(kinds.inside)
        bucket = self._buckets.of(kinds.physical[inside])
        self._note(facts.bad, kinds.bad, kinds, start, offsets)
        if not self._survey.live:
            self._note(facts.ahead, kinds.ahead, kinds, start, offsets)
        gap = np.zeros(len(units), bool)
        gap[inside[bucket < 0]] = True
        if not self._survey.has_dledger:
            self._note(facts.lost, gap, kinds, start, offsets)
        if facts.min_offset is not None or len(inside):
            late = kinds.expired.copy()
            late[: inside[0] if facts.min_offset is None else 0] = False
            self._note(facts.late, late, kinds, start, offsets)
        plain = inside[bucket >= 0]
        self._sum(units, kinds, plain, bucket[bucket >= 0], offsets)
        facts.units += int(kinds.normal.sum())
        if len(inside):
            ends = kinds.physical[inside] + kinds.size[inside]
            facts.min_offset = int(offsets[inside[0]]) if facts.min_offset is None else facts.min_offset
            facts.max_offset = int(offsets[inside[-1]] + kinds.messages[inside[-1]])
            facts.newest_end = max(facts.newest_end, int(ends.max()))
            low, high = int(kinds.physical[inside].min()), int(kinds.physical[inside].max())
            facts.chunks.append((number, first, len(units), low, high))

    def _zeros(self, zero: np.ndarray, start: int, count: int) -> None:
        """Tracks runs of zero units; a run is a hole if a unit in use follows it."""
        used = np.flatnonzero(~zero)
        if not len(used):
            self._zeros_from = start if self._zeros_from is None else self._zeros_from
            return
        if self._zeros_from is not None or used[0] > 0:
            self._hole(self._zeros_from if self._zeros_from is not None else start, start + int(used[0]) - 1)
        for before in np.flatnonzero(np.diff(used) > 1).tolist():
            self._hole(start + int(used[before]) + 1, start + int(used[before + 1]) - 1)
        last = int(used[-1])
        self.facts.used_end = start + last + 1
        self._zeros_from = start + last + 1 if last + 1 < count else None

    def _hole(self, first: int, last: int) -> None:
        """Records a hole, unless the broker itself writes it: one zero unit at the start of a file."""
        is_file_start = first == last and any(file.base // self._queue.unit.size == first for file in self._queue.files)
        if not is_file_start:
            self.facts.holes.append(Run(first, last, first, last))

    def _note(self, runs: list[Run], mask: np.ndarray, kinds: "Kinds", start: int, offsets: np.ndarray) -> None:
        for low, high in runs_of(mask):
            first_offset, last_offset = int(offsets[low]), int(offsets[high - 1] + kinds.messages[high - 1]) - 1
            physical = kinds.physical[low:high]
            ends = physical + kinds.size[low:high]
            run = Run(
                start + low,
                start + high - 1,
                first_offset,
                last_offset,
                int(physical.min()),
                int(ends.max()),
                int(kinds.size[low:high].sum()),
            )
            last = runs[-1] if runs else None
            if last is not None and last.last + 1 == run.first:
                runs[-1] = Run(
                    last.first,
                    run.last,
                    last.first_offset,
                    run.last_offset,
                    min(last.start, run.start),
                    max(last.end, run.end),
                    last.bytes + run.bytes,
                )
            else:
                runs.append(run)

    def _sum(
        self, units: np.ndarray, kinds: "Kinds", which: np.ndarray, bucket: np.ndarray, offsets: np.ndarray
    ) -> None:
        if not len(which):
            return
        tags = self._real_tags(units, which)
        mixed = mix_units(self._key, offsets[which], kinds.physical[which], kinds.size[which], tags)
        if self._queue.is_batch:
            mixed = mix_batches(mixed, units["store_timestamp"][which], units["batch_size"][which])
        self._sums.add(bucket, mixed)

    def _real_tags(self, units: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Returns tags codes; addresses in the extension are replaced by the tags codes stored there."""
        tags = units["tags_code"][which].astype(np.int64)
        addressed = np.flatnonzero(tags <= MAX_EXT_ADDRESS)
        if len(addressed):
            tags[addressed] = self._ext.tags_of(tags[addressed], self.facts.ext_problems)
            self.facts.ext_unread = self._ext.unread
        return tags


class Kinds:
    """Classifies units; every unit has exactly one of these kinds."""

    def __init__(self, units: np.ndarray, survey: Survey, is_batch: bool) -> None:
        self.physical = units["physical_offset"].astype(np.int64)
        self.size = units["size"].astype(np.int64)
        self._bases = units["base_queue_offset"].astype(np.int64) if is_batch else None
        self.messages = units["batch_size"].astype(np.int64) if is_batch else np.ones(len(units), np.int64)
        empty = (self.physical == 0) & (self.size == 0)
        self.zero = empty & (units["tags_code"] == 0)
        self.pre_blank = (self.physical == 0) & (self.size == PRE_BLANK_SIZE_FIELD)
        fits = (self.size >= commit_log.MIN_RECORD_SIZE) & (self.size < _LARGEST_RECORD)
        fits &= (self.physical >= 0) & (self.physical < survey.end + _FARTHEST)
        if self._bases is not None:
            fits &= (self.messages > 0) & (self._bases >= 0)
            fits &= (units["compacted_offset"] == -1) & (units["reserved"] == 0)
        self.normal = fits & ~self.zero
        self.bad = ~self.normal & ~self.zero & ~self.pre_blank
        self.expired = self.normal & (self.physical < survey.min_offset)
        self.ahead = self.normal & (self.physical >= survey.end)
        self.inside = self.normal & ~self.expired & ~self.ahead

    def offsets(self, start: int) -> np.ndarray:
        """Returns the queue offset of each unit, the first of which has the number `start`."""
        return np.arange(start, start + len(self.physical)) if self._bases is None else self._bases


def runs_of(mask: np.ndarray) -> list[tuple[int, int]]:
    """Returns the runs of true items as (first, last + 1)."""
    if not mask.any():
        return []
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).view(np.int8)))
    return [(int(low), int(high)) for low, high in edges.reshape(-1, 2)]


def check_extensions(
    survey: Survey, facts: "Iterable[QueueFacts]", size: KnownSize | None, collector: FindingCollector
) -> str:
    """Reports malformed extension files, addresses without a unit, and units that belong to another record.

    Returns why some of it could not be read; "" if all was.
    """
    unread = ""
    for queue, queue_facts in zip(survey.queues, facts, strict=True):
        units = ExtUnits(survey.root, queue.topic, queue.queue_id)
        if not survey.includes(queue.topic):
            continue
        for file in units.files:
            if size is not None and file.size != size.value:
                evidence = f"expected {size.value} bytes, found {file.size}"
                collector.add("ext-file-size", file.path, evidence, queue=queue.key)
        for evidence in units.malformed:
            collector.add("ext-bad-unit", units.path, evidence, queue=queue.key)
        for _, code, evidence in queue_facts.ext_problems:
            collector.add(code, queue.path, evidence, queue=queue.key)
        unread = unread or units.unread
    return unread


def compare_extensions(survey: Survey, bit_maps: FilterBitMaps, collector: FindingCollector) -> None:
    """Reports extension units whose store timestamp or filter bits do not match their records.

    An extra bit is harmless: the broker then evaluates the filter on the message. It may come from a filter that was
    removed since. A missing bit hides the message from its group (ExpressionMessageFilter.isMatchedByConsumeQueue).
    """
    log = _Window(survey.segments)
    throttle = Throttle(survey.throttle)
    for queue in survey.queues:
        extension = ExtUnits(survey.root, queue.topic, queue.queue_id)
        if queue.is_batch or not survey.includes(queue.topic) or not extension.files:
            continue
        times, bits = _Wrong(), _Wrong()
        for number, unit, record in _pairs(survey, queue, log, _Window(extension.files)):
            throttle.spend(record.total_size)
            if unit.store_timestamp != record.store_timestamp:
                times.add(number, f"time {unit.store_timestamp}, but the record was stored at {record.store_timestamp}")
            (due,) = bit_maps(queue.topic, [record.properties], [record.store_timestamp])
            if len(due) == len(unit.bit_map) and any(
                want & ~present for want, present in zip(due, unit.bit_map, strict=True)
            ):
                bits.add(number, f"bit map {unit.bit_map.hex()}, but filters that the record passes set {due.hex()}")
        for code, wrong in (("ext-wrong-unit", times), ("ext-missing-bits", bits)):
            if wrong.count:
                evidence = f"{wrong.count} unit(s), the first at queue offset {wrong.first}: {wrong.evidence}"
                collector.add(code, extension.path, evidence, queue=queue.key)


class _Wrong(Struct):
    """Units with the same fault."""

    count: int = 0
    first: int = -1
    evidence: str = ""

    def add(self, number: int, evidence: str) -> None:
        """Counts one."""
        if not self.count:
            self.first, self.evidence = number, evidence
        self.count += 1


def _pairs(
    survey: Survey, queue: QueueFiles, log: "_Window", extension: "_Window"
) -> Iterator[tuple[int, ConsumeQueueExtUnit, Record]]:
    """Yields (queue offset, unit of the extension, record) where both can be read; other findings report the rest."""
    try:
        for file, first, units in queue.chunks():
            physical = units["physical_offset"].astype(np.int64)
            inside = (physical >= survey.min_offset) & (physical < survey.end) & (units["size"] > 0)
            for row in np.flatnonzero(inside & (units["tags_code"] <= MAX_EXT_ADDRESS)).tolist():
                at = int(physical[row])
                position = ext_offset(int(units["tags_code"][row]))
                try:
                    size = int.from_bytes(extension.read(position, 2), "big", signed=True)
                    unit = parse_ext_unit(extension.read(position, size)) if size >= EXT_HEAD_SIZE else None
                    record = commit_log.parse_record(log.read(at, int(units["size"][row])))
                except FormatError:
                    continue
                if unit is not None and record.physical_offset == at:
                    yield file.base // queue.unit.size + first + row, unit, record
    except StoreError:
        return


class _Window:
    """Reads files by offset in cached blocks, for offsets that mostly ascend."""

    def __init__(self, files: Sequence[MappedFile]) -> None:
        self._files = files
        self._start = 0
        self._data = b""

    def read(self, offset: int, size: int) -> bytes:
        """Returns bytes of one file; fewer at its end."""
        if not self._start <= offset <= offset + size <= self._start + len(self._data):
            file = next((file for file in self._files if file.base <= offset < file.end), None)
            if file is None:
                return b""
            with ReadFile(file.path) as opened:
                self._start, self._data = offset, opened.read(offset - file.base, max(size, _WINDOW))
        return self._data[offset - self._start : offset - self._start + size]
