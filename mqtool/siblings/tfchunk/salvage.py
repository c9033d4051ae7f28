"""What can be saved of a damaged database: records found from either end of each chunk, and what lies between."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqtool.formats.tfchunk import HEADER_SIZE
from mqtool.records.damage import Damage
from mqtool.siblings.tfchunk.chunk import StoredRecord, TFChunkFile
from mqtool.siblings.tfchunk.store import TFChunkDb, resume


@dataclass(slots=True)
class ChunkReport:
    """One chunk.

    Attributes:
        chunk: the file.
        forwards: records found from the beginning, by the lengths before them.
        backwards: further ones found from the end of data, by the lengths after them, in the log's order.
        between: further ones that state their own position, or that the position map names.
        damage: ranges without a record.
    """

    chunk: TFChunkFile
    forwards: list[StoredRecord] = field(default_factory=list)
    backwards: list[StoredRecord] = field(default_factory=list)
    between: list[StoredRecord] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def records(self) -> list[StoredRecord]:
        """All of them in the order of the file."""
        return [*self.forwards, *self.between, *self.backwards]


def report(database: TFChunkDb) -> list[ChunkReport]:
    """Returns what every readable chunk still holds, up to writer.chk."""
    return [salvage_chunk(chunk) for chunk in database.chunks if not chunk.is_transformed]


def salvage_chunk(chunk: TFChunkFile) -> ChunkReport:
    """Looks for records from both ends of a chunk, then between."""
    found = ChunkReport(chunk)
    start = 0
    while isinstance(record := chunk.read_record(start), StoredRecord):
        found.forwards.append(record)
        start = record.frame.end
    end = chunk.written
    while end > start and isinstance(record := chunk.read_record_before(end), StoredRecord):
        if record.frame.start < start:
            break
        found.backwards.insert(0, record)
        end = record.frame.start
    found.between = list(_between(chunk, start, end))
    _gaps(found)
    return found


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


def _gaps(found: ChunkReport) -> None:
    at = 0
    ends = [*((record.frame.start, record.frame.end) for record in found.records), (found.chunk.written,) * 2]
    for first, after in ends:
        if first > at:
            detail = "no record is found here from either side"
            chunk = found.chunk
            found.damage.append(
                Damage(chunk.start + at, chunk.start + first, "lost", detail, chunk.path, HEADER_SIZE + at)
            )
        at = max(at, after)
