"""Reads TFChunk files (header, footer, position map, MD5, records), and a directory of them with its checkpoints.

Valid records are also read as columns, grouped by type and version of their layouts.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.errors import CorruptionError, FormatError, NotAStoreError, StoreError, UnreadableError
from mqtool.formats import tfchunk
from mqtool.formats.equeue import LENGTH
from mqtool.formats.tfchunk import (
    BOUNDS,
    FOOTER_SIZE,
    HEAD,
    HEADER_SIZE,
    LAYOUTS,
    MD5_SIZE,
    ChunkName,
    MapEntry,
    Record,
)
from mqtool.records.damage import Damage
from mqtool.siblings.base import UnreadChunks, chunks_in_order, missing_chunks
from mqtool.siblings.frames import Frame, FrameFile, FrameRun, InvalidFrame, SequenceColumns, read_columns, scan_frames
from mqtool.store.files import Closing, ReadFile, is_regular, list_directory, require_directory
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


def is_database(path: Path) -> bool:
    """Whether a directory contains a file that is named like a chunk and begins with the first byte of a TFChunk."""
    if not path.is_dir():
        return False
    names = (entry for entry in list_directory(path) if tfchunk.parse_name(entry.name) and is_regular(entry))
    return any(_begins_like_a_chunk(Path(entry.path)) for entry in names)


def _begins_like_a_chunk(path: Path) -> bool:
    try:
        with ReadFile(path) as file:
            return file.read(0, 1) == bytes([tfchunk.CHUNK_FILE_TYPE])
    except StoreError:  # another file may show what the directory is
        return False


class TFChunkDb(Closing):
    """An EventStore database, read-only.

    `chunks` are the files in use, by number; if there are several versions of a number, the highest version.
    `superseded` are files of lower versions, and files covered by a merged one; the server deletes them when it starts.
    `unread` are files without header or footer, or that the system refuses to read. `checkpoints` has the value by file
    name without `.chk`, for existing files; `short_checkpoints` names those that are not 8 bytes long.
    """

    def __init__(self, path: Path, unreadable: UnreadableParts | None = None) -> None:
        """Opens the files; raises NotAStoreError if the directory contains no chunk files.

        Unreadable parts of chunks are noted in `unreadable`, and then are damage of kind `unreadable`, or an error
        without it.
        """
        require_directory(path)
        self.path = path
        self.checkpoints: dict[str, int] = {}
        self.short_checkpoints: list[str] = []
        self._read_checkpoints()
        self.unread = UnreadChunks()
        named = self._named()
        if not named:
            raise NotAStoreError("holds no chunk-NNNNNN.VVVVVV", path)
        self.superseded: list[Path] = []
        self.chunks = self._open(named, partial(TFChunkFile, unreadable=unreadable))
        self._place_writer()

    @property
    def writer(self) -> int | None:
        """Log position after the last record, from writer.chk; None if the file is missing."""
        return self.checkpoints.get("writer")

    def records(self, name: str = "") -> Iterator[StoredRecord | Damage]:
        """Yields the records of a chunk file, or of all up to writer.chk, in the log's order, with damage between."""
        for item in self.runs(name):
            if isinstance(item, ValidRun):
                yield from records_of(item)
            else:
                yield item

    def runs(self, name: str = "") -> Iterator[ValidRun | StoredRecord | Damage]:
        """Yields the records of a chunk file, or of all, as columns: runs of valid records, with damage between them.

        A record longer than a read window is yielded as a `StoredRecord`.
        """
        for item in chunks_in_order(self.chunks, self.missing_chunks(), self.unread.reasons, name):
            if isinstance(item, Damage):
                yield item
            elif item.is_transformed:
                yield _encrypted(item)
            else:
                yield from self._runs(item)

    def _runs(self, chunk: TFChunkFile) -> Iterator[ValidRun | StoredRecord | Damage]:
        rest = yield from chunk.walk(
            chunk.written, tfchunk.MAX_RECORD_SIZE, partial(valid_run, chunk), chunk.read_record, partial(resume, chunk)
        )
        at, frame = rest or (chunk.written, InvalidFrame("past-end", "the file ends"))
        end = self.data_end(chunk, at)
        if end > at:
            yield chunk.damage(at, end, frame)

    def data_end(self, chunk: TFChunkFile, at: int) -> int:
        """Returns the data position up to which the log says that a chunk has records; `at` if the log does not say it.

        A chunk before that of writer.chk was completed. Without its footer, it may have had records up to its last log
        position. Its last valid record ends at `at`.
        """
        if chunk.is_completed or self._is_active(chunk):
            return max(at, chunk.written)
        is_before_writer = self.writer is not None and chunk.header.end <= self.writer
        if not is_before_writer or chunk.footer.physical_size == at:  # only the footer's flag is damaged
            return at
        return max(at, chunk.header.end - chunk.start)

    @property
    def names(self) -> tuple[str, ...]:
        """File names of the chunks in the order of the log, including unreadable and missing ones."""
        paths = (*(chunk.path for chunk in self.chunks), *self.unread.reasons)
        missing = (gap.file_name for gap in self.missing_chunks())
        return tuple(sorted({*(path.name for path in paths), *missing}))

    @property
    def numbers(self) -> frozenset[int]:
        """The chunk numbers for which there is a file, of whatever state."""
        paths = (*(chunk.path for chunk in self.chunks), *self.unread.reasons, *self.superseded)
        return frozenset(name.number for path in paths if (name := tfchunk.parse_name(path.name)))

    def missing_chunks(self) -> list[Damage]:
        """Returns the missing chunks before existing ones and up to writer.chk; numbers start at 0.

        A chunk whose name and header differ is neither of the two numbers' missing one, and proves no other chunk.
        """
        if not self.chunks:
            return []
        size = self.chunks[-1].header.chunk_size
        known = {name.number for path in self.unread.reasons if (name := tfchunk.parse_name(path.name))}
        gaps: list[range] = []
        expected = 0
        for chunk in self.chunks:
            if chunk.number == chunk.header.start_number:
                gaps.append(range(expected, chunk.number))
                expected = max(chunk.number, chunk.last_number) + 1
            else:
                known |= {chunk.number, chunk.header.start_number}
        if self.writer is not None:
            gaps.append(range(expected, -(-self.writer // size)))
        return missing_chunks(gaps, known, size, lambda number: self.path / f"chunk-{number:06d}.000000")

    @staticmethod
    def run_of(record: StoredRecord) -> ValidRun:
        """Returns a single record as a run of one."""
        length = LENGTH.struct.pack(len(record.frame.record))
        run = scan_frames(length + record.frame.record + length, record.frame.start, tfchunk.MAX_RECORD_SIZE)
        return valid_run(record.chunk, run)

    def record_at(self, position: int) -> StoredRecord:
        """Returns the record with a log position.

        Raises CorruptionError if there is no such record, UnreadableError if the system cannot read what is there.
        """
        chunk = next((c for c in self.chunks if c.start <= position < c.header.end), None)
        if chunk is None:
            raise CorruptionError("no chunk holds this position", self.path, position)
        place = chunk.place_of(position)
        if place is None:
            if unread := chunk.unread(chunk.footer.physical_size, chunk.size - HEADER_SIZE):
                raise UnreadableError(unread.detail, chunk.path)
            raise CorruptionError("the position map of the scavenged chunk has no such record", chunk.path, position)
        record = chunk.read_record(place)
        if isinstance(record, InvalidFrame):
            raise chunk.refuse(place, record, "no record")
        return record

    def close(self) -> None:
        """Closes all files."""
        for chunk in self.chunks:
            chunk.close()

    def _read_checkpoints(self) -> None:
        size = tfchunk.CHECKPOINT.size
        for name in tfchunk.CHECKPOINTS:
            path = self.path / name
            if path.is_file():
                with ReadFile(path) as file:
                    data = file.read(0, size)
                    if file.size != size:
                        self.short_checkpoints.append(name)
                checkpoint = tfchunk.CHECKPOINT.parse_start(data)  # as the server extends it
                self.checkpoints[name.removesuffix(".chk")] = checkpoint.position

    def _named(self) -> dict[ChunkName, Path]:
        """Returns the chunk files; like the server (Directory.GetFiles), passes over directories of such a name."""
        names = (
            (tfchunk.parse_name(entry.name), Path(entry.path))
            for entry in list_directory(self.path)
            if is_regular(entry)
        )
        return {name: path for name, path in names if name is not None}

    def _open(self, named: dict[ChunkName, Path], opened: Callable[[Path], TFChunkFile]) -> list[TFChunkFile]:
        chunks: list[TFChunkFile] = []
        covered = -1
        for number in sorted({name.number for name in named}):
            versions = sorted((name.version, path) for name, path in named.items() if name.number == number)
            if number <= covered:
                self.superseded += [path for _, path in versions]
                continue
            self.superseded += [path for _, path in versions[:-1]]
            path = versions[-1][1]
            chunk = self.unread.open(path, opened)
            if chunk is None:
                continue
            if chunk.header.file_type != tfchunk.CHUNK_FILE_TYPE or chunk.header.chunk_size <= 0:
                self.unread.reasons[path] = f"file type {chunk.header.file_type}, chunk size {chunk.header.chunk_size}"
                chunk.close()
                continue
            chunks.append(chunk)
            covered = max(number, chunk.header.end_number) if chunk.header.start_number == number else number
        return chunks

    def _place_writer(self) -> None:
        """Limits the chunk that the server continues to the position in writer.chk; it reads no further.

        A chunk that contains the position is continued even if its footer says that it is completed, unless it was
        scavenged (TFChunkDb.Open).
        """
        for chunk in self.chunks:
            if self.writer is None or not self._is_active(chunk):
                continue
            if not chunk.is_completed or (self.writer < chunk.header.end and not chunk.header.is_scavenged):
                chunk.written = self.writer - chunk.start

    def _is_active(self, chunk: TFChunkFile) -> bool:
        return self.writer is not None and chunk.start <= self.writer <= chunk.header.end

    def unread_chunks(self) -> list[Damage]:
        """Returns a damage for each chunk without a readable record: missing, unreadable or encrypted."""
        size = self.chunks[-1].header.chunk_size if self.chunks else 0
        unread = self.missing_chunks()
        for path, reason in self.unread.reasons.items():
            name = tfchunk.parse_name(path.name)
            start = 0 if name is None else name.number * size
            unread.append(Damage(start, start + size, "no-chunk", reason, path, 0))
        unread += [_encrypted(chunk) for chunk in self.chunks if chunk.is_transformed]
        return unread


def _encrypted(chunk: TFChunkFile) -> Damage:
    return Damage(chunk.start, chunk.header.end, "encrypted", "the records are encrypted", chunk.path, HEADER_SIZE)


def records_of(valid: ValidRun) -> Iterator[StoredRecord]:
    """Yields the records of a run."""
    for number, start in enumerate(valid.run.positions.tolist()):
        frame = Frame(start, valid.run.record(number))
        yield StoredRecord(valid.chunk, frame, tfchunk.parse_record(frame.record))


def resume(chunk: TFChunkFile, after: int) -> int | None:
    """Returns the data position of the next valid record after a damaged one.

    In a chunk that was not scavenged, records state their own position. In a scavenged chunk, the position map lists
    them.
    """
    mapped = sorted(entry.actual for entry in chunk.map if entry.actual > after)
    places = iter(mapped) if chunk.header.is_scavenged else chunk.candidates(after + 1, chunk.written)
    return next((place for place in places if isinstance(chunk.read_record(place), StoredRecord)), None)
