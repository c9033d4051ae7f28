"""Walks one segment from start to end, window by window: frames, damage and tail.

Reads through a callable, so it opens no file, and keeps one window in memory, whatever the segment's size. The
result does not depend on where windows end. `FieldPass` is the compiled pass for whoever needs only fixed fields and
topics. `intact_run` ends at the first invalid byte, for code that must not read further than the broker would.
"""

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from mqtool import native
from mqtool.formats import commit_log
from mqtool.formats.commit_log import LAST_MILLIS
from mqtool.records import segment_bytes
from mqtool.records.damage import Damage, DamageKind, Tail
from mqtool.records.frame_scan import FrameScan, Stop
from mqtool.records.frames import INTS, LONGS, Frames, frames_at
from mqtool.records.number_sets import TopicTable
from mqtool.records.record_search import RecordStartIndex, describe, extent, is_older, next_record
from mqtool.records.segment_bytes import Read, ReadInto, SegmentBytes, page_aligned

_FRAME = commit_log.FRAME.size

FIRST_WINDOW = 1 << 18
"""Bytes read for frames at first where most records are skimmed; twice as many each time that few were."""


ROWS = INTS + LONGS
"""Fields that the pass reads."""

_WINDOW = 1 << 18
"""Bytes read at a time; they stay in the processor's cache."""

FIRST_STEP, _STEP = 8 << 20, 64 << 20
"""Bytes of one result: at first, so that who wants few rows waits for few, and at most; it doubles."""

_USUAL = 256
"""Bytes for which a result has room for one record; smaller records fill it before its bytes are read."""

MAX_TOPICS = 4096
"""A log with more topics is left to array operations: each new one ends a call of the pass."""


class Skimmed(NamedTuple):
    """Valid records that a walk need not read itself."""

    end: int  # position after them
    newest: int  # store timestamp of the last, 0 if there was none
    # The records, to be yielded and followed by a further call; None if they are not to be yielded.
    frames: Frames | None = None


Skim = Callable[[int], Skimmed]
"""`skim(position)`: reads valid records from there on."""


class SegmentSpan(Struct, frozen=True):
    """The range to walk."""

    base: int  # physical offset of the segment's first byte
    size: int  # position at which the walk ends: bytes on disk, or the end of a part of the segment
    start: int = 0  # position of a record's first byte; from any other position the walk finds the next record
    data_end: int | None = None  # position after which the file contains only zeros (a hole), None if unknown
    is_last: bool = False  # nothing of the log follows, so an unfinished end is a tail, not damage
    newest: int = 0  # store timestamp of the last record before `start`, to recognise stale frames; 0 if unknown
    entries: bool = False  # each record is the body of a DLedger entry, see `records.entries`
    full_size: int | None = None  # size of the segment in bytes, up to which a BLANK extends; None for `size`


