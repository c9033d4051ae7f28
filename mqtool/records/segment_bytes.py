"""Bytes of one segment by position, and checks of what the bytes at a position state.

Reads through a callable, so it opens no file. It keeps one window and one small block in memory; only a record that
is longer than a window, and whose lengths agree, is read completely.
"""

import struct
from collections.abc import Callable, Iterator

import numpy as np

from mqtool.formats import commit_log
from mqtool.records.frame_scan import Stop, scan_frames
from mqtool.records.frames import Frames

WINDOW = 8 << 20
"""Bytes read at a time."""

LONGEST_TRAILER = 2 + 0x7FFF + 2 + 0x7FFF
"""Topic and properties with their lengths: what can follow a body."""

NEAR = 1 << 12
"""Bytes that are read at least where a few are asked for."""
_STEP = 1 << 16
CHAIN_STEP = 1 << 20
_OFFSET_AT = commit_log.field_offset("physical_offset")
_SYS_FLAG_AT = commit_log.field_offset("sys_flag")
_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")

Read = Callable[[int, int], bytes]
"""`read(position, count)`: the bytes there, fewer at the end of the file."""

ReadInto = Callable[[int, memoryview], int]
"""`read_into(position, target)`: fills memory that is there; how many bytes, fewer at the end of the file."""


_PAGE = 1 << 12


def page_aligned(size: int) -> np.ndarray:
    """Returns a uint8 buffer to read files into, aligned to a page.

    On AMD EPYC, a read is two to six times slower if its buffer begins 1 to 32 bytes further into a page than the data
    does in the file. Large blocks of the C library begin 16 bytes into a page (docs/decisions/0001-pread.md).
    """
    room = np.empty(size + _PAGE, np.uint8)
    start = -room.ctypes.data % _PAGE
    return room[start : start + size]


