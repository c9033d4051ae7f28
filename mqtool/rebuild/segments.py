"""Writes records at old or new physical offsets into ordinary CommitLog segments."""

from itertools import pairwise

import numpy as np

from mqtool.errors import StoreError
from mqtool.formats import commit_log, file_names, properties
from mqtool.rebuild.files import OutputFiles
from mqtool.records.frames import Frames

_OFFSET_AT = commit_log.field_offset("physical_offset")
_PREPARED_AT = commit_log.field_offsets("prepared_transaction_offset")
"""Position of prepared_transaction_offset in a record, by which of the two hosts are IPv6."""


def moved(frames: Frames, places: np.ndarray, prepared: np.ndarray) -> bytes:
    """Returns the bytes of records in a row, changed for their new places.

    Args:
        frames: records of any log.
        places: new physical offset of each, without gaps between the records.
        prepared: new prepared_transaction_offset of each.
    """
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
    """Segments of one size, written by physical offset.

    Attributes:
        size: of a segment in bytes.
    """

    def __init__(self, output: OutputFiles, size: int) -> None:
        """Takes the files, which get the segments in `commitlog/`."""
        self.size = size
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
    """Appends records to segments of a fixed size.

    Attributes:
        end: physical offset after the last record.
        last_record: physical offset of the last record; -1 if none was written.
    """

    def __init__(self, output: OutputFiles, start: int, size: int) -> None:
        """Creates a writer; the first record starts the first segment.

        Args:
            output: receives the files in `commitlog/`.
            start: physical offset of the first segment.
            size: size of a segment in bytes.
        """
        self._segments = Segments(output, size)
        self.end = start
        self.last_record = -1

    def place(self, sizes: np.ndarray) -> np.ndarray:
        """Returns the physical offset at which each of the following records will be appended.

        A record that would leave no room for the 8 bytes of a BLANK after it starts the next segment
        (CommitLog.DefaultAppendMessageCallback.doAppend).

        Raises:
            StoreError: a record is longer than a segment.
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
        """Writes records at their new physical offsets.

        Args:
            frames: records of any log.
            places: new physical offset of each record, from `place`.
            prepared: new prepared_transaction_offset of each record.
        """
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