class SegmentWalk:
    """Iterator over one segment; `records.entries.walk_kind` has the right one for a span.

    Yields:
        Valid `Frames` in order, and `Damage` between them.

    After the last item, `tail` states what follows the last record (only for the last segment), and `end` is the
    physical offset after it. After a BLANK `end` is the segment's end, and `last_record_end` is before the BLANK.
    """

    _head = _FRAME
    """Bytes of a frame that are read to follow the chain."""
    _before = 0
    """Bytes before each record."""

    def __init__(
        self,
        read: Read,
        span: SegmentSpan,
        *,
        check_crc: bool = True,
        start_index: RecordStartIndex | None = None,
        read_into: ReadInto | None = None,
        with_crc: bool = False,
        skim: Skim | None = None,
    ) -> None:
        """Takes the range to walk.

        Args:
            read, span: read the segment in this range.
            check_crc: whether a wrong body CRC makes a record damage.
            start_index: another source of record starts.
            read_into: reads every window into the same memory, which saves allocations; frames are then valid only
                until the next item is taken.
            with_crc: the caller will ask for CRCs although they make no damage.
            skim: takes records that need not become frames, wherever a chain begins or continues.
        """
        self._segment = SegmentBytes(read, span.base, span.size, span.full_size)
        self._span = span
        self._check_crc = check_crc
        self._with_crc = with_crc or check_crc
        self._start_index = start_index
        self._read_into = read_into
        self._skim = None if span.entries else skim
        self._window = segment_bytes.WINDOW if self._skim is None else FIRST_WINDOW // 2
        self._memory = memoryview(bytearray())
        self._newest = span.newest
        self._view = memoryview(b"")
        self._view_at = 0
        self._reread_at = -1
        self._data_end = 0
        self.end = self.last_record_end = span.base + span.start
        self.ended_by_blank = False
        self.tail: Tail | None = None

    def __iter__(self) -> Iterator[Frames | Damage]:
        """Walks from the span's start."""
        span, segment = self._span, self._segment
        at = self._first()
        while (at := (yield from self._skimmed(at))) is not None and self._load(at):
            at = yield from self._chain(at)
        if self.ended_by_blank:
            return
        if segment.size < span.size:
            yield from self._shrunk_file()
        elif at is not None and span.is_last:
            self.tail = Tail(self.end, "clean", 0, "the segment is full")

    def _skimmed(self, at: int | None) -> Generator[Frames, None, int | None]:
        """Lets the records at a position be skimmed; returns the position after them."""
        if at is None or self._skim is None:
            return at
        start = at
        while True:
            at, newest, frames = self._skim(at)
            if newest:
                self.end = self.last_record_end = self._span.base + at
                self._newest = newest
            if frames is None:
                break
            yield frames
        is_rare = at - start >= segment_bytes.WINDOW
        self._window = FIRST_WINDOW if is_rare else min(2 * self._window, segment_bytes.WINDOW)
        return at

    def _first(self) -> int | None:
        """Returns the position at which the walk begins."""
        return self._span.start

    def _load(self, at: int) -> bool:
        """Loads a frame's head at a position into the view; returns False if the file ends before."""
        within = at - self._view_at
        if within < 0 or within + self._head > len(self._view):
            self._read(at, self._window)
        return at + _FRAME <= self._segment.size

    def _frames(self, at: int) -> tuple[FrameScan, Frames]:
        """Follows the chain of frames from a position in the view."""
        return frames_at(self._view, at, self._span.base + self._view_at, with_crc=self._with_crc)

    def _is_valid(self, frames: Frames) -> np.ndarray:
        return frames.valid

    def _is_boundary(self, position: int) -> bool:
        """Whether the segment ends or continues validly at a position."""
        return self._segment.is_boundary(position)

    def _read(self, at: int, count: int, minimum: int = segment_bytes.NEAR) -> None:
        """Loads a view that begins at a position; of known zeros it contains no more than `minimum` bytes."""
        if self._span.data_end is not None:
            count = min(count, max(self._span.data_end - at, minimum))
        count = max(0, min(count, self._segment.size - at))
        if self._read_into is not None and count <= segment_bytes.WINDOW:
            if len(self._memory) < count:
                self._memory = segment_bytes.page_aligned(count).data
            view = self._memory[: self._read_into(at, self._memory[:count])]
        else:
            view = memoryview(self._segment.read(at, count))
        if len(view) < count:  # the file has been cut since it was opened
            self._segment.size = at + len(view)
        self._view, self._view_at = view, at

    def _chain(self, at: int) -> Generator[Frames | Damage, None, int | None]:
        """Yields the content of one chain of frames in the view; returns where to continue, None at the end."""
        chain, frames = self._frames(at - self._view_at)
        valid = self._is_valid(frames)
        count = len(frames) if valid.all() else int(np.argmin(valid))
        end = self._view_at + (chain.end if count == len(frames) else int(chain.positions[count]) - self._before)
        position = yield from self._check_bodies(
            frames.select(slice(0, count)) if count < len(frames) else frames, chain.stop
        )
        if position is not None:
            return position
        if count == len(frames) and chain.stop is Stop.BLANK and self._is_boundary(end):
            self.ended_by_blank, self.end = True, self._span.base + self._span.size
            return None
        if count == len(frames) and (chain.stop is Stop.END or (chain.stop is Stop.MORE and self._widen(end))):
            return end
        return (yield from self._recover(end))

    def _widen(self, at: int) -> bool:
        """Enlarges the view to contain the record at a position; returns False if the file has only part of it."""
        total, _ = self._segment.frame(at)
        if total > self._segment.size - at or not (total <= segment_bytes.WINDOW or self._segment.adds_up(at)):
            return False  # a length that nothing else supports does not decide how much is read
        self._read(at, max(total, self._window), total)
        return True

    def _check_bodies(self, frames: Frames, stop: Stop) -> Generator[Frames | Damage, None, int | None]:
        """Yields valid frames with a right CRC, and damage for the others; returns where to search again, or None."""
        if not len(frames):
            return None
        good = _crc_holds(frames) if self._check_crc else np.ones(len(frames), bool)
        if good.all():
            self._accept(frames)
            yield frames
            return None
        unfinished = self._unfinished(frames, good, stop)
        if unfinished is not None:
            frames, good = frames.select(slice(0, unfinished)), good[:unfinished]
        edges = np.flatnonzero(np.diff(good)) + 1
        for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(good)], strict=True):
            if low == high:
                continue
            part = frames.select(slice(low, high))
            if good[low]:
                self._accept(part)
                yield part
            else:
                yield from _bad_bodies(part)
                self._accept(part)
        return None if unfinished is None else self._reread_at

    def _unfinished(self, frames: Frames, good: np.ndarray, stop: Stop) -> int | None:
        """Returns the index of the last frame if a broker may be writing it; it is then read once more."""
        last = int(frames.positions[-1]) - self._before + self._view_at
        if not self._span.is_last or good[-1] or stop is Stop.MORE or self._reread_at >= last:
            return None
        self._reread(last)
        return len(frames) - 1

    def _reread(self, at: int) -> None:
        self._reread_at = at
        self._view = memoryview(b"")
        self._segment.forget()

    def _accept(self, frames: Frames) -> None:
        self.end = self.last_record_end = frames.base + int(frames.positions[-1] + frames.sizes[-1])
        self._newest = int(frames.select(slice(-1, None)).column("store_timestamp")[0])

    def _shrunk_file(self) -> Iterator[Damage]:
        span, start = self._span, max(self.end, self._span.base + self._segment.size)
        detail = f"the file was cut from {span.size} to {self._segment.size} bytes while it was read"
        if span.is_last:
            self.tail = Tail(self.end, "torn", 0, detail)
        else:
            yield Damage(start, span.base + span.size, DamageKind.MISSING, detail)

    def _recover(self, at: int) -> Generator[Damage, None, int | None]:
        """Finds the next record after `at`, yields the damage before it, and returns its position or None."""
        span, segment = self._span, self._segment
        if self._data_end <= at:
            self._data_end = segment.data_end(span.size if span.data_end is None else span.data_end)
        following = self._next(at) if self._data_end > at else None
        kind, detail = self._describe(at, is_followed=following is not None)
        if following is not None and not (span.is_last and self._is_stale(following)):
            if span.is_last and self._has_arrived(at):
                return at
            yield Damage(span.base + at, span.base + following, kind, detail)
            self.end = span.base + following
            return following
        if span.is_last:
            self.tail = self._tail_at(at, max(0, self._data_end - at), is_stale=following is not None)
        elif self._data_end > at or kind is not DamageKind.ZEROS or segment.size - at >= commit_log.MIN_RECORD_SIZE:
            yield Damage(span.base + at, span.base + segment.size, kind, detail)
        return None

    def _describe(self, at: int, *, is_followed: bool) -> tuple[DamageKind, str]:
        """Returns kind and description of bytes at which no valid frame starts."""
        return describe(self._segment, at, is_followed=is_followed)

    def _next(self, at: int) -> int | None:
        """Returns the position after `at` at which the chain continues."""
        segment, base = self._segment, self._span.base
        known_end = extent(segment, at, self._data_end)
        if known_end is not None and segment.is_boundary(known_end):
            return known_end if known_end < segment.size else None
        start_index = self._start_index
        is_proved = at == 0 or self.end > base + self._span.start
        if start_index is not None and is_proved and start_index(base + at) is False:
            start_index = None  # what denies a place to which a chain of records has led does not help here
        start = at + 1 if known_end is None else known_end
        return next_record(segment, start, start_index, end=self._data_end, newest=self._newest)

    def _has_arrived(self, at: int) -> bool:
        """Whether a broker has written the record at a position since it was read; then nothing is damaged."""
        self._segment.forget()
        if self._reread_at >= at or self._segment.record(at + self._before) is None:
            return False
        self._reread(at)
        return True

    def _is_stale(self, position: int) -> bool:
        """Whether a frame after the end is older than the last record, so that it dates from before a truncation."""
        record = position + self._before
        if not self._newest or (self._start_index is not None and self._start_index(self._span.base + record)):
            return False
        _, magic = self._segment.frame(record)
        return magic == commit_log.MAGIC_BLANK or is_older(self._segment, record, self._newest)

    def _tail_at(self, at: int, length: int, *, is_stale: bool) -> Tail:
        if not length:
            return Tail(self.end, "clean", 0, "only zeros follow")
        total, magic = self._segment.frame(at)
        if magic in commit_log.RECORD_MAGICS:
            if self._segment.adds_up(at) and not self._segment.states_its_offset(at):
                return Tail(self.end, "stale", length, "a record that states another physical offset")
            return Tail(self.end, "torn", length, f"a record of {total} bytes starts here and is incomplete")
        if is_stale:
            return Tail(self.end, "stale", length, "old records left by a truncation")
        kind, _ = describe(self._segment, at, is_followed=False)
        return Tail(self.end, "garbage", length, f"{kind}: bytes that are not a record")


