"""Reads files whose records are between two equal lengths: frame by frame in both directions, or thousands at a time.

EQueue's message chunks and EventStore's TFChunks have this layout: a header of 128 bytes, frames, a footer. A scan of
many frames makes no object for a record: fixed fields become arrays, byte strings ranges of the buffer.
`SalvagedChunk` is what both scans of a damaged file have found.
"""

import struct
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from msgspec import Struct, field

from mqtool.errors import CorruptionError, StoreError, UnreadableError
from mqtool.formats.codec import Buffer, Sequence, Step
from mqtool.formats.equeue import FRAME_OVERHEAD, HEADER_SIZE, LENGTH
from mqtool.records.damage import Damage
from mqtool.siblings import Row
from mqtool.store.files import ReadFile
from mqtool.store.log.readable_parts import UnreadableParts

FIRST_WINDOW, WINDOW = 1 << 16, 8 << 20
"""Sizes of read windows in bytes: the first one after the start or after damage, and the maximum to which they grow."""

_ONE = LENGTH.struct
_TWO = struct.Struct("<" + 2 * _ONE.format.removeprefix("<"))
"""The length after a record, followed by the length before the next one."""

_FIRST_FRAME_WINDOW, _FRAME_WINDOW = 1 << 12, 1 << 20
"""Sizes of read windows where frames are read one by one."""

_VARINT_BYTES = 5
_BITS = 7


class FrameRun(Struct, frozen=True):
    """Consecutive frames in a buffer."""

    data: np.ndarray  # uint8 buffer that contains the frames
    base: int  # data position of the buffer's first byte
    starts: np.ndarray  # int64, position in the buffer of each record, after the length before it
    sizes: np.ndarray  # int64, size of each record in bytes

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def positions(self) -> np.ndarray:
        """Data positions of the frames, int64."""
        return self.starts + (self.base - LENGTH.size)

    @property
    def end(self) -> int:
        """Data position after the last frame; without frames, that of the buffer's first byte."""
        return self.base + (int(self.starts[-1] + self.sizes[-1]) + LENGTH.size if len(self) else 0)

    def first(self, count: int) -> "FrameRun":
        """Returns the first `count` frames."""
        return self if count == len(self) else FrameRun(self.data, self.base, self.starts[:count], self.sizes[:count])

    def record(self, number: int) -> bytes:
        """Returns the bytes of the record with the given index."""
        start = int(self.starts[number])
        return self.data[start : start + int(self.sizes[number])].tobytes()


def scan_frames(data: bytes, base: int, limit: int) -> FrameRun:
    """Returns the frames from the start of a buffer, at data position `base`, to the first invalid or incomplete one.

    A record has at most `limit` bytes.
    """
    view, size = memoryview(data), LENGTH.size
    first_length, two, last = _ONE.unpack_from, _TWO.unpack_from, len(view) - _TWO.size
    starts: list[int] = []
    append = starts.append
    at, length = size, first_length(view)[0] if len(view) >= size else 0
    while 0 < length <= limit:
        end = at + length
        if end > last:
            if end + size <= len(view) and first_length(view, end)[0] == length:
                append(at)
                at = end + FRAME_OVERHEAD
            break
        tail, following = two(view, end)
        if tail != length:
            break
        append(at)
        at, length = end + FRAME_OVERHEAD, following
    positions = np.array(starts, np.int64)
    sizes = np.diff(np.append(positions, at)) - FRAME_OVERHEAD
    return FrameRun(np.frombuffer(data, np.uint8), base, positions, sizes)


class SequenceColumns(Struct):
    """The fields of many values in one buffer, as columns."""

    data: np.ndarray  # uint8 buffer
    # bool per value: whether `Sequence.parse` could read it. The fields of other values are meaningless.
    good: np.ndarray
    after: np.ndarray  # int64, position in the buffer after each value
    fixed: dict[str, np.ndarray] = field(default_factory=dict)  # arrays by name of a fixed field
    # starts, lengths: int64 arrays by name of a field of counted bytes: position of the bytes in the buffer, and length
    starts: dict[str, np.ndarray] = field(default_factory=dict)
    lengths: dict[str, np.ndarray] = field(default_factory=dict)
    # int64 arrays by name of a fixed field: its position in the buffer
    places: dict[str, np.ndarray] = field(default_factory=dict)

    def first(self, count: int) -> "SequenceColumns":
        """Returns the first `count` values."""
        if count == len(self.good):
            return self
        fixed, starts, lengths, places = (
            {name: column[:count] for name, column in columns.items()}
            for columns in (self.fixed, self.starts, self.lengths, self.places)
        )
        return SequenceColumns(self.data, self.good[:count], self.after[:count], fixed, starts, lengths, places)


