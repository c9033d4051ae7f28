"""Searches for records where no chain of records leads.

`frame_starts` finds magic codes, `records_anywhere` intact records at any offset, such as in a file under a wrong name;
neither proves that they belong to the log. `next_record` finds the next proven record after invalid bytes, in this
order. If the rest of the damaged record shows where it ends (`extent`), nothing inside it is searched, because a body
may contain complete frames. Otherwise it is the next position whose magic code, lengths, own physical offset and CRC
all agree, and that no record-start index denies (a ConsumeQueue that names other record starts).
"""

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.formats.commit_log import FRAME, MIN_RECORD_SIZE, RECORD_MAGICS, TRANSACTION_MASK, Record, SysFlag
from mqtool.formats.topics import TopicQueue
from mqtool.records import segment_bytes
from mqtool.records.damage import DamageKind
from mqtool.records.segment_bytes import SegmentBytes

_BLOCK = 1 << 20
_MAGIC_AT = commit_log.FRAME.size - 4
RECORD_CODES = tuple(code.to_bytes(4, "big", signed=True) for code in commit_log.RECORD_MAGICS)
"""The magic codes of records as stored."""
BLANK_CODE = commit_log.MAGIC_BLANK.to_bytes(4, "big", signed=True)


UNQUEUED = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
"""Kinds of records that have no unit."""

_OFFSET_AT = commit_log.field_offset("physical_offset")

_FLAG_AT = commit_log.field_offset("sys_flag")

_CODES = (*RECORD_CODES, BLANK_CODE)

_FIRST_STEP = 1 << 16

_LONGEST_ENCLOSED = 64 << 20
"""A chain of frames longer than this is in nobody's body: the broker takes bodies of 4 MiB (maxMessageSize)."""

_FREE_PROOFS = 64 << 20

_PROOFS_PER_BYTE = 16
"""Bytes whose CRC may be taken for each byte that is searched: a body can be made to hold a million headers."""

RecordStartIndex = Callable[[int], bool | None]
"""Says of a physical offset whether a record starts there: True, False, or None for "cannot tell"."""


class Source(Protocol):
    """An open file."""

    size: int

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes from a position; fewer at the end of the file."""

    def next_data(self, position: int) -> int:
        """Returns the first position at or after `position` that may hold a nonzero byte; the size if there is none."""


def frame_starts(data: bytes, codes: tuple[bytes, ...] = RECORD_CODES, magic_at: int = _MAGIC_AT) -> Iterator[int]:
    """Yields, ascending, the positions at which a frame would begin according to its magic code only.

    `magic_at` is the distance of the code from the start of the frame. One `bytes.find` for each code is faster than a
    regular expression for all.
    """
    return merge(*(_places(data, code, magic_at) for code in codes))


def _places(data: bytes, code: bytes, magic_at: int) -> Iterator[int]:
    at = data.find(code, magic_at)
    while at >= 0:
        yield at - magic_at
        at = data.find(code, at + 1)


def holds_record(data: bytes) -> bool:
    """Whether the bytes contain a complete record; its CRC is not checked."""
    for at in frame_starts(data):
        try:
            commit_log.parse_record(data, at)
        except FormatError:
            continue
        return True
    return False


def records_anywhere(file: Source) -> Iterator[tuple[int, Record]]:
    """Yields position and value of each record with consistent lengths and a matching body CRC, at any offset.

    The bodies of such records are not searched.
    """
    at = 0
    while (magic := next_magic(file, at)) is not None:
        position = magic - _MAGIC_AT
        record = _record(file, position) if position >= 0 else None
        if record is None:
            at = magic + 1
            continue
        yield position, record
        at = position + record.total_size


def next_magic(file: Source, at: int) -> int | None:
    """Returns the first position at or after `at` with a record's magic code; holes are not read."""
    while (at := file.next_data(at)) < file.size:
        start = next(frame_starts(file.read(at, _BLOCK + 3), magic_at=0), None)
        if start is not None:
            return at + start
        at += _BLOCK
    return None


def _record(file: Source, position: int) -> Record | None:
    size = commit_log.frame_size(file.read(position, commit_log.FRAME.size), 0, file.size - position)
    try:
        record = commit_log.parse_record(file.read(position, size)) if size else None
    except FormatError:
        return None
    return record if record is not None and record.body_crc in (0, commit_log.body_crc(record.body)) else None


def confirmed_record(raw: bytes, physical_offset: int, queue: TopicQueue, queue_offset: int) -> bytes | None:
    """Returns the record that the unit of its queue confirms, corrected; None if it is not the one that was written.

    Consumers get such a message although fields without a checksum are damaged: a pull reads as many bytes (`raw`) as
    the unit says and decodes them. No client checks the physical offset, and 4.9 not even the magic code
    (MessageDecoder.decode, 4.9.7 and 5.5.0). A record counts if its lengths add up, its body matches its CRC, and
    topic, queue and queue offset are those of the unit.
    """
    if len(raw) < MIN_RECORD_SIZE:
        return None
    magic, place = commit_log.magic_code(raw), (queue[0].encode(), queue[1], queue_offset)
    magics = (magic,) if magic in RECORD_MAGICS else RECORD_MAGICS
    return next(filter(None, (_corrected(raw, chosen, physical_offset, place) for chosen in magics)), None)


