"""Damage that commands meet: a line on stderr for each, exit code 1 in the end, and ranges as rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import note
from mqtool.cli.schema import TABLE, WIDE, Column, listing, row_of

if TYPE_CHECKING:
    from mqtool.records.damage import Damage, Tail

MAX_LINES = 1000
"""Lines of damage; the rest is counted. A store of zeros must not flood a terminal."""

DAMAGED_RANGES = listing(
    "damage",
    "ranges of the log without a valid record; what they held is not in the result",
    Column("start", "int64", "physical offset of the first byte", show=TABLE),
    Column("end", "int64", "physical offset after the last byte", show=TABLE),
    Column("kind", "string", "see docs/rebuild.md", show=TABLE),
    Column("path", "string", "file", show=WIDE, nullable=True),
    Column("position", "int64", "of `start` in the file", show=WIDE),
    Column("detail", "string", "expected and found", show=TABLE),
)

_NOTED = 10
"""Ranges that get a line on stderr."""


class DamageReport:
    """Counts and reports damage."""

    def __init__(self, *, lines: bool = True) -> None:
        """Prints a line for each if `lines`; otherwise the damage is among the rows."""
        self.count = 0
        self._lines = lines
        self._missing = False

    def missing(self) -> None:
        """Notes that something requested does not exist."""
        self._missing = True

    def report(self, text: str) -> None:
        """Counts one damage and prints its line."""
        self.count += 1
        if self._lines and self.count <= MAX_LINES:
            note(text)

    def damage(self, damage: Damage) -> None:
        """Reports a range without a valid record."""
        self.report(f"damage: {damage}")

    def unknown(self, sentences: Iterable[str]) -> None:
        """Reports what could not be read and makes the result incomplete."""
        for sentence in sentences:
            note(f"unknown: {sentence}")
            self._missing = True

    def tail(self, tail: Tail) -> None:
        """Reports what follows the last record; bytes that are not a record count as damage."""
        text = f"tail: {tail.kind}, {tail.length} bytes after physical offset {tail.end}: {tail.detail}"
        if tail.kind == "garbage":
            self.report(f"damage: {text}")
        elif tail.kind != "clean":
            note(text)

    def code(self) -> ExitCode:
        """Returns the exit code."""
        if self._lines and self.count > MAX_LINES:
            note(f"damage: {self.count - MAX_LINES} more; `mqtool info --deep` sums them up")
        return ExitCode.NO if self.count or self._missing else ExitCode.OK


def damaged_ranges(damage: Iterable[Damage]) -> list[dict[str, Any]]:
    """Returns the rows of the column `DAMAGED_RANGES`."""
    return [row_of(DAMAGED_RANGES.fields, part, path=part.path and str(part.path)) for part in damage]


def note_damaged_ranges(rows: list[dict[str, Any]]) -> None:
    """Prints a line on stderr for each of the first rows."""
    for row in rows[:_NOTED]:
        where = f"{row['path']} position {row['position']}: " if row["path"] else ""
        note(f"damage: {where}{row['kind']} at physical offset {row['start']}, {row['end'] - row['start']} bytes")