def read_columns(sequence: Sequence[Any], data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> SequenceColumns:
    """Reads the fields of many values, from `starts` in a buffer (uint8) to `ends` (both int64) at the latest."""
    columns = SequenceColumns(data, np.ones(len(starts), bool), starts)
    at = starts.copy()
    for step in sequence.steps:
        head = _heads(step, columns, at, ends)
        for name, member in zip(step.names, step.fields, strict=False):  # the count may follow them
            columns.fixed[name], columns.places[name] = head[name], at + member.offset
        at = at + step.head.size
        if not step.counted:
            continue
        length = _varints(columns, at, ends) if step.varint else head["length"].astype(np.int64)
        columns.good &= (length >= 0) & (length <= ends - at)
        length = np.where(columns.good, length, 0)
        columns.starts[step.counted], columns.lengths[step.counted] = at, length
        at = at + length
    columns.after = at
    return columns


def _heads(step: Step, columns: SequenceColumns, at: np.ndarray, ends: np.ndarray) -> np.ndarray:
    size = step.head.size
    columns.good &= at + size <= ends
    if not size or len(columns.data) < size:
        columns.good &= size == 0
        return np.zeros(len(at), step.dtype)
    sliding = np.ndarray((len(columns.data) - size + 1,), f"V{size}", columns.data, strides=(1,))
    return sliding[np.where(columns.good, at, 0)].view(step.dtype)


def _varints(columns: SequenceColumns, at: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Reads a varint at each position and moves the positions in `at` past it."""
    value = np.zeros(len(at), np.int64)
    open_ = columns.good.copy()
    for number in range(_VARINT_BYTES):
        columns.good &= ~open_ | (at < ends)
        open_ &= columns.good
        byte = columns.data[np.where(open_, at, 0)].astype(np.int64) if len(columns.data) else value
        value |= np.where(open_, (byte & 0x7F) << (_BITS * number), 0)
        at += open_
        open_ &= byte >= 0x80
    columns.good &= ~open_
    return value


class Frame(Struct, frozen=True):
    """A record with equal lengths before and after it."""

    start: int  # data position of the first length
    record: bytes  # the bytes between the lengths

    @property
    def end(self) -> int:
        """Data position after the second length."""
        return self.start + len(self.record) + FRAME_OVERHEAD


class InvalidFrame(Struct, frozen=True):
    """Why there is no valid frame at a data position."""

    # "no-room", "length", "too-long", "past-end", "lengths-differ", or "unreadable" if both lengths agree and the
    # system cannot read what is between them
    kind: str
    detail: str  # what was expected and what was found
    length: int = 0  # the length that was read at the data position
    end_length: int = 0  # the length at the other end of the frame


class _Run(Protocol):
    @property
    def run(self) -> FrameRun: ...


class _Framed(Protocol):
    @property
    def frame(self) -> Frame: ...


V = TypeVar("V", bound=_Run)
R = TypeVar("R", bound=_Framed)
F = TypeVar("F", bound="FrameFile")


class FrameFile:
    """A file of frames after a header of 128 bytes. *Data positions* count from the end of the header."""

    start: int  # global position, in the whole store, of data position 0; set by the subclass
    # distance in bytes from the start of a frame to the field that states the position of its record
    position_field: int

    def __init__(self, path: Path) -> None:
        """Opens the file; raises StoreError if it cannot be read."""
        self.path = path
        self._file = ReadFile(path)
        self.size = self._file.size
        self._window = b""
        self._window_start = 0
        self._unreadable: UnreadableParts | None = None

    def tolerate(self, unreadable: UnreadableParts) -> None:
        """From now on, parts that the system cannot read are noted and read as zeros."""
        self._file.close()
        self._file, self._unreadable = unreadable.open(self.path, self.size), unreadable

    def unread(self, start: int, end: int) -> Damage | None:
        """Returns the unreadable part of a range of data positions; None if all that was read of it could be read."""
        if self._unreadable is None:
            return None
        return self._unreadable.damage(self.path, self.start - HEADER_SIZE, self.start + start, self.start + end)

    def read(self, start: int, count: int) -> bytes:
        """Returns `count` bytes from a data position, or fewer if the file ends earlier."""
        at = start - self._window_start
        if not 0 <= at <= len(self._window) - count:
            # A backward reader needs what is before next, so the window ends with the requested bytes.
            first = max(0, start + count - _FRAME_WINDOW) if start < self._window_start else start
            self._window = self._file.read(HEADER_SIZE + first, max(start + count - first, _FRAME_WINDOW))
            self._window_start = first
            at = start - first
        return self._window[at : at + count]

    def run(self, start: int, end: int, limit: int, window: int) -> FrameRun:
        """Returns the consecutive frames from a data position that could be read, as many as fit into `window` bytes.

        The last frame ends at `end` at the latest; a record has at most `limit` bytes.
        """
        run = scan_frames(self._file.read(HEADER_SIZE + start, max(0, min(window, end - start))), start, limit)
        unread = [] if self._unreadable is None else self._unreadable.ranges(self.path, -HEADER_SIZE)
        for low, high in unread:
            incomplete = (run.positions < high) & (run.positions + run.sizes + FRAME_OVERHEAD > low)
            if incomplete.any():
                run = run.first(int(np.argmax(incomplete)))
        return run

    def frame_at(self, start: int, end: int, limit: int) -> Frame | InvalidFrame:
        """Reads the frame that begins at a data position, as the broker does (Chunk.TryReadForwardInternal).

        It must end at `end` at the latest; a record has at most `limit` bytes.
        """
        if start + FRAME_OVERHEAD > end:
            return InvalidFrame("no-room", f"{end - start} bytes are left, a frame needs at least {FRAME_OVERHEAD + 1}")
        length = _length(self.read(start, LENGTH.size))
        wrong = _implausible(length, end - start - FRAME_OVERHEAD, limit)
        if wrong is not None:
            return wrong
        data = self.read(start + LENGTH.size, length + LENGTH.size)
        if len(data) < length + LENGTH.size:
            return InvalidFrame("past-end", f"the file ends inside the record of {length} bytes", length)
        other = _length(data[length:])
        if other != length:
            return InvalidFrame("lengths-differ", f"length {length} before the record, {other} after it", length, other)
        if unread := self.unread(start, start + length + FRAME_OVERHEAD):
            return InvalidFrame(str(unread.kind), unread.detail, length, other)
        return Frame(start, data[:length])

    def frame_before(self, end: int, start: int, limit: int) -> Frame | InvalidFrame:
        """Reads the frame that ends at a data position, by the length after its record; see `frame_at`."""
        if end - FRAME_OVERHEAD < start:
            return InvalidFrame("no-room", f"{end - start} bytes are left, a frame needs at least {FRAME_OVERHEAD + 1}")
        length = _length(self.read(end - LENGTH.size, LENGTH.size))
        wrong = _implausible(length, end - start - FRAME_OVERHEAD, limit)
        if wrong is not None:
            return wrong
        first = end - FRAME_OVERHEAD - length
        frame = self.frame_at(first, end, limit)
        if isinstance(frame, Frame) and frame.end != end:
            return InvalidFrame(
                "lengths-differ", f"length {len(frame.record)} before the record, {length} after it", length
            )
        return frame

    def walk(
        self,
        end: int,
        limit: int,
        valid_run: Callable[[FrameRun], V],
        read: Callable[[int], "R | InvalidFrame"],
        resume: Callable[[int], int | None] = lambda _at: None,
    ) -> Generator[V | R | Damage, None, tuple[int, InvalidFrame] | None]:
        """Yields the records of the file in order, with damage between them.

        `valid_run` returns the valid records at the start of a run of frames. `read` reads the record at a data
        position, also one that is longer than a read window. `resume` returns the data position of the next valid
        record after a damaged one, None if there is none; by default the walk ends there. Returns the data position
        after which no record follows, and what is wrong there; None if records end at `end`.
        """
        at, window = 0, FIRST_WINDOW
        while at < end:
            valid = valid_run(self.run(at, end, limit, window))
            if len(valid.run):
                yield valid
                at, window = valid.run.end, min(2 * window, WINDOW)
                continue
            window = FIRST_WINDOW
            item = read(at)
            if not isinstance(item, InvalidFrame):
                yield item
                at = item.frame.end
                continue
            resumed = resume(at)
            if resumed is None:
                return at, item
            yield self.damage(at, resumed, item)
            at = resumed
        return None

    def damage(self, start: int, end: int, frame: InvalidFrame) -> Damage:
        """Returns a damage for a range of data positions, with the reason why no frame begins there."""
        base, unread = self.start, self.unread(start, end)
        kind, detail = (frame.kind, frame.detail) if unread is None else (unread.kind, unread.detail)
        return Damage(base + start, base + end, kind, detail, self.path, HEADER_SIZE + start)

    def unread_at(self, start: int, frame: InvalidFrame) -> Damage | None:
        """Returns the unreadable part of what was read in search of a frame at a data position; None without one."""
        return self.unread(start, start + FRAME_OVERHEAD + max(frame.length, 0))

    def refuse(self, start: int, frame: InvalidFrame, what: str) -> StoreError:
        """Returns the error for a data position at which a caller expected `what`: words that its detail can follow."""
        unread = self.unread_at(start, frame)
        if unread is not None:
            return UnreadableError(unread.detail, self.path)
        return CorruptionError(f"{what}: {frame.detail}", self.path, self.start + start)

    def last_used(self, start: int, end: int) -> int:
        """Returns the data position after the last non-zero byte of a range; `start` if there is none."""
        return max(start, self._file.used_end(HEADER_SIZE + start, HEADER_SIZE + end) - HEADER_SIZE)

    def candidates(self, start: int, end: int) -> Iterator[int]:
        """Yields data positions in a range at which a frame may begin, because the bytes there state this position.

        This finds frames after damage, at any position. It reads little if the first candidate is near.
        """
        first, after = self.position_field, self.position_field + 7
        at, window = start, _FIRST_FRAME_WINDOW
        while at < end:
            data = np.frombuffer(self._file.read(HEADER_SIZE + at, min(window, end - at) + after), np.uint8)
            count = len(data) - after
            if count <= 0:
                return
            stated = np.zeros(count, np.int64)
            for byte in range(8):
                stated |= data[first + byte : first + byte + count].astype(np.int64) << np.int64(8 * byte)
            places = np.arange(at, at + count, dtype=np.int64)
            yield from places[stated == places + self.start].tolist()
            at += count
            window = min(2 * window, _FRAME_WINDOW)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _length(data: Buffer) -> int:
    return int(_ONE.unpack_from(data)[0]) if len(data) >= LENGTH.size else 0


def _implausible(length: int, room: int, limit: int) -> InvalidFrame | None:
    if length <= 0:
        return InvalidFrame("length", f"expected a length above 0, found {length}", length)
    if length > limit:
        return InvalidFrame("too-long", f"length {length} is above the limit of {limit}", length)
    if length > room:
        return InvalidFrame(
            "past-end", f"a record of {length} bytes does not end within the {room} that are left", length
        )
    return None


class SalvagedChunk(Struct, Generic[F, R]):
    """Records salvaged from one chunk."""

    chunk: F  # the file
    forwards: list[R] = field(default_factory=list)  # records found from the start
    # further records found from the end of the data, in the order of the file
    backwards: list[R] = field(default_factory=list)
    # further records found in between, because they state their own position
    between: list[R] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)  # ranges without a record

    @property
    def records(self) -> list[R]:
        """All salvaged records in the order of the file."""
        return [*self.forwards, *self.between, *self.backwards]

    def gaps(self, end: int, detail: str) -> Iterator[Damage]:
        """Yields the ranges before `end` in which no record was found."""
        at = 0
        for first, after in [*((record.frame.start, record.frame.end) for record in self.records), (end, end)]:
            if first > at:
                yield self.lost(at, first, detail)
            at = max(at, after)

    def discard(self, record: R, reason: str) -> None:
        """Removes a record and adds its range to the damage."""
        for part in (self.forwards, self.between, self.backwards):
            part[:] = [kept for kept in part if kept is not record]
        self.damage.append(self.lost(record.frame.start, record.frame.end, reason))

    def lost(self, start: int, end: int, detail: str) -> Damage:
        """Returns a damage for a range of data positions."""
        base = self.chunk.start
        return Damage(base + start, base + end, "lost", detail, self.chunk.path, HEADER_SIZE + start)

    def row(self) -> Row:
        """Returns the result as a row of `OpenedStore.salvage`."""
        counts = (len(self.forwards), len(self.backwards), len(self.between))
        return salvage_row(self.chunk.path, *counts, sum(part.end - part.start for part in self.damage))


def salvage_row(path: Path | None, forwards: int, backwards: int, between: int, damaged_bytes: int) -> Row:
    """Returns the result for one file as a row of `OpenedStore.salvage`, with its records by scan direction."""
    return {
        "file": path.name if path is not None else "",
        "forwards": forwards,
        "backwards": backwards,
        "between": between,
        "damaged_bytes": damaged_bytes,
    }
