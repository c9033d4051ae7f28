"""Results of salvaging one chunk of framed records, scanned from both ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field

from mqtool.records.damage import Damage
from mqtool.siblings.tables import Row


class _Span(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class _Framed(Protocol):
    @property
    def frame(self) -> _Span: ...


class _Chunk(Protocol):
    start: int
    path: Path


Chunk = TypeVar("Chunk", bound=_Chunk)
Record = TypeVar("Record", bound=_Framed)


class SalvagedChunk(Struct, Generic[Chunk, Record]):
    """Records salvaged from one chunk.

    Attributes:
        chunk: the file.
        header_size: size of the header before the data in bytes; positions of frames are relative to its end.
        forwards: records found from the start.
        backwards: further records found from the end of the data, in the order of the file.
        between: further records found in between, because they state their own position.
        damage: ranges without a record.
    """

    chunk: Chunk
    header_size: int
    forwards: list[Record] = field(default_factory=list)
    backwards: list[Record] = field(default_factory=list)
    between: list[Record] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """All salvaged records in the order of the file."""
        return [*self.forwards, *self.between, *self.backwards]

    def gaps(self, end: int, detail: str) -> Iterator[Damage]:
        """Yields the ranges before `end` in which no record was found."""
        at = 0
        for first, after in [*((record.frame.start, record.frame.end) for record in self.records), (end, end)]:
            if first > at:
                yield self.lost(at, first, detail)
            at = max(at, after)

    def discard(self, record: Record, reason: str) -> None:
        """Removes a record and adds its range to the damage."""
        for part in (self.forwards, self.between, self.backwards):
            part[:] = [kept for kept in part if kept is not record]
        self.damage.append(self.lost(record.frame.start, record.frame.end, reason))

    def lost(self, start: int, end: int, detail: str) -> Damage:
        """Returns a damage for a range of data positions."""
        base = self.chunk.start
        return Damage(base + start, base + end, "lost", detail, self.chunk.path, self.header_size + start)

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
