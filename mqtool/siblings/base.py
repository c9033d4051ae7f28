"""The interface of a kind of store: recognise, layout, rows with damage, single rows, verify.

To add a kind, write a package with `TABLES`, and its module `kind` (a subclass of `OpenedStore`, named by `KIND`), and
add a row to `registry.KINDS`. Commands and `export` use only this interface.
"""

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from mqtool.errors import FormatError, UnreadableError
from mqtool.formats.codec import Unit
from mqtool.records.damage import Damage
from mqtool.siblings import Row, Table
from mqtool.siblings.frames import FrameFile
from mqtool.store.files import Closing
from mqtool.verify.findings import Finding, Severity

Chunk = TypeVar("Chunk", bound=FrameFile)

READ_IT = "let this user read it, or copy it to another disk; then check again"
"""What to do about a file that the system refuses to read."""

MISSING_CHUNK = "missing-chunk"
"""Kind of damage of a missing chunk file."""
LISTED_CHUNKS = 256
"""Maximum number of consecutive missing chunks reported one by one; a damaged number may leave a gap of millions."""


def finding(
    code: str, severity: Severity, path: Path | None, evidence: str, next_step: str = "", position: int | None = None
) -> Finding:
    """Returns a finding about a file or directory of a store; `evidence` is what was expected and what was found."""
    return Finding(code, severity, str(path or ""), position, evidence=evidence, next_step=next_step)


def check_reserved(code: str, unit: Unit[Any], value: Any, path: Path, start: int, name: str = "") -> Iterator[Finding]:
    """Yields a finding if reserved bytes of a unit, which begins at `start` in a file, are not zero."""
    if any(value.reserved):
        first = unit.offset("reserved")
        detail = f"{name}bytes {first} to {first + len(value.reserved) - 1} are not all zero"
        yield finding(code, Severity.WARNING, path, detail, "", start + first)


def is_position(text: str) -> bool:
    """Whether an address is a position or a queue offset: at most 18 digits, which fit into 64 bits."""
    return text.isdecimal() and len(text) < 19


class UnreadChunks(Struct):
    """Chunk files that could not be opened."""

    reasons: dict[Path, str] = field(default_factory=dict)  # reason by path
    # those that the system refuses to read, so that it is unknown what they contain
    unknown: set[Path] = field(default_factory=set)

    def open(self, path: Path, opened: Callable[[Path], Chunk]) -> Chunk | None:
        """Opens a chunk file; notes the reason and returns None if that is not possible."""
        try:
            return opened(path)
        except FormatError as error:
            self.reasons[path] = str(error)
        except UnreadableError as error:
            self.reasons[path] = error.reason
            self.unknown.add(path)
        return None

    def findings(self, kind: str, next_step: str) -> Iterator[Finding]:
        """Yields a finding for each file: `KIND-no-chunk` with the next step, or `KIND-unreadable`."""
        for path, reason in self.reasons.items():
            if path in self.unknown:
                yield finding(f"{kind}-unreadable", Severity.UNKNOWN, path, reason, READ_IT)
            else:
                yield finding(f"{kind}-no-chunk", Severity.ERROR, path, reason, next_step)


def missing_chunks(
    gaps: Iterable[range], others: Container[int | None], capacity: int, path_of: Callable[[int], Path]
) -> list[Damage]:
    """Returns a damage for each missing chunk, or one for a whole gap of more than `LISTED_CHUNKS`.

    `gaps` are ranges of consecutive missing chunk numbers, `others` numbers of chunks that exist but cannot be read;
    the capacity of a chunk is in positions.
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


def chunks_in_order(
    chunks: Iterable[Chunk], missing: list[Damage], unreadable: Mapping[Path, str], name: str
) -> Iterator[Chunk | Damage]:
    """Yields chunks with a damage for each missing one between them, after a damage for each unreadable one.

    `missing` is the result of `missing_chunks`, `unreadable` has reasons by path; `name` is the file name of the only
    chunk to read, "" for all.
    """
    for path, reason in unreadable.items():
        if name in ("", path.name):
            yield Damage(0, 0, "no-chunk", reason, path, 0)
    missing = [gap for gap in missing if name in ("", gap.file_name)]
    for chunk in chunks:
        while missing and missing[0].start < chunk.start:
            yield missing.pop(0)
        if name in ("", chunk.path.name):
            yield chunk
    yield from missing


class OpenedStore(Closing):
    """A store of one kind, opened for reading."""

    path: Path  # root directory of the store, or one file of it
    tables: tuple[Table, ...]  # the tables that the store has

    @abstractmethod
    def __init__(self, path: Path) -> None:
        """Opens a store for reading.

        Raises NotAStoreError, StoreError or UnsupportedFormatError if the store cannot be read.
        """

    @staticmethod
    @abstractmethod
    def recognises(path: Path) -> bool:
        """Whether a path is a store of this kind, or a file of one. Reads only names and first bytes."""

    @abstractmethod
    def layout(self) -> Row:
        """Returns a description of the store: release, sizes and their source, files with their states, oddities."""

    @abstractmethod
    def rows(self, table: str) -> Iterator[Row | Damage]:
        """Yields the rows of one table in the store's order, and damage at its position."""

    def batches(self, table: str, part: str = "") -> Iterator[Any] | None:  # noqa: ARG002 - as below
        """Yields a table, or one of its `parts`, as `pyarrow.RecordBatch` and damage; None if it has only rows."""
        return None

    def parts(self, table: str) -> tuple[str, ...]:  # noqa: ARG002 - as below
        """Returns the names of parts of a table that can be read independently, in order; at least one."""
        return ("",)

    def rows_of_file(self, path: Path) -> tuple[Table, Iterator[Row | Damage]] | None:  # noqa: ARG002 - as below
        """Returns the table and the rows that one file of the store contains; None if it contains no rows."""
        return None

    @abstractmethod
    def get(self, address: str) -> list[Row | Damage]:
        """Returns the rows at an address, and damage at it next to them; empty if the text is not an address.

        Several brokers can share a store, in which one address then has a row of each. Raises CorruptionError if there
        is no valid record at the address, UnreadableError if the system cannot read the record, and no other broker has
        one.
        """

    @abstractmethod
    def verify(self) -> Iterator[Finding]:
        """Yields a finding for each broken invariant."""

    def explain(self) -> Row | None:
        """Returns what the store's own system would do to it on startup; None if that is unknown for this kind.

        Keys: verdict, harmless, starts, clears_root, write_position, overwritten, missing, unserved, cut,
        silent, unknown.
        """
        return None

    def rebuild(self, out: Path, on_damage: Callable[[Damage], None]) -> list[Row] | None:  # noqa: ARG002 - for kinds that rebuild
        """Writes rebuilt queues to a new directory; returns None if the kind has nothing to rebuild.

        `on_damage` is called with each range without a message, for which queues have no new entries, and with each
        range of unreadable entries. The result has a row for each queue: queue, entries, kept, placed, filled.
        """
        return None

    def salvage(self, target: Path | None) -> list[Row] | None:  # noqa: ARG002 - as above
        """Salvages records of damaged files, scanning each file from both ends; None if the kind does not support it.

        The target is a new directory for the records found; None to report only. The result has a row for each file:
        file, forwards, backwards, between (numbers of records), damaged_bytes.
        """
        return None

    def table(self, name: str | None = None) -> Table:
        """Returns the table of a name, by default the first table."""
        return next((table for table in self.tables if table.name == name), self.tables[0])
