"""A data file of a DLedger log: records preceded by entry headers, walked like a segment.

`Frames` contain the records as everywhere; only the place of the next one follows from the entry header. An entry is
valid if its header states its own place and agrees with the size of its record, and the record is valid.
"""

import struct
from collections.abc import Generator, Iterator

import numpy as np

from mqtool.formats import commit_log
from mqtool.formats.dledger import (
    BLANK_ENTRY,
    BLANK_ENTRY_SIZE,
    ENTRY,
    ENTRY_HEADER_SIZE,
    MAGIC_BLANK_ENTRY,
    MAGIC_ENTRY,
    EntryHeader,
)
from mqtool.records.damage import Damage, DamageKind, Tail
from mqtool.records.frame_scan import FrameScan, Stop
from mqtool.records.frames import Frames
from mqtool.records.record_search import frame_starts
from mqtool.records.segment_bytes import WINDOW
from mqtool.records.walk import SegmentSpan, SegmentWalk

_HEAD = ENTRY_HEADER_SIZE + commit_log.FRAME.size
_STEP = 1 << 16
_HEADS = struct.Struct(
    f"{BLANK_ENTRY.struct.format}{ENTRY_HEADER_SIZE - BLANK_ENTRY_SIZE}x{commit_log.FRAME.format.removeprefix('>')}"
)
"""Magic and size of an entry, then total_size and magic_code of its record: all that following a log needs."""


def scan_entries(view: memoryview, start: int) -> FrameScan:
    """Follows the sizes in entry headers; returns positions and sizes of the records."""
    unpack, last = _HEADS.unpack_from, len(view) - _HEAD
    v1, v2, minimum = commit_log.MAGIC_V1, commit_log.MAGIC_V2, commit_log.MIN_RECORD_SIZE
    positions: list[int] = []
    sizes: list[int] = []
    at, stop = start, Stop.END
    while True:
        if at > last:
            stop = _stop_at_end(view, at, is_first=at == start)
            break
        magic, size, total, code = unpack(view, at)
        is_record = code in (v1, v2) and total >= minimum
        if magic != MAGIC_ENTRY or not is_record or size != total + ENTRY_HEADER_SIZE:
            stop = _stop_of(magic, size)
            break
        if at + size > len(view):
            stop = Stop.MORE
            break
        positions.append(at + ENTRY_HEADER_SIZE)
        sizes.append(total)
        at += size
    return FrameScan(np.array(positions, np.int64), np.array(sizes, np.int64), at, stop)


def _stop_at_end(view: memoryview, at: int, *, is_first: bool) -> Stop:
    if not is_first or at + BLANK_ENTRY_SIZE > len(view):
        return Stop.END
    return _stop_of(*BLANK_ENTRY.struct.unpack_from(view, at))


def _stop_of(magic: int, size: int) -> Stop:
    if magic == MAGIC_BLANK_ENTRY:
        return Stop.BLANK
    return Stop.ZEROS if magic == size == 0 else Stop.BAD


