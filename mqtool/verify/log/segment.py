"""Reads one segment of the CommitLog once: framing, CRCs, fields, and checksums of what dispatch would write.

All checks are array operations over the frames of a window. In a large log a compiled pass handles the records
without any fault (`plain_pass`). The caller decides from these facts what depends on queues or other segments (lost
messages, missing units).
"""

import numpy as np
from msgspec import Struct, field

from mqtool import native
from mqtool.errors import StoreError
from mqtool.formats.commit_log import MAGIC_V1
from mqtool.jobs.progress import Throttle, ThrottledFile
from mqtool.records.damage import Damage, Tail
from mqtool.records.dispatch import Dispatcher, QueueUnits
from mqtool.records.frames import Frames
from mqtool.records.number_sets import run_starts
from mqtool.records.walk import SegmentWalk
from mqtool.store.files import ReadFile
from mqtool.store.log.log_walk import refilling_walk
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Finding
from mqtool.verify.log import record_rules
from mqtool.verify.log.checksums import BUCKET_BITS, Sums, mix_batches, mix_entries, mix_units, queue_key
from mqtool.verify.log.continuity import Continuity, QueueSpan
from mqtool.verify.log.plain_pass import BATCH, COUNTED, KnownQueues, PlainPass, Shared
from mqtool.verify.survey import Survey
from mqtool.verify.timeline import Timeline

FOREIGN = "foreign"
"""Kind of a damaged range that is a segment of another broker's log (`records.damage.DamageKind` has the others)."""


class DamagedRange(Struct):
    """A range without a valid record; `queue_offset` is known if only the body is damaged."""

    start: int  # and end: physical offsets
    end: int
    kind: str  # and detail: as in `Damage`
    detail: str
    count: int = 0  # number of records that it replaces, 0 if unknown


class SegmentFacts(Struct):
    """Facts about one segment."""

    number: int  # of the segment
    records: int = 0  # and bytes: number of valid records, bytes read
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)  # that need no comparison
    damages: list[DamagedRange] = field(default_factory=list)  # in order
    # (topic, queue id, queue offset, physical offset, size) of records with a wrong body.
    bad_bodies: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    # units, keys: sums of what dispatch would write, by bucket of the segment.
    units: Sums = field(default_factory=lambda: Sums(0))
    keys: Sums = field(default_factory=lambda: Sums(0))
    # Physical offset of the first record that starts in each bucket, -1 if none.
    first_record: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    span: QueueSpan = field(default_factory=QueueSpan)  # queue offsets by queue
    newest: int = 0  # latest store timestamp
    end: int = 0  # after the last record, or the segment's end if a BLANK ends it
    ended_by_blank: bool = False  # and tail: as in `SegmentWalk`
    tail: Tail | None = None
    timeline: Timeline = field(default_factory=Timeline)  # messages by topic and minute, if asked for
    # first_times, last_times: store time and physical offset of the first and the last two records.
    first_times: list[tuple[int, int]] = field(default_factory=list)
    last_times: list[tuple[int, int]] = field(default_factory=list)
    # without_crc, first_without_crc: records with a body and CRC 0, and the physical offset of the first of them.
    without_crc: int = 0
    first_without_crc: int = 0
    failure: str = ""  # why reading stopped, "" if it did not
    # Whether what was checked of records is all that the broker's own test asks of them: they have version 1, and no
    # number in their properties that it would fail to parse.
    has_plain_records: bool = True


def check_segment(
    survey: Survey, number: int, throttle: Throttle, part: tuple[int, int | None] = (0, None)
) -> SegmentFacts:
    """Reads one segment; a read error ends it early and is reported, not raised.

    Args:
        survey: the store.
        number: of the segment.
        throttle: receives the number of bytes read.
        part: positions of the first record and after the last one, None for the segment's end. Facts that need the
            complete segment are left to `segment_parts.merge_parts`.
    """
    return _Check(survey, number, throttle).run(*part)


