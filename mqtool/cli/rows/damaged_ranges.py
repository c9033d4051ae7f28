"""Ranges of a log without a record, as `rebuild` and `convert` print them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mqtool.cli.invocation import note
from mqtool.cli.schema import TABLE, WIDE, Column, listing

if TYPE_CHECKING:
    from mqtool.records.damage import Damage

DAMAGED_RANGES = listing(
    "damage",
    "ranges of the log without a valid record; their contents are not in the result",
    Column("start", "int64", "physical offset of the first byte", show=TABLE),
    Column("end", "int64", "physical offset after the last byte", show=TABLE),
    Column("kind", "string", "see docs/rebuild.md", show=TABLE),
    Column("path", "string", "file", show=WIDE, nullable=True),
    Column("position", "int64", "of `start` in the file", show=WIDE),
    Column("detail", "string", "expected and found", show=TABLE),
)
_NOTED = 10
"""Ranges that get a line on stderr."""


def damaged_ranges(damage: Iterable[Damage]) -> list[dict[str, Any]]:
    """Returns the rows of the column `DAMAGED_RANGES`."""
    return [
        {
            "start": part.start,
            "end": part.end,
            "kind": str(part.kind),
            "path": None if part.path is None else str(part.path),
            "position": part.position,
            "detail": part.detail,
        }
        for part in damage
    ]


def note_damaged_ranges(rows: list[dict[str, Any]]) -> None:
    """Prints a line on stderr for each of the first rows."""
    for row in rows[:_NOTED]:
        where = f"{row['path']} position {row['position']}: " if row["path"] else ""
        note(f"damage: {where}{row['kind']} at physical offset {row['start']}, {row['end'] - row['start']} bytes")
