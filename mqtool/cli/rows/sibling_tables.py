"""Tables of stores of other systems (`mqtool.siblings`) as output: their schemas, and rows with bytes as text."""

from typing import Any

from mqtool.cli.rows.bodies import BodyView
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema
from mqtool.siblings import Row, Table
from mqtool.siblings.registry import KINDS

_SHOWN = (TABLE, WIDE, DATA)
_TYPES = {
    "int32": "integer",
    "int64": "int64",
    "time": "int64",
    "boolean": "boolean",
    "string": "string",
    "bytes": "any",
}


def _columns(table: Table) -> tuple[Column, ...]:
    columns = []
    for column in table.columns:
        shown, is_time = _SHOWN[column.shown], column.type == "time"
        columns.append(Column(column.name, _TYPES[column.type], column.doc, show=shown, time=is_time, nullable=True))
        if column.type == "bytes":
            doc = f"text, hex, base64, json or none: what {column.name} is"
            columns.append(Column(f"{column.name}_encoding", "string", doc, show=DATA))
    return tuple(columns)


TABLES = {
    table.name: OutputSchema(table.name, 1, table.doc, _columns(table)) for kind in KINDS for table in kind.tables
}
"""Output of each table, by its name."""

MAIN = tuple(TABLES[kind.tables[0].name] for kind in KINDS)
"""Output of each kind's first table: what `get` and `find` print."""


def row(values: Row, table: Table, body: BodyView) -> dict[str, Any]:
    """Returns a row as it is printed: bytes encoded, with the name of the encoding."""
    printed = {}
    for column in table.columns:
        value = values[column.name]
        if column.type == "bytes":
            shown, encoding = (None, "none") if value is None else body.encode(value)
            printed[column.name] = shown
            printed[f"{column.name}_encoding"] = encoding
        else:
            printed[column.name] = value
    return printed
