"""Reads one TFChunk file: header, footer, position map, MD5, records.

Valid records are also read as columns, grouped by type and version of their layouts.
"""

import hashlib
from bisect import bisect_left
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import tfchunk
from mqtool.formats.tfchunk import BOUNDS, FOOTER_SIZE, HEAD, HEADER_SIZE, LAYOUTS, MD5_SIZE, MapEntry, Record
from mqtool.siblings.frames import Frame, FrameFile, FrameRun, InvalidFrame, SequenceColumns, read_columns
from mqtool.store.log.readable_parts import UnreadableParts

_HASHED_AT_ONCE = 1 << 20
_STATED_AT = 6
"""Distance from the start of a frame to the record's log position, which follows length, type and version."""


class StoredRecord(Struct, frozen=True):
    """A record and where it is stored."""

    chunk: "TFChunkFile"  # the file
    frame: Frame  # its frame in the file
    record: Record  # its fields

    @property
    def position(self) -> int:
        """Log position of the record."""
        return self.record.log_position


class TFChunkFile(FrameFile):
    """A chunk file, open for reading; `name` has the numbers stated in the file name.

    `written` is the data position up to which there may be records. For the chunk that the server continues it is the
    position in writer.chk once `TFChunkDb` has set it. For another completed chunk the footer states it, and for
    another ongoing one it is the end of the file.
    """

    position_field = _STATED_AT

    def __init__(self, path: Path, unreadable: UnreadableParts | None = None) -> None:
        """Opens the file and reads header and footer; raises FormatError if it is too short for them.

        Unreadable parts between header and footer are noted in `unreadable`, or an error without it.
        """
        super().__init__(path)
        try:
            self.header = tfchunk.HEADER.parse(self._file.read(0, HEADER_SIZE))
            end = max(HEADER_SIZE, self.size - FOOTER_SIZE)
            self.footer = tfchunk.parse_footer(self._file.read(end, FOOTER_SIZE))
        except Exception:
            self.close()
            raise
        self.start = self.header.start
        self.name = tfchunk.parse_name(path.name)
        self.written = self.footer.physical_size if self.is_completed else self.size - HEADER_SIZE
        if unreadable is not None:
            self.tolerate(unreadable)

    @property
    def number(self) -> int:
        """The chunk's number in its file name, by which the server finds files."""
        return self.name.number if self.name is not None else self.header.start_number

    @property
    def last_number(self) -> int:
        """The last chunk number that a merged file covers; for another file, its own number."""
        is_merged = self.header.start_number == self.number and self.header.end_number > self.number
        return self.header.end_number if is_merged else self.number

    @property
    def is_completed(self) -> bool:
        """Whether the footer has the flag "completed" and possible sizes.

        The sizes are checked because an ongoing file that was cut has records where the footer would be.
        """
        footer = self.footer
        return footer.is_completed and 0 <= footer.physical_size <= self.size - HEADER_SIZE - FOOTER_SIZE

    @property
    def is_transformed(self) -> bool:
        """Whether the chunk's records are encrypted."""
        return self.header.version >= tfchunk.TRANSFORMED and self.header.transform != tfchunk.IDENTITY

    @cached_property
    def map(self) -> tuple[MapEntry, ...]:
        """The entries of the position map; empty for a chunk that was not scavenged."""
        footer = self.footer
        unit = footer.map_unit
        if not self.is_completed or footer.map_size <= 0:
            return ()
        data = self._file.read(HEADER_SIZE + footer.physical_size, min(footer.map_size, self.size))
        return tuple(unit.parse(data, at) for at in range(0, len(data) // unit.size * unit.size, unit.size))

    def place_of(self, position: int) -> int | None:
        """Returns the data position of the frame with a log position; None if the position map does not contain it."""
        local = position - self.start
        if not self.header.is_scavenged:
            return local
        index = bisect_left(self.map, local, key=lambda entry: entry.logical)
        if index < len(self.map) and self.map[index].logical == local:
            return self.map[index].actual
        return None

    def read_record(self, place: int) -> StoredRecord | InvalidFrame:
        """Reads the record whose frame begins at a data position."""
        frame = self.frame_at(place, self.written, tfchunk.MAX_RECORD_SIZE)
        return frame if isinstance(frame, InvalidFrame) else self.decode(frame)

    def read_record_before(self, end: int, start: int) -> StoredRecord | InvalidFrame:
        """Reads the record whose frame ends at a data position, and begins at or after another."""
        frame = self.frame_before(end, start, tfchunk.MAX_RECORD_SIZE)
        return frame if isinstance(frame, InvalidFrame) else self.decode(frame)

    def decode(self, frame: Frame) -> StoredRecord | InvalidFrame:
        """Decodes the record of a frame."""
        try:
            record = tfchunk.parse_record(frame.record)
        except FormatError as error:
            return InvalidFrame("no-record", str(error), len(frame.record))
        return StoredRecord(self, frame, record)

    def md5(self) -> bytes:
        """Computes the MD5 that the footer should state: that of all bytes of the file before it."""
        digest = hashlib.md5(usedforsecurity=False)
        at, end = 0, self.size - MD5_SIZE
        while at < end:
            data = self._file.read(at, min(_HASHED_AT_ONCE, end - at))
            if not data:
                break
            digest.update(data)
            at += len(data)
        return digest.digest()


class Group(Struct, frozen=True):
    """Records of one layout in a run."""

    # record_type, version: the layout
    record_type: int
    version: int
    rows: np.ndarray  # int64, indexes of the records in the run
    fields: SequenceColumns  # fields of these records as columns


class ValidRun(Struct, frozen=True):
    """Consecutive records of a chunk, all of which can be read."""

    chunk: TFChunkFile  # the chunk that contains them
    run: FrameRun  # their frames
    groups: tuple[Group, ...]  # the records by layout

    @property
    def positions(self) -> np.ndarray:
        """Log positions that the records state, int64."""
        positions = np.zeros(len(self.run), np.int64)
        for group in self.groups:
            positions[group.rows] = group.fields.fixed["log_position"]
        return positions


def valid_run(chunk: TFChunkFile, run: FrameRun) -> ValidRun:
    """Returns the frames of a run before the first one whose record cannot be read."""
    types, versions, valid = _heads(run)
    groups = []
    for (record_type, version), sequence in LAYOUTS.items():
        rows = np.flatnonzero((types == record_type) & (versions == version))
        if len(rows):
            starts = run.starts[rows]
            ends = starts + run.sizes[rows]
            fields = read_columns(sequence, run.data, starts, ends)
            good = fields.good & (fields.after == ends)  # as `tfchunk.parse_record`
            for name, (minimum, maximum) in BOUNDS[record_type].items():
                good &= (fields.fixed[name] >= minimum) & (fields.fixed[name] <= maximum)
            valid[rows] = good
            groups.append(Group(int(record_type), version, rows, fields))
    count = len(run) if valid.all() else int(np.argmin(valid))
    kept = [(group, int(np.searchsorted(group.rows, count))) for group in groups]
    return ValidRun(
        chunk,
        run.first(count),
        tuple(
            Group(group.record_type, group.version, group.rows[:number], group.fields.first(number))
            for group, number in kept
            if number
        ),
    )


def _heads(run: FrameRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns type and version of each record, and a bool array of the same length, all False."""
    none = np.zeros(len(run), bool)
    if len(run.data) < HEAD.size or not len(run):
        return np.full(len(run), -1), np.full(len(run), -1), none
    sliding = np.ndarray((len(run.data) - HEAD.size + 1,), f"V{HEAD.size}", run.data, strides=(1,))
    fits = run.sizes >= HEAD.size
    heads = sliding[np.where(fits, run.starts, 0)].view(HEAD.dtype)
    types, versions = (heads[name].astype(np.int16) for name in ("record_type", "version"))  # of a byte each
    return np.where(fits, types, -1), np.where(fits, versions, -1), none
