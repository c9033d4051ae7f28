"""Tables of stores of other systems: their columns, and which options select by which. Light: `--help` loads it."""

from dataclasses import dataclass
from typing import Any

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
    """One sort of rows that a store of a kind has.

    Attributes:
        name: `dump --kind NAME`; the first table of a kind is its default.
        doc: what one row is.
        columns: of its rows, in order.
        selected_by: selection option (`topic`, `queue`, `tag`, `unique_key`, `time`, `offset`, `grep`) to the column
            that it looks at; the options that are not here do not apply.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    selected_by: tuple[tuple[str, str], ...] = ()
