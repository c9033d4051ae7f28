"""The interface that every kind of store offers: recognise, layout, rows with damage, single rows, verify.

To add a kind: write one package with a module `kind` (a subclass of `Opened`, named by `KIND`) and one `columns`
(`TABLES`), and give it a row in `registry.KINDS`. Commands and `export` use only this interface.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mqtool.records.damage import Damage
from mqtool.siblings.tables import Row, Table
from mqtool.verify.findings import Finding, Severity


def finding(
    code: str, severity: Severity, path: Path | None, evidence: str, next_step: str = "", position: int | None = None
) -> Finding:
    """Returns a finding about a file or directory of a store.

    Args:
        code: stable name of the invariant.
        severity: how bad it is.
        path: the file or directory.
        evidence: expected and found.
        next_step: what to do.
        position: in the file, where there is one.
    """
    return Finding(code, severity, str(path or ""), position, evidence=evidence, next_step=next_step)


MISSING_CHUNK = "missing-chunk"
"""Kind of damage of a file of the log that is not there."""
LISTED_CHUNKS = 256
"""Missing chunks in a row that are listed one by one: a damaged number may put millions of them between two files."""


def missing_chunks(
    gaps: Iterable[range], others: Container[int | None], capacity: int, path_of: Callable[[int], Path]
) -> list[Damage]:
    """Returns a damage for each missing chunk; one for all of a gap of more than `LISTED_CHUNKS`.

    Args:
        gaps: numbers of chunks that are missing in a row.
        others: numbers of chunks that are there, but cannot be read.
        capacity: bytes of positions in a chunk.
        path_of: returns the path of a chunk by its number.
    """
    missing: list[Damage] = []
    for gap in gaps:
        first, end = gap.start, gap.stop
        if end - first > LISTED_CHUNKS:
            detail = f"{end - first} files are missing, up to {path_of(end - 1).name}"
            missing.append(Damage(first * capacity, end * capacity, MISSING_CHUNK, detail, path_of(first)))
            continue
        missing += [
            Damage(number * capacity, (number + 1) * capacity, MISSING_CHUNK, "the file is missing", path_of(number))
            for number in gap
            if number not in others
        ]
    return missing


class Opened(ABC):
    """A store of one kind, opened for reading. Use it as a context manager.

    Attributes:
        path: its root directory, or one file of it.
        tables: the sorts of rows it has.
    """

    path: Path
    tables: tuple[Table, ...]

    @abstractmethod
    def __init__(self, path: Path) -> None:
        """Opens a store for reading.

        Raises:
            NotAStoreError, StoreError, UnsupportedFormatError: it cannot be read.
        """

    @staticmethod
    @abstractmethod
    def recognises(path: Path) -> bool:
        """Whether a path leads to a store, or a file of one, of this kind. Reads names and first bytes only."""

    @abstractmethod
    def layout(self) -> Row:
        """Returns a description of the store: release, sizes and their source, files with their states, oddities."""

    @abstractmethod
    def rows(self, table: str) -> Iterator[Row | Damage]:
        """Yields the rows of one table in the store's order, and damage at its position."""

    def batches(self, table: str, part: str = "") -> Iterator[Any] | None:  # noqa: ARG002 - as below
        """Yields the same as `pyarrow.RecordBatch`, and damage; None for a table that has rows only.

        Args:
            table: by name.
            part: one of `parts`; "" for all.
        """
        return None

    def parts(self, table: str) -> tuple[str, ...]:  # noqa: ARG002 - as below
        """Returns names of parts of a table that can be read independently, in order; at least one."""
        return ("",)

    def rows_of_file(self, path: Path) -> tuple[Table, Iterator[Row | Damage]] | None:  # noqa: ARG002 - as below
        """Returns the rows that one file of the store holds, and their table; None for a file that holds none."""
        return None

    @abstractmethod
    def get(self, address: str) -> Row | None:
        """Returns the row at an address, None if the address is of no form that the kind knows.

        Raises:
            CorruptionError: nothing valid is there.
        """

    @abstractmethod
    def verify(self) -> Iterator[Finding]:
        """Yields every broken invariant."""

    def explain(self) -> Row | None:
        """Returns what a start of the store's own system would do to it, None if that is unknown for this kind.

        Keys: verdict, harmless, starts, clears_root, write_position, overwritten, missing, unserved, silent.
        """
        return None

    def rebuild(self, out: Path) -> list[Row] | None:  # noqa: ARG002 - of no use where there is nothing to rebuild
        """Writes rebuilt queues into a new directory; None for a kind that has nothing to rebuild.

        Returns:
            A row for each queue: queue, entries, kept, placed, filled.
        """
        return None

    def salvage(self, target: Path | None) -> list[Row] | None:  # noqa: ARG002 - as above
        """Salvages records of damaged files, scanning each from both ends; None for a kind that does not support it.

        Args:
            target: new directory for the records found; None only reports.

        Returns:
            A row for each file: file, forwards, backwards, between (records), damaged_bytes.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Closes its files."""

    def table(self, name: str | None = None) -> Table:
        """Returns a table by name, by default the first."""
        return next((table for table in self.tables if table.name == name), self.tables[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