class _Check:
    def __init__(self, survey: Survey, number: int, throttle: Throttle) -> None:
        self._survey = survey
        self._segment = survey.segments[number]
        self._throttle = throttle
        self._facts = SegmentFacts(number)
        self._collector = FindingCollector(survey.root, survey.config, survey.broker)
        self._dispatcher = Dispatcher(survey.rules)
        self._continuity = Continuity(self._dispatcher.topics.names)
        self._known = {queue.key for queue in survey.queues}
        self._queues = KnownQueues()
        self._rules = record_rules.RecordRules(self._collector, self._segment, self._facts.bad_bodies)
        buckets = -(-self._segment.size >> BUCKET_BITS)
        self._facts.units, self._facts.keys = Sums(buckets), Sums(buckets)
        self._facts.first_record = np.full(buckets, -1, np.int64)

    def run(self, start: int, end: int | None) -> SegmentFacts:
        facts, segment = self._facts, self._segment
        size = segment.size if end is None else end
        try:
            with ReadFile(segment.path) as file:
                is_last = facts.number >= self._survey.last_used and end is None
                plain = self._plain_pass(file, size)
                walk = refilling_walk(
                    ThrottledFile(file, self._throttle),
                    segment,
                    start=start,
                    end=end,
                    is_last=is_last,
                    with_crc=True,
                    start_index=self._survey.start_index(),
                    skim=None if plain is None else plain.skim,
                )
                self._walk(walk)
                if plain is not None:
                    facts.records += plain.records
                    facts.newest = max(facts.newest, plain.newest)
                facts.bytes = size - start
        except StoreError as error:
            facts.failure = str(error)
            self._collector.add("log-unreadable", segment.path, str(error))
        facts.without_crc, facts.first_without_crc = self._rules.without_crc, self._rules.first_without_crc
        if start == 0 and end is None:
            record_rules.report_without_crc(self._collector, segment, facts.without_crc, facts.first_without_crc)
        facts.findings = self._collector.findings()
        facts.span = self._continuity.span
        facts.first_times, facts.last_times = self._rules.first_times, self._rules.last_times
        return facts

    def _plain_pass(self, file: ReadFile, size: int) -> PlainPass | None:
        """Returns the compiled pass, which handles most records; None if it is not available for this file."""
        survey, segment = self._survey, self._segment
        if not native.in_use() or segment.entries or survey.timeline or file.descriptor is None:
            return None
        facts = self._facts
        checks = (self._dispatcher, self._continuity, self._queues, self._rules)
        shared = Shared(*checks, facts.units, facts.keys, facts.first_record)
        end = min(size, survey.end - segment.base) if survey.live else size
        return PlainPass(survey, (file.descriptor, segment, end), shared, self._throttle)

    def _walk(self, walk: SegmentWalk) -> None:
        facts, limit = self._facts, self._survey.end if self._survey.live else None
        for item in walk:
            if isinstance(item, Damage):
                if limit is None or item.end <= limit:
                    _note(facts.damages, item)
                continue
            frames = item.between(None, limit)
            if len(frames):
                self._frames(frames)
        facts.end, facts.ended_by_blank, facts.tail = walk.end, walk.ended_by_blank, walk.tail

    def _frames(self, frames: Frames) -> None:
        facts = self._facts
        facts.records += len(frames)
        times = frames.column("store_timestamp")
        facts.newest = max(facts.newest, int(times.max()))
        self._rules.check(frames, times)
        dispatched = self._dispatcher.dispatch(frames, keys=self._survey.with_index)
        if dispatched.oddities or dispatched.has_batches or (frames.column("magic_code") != MAGIC_V1).any():
            facts.has_plain_records = False
        bucket = (frames.positions + (frames.base - self._segment.base)) >> BUCKET_BITS
        opens = run_starts(bucket)
        new = opens[facts.first_record[bucket[opens]] < 0]
        facts.first_record[bucket[new]] = frames.positions[new] + frames.base
        units = dispatched.units
        codes = self._continuity.codes(units)
        self._learn()
        self._continuity.follow(codes, units)
        if not self._queues.counted.all():
            counted = self._queues.counted[codes]
            codes, units = codes[counted], units.select(counted)
        self._sum(codes, units, bucket)
        if self._survey.with_index:
            keys = dispatched.keys
            seconds = self._survey.index.times(keys.physical_offset, keys.store_timestamp)
            facts.keys.add(bucket[keys.row], mix_entries(keys.key_hash, keys.physical_offset, seconds))
        if self._survey.timeline:
            facts.timeline.add(dispatched.topic, times, frames.sizes, self._dispatcher.topics.names)

    def _sum(self, codes: np.ndarray, units: QueueUnits, bucket: np.ndarray) -> None:
        """Adds units to the sums of their records' buckets."""
        sums, rows = self._facts.units, bucket[units.row]
        columns = (self._queues.keys[codes], units.queue_offset, units.physical_offset, units.size, units.tags_code)
        mixed, batch = mix_units(*columns), np.flatnonzero(self._queues.batch[codes])
        mixed[batch] = mix_batches(mixed[batch], units.store_timestamp[batch], units.batch_size[batch])
        sums.add(rows, mixed)

    def _learn(self) -> None:
        """Computes the required properties of queues that have not been seen before."""
        known, queues = self._queues, self._continuity.span.queues
        fresh = queues[len(known.keys) :]
        if not fresh:
            return
        batch = [BATCH * (topic in self._survey.rules.batch_topics) for topic, _ in fresh]
        counted = [COUNTED * (key in self._known and self._survey.includes(key[0])) for key in fresh]
        keys = np.array([queue_key(*key) for key in fresh], np.uint64)
        known.keys = np.concatenate([known.keys, keys])
        known.flags = np.concatenate([known.flags, np.array(batch, np.uint8) | np.array(counted, np.uint8)])


def _note(damages: list[DamagedRange], damage: Damage) -> None:
    """Adds a range; adjacent ranges of one kind are joined, so that a shifted segment is one range."""
    last = damages[-1] if damages else None
    if last is not None and last.end == damage.start and last.kind == damage.kind:
        last.end = damage.end
        last.count += 1
    else:
        damages.append(DamagedRange(damage.start, damage.end, damage.kind, damage.detail, 1))
