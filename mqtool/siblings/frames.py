"""Files of records that lie between two equal lengths: frames read forwards by the first, backwards by the second.

EQueue's message chunks and EventStore's TFChunks are of this shape: a header of 128 bytes, frames, a footer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mqtool.formats.codec import Buffer
from mqtool.formats.equeue import FRAME_OVERHEAD, HEADER_SIZE, LENGTH
from mqtool.siblings.frame_scan import FrameRun, scan_frames
from mqtool.store.files import ReadFile

_WINDOW = 1 << 20
_FIRST_WINDOW = 1 << 12
_UNPACK = LENGTH.struct.unpack_from


@dataclass(frozen=True, slots=True)
class Frame:
    """A record between two equal lengths.

    Attributes:
        start: data position of the first length.
        record: the bytes between the lengths.
    """

    start: int
    record: bytes

    @property
    def end(self) -> int:
        """Data position after the second length."""
        return self.start + len(self.record) + FRAME_OVERHEAD


@dataclass(frozen=True, slots=True)
class NoFrame:
    """Why no frame is at a data position.

    Attributes:
        kind: "no-room", "length", "too-long", "past-end" or "lengths-differ".
        detail: expected and found.
        length: the length that was read there.
        other: the length at the other end.
    """

    kind: str
    detail: str
    length: int = 0
    other: int = 0


class FrameFile:
    """A file of frames after a header of 128 bytes.

    *Data positions* count from the end of the header.

    Attributes:
        path: where it is.
        size: bytes of the file.
        start: position of data position 0 in the whole store; set by the kind.
        states_at: how many bytes after the start of a frame its record states its own position.
    """

    start: int
    states_at: int

    def __init__(self, path: Path) -> None:
        """Opens the file.

        Raises:
            StoreError: it cannot be read.
        """
        self.path = path
        self._file = ReadFile(path)
        self.size = self._file.size
        self._window = b""
        self._window_start = 0

    def read(self, start: int, count: int) -> bytes:
        """Returns bytes from a data position; fewer where the file ends."""
        at = start - self._window_start
        if not 0 <= at <= len(self._window) - count:
            # A backward reader needs what is before next, so the window ends with the requested bytes.
            first = max(0, start + count - _WINDOW) if start < self._window_start else start
            self._window = self._file.read(HEADER_SIZE + first, max(start + count - first, _WINDOW))
            self._window_start = first
            at = start - first
        return self._window[at : at + count]

    def run(self, start: int, end: int, limit: int, window: int) -> FrameRun:
        """Returns the frames that follow one another from a data position, as many as a window holds.

        Args:
            start: data position of the first frame's first length.
            end: data position where all have to end at the latest.
            limit: largest length of a record.
            window: bytes to read.
        """
        return scan_frames(self._file.read(HEADER_SIZE + start, max(0, min(window, end - start))), start, limit)

    def frame_at(self, start: int, end: int, limit: int) -> Frame | NoFrame:
        """Looks for a frame that begins at a data position, as the broker does (Chunk.TryReadForwardInternal).

        Args:
            start: data position of its first length.
            end: data position where it has to end at the latest.
            limit: largest length of a record.
        """
        if start + FRAME_OVERHEAD > end:
            return NoFrame("no-room", f"{end - start} bytes are left, a frame needs at least {FRAME_OVERHEAD + 1}")
        length = _length(self.read(start, LENGTH.size))
        wrong = _implausible(length, end - start - FRAME_OVERHEAD, limit)
        if wrong is not None:
            return wrong
        data = self.read(start + LENGTH.size, length + LENGTH.size)
        if len(data) < length + LENGTH.size:
            return NoFrame("past-end", f"the file ends inside the record of {length} bytes", length)
        other = _length(data[length:])
        if other != length:
            return NoFrame("lengths-differ", f"length {length} before the record, {other} after it", length, other)
        return Frame(start, data[:length])

    def frame_before(self, end: int, start: int, limit: int) -> Frame | NoFrame:
        """Looks for a frame that ends at a data position, by the length at its end.

        Args:
            end: data position after its second length.
            start: data position where it has to begin at the earliest.
            limit: largest length of a record.
        """
        if end - FRAME_OVERHEAD < start:
            return NoFrame("no-room", f"{end - start} bytes are left, a frame needs at least {FRAME_OVERHEAD + 1}")
        length = _length(self.read(end - LENGTH.size, LENGTH.size))
        wrong = _implausible(length, end - start - FRAME_OVERHEAD, limit)
        if wrong is not None:
            return wrong
        first = end - FRAME_OVERHEAD - length
        found = self.frame_at(first, end, limit)
        if isinstance(found, Frame) and found.end != end:
            return NoFrame("lengths-differ", f"length {len(found.record)} before the record, {length} after it", length)
        return found

    def last_used(self, start: int, end: int) -> int:
        """Returns the data position after the last byte in a range that is not zero; `start` if there is none."""
        used = at = start
        end = min(end, self._file.data_end() - HEADER_SIZE)
        while at < end:
            data = self._file.read(HEADER_SIZE + at, min(_WINDOW, end - at))
            if not data:
                break
            kept = data.rstrip(b"\0")
            used = at + len(kept) if kept else used
            at += len(data)
        return used

    def stating(self, start: int, end: int) -> Iterator[int]:
        """Yields data positions in a range with bytes that state the global position of a frame there.

        So candidates for frames are found wherever they lie. Reads little if the first one is near.
        """
        first, after = self.states_at, self.states_at + 7
        at, window = start, _FIRST_WINDOW
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
            window = min(2 * window, _WINDOW)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _length(data: Buffer) -> int:
    return int(_UNPACK(data)[0]) if len(data) >= LENGTH.size else 0


def _implausible(length: int, room: int, limit: int) -> NoFrame | None:
    if length <= 0:
        return NoFrame("length", f"expected a length above 0, found {length}", length)
    if length > limit:
        return NoFrame("too-long", f"length {length} is above the limit of {limit}", length)
    if length > room:
        return NoFrame("past-end", f"a record of {length} bytes does not end within the {room} that are left", length)
    return None