def _corrected(raw: bytes, magic: int, physical_offset: int, place: tuple[bytes, int, int]) -> bytes | None:
    data = bytearray(raw)
    data[: FRAME.size] = FRAME.pack(len(raw), magic)
    data[_OFFSET_AT : _OFFSET_AT + 8] = physical_offset.to_bytes(8, "big")
    flags = int.from_bytes(data[_FLAG_AT : _FLAG_AT + 4], "big")
    if flags & TRANSACTION_MASK in UNQUEUED:  # one bit away: ROLLBACK from COMMIT, PREPARED from none
        flags &= ~int(SysFlag.TRANSACTION_PREPARED)
        data[_FLAG_AT : _FLAG_AT + 4] = flags.to_bytes(4, "big")
    try:
        record = commit_log.parse_record(bytes(data))
    except FormatError:
        return None
    stated = record.topic, record.queue_id, record.queue_offset
    if stated != place or not record.body or record.body_crc != commit_log.body_crc(record.body):
        return None
    corrected = commit_log.build_record(replace(record, total_size=len(raw)))
    return corrected if corrected == properties.renew_crc32(corrected) else None


def extent(segment: SegmentBytes, position: int, data_end: int) -> int | None:
    """Returns where the damaged or unfinished record at a position ends, or None if its remains do not show that.

    A following record proves an end. The end may be the stated one, or the one implied by the inner lengths for some
    host shape and version; ends that a producer is less able to forge in a body are tried first. Without such proof the
    stated size is accepted if the inner lengths add up to it, or if magic code, own offset and body length agree with
    it; it may then extend past the segment. After `data_end` the segment contains only zeros.
    """
    total, _ = segment.frame(position)
    stated, *others = (set(segment.sizes_by_lengths(position, shape)) for shape in segment.host_shapes(position))
    implied = stated.union(*others)
    for sizes in ({total} & implied, {total} | stated, *others):
        for size in sorted(sizes):
            end = position + size
            room = segment.size - end >= commit_log.FRAME.size  # for what would prove it
            if size >= commit_log.MIN_RECORD_SIZE and room and segment.is_boundary(end):
                return end
    is_sum = total >= commit_log.MIN_RECORD_SIZE and total in implied
    return position + total if is_sum or segment.begins_record(position, data_end) else None


def next_record(
    segment: SegmentBytes,
    position: int,
    start_index: RecordStartIndex | None = None,
    *,
    end: int | None = None,
    newest: int = 0,
) -> int | None:
    """Returns the first position at or after `position` with a proven record or BLANK; None if none is before `end`.

    The known part of the damaged record ends at `position`. Frames inside the body of a damaged record are skipped: the
    record-start index denies them, or the bytes around them look like the rest of that record. A BLANK counts only if
    no record follows that is not older than `newest`, the store timestamp of the last valid record (0 if unknown): a
    true BLANK may be followed by records from before the segment was reused.
    """
    last = segment.size if end is None else end
    search = _Search(segment, position, start_index, last, newest)
    blank: int | None = None
    for at in _candidates(segment, position, last):
        _, magic = segment.frame(at)
        if magic == commit_log.MAGIC_BLANK:
            if blank is None and search.verdict(at) is not False:
                blank = at
        elif search.accepts(at):
            return at if blank is None or not is_older(segment, at, newest) else blank
    return blank


