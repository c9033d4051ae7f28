"""Fixed-size files in a new directory, written at any position: the files of one queue, and segments of a CommitLog.

Ranges that are not written remain zero (sparse). Records keep their physical offsets or get new ones.
"""

import os
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import numpy as np

from mqtool.errors import StoreError, UsageError
from mqtool.formats import commit_log, file_names, properties
from mqtool.jobs.atomic import write_all, writing
from mqtool.records.frames import Frames
from mqtool.store.files import Closing

_OPEN_FILES = 128
_OFFSET_AT = commit_log.field_offset("physical_offset")
_PREPARED_AT = commit_log.field_offsets("prepared_transaction_offset")
"""Position of prepared_transaction_offset in a record, by which of the two hosts are IPv6."""


class OutputFiles(Closing):
    """Writes below one directory; keeps some files open."""

    def __init__(self, root: Path) -> None:
        self.root = root  # the directory; nothing outside it is ever written
        self._is_made = root.exists()
        self._open: OrderedDict[str, int] = OrderedDict()

    def write(self, name: str, size: int, position: int, data: "bytes | memoryview") -> None:
        """Writes bytes into a file below the root, which is created with its full size if it does not exist.

        Raises StoreError if the operating system refuses, for instance because the disk is full.
        """
        with writing(self.root / name):
            write_all(self._file(name, size), data, position)

    def _file(self, name: str, size: int) -> int:
        descriptor = self._open.get(name)
        if descriptor is not None:
            self._open.move_to_end(name)
            return descriptor
        path = self.root / name
        self._make(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._open[name] = descriptor
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
        if len(self._open) > _OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def _make(self, directory: Path) -> None:
        """Creates a directory below the root, and that only once: who has removed it meanwhile wants no more files."""
        if directory == self.root:
            if not self._is_made:
                directory.mkdir(parents=True, exist_ok=True)
            self._is_made = True
            return
        try:
            directory.mkdir(exist_ok=True)
        except FileNotFoundError:
            self._make(directory.parent)
            directory.mkdir(exist_ok=True)

    def exists(self, name: str) -> bool:
        """Whether the file exists."""
        return name in self._open or (self.root / name).exists()

    def read(self, name: str, position: int, count: int) -> bytes:
        """Returns bytes that were written before; fewer at the end of the file."""
        try:
            descriptor = self._open.get(name)
            if descriptor is not None:
                return os.pread(descriptor, count, position)
            with (self.root / name).open("rb") as file:
                file.seek(position)
                return file.read(count)
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", self.root / name) from error

    def require(self, name: str, size: int) -> None:
        """Raises UsageError if a file which an earlier run has written is missing or has another size."""
        path = self.root / name
        actual = path.stat().st_size if path.is_file() else None
        if actual != size:
            words = "it is missing" if actual is None else f"found {actual} bytes"
            raise UsageError(
                f"{path}: the run to resume wrote {size} bytes there, {words}; start again with a new directory, "
                "without --resume"
            )

    def remove(self, name: str) -> None:
        """Removes a file that this object may have created."""
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        (self.root / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes all files."""
        while self._open:
            os.close(self._open.popitem()[1])


class FileSequence:
    """Consecutive files of equal size, written sequentially: the files of one queue."""

    BUFFER = 1 << 17

    def __init__(self, files: OutputFiles, directory: str, file_size: int) -> None:
        """Starts an empty sequence in a directory; the first append determines where it begins."""
        self.file_size = file_size
        self.end = 0  # offset after the last byte
        self.buffered = 0  # bytes that are not written yet
        self._files = files
        self._directory = directory
        self._bases: list[int] = []
        self._parts: list[bytes] = []

    @property
    def names(self) -> list[str]:
        """Names of the files, oldest first."""
        return [self._name(base) for base in self._bases]

    def start(self, offset: int) -> None:
        """Starts again at an offset; discards everything appended before."""
        self.cut(0)
        self.end = offset

    def append(self, data: bytes) -> None:
        """Appends bytes at the end."""
        self._parts.append(data)
        self.buffered += len(data)
        self.end += len(data)
        if self.buffered >= self.BUFFER:
            self.flush()

    def skip_to(self, offset: int) -> None:
        """Continues at a later offset; the bytes in between remain zero."""
        self.flush()
        self.end = offset

    def cut(self, offset: int) -> None:
        """Removes everything from an offset on, and continues there."""
        self.flush()
        while self._bases and self._bases[-1] >= offset:
            self._files.remove(self._name(self._bases.pop()))
        if self._bases and offset < self._bases[-1] + self.file_size:
            base = self._bases[-1]
            blank = bytes(base + self.file_size - offset)
            self._files.write(self._name(base), self.file_size, offset - base, blank)
        self.end = offset

    def flush(self) -> None:
        """Writes all buffered bytes to the files."""
        if not self._parts:
            return
        view = memoryview(b"".join(self._parts))
        offset = self.end - len(view)
        self._parts, self.buffered = [], 0
        while view:
            base = offset - offset % self.file_size
            part = view[: base + self.file_size - offset]
            if not self._bases or base > self._bases[-1]:
                self._bases.append(base)
            self._files.write(self._name(base), self.file_size, offset - base, part)
            view, offset = view[len(part) :], offset + len(part)

    def resume(self, first: int, end: int) -> None:
        """Continues at `end` after what an earlier run wrote from `first` on; discards what it wrote after `end`."""
        self._bases = list(range(first - first % self.file_size, end, self.file_size))
        for name in self.names:
            self._files.require(name, self.file_size)
        later = self._bases[-1] + self.file_size if self._bases else first - first % self.file_size
        while self._files.exists(self._name(later)):
            self._files.remove(self._name(later))
            later += self.file_size
        self.cut(end)

    def _name(self, base: int) -> str:
        return f"{self._directory}/{file_names.mapped_file_name(base)}"


def moved(frames: Frames, places: np.ndarray, prepared: np.ndarray) -> bytes:
    """Returns the bytes of records, changed for their new physical offsets, which have no gaps between the records."""
    view, sizes = frames.view, frames.sizes.tolist()
    pieces = [view[at : at + size] for at, size in zip(frames.positions.tolist(), sizes, strict=True)]
    data = np.frombuffer(bytearray().join(pieces), np.uint8)
    starts = places - places[0]
    _put(data, starts + _OFFSET_AT, places)
    for shape, at in enumerate(_PREPARED_AT):
        rows = np.flatnonzero(frames.host_shape == shape)
        _put(data, starts[rows] + at, prepared[rows])
    for row in frames.rows_with_crc32().tolist():
        record = data[starts[row] : starts[row] + sizes[row]]
        record[:] = np.frombuffer(properties.with_crc32(record.tobytes()), np.uint8)
    return data.tobytes()


def _put(data: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
    """Writes values as 8 big-endian bytes at the given positions."""
    raw = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    data[at[:, None] + np.arange(8)] = raw


class Segments:
    """Segments of one size, written by physical offset."""

    def __init__(self, output: OutputFiles, size: int) -> None:
        """Takes the files, which get the segments in `commitlog/`."""
        self.size = size  # of a segment in bytes
        self._output = output

    def base(self, physical_offset: int) -> int:
        """Returns the physical offset at which a segment begins."""
        return physical_offset - physical_offset % self.size

    def write(self, physical_offset: int, data: "bytes | memoryview") -> None:
        """Writes bytes that end inside their segment."""
        base = self.base(physical_offset)
        name = f"{file_names.COMMIT_LOG}/{file_names.mapped_file_name(base)}"
        self._output.write(name, self.size, physical_offset - base, data)


class SegmentWriter:
    """Appends records to segments of a fixed size."""

    def __init__(self, output: OutputFiles, start: int, size: int) -> None:
        """Takes the files, which get the segments in `commitlog/`; the first record starts the first segment."""
        self._segments = Segments(output, size)
        self.end = start  # physical offset after the last record
        self.last_record = -1  # physical offset of the last record; -1 if none was written

    def place(self, sizes: np.ndarray) -> np.ndarray:
        """Returns the physical offset at which each of the following records will be appended.

        A record that would leave no room for the 8 bytes of a BLANK after it starts the next segment
        (CommitLog.DefaultAppendMessageCallback.doAppend).
        """
        if len(sizes) and int(sizes.max()) + commit_log.BLANK_SIZE > self._segments.size:
            largest = int(sizes.max())
            raise StoreError(
                f"a record of {largest} bytes does not fit into a segment of {self._segments.size}", "commitlog"
            )
        offsets = np.empty(len(sizes), np.int64)
        at, size = self.end, self._segments.size
        for row, total in enumerate(sizes.tolist()):
            if at % size + total + commit_log.BLANK_SIZE > size:
                at += size - at % size
            offsets[row] = at
            at += total
        return offsets

    def append(self, frames: Frames, places: np.ndarray, prepared: np.ndarray) -> None:
        """Writes records at new physical offsets from `place`, with new prepared_transaction_offsets."""
        segments = places // self._segments.size
        edges = [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist(), len(places)]
        for low, high in pairwise(edges):
            if low == high:
                continue
            self._roll(int(places[low]))
            part = frames.select(slice(low, high))
            self._segments.write(int(places[low]), moved(part, places[low:high], prepared[low:high]))
            self.last_record = int(places[high - 1])
            self.end = self.last_record + int(part.sizes[-1])

    def _roll(self, place: int) -> None:
        """Completes the current segment with a BLANK if the next record starts a new one."""
        left = -self.end % self._segments.size
        if place != self.end and left:
            self._segments.write(self.end, commit_log.build_blank(left))
