"""Rules for records: CRCs, fields, times, compression, and consecutive queue offsets.

Framing (magic, lengths, the record's physical offset) is checked by `records.walk`; these rules see only valid
frames. Queue offsets skipped around damage prove which messages are lost; one skipped elsewhere is a finding itself.
They are checked with a few array operations per window; a window is sorted only if the sum of its offsets differs from
that of a sequence.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field

from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.formats.java import decode_utf8
from mqtool.records.dispatch import QueueUnits
from mqtool.records.frames import Frames, crc32_of_ranges
from mqtool.records.number_sets import WordTable, stable_order
from mqtool.records.queue_build import queue_numbers, queue_of
from mqtool.store.files import MappedFile
from mqtool.verify.finding_collector import FindingCollector

SPIKE_MS = 1000
"""A record whose time differs by more than this from both neighbours, in opposite directions, is an outlier."""

_POWERS = 10 ** np.arange(10, dtype=np.int64)
_MAGICS = {1: b"\x04\x22\x4d\x18", 2: b"\x28\xb5\x2f\xfd"}
_PORTS = 1 << 16

MAX_JUMPS = 100_000
"""Jumps that are kept per segment."""


class RecordRules:
    """Checks the records of one segment, window by window.

    `without_crc` counts the records with a body and CRC 0. `first_times` has store timestamp and physical offset of the
    first two records; `last`, int64 of shape (2, n), n up to 2, those of the last records, in two rows.
    """

    def __init__(
        self, collector: FindingCollector, segment: MappedFile, bad_bodies: list[tuple[str, int, int, int, int]]
    ) -> None:
        """Starts before the first window.

        `bad_bodies` receives (topic, queue id, queue offset, physical offset, size) of each record with an invalid
        body.
        """
        self._collector = collector
        self._segment = segment
        self._bad_bodies = bad_bodies
        self.without_crc = self.first_without_crc = 0
        self.last = np.empty((2, 0), np.int64)
        self.first_times: list[tuple[int, int]] = []

    def check(self, frames: Frames, times: np.ndarray) -> None:
        """Checks one window; `times` are the store timestamps."""
        wrong = ~frames.crc_matches
        if wrong.any():
            self._bodies(frames, np.flatnonzero(wrong))
        self._record_crcs(frames)
        self._fields(frames, times)
        self._compression(frames)
        self._times(frames, times)

    def continue_after(self, first: np.ndarray, last: np.ndarray) -> None:
        """Continues after records that another pass has checked without finding a fault.

        `first` has store timestamp and physical offset of the first of them, one row each, at most two rows; `last` has
        the same for the last two records read, by either pass.
        """
        if len(self.first_times) < 2:
            self.first_times += [(int(time), int(at)) for time, at in first][: 2 - len(self.first_times)]
        self.last = last.T.copy()

    def _bodies(self, frames: Frames, rows: np.ndarray) -> None:
        stored, computed = frames.column("body_crc"), frames.computed_crc
        for row in rows.tolist():
            at = frames.base + int(frames.positions[row])
            if stored[row] == 0:
                self.first_without_crc = self.first_without_crc if self.without_crc else at
                self.without_crc += 1
                continue
            record = commit_log.parse_record(frames.view, int(frames.positions[row]))
            topic = decode_utf8(record.topic)
            self._bad_bodies.append((topic, record.queue_id, record.queue_offset, at, record.total_size))
            evidence = f"body CRC stored {int(stored[row]) & 0xFFFFFFFF:08x}, computed {int(computed[row]):08x}"
            self._add(
                "log-bad-body",
                frames,
                row,
                evidence,
                queue=(topic, record.queue_id),
                lost_bytes=record.total_size,
                lost_messages=1,
            )

    def _record_crcs(self, frames: Frames) -> None:
        size = properties.CRC32_TAIL_SIZE
        start = frames.properties_start + frames.properties_length - size
        rows = frames.rows_with_crc32()
        if not len(rows):
            return
        digits = frames.data[start[rows, None] + np.arange(size - 11, size - 1)].astype(np.int64) - ord("0")
        stored = np.where(((digits >= 0) & (digits <= 9)).all(axis=1), digits @ _POWERS, -1)
        computed = crc32_of_ranges(frames.view, frames.positions[rows], start[rows])
        for index in np.flatnonzero(stored != computed).tolist():
            evidence = f"{properties.CRC32} stored {stored[index]}, computed {computed[index]}"
            self._add("log-bad-record-crc", frames, int(rows[index]), evidence)

    def _fields(self, frames: Frames, times: np.ndarray) -> None:
        for impossible in impossible_fields(frames, times):
            for row in np.flatnonzero(impossible.broken).tolist():
                self._add("log-bad-field", frames, row, impossible.words.format(impossible.values[row]))

    def _compression(self, frames: Frames) -> None:
        for row, head in not_compressed(frames):
            self._add("log-bad-compression", frames, row, f"the body begins with {head.hex() or 'nothing'}")

    def _times(self, frames: Frames, times: np.ndarray) -> None:
        offsets = frames.positions + frames.base
        known = self.last.shape[1]
        if len(self.first_times) < 2:
            self.first_times += list(zip(times[:2].tolist(), offsets[:2].tolist(), strict=True))[: 2 - known]
        times = np.concatenate([self.last[0], times])
        offsets = np.concatenate([self.last[1], offsets])
        self.last = np.stack([times[-2:], offsets[-2:]])
        for middle in spikes(times):  # has a new one after it, since no more than two are known
            self._collector.add(
                "log-bad-time",
                self._segment.path,
                spike_words(times, middle),
                position=int(offsets[middle]) - self._segment.base,
                span=(int(offsets[middle]), int(offsets[middle]) + 1),
            )

    @property
    def last_times(self) -> list[tuple[int, int]]:
        """Store time and physical offset of the last two records."""
        return [(int(time), int(offset)) for time, offset in self.last.T]

    def _add(
        self,
        code: str,
        frames: Frames,
        row: int,
        evidence: str,
        *,
        queue: tuple[str, int] | None = None,
        lost_bytes: int = 0,
        lost_messages: int = 0,
    ) -> None:
        position = frames.base - self._segment.base + int(frames.positions[row])
        start = self._segment.base + position
        if queue is None:
            queue = _queue_of(frames, row)
        span = (start, start + int(frames.sizes[row]))
        self._collector.add(
            code,
            self._segment.path,
            evidence,
            position=position,
            span=span,
            queue=queue,
            lost_bytes=lost_bytes,
            lost_messages=lost_messages,
        )


def report_without_crc(collector: FindingCollector, segment: MappedFile, count: int, first: int) -> None:
    """Reports the number of records with a body and CRC 0 in a segment."""
    if count:
        evidence = f"{count} record(s) with a body and CRC 0, the first at {first}"
        collector.add("log-crc-zero", segment.path, evidence, position=first - segment.base, span=(first, segment.end))


class ImpossibleField(Struct, frozen=True):
    """A field that has values in some records that no broker writes."""

    name: str  # of the field
    words: str  # text of the evidence, with a placeholder for the value
    broken: np.ndarray  # bool per record
    values: np.ndarray  # int64 per record


def impossible_fields(frames: Frames, times: np.ndarray) -> tuple[ImpossibleField, ...]:
    """Returns the fields with values that no broker writes in some record; `times` are the store timestamps."""
    queue_id, born = frames.column("queue_id"), frames.column("born_timestamp")
    born_port, store_port = _ports(frames)
    if queue_id.min() >= 0 and times.min() > 0 and born.min() >= 0 and max(born_port.max(), store_port.max()) < _PORTS:
        return ()
    return (
        ImpossibleField("queue_id", "queue id {}", queue_id < 0, queue_id),
        ImpossibleField("store_timestamp", "store time {} ms", times <= 0, times),
        ImpossibleField("born_timestamp", "born time {} ms", born < 0, born),
        ImpossibleField("born_port", "born port {}", born_port >= _PORTS, born_port),
        ImpossibleField("store_port", "store port {}", store_port >= _PORTS, store_port),
    )


def not_compressed(frames: Frames) -> Iterator[tuple[int, bytes]]:
    """Yields records with compression flags whose body is not compressed, with the first bytes of the body."""
    flags = frames.column("sys_flag")
    for row in np.flatnonzero(flags & SysFlag.COMPRESSED).tolist():
        start = int(frames.body_start[row])
        head = bytes(frames.view[start : start + min(4, int(frames.body_length[row]))])
        if not _begins_compressed(head, int(flags[row])):
            yield row, head


def spikes(times: np.ndarray) -> list[int]:
    """Returns the items that differ from both neighbours although these agree; invalid times are ignored."""
    steps = np.diff(times)
    if len(times) < 3 or not (steps < -SPIKE_MS).any():
        return []
    back, on = steps[:-1], steps[1:]
    is_spike = ((back < -SPIKE_MS) & (on > SPIKE_MS)) | ((back > SPIKE_MS) & (on < -SPIKE_MS))
    is_spike &= np.abs(times[2:] - times[:-2]) < np.minimum(np.abs(back), np.abs(on))
    return [middle for middle in (np.flatnonzero(is_spike) + 1).tolist() if times[middle] > 0]


def spike_words(times: np.ndarray, middle: int) -> str:
    """Returns the evidence text for a spike."""
    return f"store time {times[middle]} between {times[middle - 1]} and {times[middle + 1]}"


def _queue_of(frames: Frames, row: int) -> tuple[str, int] | None:
    try:
        record = commit_log.parse_record(frames.view, int(frames.positions[row]))
    except FormatError:
        return None
    return decode_utf8(record.topic), record.queue_id


def _ports(frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ports of born and store host, as unsigned numbers: negative ones count as too large."""
    ports = []
    for name in ("store_timestamp", "reconsume_times"):  # the fields after the hosts
        ends = np.array([commit_log.field_offset(name, shape) for shape in range(4)], np.int64)
        at = frames.positions + ends[frames.host_shape] - 4
        sliding = np.ndarray((max(0, len(frames.view) - 3),), "V4", frames.view, strides=(1,))
        ports.append(sliding[at].view(">u4").astype(np.int64))
    return ports[0], ports[1]