def _crc_holds(frames: Frames) -> np.ndarray:
    """Treats a stored CRC of 0 as unknown, because some releases wrote 0 (broker bug fixed in 5.3.2)."""
    return frames.crc_matches | (frames.column("body_crc") == 0)


def _bad_bodies(frames: Frames) -> Iterator[Damage]:
    """Yields the damage of frames that are valid except for their bodies."""
    starts = (frames.positions + frames.base).tolist()
    stored, computed = frames.column("body_crc").tolist(), frames.computed_crc.tolist()
    for start, size, expected, actual in zip(starts, frames.sizes.tolist(), stored, computed, strict=True):
        detail = f"body CRC stored {expected:08x}, computed {actual:08x}"
        yield Damage(start, start + size, DamageKind.BAD_CRC, detail)


def intact_run(read: Read, base: int, start: int, end: int) -> Iterator[Frames]:
    """Yields the consecutive valid records (`Frames.valid`) from a position up to the first invalid byte, by windows.

    It does not search after damage and reports no tail. No record extends past `end`.
    """
    at, count = start, segment_bytes.WINDOW
    while at + commit_log.FRAME.size <= end:
        view = memoryview(read(at, min(count, end - at)))
        chain, frames = frames_at(view, 0, base + at)
        if not len(frames):
            if chain.stop is not Stop.MORE:
                return
            total = commit_log.frame_size(view, 0, end - at)
            if total <= len(view):
                return
            count = total  # a record longer than a window is read alone
            continue
        valid = frames.valid
        run = len(frames) if valid.all() else int(np.argmin(valid))
        if run:
            yield frames.select(slice(0, run))
        if run < len(frames):
            return
        at, count = at + chain.end, segment_bytes.WINDOW


