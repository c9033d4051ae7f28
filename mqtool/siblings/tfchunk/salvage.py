"""Salvages records of a damaged database: scans each chunk from both ends, and what remains in between."""

from collections.abc import Iterator

from mqtool.formats.tfchunk import HEADER_SIZE
from mqtool.siblings.salvaged import SalvagedChunk
from mqtool.siblings.tfchunk.chunk import StoredRecord, TFChunkFile
from mqtool.siblings.tfchunk.store import TFChunkDb, resume

ChunkReport = SalvagedChunk[TFChunkFile, StoredRecord]


def report(database: TFChunkDb) -> list[ChunkReport]:
    """Returns the records that each readable chunk still contains, up to writer.chk."""
    return [salvage_chunk(database, chunk) for chunk in database.chunks if not chunk.is_transformed]


def salvage_chunk(database: TFChunkDb, chunk: TFChunkFile) -> ChunkReport:
    """Scans a chunk for records from both ends, then in between."""
    chunk_report = ChunkReport(chunk, HEADER_SIZE)
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