def _begins_compressed(head: bytes, flags: int) -> bool:
    kind = (flags & commit_log.COMPRESSION_MASK) >> 8
    if kind in _MAGICS:
        return head == _MAGICS[kind]
    if kind not in (0, 3) or len(head) < 2:
        return False
    return head[0] & 0xF == 8 and (head[0] << 8 | head[1]) % 31 == 0


class Jump(Struct, frozen=True):
    """Two records of one queue, successive in the log, whose queue offsets are not consecutive."""

    topic: str  # and queue_id: which queue
    queue_id: int
    expected: int  # queue offset after the first of them
    actual: int  # queue offset of the second
    before: int  # and after: physical offsets of the two
    after: int


class QueueSpan(Struct):
    """The queues that occur in a section of the log; item i of each array describes queue i."""

    queues: list[tuple[str, int]] = field(default_factory=list)  # topic and queue id
    # first, first_at: queue offset and physical offset of the first record.
    first: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    first_at: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    # following, last_at: queue offset after the last record, physical offset of that record.
    following: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    last_at: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    messages: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # number of messages
    jumps: list[Jump] = field(default_factory=list)  # inside the section


class Continuity:
    """Follows all queues through one segment; `numbers` are topic number and queue id in one word, as in `span`."""

    def __init__(self, topics: "list[str]") -> None:
        """Starts before the first record; the names of `topics` are by topic number, and may grow."""
        self._topics = topics
        self.numbers = WordTable()
        self.span = QueueSpan()

    def codes(self, units: QueueUnits) -> np.ndarray:
        """Returns a dense number per unit for its queue, int32; `span.queues` names them."""
        codes = self.numbers.numbers_of(queue_numbers(units.topic, units.queue_id).view(np.uint64))
        span, known = self.span, len(self.span.queues)
        fresh = self.numbers.values[known:]
        if fresh:
            span.queues.extend(queue_of(number, self._topics) for number in fresh)
            for name in ("first", "first_at", "following", "last_at", "messages"):
                old = getattr(span, name)
                fill = 0 if name == "messages" else -1
                setattr(span, name, np.concatenate([old, np.full(len(fresh), fill, np.int64)]))
        return codes

    def follow(self, codes: np.ndarray, units: QueueUnits) -> None:
        """Processes the units of one window, in log order."""
        if not len(units):
            return
        span = self.span
        after = units.queue_offset + units.batch_size
        single = bool((units.batch_size == 1).all())
        count = np.bincount(codes, None if single else units.batch_size, len(span.queues)).astype(np.int64)
        fresh = (span.messages == 0) & (count > 0)
        if fresh.any():
            first = fresh[codes]
            reverse = np.flatnonzero(first)[::-1]
            span.first[codes[reverse]] = units.queue_offset[reverse]
            span.first_at[codes[reverse]] = units.physical_offset[reverse]
        before = np.where(fresh, span.first, span.following)
        before_at = span.last_at.copy()
        span.following[codes] = after
        span.last_at[codes] = units.physical_offset
        span.messages += count
        total = np.bincount(codes, units.queue_offset - before[codes], minlength=len(count))
        breaks = (span.following - before != count) | (total != count * (count - 1) / 2)
        if ((count > 0) & breaks).any():
            self._find_jumps(codes, units, before, before_at, fresh)

    def _find_jumps(
        self, codes: np.ndarray, units: QueueUnits, before: np.ndarray, before_at: np.ndarray, fresh: np.ndarray
    ) -> None:
        order = stable_order(codes)
        code, offset, at = codes[order], units.queue_offset[order], units.physical_offset[order]
        expected = np.empty(len(order), np.int64)
        expected[1:] = offset[:-1] + units.batch_size[order][:-1]
        previous = np.empty(len(order), np.int64)
        previous[1:] = at[:-1]
        opens = np.ones(len(order), bool)
        opens[1:] = code[1:] != code[:-1]
        expected[opens] = before[code[opens]]
        previous[opens] = np.where(fresh[code[opens]], at[opens], before_at[code[opens]])
        for i in np.flatnonzero(expected != offset).tolist()[: MAX_JUMPS - len(self.span.jumps)]:
            topic, queue_id = self.span.queues[int(code[i])]
            jump = Jump(topic, queue_id, int(expected[i]), int(offset[i]), int(previous[i]), int(at[i]))
            self.span.jumps.append(jump)


def join(spans: "list[QueueSpan]") -> QueueSpan:
    """Returns the span of consecutive sections, including the jumps between them."""
    joined: dict[tuple[str, int], list[int]] = {}
    jumps: list[Jump] = []
    for span in spans:
        for i, queue in enumerate(span.queues):
            if not span.messages[i]:
                continue
            first, first_at, following, last_at = (
                int(column[i]) for column in (span.first, span.first_at, span.following, span.last_at)
            )
            known = joined.get(queue)
            if known is None:
                joined[queue] = [first, first_at, following, last_at, int(span.messages[i])]
                continue
            if known[2] != first:
                jumps.append(Jump(*queue, known[2], first, known[3], first_at))
            known[2:] = [following, last_at, known[4] + int(span.messages[i])]
        jumps.extend(span.jumps)
    columns = np.array(list(joined.values()), np.int64).reshape(-1, 5)
    jumps.sort(key=lambda jump: (jump.after, jump.topic, jump.queue_id))
    return QueueSpan(list(joined), columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3], columns[:, 4], jumps)