class LogFile(Protocol):
    """What the pass needs of an open file."""

    @property
    def descriptor(self) -> int | None:
        """The system's descriptor; None for a file in object storage."""

    def data_end(self) -> int:
        """Returns a position after which there are only zeros."""


def field_pass(
    base: int, end: int, file: Callable[[], LogFile], count: Callable[[int], None], *, check_crc: bool = True
) -> Skim | None:
    """Returns a `FieldPass` over one segment; None where its compiled form is not in use."""
    return FieldPass(base, end, file, count, check_crc=check_crc).skim if native.in_use() else None


class FieldPass:
    """Reads fields of plain records of one segment; the walk that calls it reads all others.

    Its frames are without bytes: only `column` of a field in `ROWS`, `coded_topics`, `positions` and `sizes` have a
    meaning, until the next ones are read into the same memory.
    """

    def __init__(
        self, base: int, end: int, file: Callable[[], LogFile], count: Callable[[int], None], *, check_crc: bool
    ) -> None:
        """Reads nothing yet: `file` returns the segment, open, and `count` takes the number of bytes that were read.

        With `check_crc` a record with a wrong body CRC is left to the walk.
        """
        self._base, self._end, self._check_crc = base, end, check_crc
        self._file, self._count = file, count
        self._window = page_aligned(_WINDOW)
        self._held = np.zeros(2, np.int64)
        self._topics = TopicTable()
        self._step = FIRST_STEP
        self._data_end = 0
        rows = _STEP // _USUAL
        self._rows = (
            np.empty(rows, np.int64),
            np.empty((len(INTS), rows), np.int32),
            np.empty((len(LONGS), rows), np.int64),
            np.empty(rows, np.int32),
        )

    def skim(self, position: int) -> Skimmed:
        """Reads records from a position on; implements `records.walk.Skim`."""
        file = self._file()
        descriptor = file.descriptor
        if descriptor is None:
            return Skimmed(position, 0)
        if position >= self._data_end:  # some file systems look at every page to tell
            self._data_end = file.data_end()
        end = min(self._end, self._data_end)
        stop, at, taken = position + self._step, position, 0
        self._step = min(2 * self._step, _STEP)
        while len(self._topics.names) < MAX_TOPICS:
            taken, at, bytes_read, topic_at, topic_length = native.logs.field_records(
                descriptor,
                self._base,
                at,
                end,
                stop,
                self._window,
                self._held,
                self._topics.slots,
                LAST_MILLIS,
                self._check_crc,
                taken,
                *self._rows,
            )
            self._count(bytes_read)
            if topic_at < 0:
                break
            self._topics.learn(self._window[topic_at : topic_at + topic_length].tobytes())
        if not taken:
            return Skimmed(at, 0)
        positions, ints, longs, codes = self._rows
        columns = dict(zip(ROWS, (*ints[:, :taken], *longs[:, :taken]), strict=True))
        frames = Frames(memoryview(b""), self._base, positions[:taken], columns["total_size"], columns)
        frames.coded_topics = codes[:taken], list(self._topics.names)
        return Skimmed(at, int(columns["store_timestamp"][-1]), frames)
