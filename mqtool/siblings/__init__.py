"""Stores of other systems behind one interface: EQueue, EventStore's TFChunk files, RocketMQ's tiered storage.

A kind's rows are in tables, which are declared here; this module imports no heavy library, since `--help` loads it.
Start with `base`, the interface of a kind of store, and `registry`, which lists the kinds. A kind is a package. Kinds
share `frames` (records between two lengths) and `arrow` (batches and export).
Docs page: docs/kinds.md.
"""

from typing import Any

from msgspec import Struct

Row = dict[str, Any]
"""One row as field name to value; text is `str`, bodies are `bytes`."""


class Column(Struct, frozen=True):
    """One column of a table."""

    name: str  # name of the field
    type: str  # "int32", "int64", "boolean", "string", "bytes" or "time" (ms since 1970, int64)
    doc: str  # meaning, with its unit
    shown: int = 0  # 0: in all output formats; 1: in wide tables and data formats; 2: in data formats only


class Table(Struct, frozen=True):
    """One table of a kind of store."""

    name: str  # name for `dump --kind NAME`; the first table of a kind is the default
    doc: str  # what one row is
    columns: tuple[Column, ...]  # its columns, in order
    # column to which each selection option (`topic`, `queue`, `tag`, `unique_key`, `time`, `offset`, `grep`) applies;
    # options that are not listed do not apply to the table
    selected_by: tuple[tuple[str, str], ...] = ()
