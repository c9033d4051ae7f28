"""Reads one segment of the CommitLog once: framing, CRCs, fields, and checksums of what dispatch would write.

All checks are array operations over the frames of a window. In a large log a compiled pass handles the records
without any fault (`PlainPass`). The caller decides from these facts what depends on queues or other segments (lost
messages, missing units).
"""

from collections import Counter
from enum import IntEnum

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
from mqtool.records.segment_bytes import page_aligned
from mqtool.records.walk import SegmentWalk, Skimmed
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.log.log_walk import walk_file
from mqtool.verify import record_rules
from mqtool.verify.checksums import BUCKET_BITS, Sums, mix_batches, mix_entries, mix_units, queue_key
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Finding
from mqtool.verify.record_rules import Continuity, QueueSpan, RecordRules
from mqtool.verify.survey import Survey

MINUTE_MS = 60_000
MAX_SLOTS = 200_000
"""Maximum number of (topic, minute) pairs; further ones are counted only in the topic's total."""

WINDOW = 1 << 20
"""Bytes read at a time. Measured: 128 KiB to 2 MiB take about the same time, 8 MiB a tenth more."""
_STEP, _LONG_STEP = 4 << 20, 32 << 20
"""Bytes per call with and without a throttle; a task can be stopped between calls."""
_MAX_KEYS = 1 << 15
"""Index keys of one record: a word of KEYS and the space after it take two bytes of at most 32,767."""

COUNTED, BATCH = 1, 2
"""Bits of what is known of a queue: its units are summed; it holds batches."""

FOREIGN = "foreign"
"""Kind of a damaged range that is a segment of another broker's log (`records.damage.DamageKind` has the others)."""


class Timeline(Struct):
    """Counts records and bytes by topic."""

    messages: Counter[tuple[str, int]] = field(default_factory=Counter)  # by (topic, minute since epoch)
    records: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, topics: np.ndarray, times: np.ndarray, sizes: np.ndarray, names: list[str]) -> None:
        """Counts the records of one window: topic numbers, store timestamps in ms, bytes, names by topic number."""
        counts = np.bincount(topics, minlength=len(names))
        volume = np.bincount(topics, sizes, minlength=len(names))
        for number in np.flatnonzero(counts).tolist():
            self.records[names[number]] += int(counts[number])
            self.bytes[names[number]] += int(volume[number])
        minutes = np.clip(times // MINUTE_MS, 0, (1 << 40) - 1)
        slots, numbers = np.unique((topics.astype(np.int64) << 40) | minutes, return_counts=True)
        for slot, count in zip(slots.tolist(), numbers.tolist(), strict=True):
            key = (names[slot >> 40], slot & ((1 << 40) - 1))
            if key in self.messages or len(self.messages) < MAX_SLOTS:
                self.messages[key] += count

    def merge(self, other: "Timeline") -> None:
        """Adds another's counts."""
        self.messages.update(other.messages)
        self.records.update(other.records)
        self.bytes.update(other.bytes)


class State(IntEnum):
    """Places in the array of int64 that a pass updates."""

    RECORDS = 0  # number of records read by the last call
    NEWEST = 1  # latest store timestamp of all calls
    KNOWN = 2  # of how many records `LAST` has times, at most 2
    FIRST = 3  # store timestamp and physical offset of the first two records of the last call
    LAST = 7  # the same of the last two of all calls, the later one last
    SIZE = 11  # of the array


class KnownQueues:
    """Properties of the queues seen so far, by the number that `Continuity` assigns to them.

    `keys` are `checksums.queue_key` as uint64, `flags` are `COUNTED` and `BATCH` as uint8.
    """

    def __init__(self) -> None:
        self.keys = np.empty(0, np.uint64)
        self.flags = np.empty(0, np.uint8)

    @property
    def counted(self) -> np.ndarray:
        """Bool per queue: whether its units are summed."""
        return (self.flags & COUNTED) != 0

    @property
    def batch(self) -> np.ndarray:
        """Bool per queue: whether it is a BatchConsumeQueue."""
        return (self.flags & BATCH) != 0


class Shared(Struct, frozen=True):
    """State shared by the compiled pass and the array operations over one segment."""

    dispatcher: Dispatcher  # and continuity, queues, rules: state of the checks
    continuity: Continuity
    queues: KnownQueues
    rules: RecordRules
    units: Sums  # and keys: sums by bucket
    keys: Sums
    first_record: np.ndarray  # int64, physical offset of the first record by bucket, -1 if there is none


class PlainPass:
    """Adds plain records to the facts about a segment; `newest` is their latest store timestamp, 0 if there is none."""

    def __init__(
        self,
        survey: Survey,
        file: tuple[int, MappedFile, int],
        shared: Shared,
        throttle: Throttle,
    ) -> None:
        """Prepares the pass; reads nothing yet.

        `file` is the descriptor of the open file, the segment, and the position after which no record may end; `shared`
        is updated.
        """
        self._survey = survey
        self._descriptor, segment, self._end = file
        self._base = segment.base
        self._shared = shared
        self._throttle = throttle
        self._step = _STEP if survey.throttle else _LONG_STEP
        self._window = page_aligned(WINDOW)
        self._scratch = np.empty(_MAX_KEYS, np.int32)
        self._starts = np.ascontiguousarray(survey.index.starts)
        self._begins = np.ascontiguousarray(survey.index.begins)
        self.records = self.newest = 0

    def skim(self, position: int) -> Skimmed:
        """Reads records from a position on; implements `records.walk.Skim`."""
        shared, at = self._shared, position
        rules, dispatcher, queues = shared.rules, shared.dispatcher, shared.queues
        span, numbers = shared.continuity.span, shared.continuity.numbers
        state = np.zeros(State.SIZE, np.int64)
        while at < self._end:
            state[State.NEWEST], state[State.KNOWN] = self.newest, rules.last.shape[1]
            state[State.LAST + 2 * (2 - rules.last.shape[1]) : State.SIZE] = rules.last.T.reshape(-1)
            end, may_go_on = native.logs.plain_records(
                self._descriptor,
                self._base,
                at,
                self._end,
                at + self._step,
                self._window,
                dispatcher.topics.slots,
                dispatcher.schedule,
                self._survey.with_index,
                dispatcher.rules.index_tags,
                numbers.columns,
                queues.keys,
                queues.flags,
                span.first,
                span.first_at,
                span.following,
                span.last_at,
                span.messages,
                self._starts,
                self._begins,
                BUCKET_BITS,
                shared.units.total,
                shared.units.count,
                shared.keys.total,
                shared.keys.count,
                shared.first_record,
                self._scratch,
                state,
            )
            taken = int(state[State.RECORDS])
            self.records += taken
            self.newest = int(state[State.NEWEST])
            first, last = state[State.FIRST : State.LAST].reshape(2, 2), state[State.LAST : State.SIZE].reshape(2, 2)
            rules.continue_after(first[: min(taken, 2)], last[2 - int(state[State.KNOWN]) :])
            self._throttle.spend(end - at)
            at = end
            if not may_go_on:
                break
        return Skimmed(at, int(state[State.LAST + 2]) if at > position else 0)


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

    `part` has the positions of the first record and after the last one, None for the segment's end. Facts that need the
    complete segment are left to `tasks.merge_parts`.
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
                walk = walk_file(
                    ThrottledFile(file, self._throttle),
                    segment,
                    start=start,
                    end=end,
                    is_last=is_last,
                    crc=False,
                    refills=True,
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
