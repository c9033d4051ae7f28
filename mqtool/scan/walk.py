"""One segment, start to end: frames, damage and tail, window by window.

Reads through a callable, so it opens nothing itself and holds one window at a time: memory stays flat
whatever the segment's size. A window ends inside a record; the next one starts at that record.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np

from mqtool.formats import commit_log
from mqtool.scan.damage import Damage, DamageKind, Tail
from mqtool.scan.frames import Frames, Hop, Stop, hop
from mqtool.scan.resync import Block, Witness, describe, extent, first_data, last_data, next_record

WINDOW = 8 << 20
"""Bytes read at a time. A record that is longer widens its own window."""

_LONGEST_TAIL = 2 + 0x7FFF + 2 + 0x7FFF
"""Topic and properties with their lengths: what can follow a body."""

Read = Callable[[int, int], bytes]
"""`read(position, count)`: the bytes there, fewer at the end of the file."""


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """What is to be walked.

    Attributes:
        base: physical offset of the segment's first byte.
        size: its bytes on disk.
        start: position of a record's first byte.
        data_end: position after which the file is known to hold only zeros (a hole), None if not known.
        is_last: nothing of the log follows, so an unfinished end is a tail, not damage.
        newest: store timestamp of the last record before `start`, to tell stale frames; 0 if unknown.
    """

    base: int
    size: int
    start: int = 0
    data_end: int | None = None
    is_last: bool = False
    newest: int = 0


class SegmentWalk:
    """Iterator over one segment.

    Yields:
        `Frames` that are sound, in order, and `Damage` between them.

    After the last item `tail` says what is behind the last record (only for the last segment),
    and `end` is the physical offset after it; a BLANK makes `end` the segment's end, while
    `last_record_end` stays before it.
    """

    def __init__(
        self, read: Read, span: SegmentSpan, *, check_crc: bool = True, witness: Witness | None = None
    ) -> None:
        self._read = read
        self._span = span
        self._check_crc = check_crc
        self._witness = witness
        self._newest = span.newest
        self.end = self.last_record_end = span.base + span.start
        self.ended_by_blank = False
        self.tail: Tail | None = None

    def __iter__(self) -> Iterator[Frames | Damage]:
        """Walks from the span's start."""
        span, at, window = self._span, self._span.start, WINDOW
        while at + 8 <= span.size:
            data = self._read(at, min(window, span.size - at))
            if len(data) < min(window, span.size - at):
                yield from self._shrunk(at, len(data))
                return
            block = self._block(data, at)
            chain = hop(block.view, 0)
            wider = self._wider(block) if chain.stop is Stop.MORE and chain.end == 0 else None
            if wider:
                window = wider
                continue
            window = WINDOW
            proved = yield from self._judge(block, chain)
            following: int | None = at + proved
            if proved < chain.end or not _goes_on(block, chain):
                if proved == chain.end and chain.stop is Stop.BLANK and block.is_boundary(proved):
                    self.ended_by_blank, self.end = True, span.base + span.size
                    return
                following = yield from self._recover(at + proved)
            if following is None:
                return
            at = following
        if span.is_last and self.tail is None:
            self.tail = Tail(self.end, "clean", 0, "the segment is full")

    def _block(self, data: bytes, at: int) -> Block:
        span = self._span
        return Block(memoryview(data), span.base + at, span.base + span.size, at + len(data) >= span.size)

    def _wider(self, block: Block) -> int | None:
        """Returns the window that a record longer than the present one needs; None if its lengths are not believable.

        A length field alone never decides how much is read: own offset and inner lengths must agree with it.
        """
        total, _ = commit_log.FRAME.unpack_from(block.view, 0)
        if block.complete or not block.is_boundary(0) or total > self._span.size:
            return None
        one = Frames(block.view, block.base, np.array([0]), np.array([total]))
        rest = total - int(one.body_start[0]) - int(one.body_length[0])
        return total if 0 < rest <= _LONGEST_TAIL else None

    def _judge(self, block: Block, chain: Hop) -> Generator[Frames | Damage, None, int]:
        """Yields the sound frames of a chain and damage between them; returns where what is proved ends."""
        frames = Frames(block.view, block.base, chain.positions, chain.sizes)
        if not len(frames):
            return chain.end
        good = frames.sound
        if self._check_crc:
            good = good & _crc_holds(frames)
        if good.all():
            self._accept(frames)
            yield frames
            return chain.end
        last = _framed(frames, good)
        yield from self._mixed(frames.select(slice(0, last)), good[:last])
        return int(chain.positions[last]) if last < len(frames) else chain.end

    def _mixed(self, frames: Frames, good: np.ndarray) -> Iterator[Frames | Damage]:
        edges = np.flatnonzero(np.diff(good)) + 1
        for run in np.split(np.arange(len(good)), edges):
            if not len(run):
                continue
            part = frames.select(slice(int(run[0]), int(run[-1]) + 1))
            if good[run[0]]:
                self._accept(part)
                yield part
            else:
                yield from (_damage_of(part, i) for i in range(len(part)))
                self.end = self.last_record_end = part.base + int(part.positions[-1] + part.sizes[-1])

    def _accept(self, frames: Frames) -> None:
        self.end = self.last_record_end = frames.base + int(frames.positions[-1] + frames.sizes[-1])
        self._newest = int(frames.select(slice(-1, None)).column("store_timestamp")[0])

    def _shrunk(self, at: int, count: int) -> Iterator[Frames | Damage]:
        base, size = self._span.base, self._span.size
        if self._span.is_last:
            self.tail = Tail(self.end, "torn", 0, f"the file was cut to {at + count} bytes while it was read")
            return
        detail = f"the file has {at + count} bytes, {size} when it was opened"
        yield Damage(base + at, base + size, DamageKind.MISSING, detail)

    def _recover(self, at: int) -> Generator[Frames | Damage, None, int | None]:
        """Looks for the next record after `at`; yields the damage before it; returns its position or None."""
        span = self._span
        block = self._block(self._read(at, min(span.size - at, WINDOW)), at)
        if len(block.view) < 8:
            return None
        kind, detail = describe(block, 0)
        found = self._search(at, block)
        if found is not None and span.is_last and self._is_stale(found):
            self.tail = Tail(self.end, "stale", self._data_end() - at, "records of an earlier life of this file")
            return None
        if found is None:
            if span.is_last:
                self.tail = self._tail_at(at, block, kind)
            elif self._data_end() > at or kind is not DamageKind.ZEROS or span.size - at >= commit_log.MIN_RECORD_SIZE:
                yield Damage(span.base + at, span.base + span.size, kind, detail)
            return None
        yield Damage(span.base + at, span.base + found, kind, detail)
        self.end = span.base + found
        return found

    def _search(self, at: int, block: Block) -> int | None:
        if first_data(block.view, 0) == 0 or block.view[:8] != bytes(8):
            inside = extent(block, 0)
            if inside is not None and inside < len(block.view):
                return at + inside
        start = at
        while True:
            data_at = first_data(block.view, 0)
            if data_at is not None:
                found = next_record(block, max(0, data_at - 8) if start > at else max(1, data_at - 8), self._witness)
                if found is not None:
                    return start + found
            if block.complete or not len(block.view) or start >= self._last_data:
                return None
            # a record may straddle the window's end: overlap by the longest header the proof needs
            start += max(len(block.view) - WINDOW // 2, 8)
            block = self._block(self._read(start, min(WINDOW, self._span.size - start)), start)

    def _is_stale(self, position: int) -> bool:
        """A frame behind the end that is older than the last record comes from before a truncation."""
        if not self._newest:
            return False
        head = self._read(position, commit_log.BODY_POSITIONS[-1])
        if len(head) < commit_log.BODY_POSITIONS[0]:
            return True
        frame = Frames(memoryview(head.ljust(128, b"\0")), 0, np.array([0]), np.array([len(head)]))
        if int(frame.column("magic_code")[0]) == commit_log.MAGIC_BLANK:
            return True
        return int(frame.column("store_timestamp")[0]) < self._newest

    @property
    def _last_data(self) -> int:
        return self._span.size if self._span.data_end is None else self._span.data_end

    def _data_end(self) -> int:
        """Position after the segment's last byte that is not zero."""
        at = self._last_data
        while at > 0:
            start = max(0, at - WINDOW)
            found = last_data(memoryview(self._read(start, at - start)))
            if found:
                return start + found
            at = start
        return 0

    def _tail_at(self, at: int, block: Block, kind: DamageKind) -> Tail:
        length = max(0, self._data_end() - at)
        if not length:
            return Tail(self.end, "clean", 0, "only zeros follow")
        total, magic = commit_log.FRAME.unpack_from(block.view, 0)
        if magic in (commit_log.MAGIC_V1, commit_log.MAGIC_V2):
            return Tail(self.end, "torn", length, f"a record of {total} bytes begins here and is not whole")
        return Tail(self.end, "garbage", length, f"{kind}: bytes that are no record")


def _framed(frames: Frames, good: np.ndarray) -> int:
    """Returns how many frames of a chain are believed to be where they are, though some are bad inside.

    A frame whose lengths do not add up ends the belief: its total_size led to the rest. Of those after the last
    good one only frames that state their own offset count; others may be stale.
    """
    unsure = np.flatnonzero(~frames.adds_up)
    cut = int(unsure[0]) if len(unsure) else len(frames)
    after = np.flatnonzero(good[:cut])
    last = int(after[-1]) + 1 if len(after) else 0
    while last < cut and frames.sound[last]:
        last += 1
    return last


def _goes_on(block: Block, chain: Hop) -> bool:
    return chain.stop is Stop.END or (chain.stop is Stop.MORE and not block.complete and chain.end > 0)


def _crc_holds(frames: Frames) -> np.ndarray:
    """A stored CRC of 0 is taken as unknown: some releases wrote it so (broker bug fixed in 5.3.2)."""
    return frames.crc_matches | (frames.column("body_crc") == 0)


def _damage_of(frames: Frames, index: int) -> Damage:
    position, size = int(frames.positions[index]), int(frames.sizes[index])
    one = frames.select(slice(index, index + 1))
    start = frames.base + position
    if not one.true_offset[0]:
        kind = DamageKind.BAD_OFFSET
        detail = f"the record states physical offset {int(one.column('physical_offset')[0])}"
    elif not one.adds_up[0]:
        kind, detail = DamageKind.BAD_LENGTHS, f"the inner lengths do not add up to total_size {size}"
    else:
        kind = DamageKind.BAD_CRC
        stored, computed = int(one.column("body_crc")[0]), int(one.computed_crc[0])
        detail = f"body CRC stored {stored:08x}, computed {computed:08x}"
    return Damage(start, start + size, kind, detail)