class EntryWalk(SegmentWalk):
    """Iterator over one data file; see `SegmentWalk`.

    Damage extends from entry to entry and includes headers; a wrong body damages its record only. If an entry header
    is damaged but its record is valid, only the header counts as damage.
    """

    _head = _HEAD
    _before = ENTRY_HEADER_SIZE

    def _first(self) -> int:
        """Returns the first entry; the span may start at a record."""
        start = self._span.start
        is_record = start >= ENTRY_HEADER_SIZE and self._segment.states_its_offset(start)
        return start - ENTRY_HEADER_SIZE if is_record and self._segment.record(start) is not None else start

    def _frames(self, at: int) -> tuple[FrameScan, Frames]:
        chain = scan_entries(self._view, at)
        return chain, Frames(self._view, self._span.base + self._view_at, chain.positions, chain.sizes)

    def _is_valid(self, frames: Frames) -> np.ndarray:
        starts = frames.positions - ENTRY_HEADER_SIZE
        if not len(starts):
            return frames.valid
        sliding = np.ndarray(
            (len(frames.view) - ENTRY_HEADER_SIZE + 1,), f"V{ENTRY_HEADER_SIZE}", frames.view, strides=(1,)
        )
        heads = sliding[starts].view(ENTRY.dtype)
        return frames.valid & (heads["position"] == starts + frames.base) & (heads["body_length"] == frames.sizes)

    def _is_boundary(self, position: int) -> bool:
        data = self._segment.peek(position, BLANK_ENTRY_SIZE)
        if len(data) < BLANK_ENTRY_SIZE:
            return position <= self._segment.size
        blank = BLANK_ENTRY.parse(data)
        if blank.magic == MAGIC_BLANK_ENTRY:
            return blank.remaining == self._segment.full_size - position
        return self._header(position) is not None

    def _header(self, position: int) -> EntryHeader | None:
        """Returns the header at a position if it states that place."""
        data = self._segment.peek(position, ENTRY_HEADER_SIZE)
        if len(data) < ENTRY_HEADER_SIZE:
            return None
        header = ENTRY.parse(data)
        is_there = header.magic == MAGIC_ENTRY and header.position == self._segment.base + position
        return header if is_there and header.size == header.body_length + ENTRY_HEADER_SIZE else None

    def _widen(self, at: int) -> bool:
        header = self._header(at)
        if header is None or header.size > self._segment.size - at:
            return False
        if header.size > WINDOW and not self._segment.adds_up(at + ENTRY_HEADER_SIZE):
            return False
        self._read(at, max(header.size, WINDOW))
        return True

    def _recover(self, at: int) -> Generator[Damage | Frames, None, int | None]:  # type: ignore[override]
        record = self._segment.record(at + ENTRY_HEADER_SIZE)
        if record is None or not record.crc_matches[0]:
            return (yield from super()._recover(at))
        start = self._segment.base + at
        detail = self._wrong_header(at, int(record.sizes[0]))
        yield Damage(start, start + ENTRY_HEADER_SIZE, DamageKind.BAD_HEADER, f"entry header: {detail}")
        self._accept(record)
        yield record
        return at + ENTRY_HEADER_SIZE + int(record.sizes[0])

    def _wrong_header(self, at: int, total: int) -> str:
        header = ENTRY.parse(self._segment.peek(at, ENTRY_HEADER_SIZE))
        expected = {
            "magic": MAGIC_ENTRY,
            "size": total + ENTRY_HEADER_SIZE,
            "position": self._segment.base + at,
            "body_length": total,
        }
        return ", ".join(
            f"expected {name} {value}, found {getattr(header, name)}"
            for name, value in expected.items()
            if getattr(header, name) != value
        )

    def _describe(self, at: int, *, is_followed: bool) -> tuple[DamageKind, str]:  # noqa: ARG002 - as in the base
        data = self._segment.peek(at, ENTRY_HEADER_SIZE)
        if len(data) < ENTRY_HEADER_SIZE:
            return DamageKind.BAD_HEADER, f"{len(data)} bytes are left, but an entry header has {ENTRY_HEADER_SIZE}"
        header = ENTRY.parse(data)
        if header.magic == header.size == 0:
            return DamageKind.ZEROS, "zero bytes where an entry should be"
        if header.magic == MAGIC_BLANK_ENTRY:
            left = self._segment.full_size - at
            return DamageKind.BAD_BLANK, f"blank entry of {header.size} bytes, expected {left} up to the file's end"
        if self._header(at) is None:
            words = f"magic {header.magic}, size {header.size}, position {header.position}"
            return DamageKind.BAD_HEADER, f"no entry header: {words}"
        if at + header.size > self._segment.size:
            missing = at + header.size - self._segment.size
            return (
                DamageKind.MISSING,
                f"the file ends {missing} bytes before the end of the entry of {header.size} bytes",
            )
        if self._segment.states_its_offset(at + ENTRY_HEADER_SIZE):
            return DamageKind.BAD_LENGTHS, "the record's inner lengths do not add up to its total_size"
        return DamageKind.BAD_HEADER, f"an entry of {header.size} bytes whose body is not a record"

    def _next(self, at: int) -> int | None:
        header = self._header(at)
        if header is not None and header.size > ENTRY_HEADER_SIZE and self._is_boundary(at + header.size):
            return at + header.size if at + header.size < self._segment.size else None
        return next((position for position in self._candidates(at + 1) if self._is_entry(position)), None)

    def _is_entry(self, position: int) -> bool:
        """Whether a complete valid entry is at a position."""
        header, record = self._header(position), self._segment.record(position + ENTRY_HEADER_SIZE)
        if header is None or record is None or header.body_length != int(record.sizes[0]):
            return False
        where = self._segment.base + position + ENTRY_HEADER_SIZE
        denied = self._start_index is not None and self._start_index(where) is False
        return not denied and bool(record.crc_matches[0])

    def _candidates(self, start: int) -> Iterator[int]:
        """Yields positions followed by a record's magic code at the distance of an entry header."""
        ahead, at = _HEAD - 4, start
        while at < self._data_end:
            data = self._segment.read(at, min(_STEP, self._data_end - at) + _HEAD - 1)
            yield from (at + place for place in frame_starts(data, magic_at=ahead) if place < _STEP)
            at += _STEP

    def _tail_at(self, at: int, length: int, *, is_stale: bool) -> Tail:
        if not length:
            return Tail(self.end, "clean", 0, "only zeros follow")
        header = self._header(at)
        if header is not None:
            return Tail(self.end, "torn", length, f"an entry of {header.size} bytes starts here and is incomplete")
        if is_stale:
            return Tail(self.end, "stale", length, "old entries left by a truncation")
        kind, _ = self._describe(at, is_followed=False)
        return Tail(self.end, "garbage", length, f"{kind}: bytes that are not an entry")


def walk_kind(span: SegmentSpan) -> type[SegmentWalk]:
    """Returns the class of the walk over a segment, with or without entry headers."""
    return EntryWalk if span.entries else SegmentWalk