class _Search:
    def __init__(
        self, segment: SegmentBytes, start: int, start_index: RecordStartIndex | None, end: int, newest: int
    ) -> None:
        self._newest = newest
        self._segment = segment
        self._start = start
        self._end = end
        self._start_index = start_index
        self._enclosed_to = start
        self._spent = 0

    def verdict(self, position: int) -> bool | None:
        return self._start_index(self._segment.base + position) if self._start_index else None

    def accepts(self, position: int) -> bool:
        """Whether a record is proven at a position that looks like one."""
        if position < self._enclosed_to:
            return False
        verdict = self.verdict(position)
        if verdict is False or not self._is_proven(position, known=verdict is True):
            return False
        if verdict is None and self._is_enclosed(position):
            self._enclosed_to = self._segment.chain_end(position, _LONGEST_ENCLOSED)
            return False
        return True

    def _is_enclosed(self, position: int) -> bool:
        """Whether the chain of frames at a position is inside the body of the record that is damaged at the start.

        It is if the chain is followed by the rest of a record (end of a body, topic and properties) up to the next
        boundary or the end of the data. A damaged record after a real chain also ends like that, but has a header
        before its body; and the record before a real chain ends where the chain starts.
        """
        segment = self._segment
        end = segment.chain_end(position, _LONGEST_ENCLOSED)
        if end - position >= _LONGEST_ENCLOSED or end >= self._end:
            return False
        if segment.frame(end)[1] == commit_log.MAGIC_BLANK and segment.is_boundary(end):
            return self._continues_after(end)
        if segment.is_boundary(end) or extent(segment, end, self._end) is not None:
            return False
        near = min(self._end, end + _LONGEST_ENCLOSED)
        following = next(_candidates(segment, end, near), None) or segment.data_end(near)
        tail = trailer_start(segment, end, following) if following > end else None
        if tail is None:
            return False
        if tail - end < commit_log.BODY_POSITIONS[0]:
            return True
        header_wiped = segment.frame(end) == (0, 0)
        return not header_wiped and trailer_start(segment, self._start, position) is None

    def _continues_after(self, blank: int) -> bool:
        """Whether a BLANK is followed by records that are not older than those before it; then it is part of a body."""
        following = _candidates(self._segment, blank + commit_log.BLANK_SIZE, self._end)
        younger = (at for at in following if not is_older(self._segment, at, self._newest))
        return any(self._segment.record(at) is not None for at in younger)

    def _is_proven(self, position: int, *, known: bool) -> bool:
        total, _ = self._segment.frame(position)
        allowed = _FREE_PROOFS + _PROOFS_PER_BYTE * (position - self._start)
        if not known and self._spent + total > allowed:
            return False
        record = self._segment.record(position)
        if record is None:
            return False
        self._spent += total
        return bool(record.crc_matches[0]) or (known and int(record.column("body_crc")[0]) == 0)


def _candidates(segment: SegmentBytes, position: int, end: int) -> Iterator[int]:
    """Yields the positions in [position, end) with the magic code and own offset of a record or BLANK."""
    at, step = position, _FIRST_STEP
    while at < end:
        data = segment.read(at, min(step, end - at) + commit_log.FRAME.size - 1)
        if len(data) < commit_log.FRAME.size:
            return
        for start in frame_starts(data, _CODES):
            if at + start < end and segment.is_boundary(at + start):
                yield at + start
        at += len(data) - commit_log.FRAME.size + 1
        step = min(2 * step, segment_bytes.WINDOW)


def is_older(segment: SegmentBytes, position: int, newest: int) -> bool:
    """Whether the record at a position was stored before `newest`, so that it dates from before a truncation."""
    record = segment.record(position)
    return record is not None and int(record.column("store_timestamp")[0]) < newest


def trailer_start(segment: SegmentBytes, start: int, end: int) -> int | None:
    """Returns the start of `topic length, topic, properties length, properties` that ends exactly at `end`."""
    low = max(start, end - 0x8000 - 2 - 128)
    view = segment.read(low, end - low)
    data = np.frombuffer(view, np.uint8).astype(np.int64)
    stated = (data[:-1] << 8) | data[1:]
    for at in np.flatnonzero(stated == np.arange(len(stated) - 1, -1, -1)).tolist():
        for length in range(1, min(127, at - 1) + 1):
            if not 0x21 <= view[at - length] < 0x7F:
                break  # grows towards the front: no topic holds this byte
            if view[at - length - 1] == length:
                return int(low + at - length - 1)
    return None


def describe(segment: SegmentBytes, position: int, *, is_followed: bool) -> tuple[DamageKind, str]:
    """Returns kind and description of bytes at which no valid frame starts; `is_followed` if a record follows them."""
    total, magic = segment.frame(position)
    if total == magic == 0:
        return DamageKind.ZEROS, "zero bytes where a record should be"
    if magic == commit_log.MAGIC_BLANK:
        left = segment.full_size - position
        return DamageKind.BAD_BLANK, f"BLANK of {total} bytes, expected {left} up to the end of the segment"
    if magic not in commit_log.RECORD_MAGICS:
        return DamageKind.BAD_HEADER, f"expected magic daa320a7, found {magic & 0xFFFFFFFF:08x}"
    left = segment.size - position
    in_its_head = left < commit_log.BODY_POSITIONS[0]
    if total > left and not is_followed and (in_its_head or segment.begins_record(position, segment.size)):
        missing = total - left
        return DamageKind.MISSING, f"the file ends {missing} bytes before the end of the record of {total} bytes"
    if segment.states_its_offset(position):
        return DamageKind.BAD_LENGTHS, f"the inner lengths do not add up to total_size {total}"
    if segment.adds_up(position):
        return DamageKind.BAD_OFFSET, f"the record states physical offset {segment.stated_offset(position)}"
    return DamageKind.BAD_HEADER, f"neither total_size {total} nor the stated physical offset can be"
