"""Checks an EventStore database: framing in both directions, footers, position maps, MD5, checkpoints."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from mqtool.errors import UnreadableError
from mqtool.formats import tfchunk
from mqtool.formats.tfchunk import FOOTER_SIZE, HEADER, HEADER_SIZE
from mqtool.records.damage import Damage
from mqtool.siblings.base import READ_IT, check_reserved, finding
from mqtool.siblings.frames import InvalidFrame
from mqtool.siblings.tfchunk.store import TFChunkDb, TFChunkFile, ValidRun, resume, valid_run
from mqtool.verify.findings import Finding, Severity

_BACKUP = "restore the chunk from a backup or another node"
_WRITER = "restore the checkpoint; `mqtool info` shows where records end"


def verify(database: TFChunkDb) -> Iterator[Finding]:
    """Yields a finding for each broken invariant of docs/formats/tfchunk.md."""
    yield from database.unread.findings("tfchunk", _BACKUP)
    yield from _checkpoints(database)
    yield from _sequence(database)
    for chunk in database.chunks:
        try:
            yield from _chunk(chunk)
        except UnreadableError as error:
            yield finding("tfchunk-unreadable", Severity.UNKNOWN, chunk.path, error.reason, READ_IT)


def _chunk(chunk: TFChunkFile) -> Iterator[Finding]:
    """Checks a chunk; unreadable parts are unknown, and what is around them is checked."""
    yield from _header(chunk)
    if chunk.is_completed:
        yield from _footer(chunk)
        yield from _hash(chunk)
    if chunk.is_transformed:
        detail = "its records are encrypted: framing and positions cannot be checked"
        yield finding("tfchunk-frames", Severity.UNKNOWN, chunk.path, detail)
    else:
        places = _Places()
        yield from _frames(chunk, places)
        yield from _map(chunk, places)
    if unread := chunk.unread(-HEADER_SIZE, chunk.size - HEADER_SIZE):
        yield finding("tfchunk-unreadable", Severity.UNKNOWN, chunk.path, unread.detail, READ_IT, unread.position)


def _checkpoints(database: TFChunkDb) -> Iterator[Finding]:
    for name in ("writer", "chaser", "epoch", "truncate"):
        if name not in database.checkpoints:
            severity = Severity.ERROR if name == "writer" else Severity.WARNING
            detail = "is missing: the server uses its start value"
            yield finding("tfchunk-checkpoint-missing", severity, database.path / f"{name}.chk", detail, _WRITER)
    for name in database.short_checkpoints:
        detail = "expected 8 bytes: the server pads it with zeros, or cuts it"
        yield finding("tfchunk-checkpoint-size", Severity.WARNING, database.path / name, detail, _WRITER)
    writer = database.writer or 0
    for name in ("chaser", "epoch"):
        value = database.checkpoints.get(name, -1)
        if value > writer:
            detail = f"expected at most writer.chk's {writer}, found {value}: the server refuses to start"
            yield finding("tfchunk-checkpoint-order", Severity.ERROR, database.path / f"{name}.chk", detail, _WRITER)
    truncate = database.checkpoints.get("truncate", -1)
    if truncate != tfchunk.NO_POSITION:
        path = database.path / "truncate.chk"
        detail = f"the next start of the server truncates the log at {truncate}"
        yield finding("tfchunk-truncate-pending", Severity.WARNING, path, detail, "set it to -1 to prevent that")


def _sequence(database: TFChunkDb) -> Iterator[Finding]:
    """Checks that chunk files cover all positions up to the chunk of writer.chk, and that none is after it."""
    for missing in database.missing_chunks():
        detail = f"the file is missing, and positions {missing.start} to {missing.end}: the server refuses to start"
        yield finding("tfchunk-chunk-missing", Severity.ERROR, missing.path, detail, _BACKUP)
    yield from _around_writer(database)
    for path in database.superseded:
        detail = "a newer version of the file exists: the server deletes this one"
        yield finding("tfchunk-superseded", Severity.WARNING, path, detail)


def _around_writer(database: TFChunkDb) -> Iterator[Finding]:
    writer = database.writer
    if writer is None or not database.chunks:
        return
    last = writer // database.chunks[-1].header.chunk_size
    has_last = last in database.numbers
    for chunk in database.chunks:
        start = chunk.number * chunk.header.chunk_size
        if start > writer:
            detail = f"starts at {start}, after writer.chk's {writer}: the server refuses to start"
            step = "restore writer.chk, or move the file elsewhere"
            yield finding("tfchunk-extraneous", Severity.ERROR, chunk.path, detail, step)
        elif not chunk.is_completed and (chunk.header.end < writer or (chunk.header.end == writer and has_last)):
            detail = "is before writer.chk's chunk and is not completed: the server refuses to start"
            yield finding("tfchunk-not-completed", Severity.ERROR, chunk.path, detail, _BACKUP)
        elif chunk.start <= writer < chunk.header.end:
            yield from _writer_inside(chunk, writer, is_last=chunk.number == last)


def _writer_inside(chunk: TFChunkFile, writer: int, *, is_last: bool) -> Iterator[Finding]:
    """Checks a chunk that contains the position in writer.chk (TFChunkDb.Open of 5.0.8)."""
    end = chunk.start + chunk.footer.logical_size
    if chunk.header.is_scavenged:
        if not chunk.is_completed:
            detail = "is scavenged and not completed: the server refuses to start"
            yield finding("tfchunk-not-completed", Severity.ERROR, chunk.path, detail, _BACKUP)
        elif is_last and writer != end:
            detail = f"writer.chk's {writer} is inside of this scavenged chunk, which ends at {end}: "
            detail += "the server refuses to start"
            yield finding("tfchunk-writer-inside", Severity.ERROR, chunk.path, detail, _WRITER)
    elif chunk.is_completed and writer < chunk.start + chunk.footer.physical_size:
        detail = f"is completed up to {chunk.start + chunk.footer.physical_size}, but writer.chk states {writer}: "
        detail += "the server overwrites the records after it"
        yield finding("tfchunk-writer-inside", Severity.WARNING, chunk.path, detail, _WRITER)


def _header(chunk: TFChunkFile) -> Iterator[Finding]:
    header, at = chunk.header, HEADER.offset("start_number")
    if header.version not in (tfchunk.UNALIGNED, tfchunk.ALIGNED, tfchunk.TRANSFORMED):
        detail = f"expected version 2, 3 or 4, found {header.version}"
        yield finding("tfchunk-version", Severity.ERROR, chunk.path, detail, _BACKUP, HEADER.offset("lowest_version"))
    if header.start_number > header.end_number:
        detail = f"start number {header.start_number} is above end number {header.end_number}"
        yield finding("tfchunk-numbers", Severity.ERROR, chunk.path, detail, _BACKUP, at)
    elif chunk.name is not None and chunk.name.number != header.start_number:
        detail = f"expected start number {chunk.name.number} as in the name, found {header.start_number}"
        yield finding("tfchunk-numbers", Severity.ERROR, chunk.path, detail, _BACKUP, at)
    yield from check_reserved("tfchunk-reserved", HEADER, header, chunk.path, 0)


def _footer(chunk: TFChunkFile) -> Iterator[Finding]:
    footer, place = chunk.footer, chunk.size - FOOTER_SIZE
    if footer.map_size < 0 or footer.map_size % footer.map_unit.size:
        detail = f"expected a multiple of {footer.map_unit.size} as map size, found {footer.map_size}"
        yield finding("tfchunk-footer", Severity.ERROR, chunk.path, detail, _BACKUP, place)
        return
    if footer.logical_size < footer.physical_size:
        detail = f"logical size {footer.logical_size} is below physical size {footer.physical_size}"
        yield finding("tfchunk-footer", Severity.ERROR, chunk.path, detail, _BACKUP, place)
    expected = tfchunk.file_size(chunk.header, footer)
    if expected != chunk.size:
        detail = f"expected a file of {expected} bytes by its sizes, found {chunk.size}"
        yield finding("tfchunk-footer", Severity.ERROR, chunk.path, detail, _BACKUP, place)
    data_end = footer.physical_size + footer.map_size
    room = chunk.size - HEADER_SIZE - FOOTER_SIZE
    if chunk.last_used(data_end, room) > data_end:
        detail = "the padding before the footer is not all zero"
        yield finding("tfchunk-padding", Severity.WARNING, chunk.path, detail, "", HEADER_SIZE + data_end)


def _hash(chunk: TFChunkFile) -> Iterator[Finding]:
    digest = chunk.md5()
    if digest != chunk.footer.md5 and chunk.unread(-HEADER_SIZE, chunk.size - HEADER_SIZE) is None:
        detail = f"expected MD5 {chunk.footer.md5.hex()}, found {digest.hex()}: the server stops on it"
        yield finding("tfchunk-md5", Severity.ERROR, chunk.path, detail, _BACKUP, chunk.size - tfchunk.MD5_SIZE)


def _frames(chunk: TFChunkFile, places: "_Places") -> Iterator[Finding]:
    at, end = 0, chunk.written
    resumed = partial(_resumed, chunk)
    for item in chunk.walk(end, tfchunk.MAX_RECORD_SIZE, partial(valid_run, chunk), chunk.read_record, resumed):
        if isinstance(item, Damage):
            at = item.end - chunk.start
            continue
        valid = item if isinstance(item, ValidRun) else TFChunkDb.run_of(item)
        places.add(valid)
        yield from _positions(valid)
        at = valid.run.end
    bad = chunk.read_record(at) if at < chunk.written else None
    if isinstance(bad, InvalidFrame) and chunk.unread_at(at, bad):
        return
    end_is_known = chunk.is_completed or chunk.written < chunk.size - HEADER_SIZE
    if isinstance(bad, InvalidFrame) and (end_is_known or chunk.last_used(at, chunk.written) > at):
        detail = f"forwards: {bad.detail}"
        yield finding("tfchunk-frames", Severity.ERROR, chunk.path, detail, _BACKUP, HEADER_SIZE + at)
        yield from _backwards(chunk, at)


def _resumed(chunk: TFChunkFile, at: int) -> int | None:
    """Returns the data position of the next valid record after one that cannot be read; None after a damaged one."""
    record = chunk.read_record(at)
    return resume(chunk, at) if isinstance(record, InvalidFrame) and chunk.unread_at(at, record) else None


def _backwards(chunk: TFChunkFile, stop: int) -> Iterator[Finding]:
    """Reports the end of the damage, found by reading the chunk backwards."""
    end = chunk.written
    while True:
        record = chunk.read_record_before(end, stop)
        if isinstance(record, InvalidFrame):
            if chunk.unread(stop, end) is not None:
                return
            detail = f"backwards: {record.detail}"
            yield finding("tfchunk-frames-backward", Severity.ERROR, chunk.path, detail, _BACKUP, HEADER_SIZE + end)
            return
        end = record.frame.start


def _positions(valid: ValidRun) -> Iterator[Finding]:
    chunk = valid.chunk
    if chunk.header.is_scavenged:
        return
    starts, stated = valid.run.positions, valid.positions
    for number in np.flatnonzero(stated != starts + chunk.start).tolist():
        start = int(starts[number])
        detail = f"expected log position {chunk.start + start}, found {stated[number]}"
        yield finding("tfchunk-log-position", Severity.ERROR, chunk.path, detail, _BACKUP, HEADER_SIZE + start)


class _Places:
    """Data positions and log positions of the valid records of one chunk."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, valid: ValidRun) -> None:
        """Adds a run; runs must be added in order."""
        self._parts.append((valid.run.positions, valid.positions))

    def states(self, chunk: TFChunkFile) -> np.ndarray:
        """Returns for each entry of the position map whether it leads to a valid record with its log position."""
        actual = np.array([entry.actual for entry in chunk.map], np.int64)
        logical = np.array([entry.logical for entry in chunk.map], np.int64)
        if not self._parts:
            return np.zeros(len(actual), bool)
        starts, stated = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        row = np.minimum(np.searchsorted(starts, actual), len(starts) - 1)
        return np.asarray((starts[row] == actual) & (stated[row] == logical + chunk.start))


