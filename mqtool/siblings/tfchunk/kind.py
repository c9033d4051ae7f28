"""EventStore's databases behind the common interface for kinds of stores: as rows, and as Arrow batches.

A salvage scans each chunk from both ends, and then what remains in between.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mqtool.formats import tfchunk
from mqtool.formats.equeue import ticks_to_millis
from mqtool.formats.tfchunk import LAST_OF_VERSION_0, Commit, Prepare, RecordType, System
from mqtool.records.damage import Damage
from mqtool.siblings import Row, Table
from mqtool.siblings.base import OpenedStore, is_position
from mqtool.siblings.frames import SalvagedChunk, salvage_row
from mqtool.siblings.tfchunk import CHUNKS, RECORDS, TABLES, verify
from mqtool.siblings.tfchunk.store import Group, StoredRecord, TFChunkDb, TFChunkFile, ValidRun, is_database, resume
from mqtool.store.log.readable_parts import UnreadableParts
from mqtool.verify.findings import Finding

_NULL = -1
_NUMBERS = ("flags", "transaction_position", "transaction_offset")
_RANGES = {"event_stream_id": "event_stream_id", "event_type": "event_type", "metadata": "metadata", "body": "data"}
_GUIDS = ("event_id", "correlation_id")
_EVENT_NUMBERS = {RecordType.PREPARE: "expected_version", RecordType.COMMIT: "first_event_number"}
_LONG_MAX = (1 << 63) - 1

ChunkReport = SalvagedChunk[TFChunkFile, StoredRecord]


def record_batches(database: TFChunkDb, chunk: str = "") -> Iterator[Any]:
    """Yields record batches of the records of a chunk file, or of all, with damage between them."""
    for item in database.runs(chunk):
        if isinstance(item, Damage):
            yield item
        else:
            yield _records(database.run_of(item) if isinstance(item, StoredRecord) else item)


class _Columns:
    """Builds the columns of a run, one group of records after another; fields that a group does not have stay null."""

    def __init__(self, valid: ValidRun) -> None:
        count = len(valid.run)
        self._valid = valid
        names = (*_NUMBERS, "event_number")
        self.numbers = {name: (np.zeros(count, np.int64), np.zeros(count, bool)) for name in names}
        self.starts = {name: np.zeros(count, np.int64) for name in (*_RANGES, *_GUIDS)}
        self.lengths = {name: np.full(count, _NULL) for name in (*_RANGES, *_GUIDS)}
        self.types, self.versions, self.ticks = (np.zeros(count, np.int64) for _ in range(3))
        for group in valid.groups:
            self._fill(group)

    def _fill(self, group: Group) -> None:
        rows, fixed = group.rows, group.fields.fixed
        self.types[rows], self.versions[rows], self.ticks[rows] = group.record_type, group.version, fixed["time"]
        for name in _NUMBERS:
            if name in fixed:
                self._put(name, rows, fixed[name])
        number = _EVENT_NUMBERS.get(RecordType(group.record_type))
        if number is not None:
            self._put("event_number", rows, _event_numbers(group, fixed[number]))
        for name, source in _RANGES.items():
            if source in group.fields.starts:
                self.starts[name][rows] = group.fields.starts[source]
                self.lengths[name][rows] = group.fields.lengths[source]
        for name in _GUIDS:
            if name in fixed:
                self.starts[name][rows] = group.fields.places[name]
                self.lengths[name][rows] = 16

    def _put(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        column, known = self.numbers[name]
        column[rows], known[rows] = values, True


def _event_numbers(group: Group, stored: np.ndarray) -> np.ndarray:
    """Converts event numbers as stored by version 1, see `formats.tfchunk.event_number`."""
    if group.version:
        return stored
    kind = RecordType(group.record_type)
    last = LAST_OF_VERSION_0[kind][1]
    return np.where(stored == last, _LONG_MAX - (kind is RecordType.PREPARE), stored.astype(np.int64))


def _records(valid: ValidRun) -> Any:
    from mqtool.siblings import arrow  # noqa: PLC0415 - pyarrow costs 100 ms at import

    fields, data = _Columns(valid), valid.run.data
    names = np.array([kind.name.lower() for kind in RecordType])
    columns: dict[str, Any] = {
        "position": valid.positions,
        "chunk": [valid.chunk.path.name] * len(valid.run),
        "length": valid.run.sizes,
        "type": names[fields.types].tolist(),
        "version": fields.versions,
        "time": arrow.times(fields.ticks),
        "ticks": fields.ticks,
        "body_size": arrow.nullable(fields.lengths["body"], fields.lengths["body"] >= 0, "int32"),
    }
    for column in RECORDS.columns:
        name = column.name
        if name in fields.numbers:
            columns[name] = arrow.nullable(*fields.numbers[name], column.type)
        elif name in _GUIDS:
            columns[name] = arrow.guids(data, fields.starts[name], fields.lengths[name] >= 0)
        elif name in _RANGES:
            make = arrow.texts if column.type == "string" else arrow.raw
            columns[name] = make(data, fields.starts[name], fields.lengths[name])
    return arrow.record_batch(RECORDS, columns)


def report(database: TFChunkDb) -> list[ChunkReport]:
    """Returns the records that each readable chunk still contains, up to writer.chk."""
    return [salvage_chunk(database, chunk) for chunk in database.chunks if not chunk.is_transformed]


def salvage_chunk(database: TFChunkDb, chunk: TFChunkFile) -> ChunkReport:
    """Scans a chunk for records from both ends, then in between."""
    chunk_report = ChunkReport(chunk)
    start = 0
    while isinstance(record := chunk.read_record(start), StoredRecord):
        chunk_report.forwards.append(record)
        start = record.frame.end
    end = chunk.written
    while end > start and isinstance(record := chunk.read_record_before(end, start), StoredRecord):
        chunk_report.backwards.insert(0, record)
        end = record.frame.start
    chunk_report.between = list(_between(chunk, start, end))
    last = chunk_report.records[-1].frame.end if chunk_report.records else 0
    end = max(chunk.written, database.data_end(chunk, last))
    chunk_report.damage = list(chunk_report.gaps(end, "no record is found here from either side"))
    return chunk_report


def _between(chunk: TFChunkFile, at: int, end: int) -> Iterator[StoredRecord]:
    while at < end:
        record = chunk.read_record(at)
        if isinstance(record, StoredRecord):
            yield record
            at = record.frame.end
            continue
        place = resume(chunk, at)
        if place is None:
            return
        at = place


class OpenedTFChunk(OpenedStore):
    """An EventStore database, read-only."""

    tables = TABLES
    recognises = staticmethod(is_database)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = TFChunkDb(path, UnreadableParts())

    def layout(self) -> Row:
        """Returns a description of the database."""
        database = self.database
        versions = sorted({chunk.header.version for chunk in database.chunks})
        return {
            "release": f"chunks of version {', '.join(map(str, versions))}",
            "chunk_size": max((chunk.header.chunk_size for chunk in database.chunks), default=None),
            "chunks": len(database.chunks),
            "scavenged_chunks": sum(chunk.header.is_scavenged > 0 for chunk in database.chunks),
            "min_position": min((chunk.start for chunk in database.chunks), default=None),
            "max_position": database.writer,
            "checkpoints": dict(database.checkpoints),
            "oddities": [
                *(f"{path}: {reason}" for path, reason in database.unread.reasons.items()),
                *(f"{path.name} is superseded by a newer version" for path in database.superseded),
            ],
        }

    def rows(self, table: str) -> Iterator[Row | Damage]:
        """Yields records or chunks."""
        if table == CHUNKS.name:
            yield from self._chunks()
            return
        yield from self._records()

    def parts(self, table: str) -> tuple[str, ...]:
        """Returns the names of the chunk files; the table of chunks is one part."""
        return self.database.names or ("",) if table == RECORDS.name else ("",)

    def batches(self, table: str, part: str = "") -> Iterator[Any] | None:
        """Yields records as record batches."""
        return record_batches(self.database, part) if table == RECORDS.name else None

    def rows_of_file(self, path: Path) -> tuple[Table, Iterator[Row | Damage]] | None:
        """Returns the records of a chunk, or why it is not read."""
        full_path = path.absolute()
        paths = (*(chunk.path for chunk in self.database.chunks), *self.database.unread.reasons)
        is_chunk = any(listed.absolute() == full_path for listed in paths)
        return (RECORDS, self._records(path.name)) if is_chunk else None

    def get(self, address: str) -> list[Row | Damage]:
        """Returns the record at a log position.

        Raises CorruptionError if there is no record, UnreadableError if the system cannot read what is there.
        """
        return [record_row(self.database.record_at(int(address)))] if is_position(address) else []

    def verify(self) -> Iterator[Finding]:
        """Yields a finding for each broken invariant."""
        return verify.verify(self.database)

    def salvage(self, target: Path | None) -> list[Row]:
        """Reports the readable records of each chunk; with a target, also writes them as a Parquet file.

        A missing, unreadable or encrypted chunk has a row without records.
        """
        reports = report(self.database)
        if target is not None:
            from mqtool.siblings import arrow  # noqa: PLC0415 - pyarrow costs 100 ms at import

            target.mkdir(parents=True, exist_ok=True)
            records = (record_row(record) for item in reports for record in item.records)
            arrow.write(records, RECORDS, target / f"{RECORDS.name}.parquet")
        unread = [salvage_row(item.path, 0, 0, 0, item.end - item.start) for item in self.database.unread_chunks()]
        return sorted([*(item.row() for item in reports), *unread], key=lambda row: str(row["file"]))

    def close(self) -> None:
        """Closes the database's files."""
        self.database.close()

    def _records(self, chunk: str = "") -> Iterator[Row | Damage]:
        for item in self.database.records(chunk):
            yield record_row(item) if isinstance(item, StoredRecord) else item

    def _chunks(self) -> Iterator[Row]:
        for chunk in self.database.chunks:
            header, footer = chunk.header, chunk.footer
            yield {
                "file": chunk.path.name,
                "version": header.version,
                "start_number": header.start_number,
                "end_number": header.end_number,
                "chunk_id": header.uuid,
                "scavenged": header.is_scavenged > 0,
                "completed": chunk.is_completed,
                "physical_size": chunk.written,
                "map_entries": len(chunk.map),
                "md5": footer.md5.hex() if chunk.is_completed else None,
                "size": chunk.size,
            }


KIND = OpenedTFChunk


def record_row(stored: StoredRecord) -> dict[str, Any]:
    """Returns a record as a row of `RECORDS`."""
    record = stored.record
    row: dict[str, Any] = dict.fromkeys(column.name for column in RECORDS.columns)
    row |= {
        "position": stored.position,
        "chunk": stored.chunk.path.name,
        "length": len(stored.frame.record),
        "type": type(record).__name__.lower(),
        "version": record.version,
        "time": ticks_to_millis(record.time),
        "ticks": record.time,
    }
    if isinstance(record, Prepare):
        row |= {
            "event_stream_id": record.event_stream_id.decode("utf-8", "replace"),
            "event_type": record.event_type.decode("utf-8", "replace"),
            "flags": record.flags,
            "transaction_offset": record.transaction_offset,
            "event_id": tfchunk.guid(record.event_id),
            "metadata": record.metadata,
        }
    if isinstance(record, Prepare | Commit):
        row |= {
            "event_number": tfchunk.event_number(record),
            "transaction_position": record.transaction_position,
            "correlation_id": tfchunk.guid(record.correlation_id),
        }
    if isinstance(record, Prepare | System):
        row |= {"body_size": len(record.data), "body": record.data}
    return row
