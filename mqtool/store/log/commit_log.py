"""The CommitLog of a store, open for reading: segments, bounds, records by physical offset, walks."""

import bisect
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cached_property, partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import CorruptionError, FormatError, StoreClosedError, StoreError, UnreadableError
from mqtool.formats import commit_log
from mqtool.formats.commit_log import Record
from mqtool.records.damage import Damage, DamageKind, Tail
from mqtool.records.frames import Frames
from mqtool.records.segment_bytes import SegmentBytes
from mqtool.records.walk import SegmentWalk, Skim
from mqtool.store.files import MappedFile, ReadFile
from mqtool.store.log.log_walk import QueueStartIndex, walk_file
from mqtool.store.log.readable_parts import UnreadableParts

OPEN_FILES = 32
_HEAD = 1 << 12
_NEAR = 64 << 20

Segment = MappedFile
"""path, base (physical offset of the first byte), size in bytes on disk."""


PRINT_BYTES = 4096
"""Bytes that a fingerprint covers at most."""


class CommitLog:
    """Read access to all segments as one address space.

    Attributes:
        segments: by physical offset, over all paths.
        min_offset: physical offset of the first existing byte; 0 if there is no segment.
        bytes_read: bytes of segments read so far.
    """

    # If set before anything is read, unreadable parts are noted here and read as zeros; otherwise they are errors.
    unreadable: UnreadableParts | None = None
    bytes_read = 0

    def __init__(self, segments: tuple[Segment, ...], hint: "Callable[[], list[int]] | None" = None) -> None:
        """Takes the segments, by base.

        `hint` returns physical offsets at which records start or end, as a ConsumeQueue knows them, to find the end
        faster.
        """
        self.segments = _without_overlap(segments)
        self.min_offset = segments[0].base if segments else 0
        self.start_index: QueueStartIndex | None = None
        self.is_named: Callable[[Record], bool] | None = None
        self._hint = hint
        self._bases = [segment.base for segment in self.segments]
        self._open: OrderedDict[int, ReadFile] = OrderedDict()
        self._is_closed = False

    def close(self) -> None:
        """Closes all files."""
        self._is_closed = True
        while self._open:
            self._open.popitem()[1].close()

    def _file(self, index: int) -> ReadFile:
        if self._is_closed:
            raise StoreClosedError("used after close", self.segments[index].path)
        file = self._open.get(index)
        if file is None:
            segment = self.segments[index]
            unreadable = self.unreadable
            file = ReadFile(segment.path) if unreadable is None else unreadable.open(segment.path, segment.size)
            self._open[index] = file
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(index)
        return file

    @property
    def first_record(self) -> int:
        """Physical offset of the first record, if there is one at the start of the log."""
        return self.segments[0].first_record if self.segments else self.min_offset

    def segment_at(self, physical_offset: int) -> int | None:
        """Returns the number of the segment that contains a byte, None if none does."""
        index = bisect.bisect_right(self._bases, physical_offset) - 1
        return index if index >= 0 and physical_offset < self.segments[index].end else None

    def read(self, physical_offset: int, count: int) -> bytes:
        """Returns bytes of one segment; fewer at its end, none without a segment."""
        index = self.segment_at(physical_offset)
        if index is None:
            return b""
        segment = self.segments[index]
        position = physical_offset - segment.base
        return self._read_in(index, position, min(count, segment.size - position))

    def after_blank(self, physical_offset: int) -> int:
        """Returns the end of the segment if a BLANK at a physical offset completes it, otherwise the offset."""
        number = self.segment_at(physical_offset)
        if number is None:
            return physical_offset
        head = self.read(physical_offset, commit_log.BLANK_SIZE)
        if len(head) < commit_log.BLANK_SIZE:
            return physical_offset
        size, magic = commit_log.FRAME.unpack(head)
        end = self.segments[number].end
        return end if (size, magic) == (end - physical_offset, commit_log.MAGIC_BLANK) else physical_offset

    def record(self, physical_offset: int, size: int | None = None) -> Record:
        """Returns the record at a physical offset; framing and the stated offset are checked, the CRC is not.

        `size` is its total_size, if known. Raises CorruptionError if there is no record, UnreadableError.
        """
        index = self.segment_at(physical_offset)
        if self.segments and not self.segments[0].base <= physical_offset < self.segments[-1].end:
            words = f"no record: the files of the log hold {self.segments[0].base} to {self.segments[-1].end}"
            raise CorruptionError(words, "commitlog", physical_offset)
        path = self.segments[index].path if index is not None else "commitlog"
        try:
            record = commit_log.parse_record(self._record_bytes(physical_offset, size))
        except FormatError as error:
            if damage := self.unreadable_at(physical_offset):
                raise UnreadableError(damage.detail, path) from error
            raise CorruptionError(f"no record: {error}", path, physical_offset) from error
        if record.physical_offset != physical_offset:
            reason = f"the record here states physical offset {record.physical_offset}"
            raise CorruptionError(reason, path, physical_offset)
        if damage := self.unreadable_at(physical_offset):
            raise UnreadableError(damage.detail, path)
        return record

    def _record_bytes(self, physical_offset: int, size: int | None) -> bytes:
        """Reads a record; does not trust a length that nothing else confirms."""
        data = self.read(physical_offset, _HEAD if size is None else min(size, _HEAD))
        index = self.segment_at(physical_offset)
        if index is None or len(data) < commit_log.FRAME.size:
            return data
        segment = self.segments[index]
        total = commit_log.frame_size(data, 0, segment.end - physical_offset)
        if total <= len(data) or (size is not None and size < total):
            return data
        inside = SegmentBytes(partial(self._read_in, index), segment.base, segment.size)
        return self.read(physical_offset, total) if inside.adds_up(physical_offset - segment.base) else data

    def damage_at(self, physical_offset: int) -> Damage | None:
        """Returns the damaged range that contains a physical offset, None if it is in none."""
        items = self.walk(physical_offset, physical_offset + 1, crc=False)
        return next((item for item in items if isinstance(item, Damage)), None)

    def unreadable_at(self, physical_offset: int) -> Damage | None:
        """Returns the unreadable part of the record at a physical offset, None if it was read.

        The record has the size that it states, if that is a possible one.
        """
        index = self.segment_at(physical_offset)
        if index is None or self.unreadable_between(physical_offset, self.segments[index].end) is None:
            return None
        head, size = self.read(physical_offset, commit_log.FRAME.size), commit_log.MIN_RECORD_SIZE
        if len(head) == commit_log.FRAME.size and commit_log.magic_code(head) in commit_log.RECORD_MAGICS:
            size = max(size, commit_log.frame_size(head, 0, self.segments[index].end - physical_offset))
        return self.unreadable_between(physical_offset, physical_offset + size)

    def unreadable_between(self, start: int, end: int) -> Damage | None:
        """Returns what was found unreadable between two physical offsets of one segment so far; None if nothing was."""
        index = self.segment_at(start)
        if index is None or self.unreadable is None:
            return None
        segment = self.segments[index]
        return self.unreadable.damage(segment.path, segment.base, start, end)

    def record_at(self, physical_offset: int) -> Record:
        """Returns the record at a physical offset that comes from an untrusted source; raises CorruptionError.

        In addition to the checks of `record`, it must not be inside another record's body.
        """
        record = self.record(physical_offset)
        index = self.segment_at(physical_offset)
        assert index is not None
        if self.is_named is None or not self.is_named(record):
            around = self._record_around(index, physical_offset)
            if around is not None:
                reason = f"no record starts here: this is inside the record at physical offset {around}"
                raise CorruptionError(reason, self.segments[index].path, physical_offset)
        return record

    def _record_around(self, index: int, physical_offset: int) -> int | None:
        """Returns the start of the record around an offset, None if the offset is a start itself or in damage."""
        for item in self.walk_segment(index, start=self._floor(index, physical_offset), crc=False):
            if isinstance(item, Damage):
                if item.end > physical_offset:
                    return None
                continue
            at = int(np.searchsorted(item.positions, physical_offset - item.base, side="right")) - 1
            start = item.base + int(item.positions[at]) if at >= 0 else physical_offset
            if physical_offset < item.base + int(item.positions[-1] + item.sizes[-1]):
                return None if start == physical_offset else start
        return None

    def walk(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        crc: bool = True,
        refills: bool = False,
        fields: bool = False,
    ) -> Iterator[Frames | Damage]:
        """Walks the log.

        Args:
            start: physical offset of a record, or anything below it; None for the first.
            end: physical offset to stop before; None for the end of the log.
            crc: whether a wrong body CRC makes a record damage.
            refills: read every window into the same memory, which saves allocations; frames are then valid only
                until the next item is taken.
            fields: let plain records be without their bytes, see `records.walk.FieldPass`.

        Yields:
            Valid frames of each window, in order, and damage between them. An unfinished record at the end of the
            log is neither: see `tail`.
        """
        for index, segment in enumerate(self.segments):
            if (start is not None and segment.end <= start) or (end is not None and segment.base >= end):
                continue
            gap = gap_between(self.segments[index - 1], segment) if index else None
            clipped = None if gap is None else _clip(gap, start, end)
            if clipped is not None:
                yield clipped
            skim = self._field_pass(index, end, check_crc=crc) if fields else None
            walk = self.walk_segment(index, start=self._start_in(index, start), crc=crc, refills=refills, skim=skim)
            for item in walk:
                clipped = _clip(item, start, end)
                if isinstance(clipped, Damage):
                    damage = clipped.at(segment.path, segment.base)
                    yield damage if self.unreadable is None else self.unreadable.reason_of(damage, segment)
                elif clipped is not None:
                    unreadable = self.unreadable
                    yield from (clipped,) if unreadable is None else unreadable.split(clipped, segment)
                if end is not None and walk.end >= end:
                    return
            if index == self.last_used:
                unread = self.unreadable and self.unreadable.damage(segment.path, segment.base, walk.end, segment.end)
                behind = _clip(unread, start, end) if unread else None
                if behind is not None:
                    yield behind
                return

    def _start_in(self, index: int, start: int | None) -> int:
        """Returns a position at or before `start` at which a walk may begin: `start` itself if a record is there."""
        segment = self.segments[index]
        if start is None or start <= segment.base:
            return 0
        try:
            if self.is_named is not None and self.is_named(self.record(start)):
                return start - segment.base
        except StoreError:
            pass  # a walk from before it will tell what is there
        return self._floor(index, start)

    def _floor(self, index: int, physical_offset: int) -> int:
        """Returns the position of a record at or before an offset that the queues name and the log confirms, or 0."""
        segment = self.segments[index]
        near = [hint for hint in self._hints if segment.base <= hint <= physical_offset]
        if not near or physical_offset - max(near) > _NEAR:
            floor = self.start_index.floor(physical_offset) if self.start_index is not None else None
            near = [floor] if floor is not None and floor >= segment.base else []
        try:
            return self.record(max(near)).physical_offset - segment.base if near else 0
        except StoreError:
            return 0

    @cached_property
    def _hints(self) -> list[int]:
        return self._hint() if self._hint else []

    def _field_pass(self, index: int, end: int | None, *, check_crc: bool) -> Skim | None:
        """Returns the compiled pass over the fields of plain records before a physical offset, if it can be used."""
        segment = self.segments[index]
        if segment.entries:
            return None
        from mqtool.records.walk import field_pass  # noqa: PLC0415 - few commands need it

        def count(bytes_read: int) -> None:
            self.bytes_read += bytes_read

        last = segment.size if end is None else min(segment.size, end - segment.base)
        return field_pass(segment.base, last, lambda: self._file(index), count, check_crc=check_crc)

    def walk_segment(
        self, index: int, *, start: int = 0, crc: bool = True, refills: bool = False, skim: Skim | None = None
    ) -> SegmentWalk:
        """Returns the walk over one segment, from a position in it; arguments as for `walk`."""
        is_last = index >= self.last_used
        return walk_file(
            _Reopened(self, index),
            self.segments[index],
            start=start,
            is_last=is_last,
            crc=crc,
            refills=refills,
            start_index=self.start_index,
            skim=skim,
        )

    def reader(self, index: int) -> Callable[[int, int], bytes]:
        """Returns the positional read of a segment."""
        return partial(self._read_in, index)

    def _read_in(self, index: int, position: int, count: int) -> bytes:
        data = self._file(index).read(position, count)
        self.bytes_read += len(data)
        return data

    @cached_property
    def last_used(self) -> int:
        """Number of the last segment with data; the broker allocates the next one in advance."""
        for index in range(len(self.segments) - 1, 0, -1):
            if self._file(index).has_data():
                return index
        return 0

    @cached_property
    def _end(self) -> tuple[int, Tail]:
        if not self.segments:
            return 0, Tail(0, "clean", 0, "there is no segment")
        index = self.last_used
        segment = self.segments[index]
        walk = self.walk_segment(index, start=self._proved_start(segment), crc=False)
        for _ in walk:
            pass
        follows = index + 1 < len(self.segments) and self.segments[index + 1].base == segment.end
        if walk.ended_by_blank and not follows:
            last = walk.last_record_end
            return last, Tail(last, "clean", 0, "a BLANK ends the last segment")
        return walk.end, walk.tail or Tail(walk.end, "clean", 0, "a BLANK ends the segment; the next one is empty")

    def accept_unreadable_end(self) -> str:
        """Uses the last file's end as the log's end if that is unreadable; returns the reason, "" if it is readable."""
        try:
            _ = self._end
        except StoreClosedError:
            raise
        except StoreError as error:
            end = self.segments[-1].end
            self._end = end, Tail(end, "unreadable", 0, str(error))
            self.last_used = len(self.segments) - 1
            return str(error)
        return ""

    def skip_unreadable(self) -> None:
        """From now on, yields unreadable parts as damage instead of raising; the log's end must be known."""
        self.unreadable = self.unreadable or UnreadableParts()
        while self._open:
            self._open.popitem()[1].close()

    def _proved_start(self, segment: Segment) -> int:
        """Returns the last hinted position in a segment with a valid record."""
        for offset in sorted((o for o in self._hints if segment.base < o < segment.end), reverse=True)[:16]:
            try:
                self.record(offset)
            except StoreError:
                continue
            return offset - segment.base
        return 0

    @property
    def bytes_in_use(self) -> int:
        """Bytes from the first segment to the end of the last one with records; a walk reads no more."""
        return self.segments[self.last_used].end - self.min_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """Physical offset after the last record, as the broker finds it by recovery."""
        return self._end[0]

    @property
    def tail(self) -> Tail:
        """What follows the last record: nothing, an unfinished record, stale frames."""
        return self._end[1]