class SegmentBytes:
    """One segment.

    Attributes:
        base: physical offset of the first byte.
        full_size: nominal size in bytes, up to which a BLANK extends.
        size: bytes that are read; fewer once the file turns out to have been cut.
    """

    def __init__(self, read: Read, base: int, size: int, full_size: int | None = None) -> None:
        self._read = read
        self.base = base
        self.size = size
        self.full_size = size if full_size is None else full_size
        self._near_at = 0
        self._near = b""

    def read(self, position: int, count: int) -> bytes:
        """Returns bytes of the segment, fewer at its end."""
        return self._read(position, max(0, min(count, self.size - position)))

    def peek(self, position: int, count: int) -> bytes:
        """Returns a few bytes, from the last block read if it has them."""
        at = position - self._near_at
        if at < 0 or at + count > len(self._near):
            self._near_at, self._near, at = position, self.read(position, max(count, NEAR)), 0
        return self._near[at : at + count]

    def forget(self) -> None:
        """Drops cached bytes, because a broker may have written since."""
        self._near = b""

    def frame(self, position: int) -> tuple[int, int]:
        """Returns total_size and magic_code at a position, zeros past the end of the segment."""
        head = self.peek(position, commit_log.FRAME.size)
        if len(head) < commit_log.FRAME.size:
            return 0, 0
        total, magic = commit_log.FRAME.unpack(head)
        return total, magic

    def is_boundary(self, position: int) -> bool:
        """Whether a position is the end of the segment, or states to be a record or a BLANK."""
        if position + commit_log.FRAME.size > self.size:
            return position <= self.size
        total, magic = self.frame(position)
        if magic == commit_log.MAGIC_BLANK:
            return total == self.full_size - position
        return magic in commit_log.RECORD_MAGICS and self.states_its_offset(position)

    def stated_offset(self, position: int) -> int | None:
        """Returns the physical offset stated by the record at a position, None if the segment ends before it."""
        stored = self.peek(position + _OFFSET_AT, _I64.size)
        return int(_I64.unpack(stored)[0]) if len(stored) == _I64.size else None

    def states_its_offset(self, position: int) -> bool:
        """Whether the record at a position states the physical offset at which it is."""
        return self.stated_offset(position) == self.base + position

    def host_shapes(self, position: int) -> tuple[int, ...]:
        """Returns the four host shapes, beginning with the one that the record at a position states."""
        sys_flag = self.peek(position + _SYS_FLAG_AT, _I32.size)
        stated = commit_log.host_shape(_I32.unpack(sys_flag)[0]) if len(sys_flag) == _I32.size else 0
        return (stated, *(shape for shape in range(4) if shape != stated))

    def sizes_by_lengths(self, position: int, shape: int) -> Iterator[int]:
        """Yields the sizes of the record at a position that its inner lengths imply, for each version.

        The host shape is an argument: a damaged sys_flag hides it, as a damaged magic code hides the version.
        """
        body_at = commit_log.BODY_POSITIONS[shape]
        length = self.peek(position + body_at - _I32.size, _I32.size)
        if len(length) == _I32.size:
            topic_at = body_at + max(0, _I32.unpack(length)[0])
            if position + topic_at <= self.size:
                yield from self._sizes_by_trailer(position, topic_at)

    def _sizes_by_trailer(self, position: int, topic_at: int) -> Iterator[int]:
        for reader in (commit_log.TOPIC_LENGTH_V1, commit_log.TOPIC_LENGTH_V2):
            stored = self.peek(position + topic_at, reader.size)
            if len(stored) < reader.size or (topic_length := reader.unpack(stored)[0]) < 0:
                continue
            at = topic_at + reader.size + topic_length
            stored = self.peek(position + at, commit_log.PROPERTIES_LENGTH.size)
            if len(stored) == commit_log.PROPERTIES_LENGTH.size:
                yield at + len(stored) + max(0, commit_log.PROPERTIES_LENGTH.unpack(stored)[0])

    def adds_up(self, position: int) -> bool:
        """Whether the inner lengths of the record at a position add up to its total_size; the body is not read."""
        total, _ = self.frame(position)
        sizes = (size for shape in self.host_shapes(position) for size in self.sizes_by_lengths(position, shape))
        return total >= commit_log.MIN_RECORD_SIZE and total in sizes

    def begins_record(self, position: int, data_end: int) -> bool:
        """Whether a record of its stated size begins at a position, even if it is unfinished or damaged inside.

        Magic code and own offset are right, total_size leaves room for topic and properties after the body, and
        after the body there is a possible topic, as far as there is data.
        """
        total, magic = self.frame(position)
        is_record = magic in commit_log.RECORD_MAGICS
        body_at = commit_log.BODY_POSITIONS[self.host_shapes(position)[0]]
        length = self.peek(position + body_at - _I32.size, _I32.size)
        if not is_record or not self.states_its_offset(position) or len(length) < _I32.size:
            return False
        topic_at = body_at + max(0, _I32.unpack(length)[0])
        if not 0 < total - topic_at <= LONGEST_TRAILER:
            return False
        reader = commit_log.TOPIC_LENGTH_V2 if magic == commit_log.MAGIC_V2 else commit_log.TOPIC_LENGTH_V1
        stored = self.peek(position + topic_at, reader.size)[: max(0, data_end - position - topic_at)]
        if len(stored) < reader.size:
            return True  # all that is there is its body
        topic_length = reader.unpack(stored)[0]
        topic = self.peek(position + topic_at + reader.size, max(0, min(topic_length, LONGEST_TRAILER)))
        return 0 < topic_length < total - topic_at and is_topic(topic.rstrip(b"\0"))

    def record(self, position: int) -> Frames | None:
        """Returns the valid record at a position, None if there is none."""
        total, magic = self.frame(position)
        is_record = magic in commit_log.RECORD_MAGICS
        if not is_record or not commit_log.MIN_RECORD_SIZE <= total <= self.size - position:
            return None
        if not self.states_its_offset(position) or not self.adds_up(position):
            return None  # nothing is read by a length that nothing else supports
        data = self.peek(position, total) if total <= NEAR else self.read(position, total)
        if len(data) < total:
            return None
        frame = Frames(memoryview(data), self.base + position, np.zeros(1, np.int64), np.array([total]))
        return frame if frame.valid[0] else None

    def chain_end(self, position: int, limit: int) -> int:
        """Returns the end of the chain of frames from a position, by magic code and total_size, or after `limit`."""
        at = position
        while at + commit_log.FRAME.size <= self.size and at - position < limit:
            data = self.read(at, min(CHAIN_STEP, position + limit - at))
            chain = scan_frames(memoryview(data), 0)
            at += chain.end
            if chain.stop is Stop.MORE and not chain.end:
                total, _ = self.frame(at)
                if total > self.size - at:
                    break
                at += total  # one that is longer than the block
            elif chain.stop not in (Stop.MORE, Stop.END):
                break
        return at

    def data_end(self, limit: int) -> int:
        """Returns the position after the last nonzero byte before `limit`, 0 if there is none."""
        at, step = min(limit, self.size), NEAR
        while at > 0:
            start = max(0, at - step)
            step = min(2 * step, WINDOW)
            length = last_data(memoryview(self.read(start, at - start)))
            if length:
                return start + length
            at = start
        return 0


def is_topic(data: bytes) -> bool:
    """Whether bytes can be a topic or its beginning: no control characters, no space (TopicValidator is stricter)."""
    return all(byte > 0x20 and byte != 0x7F for byte in data)


def last_data(view: memoryview) -> int:
    """Returns the position after the last nonzero byte."""
    data = np.frombuffer(view, np.uint8)
    for start in range((len(data) - 1) // _STEP * _STEP, -1, -_STEP):
        block = np.flatnonzero(data[start : start + _STEP])
        if len(block):
            return int(start + block[-1] + 1)
    return 0
