"""Tables of stores of other systems: their columns, and the column to which each selection option applies.

This module imports no heavy library, since `--help` loads it.
"""

from typing import Any

from msgspec import Struct

Row = dict[str, Any]
"""One row as field name to value; text is `str`, bodies are `bytes`."""


class Column(Struct, frozen=True):
    """One column of a table.

    Attributes:
        name: name of the field.
        type: "int32", "int64", "boolean", "string", "bytes" or "time" (ms since 1970, int64).
        doc: meaning, with its unit.
        shown: 0: in all output formats; 1: in wide tables and data formats; 2: in data formats only.
    """

    name: str
    type: str
    doc: str
    shown: int = 0


class Table(Struct, frozen=True):
    """One table of a kind of store.

    Attributes:
        name: name for `dump --kind NAME`; the first table of a kind is the default.
        doc: what one row is.
        columns: its columns, in order.
        selected_by: column to which each selection option (`topic`, `queue`, `tag`, `unique_key`, `time`, `offset`,
            `grep`) applies; options that are not listed do not apply to the table.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    selected_by: tuple[tuple[str, str], ...] = ()
