"""The interface that every kind of store offers: recognise, layout, rows with damage, single rows, verify.

To add a kind: write one package with a module `kind` (`recognises`, and `open_kind` that returns an `Opened`) and one
`columns` (`TABLES`), and give it a row in `registry.KINDS`. Commands and `export` use only this interface.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Row = dict[str, Any]
"""One record as field name to value; text is `str`, bodies are `bytes`."""


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a table's rows.

    Attributes:
        name: of the field.
        type: "int32", "int64", "boolean", "string", "bytes" or "time" (ms since 1970, int64).
        doc: what it means, with its unit.
        shown: 0 in every table, 1 in wide ones, 2 in data formats only.
    """

    name: str
    type: str
    doc: str
    shown: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a kind of store.

    Attributes:
        name: `dump --kind NAME`; the first table of a kind is its default.
        doc: what one row is.
        columns: of its rows, in order.
        selected_by: selection option (`topic`, `queue`, `tag`, `unique_key`, `time`, `offset`, `grep`) to the column
            that it filters; options that are missing here do not apply.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    selected_by: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of positions without a valid record, yielded among the rows; reading continues after it.

    Attributes:
        start, end: global positions in the store, half-open.
        kind: stable name of the damage.
        detail: expected and found.
        path: the file.
        position: of `start` in that file.
    """

    start: int
    end: int
    kind: str
    detail: str
    path: Path
    position: int

    def __str__(self) -> str:
        size = self.end - self.start
        return f"{self.path} position {self.position}: {self.kind} at {self.start}, {size} bytes: {self.detail}"


class Severity(enum.StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    """The check could not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken invariant.

    Attributes:
        code: stable name of the invariant.
        severity: how bad it is.
        path: the file or directory.
        detail: expected and found.
        next_step: what to do.
        position: in the file, where there is one.
    """

    code: str
    severity: Severity
    path: Path
    detail: str
    next_step: str = ""
    position: int | None = None

    def __str__(self) -> str:
        at = "" if self.position is None else f" position {self.position}"
        step = f"; {self.next_step}" if self.next_step else ""
        return f"{self.severity} {self.code}: {self.path}{at}: {self.detail}{step}"


def saved_row(
    path: Path,
    forwards: Sequence[object],
    backwards: Sequence[object],
    between: Sequence[object],
    damage: Sequence[Damage],
) -> Row:
    """Returns the result for one file as a row of `Opened.salvage`; records are counted by scan direction."""
    return {
        "file": path.name,
        "forwards": len(forwards),
        "backwards": len(backwards),
        "between": len(between),
        "damaged_bytes": sum(part.end - part.start for part in damage),
    }


class Opened(ABC):
    """A store of one kind, opened for reading. Use it as a context manager.

    Attributes:
        path: its root directory, or one file of it.
        tables: the sorts of rows it has.
    """

    path: Path
    tables: tuple[Table, ...]

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