def _map(chunk: TFChunkFile, places: _Places) -> Iterator[Finding]:
    first, unit = HEADER_SIZE + chunk.footer.physical_size, chunk.footer.map_unit.size
    if chunk.unread(chunk.footer.physical_size, chunk.footer.physical_size + chunk.footer.map_size) is not None:
        return
    before, known = -1, places.states(chunk).tolist()
    for number, entry in enumerate(chunk.map):
        place = first + number * unit
        if entry.logical <= before:
            detail = f"entries are not sorted: {entry.logical} follows {before}"
            yield finding("tfchunk-map", Severity.ERROR, chunk.path, detail, _BACKUP, place)
        if not known[number]:
            yield from _map_entry(chunk, entry, place)
        before = entry.logical


def _map_entry(chunk: TFChunkFile, entry: tfchunk.MapEntry, place: int) -> Iterator[Finding]:
    record = chunk.read_record(entry.actual)
    if isinstance(record, InvalidFrame) and chunk.unread_at(entry.actual, record):
        return
    if isinstance(record, InvalidFrame) or record.position != chunk.start + entry.logical:
        found_words = (
            record.detail if isinstance(record, InvalidFrame) else f"the record of log position {record.position}"
        )
        detail = f"log position {chunk.start + entry.logical} leads to data position {entry.actual}: {found_words}"
        yield finding("tfchunk-map", Severity.ERROR, chunk.path, detail, _BACKUP, place)