def _without_overlap(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Returns the segments, each cut where the next begins; of two with one name the first counts."""
    kept: list[Segment] = []
    for segment in segments:
        if kept and kept[-1].base == segment.base:
            continue
        if kept and kept[-1].end > segment.base:
            kept[-1] = replace(kept[-1], size=segment.base - kept[-1].base)
        kept.append(segment)
    return tuple(kept)


class _Reopened:
    """One segment, read through the log because few files are kept open and one may be closed during a walk."""

    def __init__(self, log: CommitLog, index: int) -> None:
        self._log, self._index = log, index

    def read(self, position: int, count: int) -> bytes:
        return self._log._read_in(self._index, position, count)

    def read_into(self, position: int, target: memoryview) -> int:
        count = self._log._file(self._index).read_into(position, target)
        self._log.bytes_read += count
        return count

    def data_end(self) -> int:
        return self._log._file(self._index).data_end()


def gap_between(before: Segment, after: Segment) -> Damage | None:
    """Returns the gap between two segments as damage, None if they are adjacent."""
    if before.end >= after.base:
        return None
    detail = f"no file between {before.path.name} and {after.path.name}"
    return Damage(before.end, after.base, DamageKind.MISSING, detail, before.path, before.size)


def _clip(item: Frames | Damage, start: int | None, end: int | None) -> Frames | Damage | None:
    if isinstance(item, Damage):
        outside = (start is not None and item.end <= start) or (end is not None and item.start >= end)
        return None if outside else item
    offsets = item.positions + item.base
    if (start is None or offsets[0] >= start) and (end is None or offsets[-1] < end):
        return item
    keep = (offsets >= (start or 0)) & (offsets < (end if end is not None else offsets[-1] + 1))
    return item.select(keep) if keep.any() else None


class Fingerprint(Struct, frozen=True):
    """Identifies a log or file by bytes that do not change."""

    offset: int  # physical offset of the first byte in a log; 0 in a file
    count: int  # number of bytes
    digest: str  # BLAKE2b digest of the bytes, hexadecimal


def fingerprint_of(offset: int, data: bytes) -> Fingerprint:
    """Returns the fingerprint of bytes at an offset."""
    return Fingerprint(offset, len(data), hashlib.blake2b(data, digest_size=16).hexdigest())


def fingerprint_at_start(log: CommitLog) -> Fingerprint | None:
    """Returns the fingerprint of a log's first bytes, which stay as it grows; None if empty; raises StoreError."""
    count = min(PRINT_BYTES, log.max_offset - log.min_offset)
    return fingerprint_of(log.min_offset, log.read(log.min_offset, count)) if count else None


def fingerprint_before(log: CommitLog, end: int) -> Fingerprint | None:
    """Returns the fingerprint of a log's last bytes before a physical offset; None without any; raises StoreError."""
    segment = next((candidate for candidate in reversed(log.segments) if candidate.base < end), None)
    if segment is None:
        return None
    end = min(end, segment.end)
    first = max(segment.base, end - PRINT_BYTES)
    return fingerprint_of(first, log.read(first, end - first))


def matches(log: CommitLog, fingerprint: Fingerprint) -> bool:
    """Whether a log still has the bytes of a fingerprint; True if their segment has expired since."""
    if log.min_offset > fingerprint.offset:
        return True
    try:
        return fingerprint_of(fingerprint.offset, log.read(fingerprint.offset, fingerprint.count)) == fingerprint
    except StoreError:
        return False
