"""One object instead of rows: `info` and its like, in every format."""

from collections.abc import Iterator
from typing import Any

from mqtool.cli import cells
from mqtool.cli.render import Csv, Table, encode
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema

SECTION_ROWS = 20
"""Rows of each list that `--format table` prints; `wide` prints all."""

_FLAT = OutputSchema(
    "document", 1, "a document as lines", (Column("field", "string", "path"), Column("value", "any", "value"))
)


def as_json(schema: OutputSchema, value: dict[str, Any], *, ok: bool, indent: bool) -> bytes:
    """Returns the object as JSON, on one line or indented for readers."""
    return encode({**schema.head(), "ok": ok, **value}, indent=indent) + b"\n"


def as_csv(value: dict[str, Any]) -> bytes:
    """Returns lines `field,value`, the field as a path: `commit_log.max_offset`, `queues.0.topic`."""
    csv = Csv(_FLAT)
    lines = [csv.row({"field": path, "value": leaf}) for path, leaf in _leaves(value, "")]
    return csv.begin() + b"".join(lines)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    items: Any = None
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    if items is None:
        yield path, value
        return
    for key, inner in items:
        yield from _leaves(inner, f"{path}.{key}" if path else str(key))


def as_text(schema: OutputSchema, value: dict[str, Any], *, wide: bool) -> bytes:
    """Returns sections: plain values first, then each object and each list under its name."""
    plain = [c for c in schema.columns if c.type not in {"object", "array"} or not c.fields]
    parts = [_pairs(plain, value, wide=wide)]
    for column in schema.columns:
        if column in plain or column.show == DATA or (column.show == WIDE and not wide):
            continue
        parts.append(_section(column, value.get(column.name), wide=wide))
    return b"\n".join(part for part in parts if part)


def _section(column: Column, value: Any, *, wide: bool) -> bytes:
    if not value:
        return b""
    if column.type == "object":
        return f"{column.name}\n".encode() + _pairs(list(column.fields), value, wide=wide, indent="  ")
    shown = value if wide else value[:SECTION_ROWS]
    table = Table(_shown(column.fields, wide=wide), wide=wide, lookahead=len(shown) + 1)
    lines = b"".join(table.row(row) for row in shown) + table.end(ok=True)
    rest = len(value) - len(shown)
    more = f"… {rest} more: --format wide shows all\n" if rest else ""
    return f"{column.name} ({len(value)})\n".encode() + _indented(lines + more.encode())


def _shown(columns: tuple[Column, ...], *, wide: bool) -> tuple[Column, ...]:
    return tuple(column for column in columns if column.show == TABLE or (wide and column.show == WIDE))


def _indented(lines: bytes) -> bytes:
    return b"".join(b"  " + line for line in lines.splitlines(keepends=True))


def _pairs(columns: list[Column], value: dict[str, Any], *, wide: bool, indent: str = "") -> bytes:
    shown = [column for column in _shown(tuple(columns), wide=wide) if value.get(column.name) is not None]
    to = max((len(column.name) for column in shown), default=0)
    lines = [f"{indent}{column.name:<{to}}  {cells.cell(value[column.name], column)}" for column in shown]
    return "".join(line.rstrip() + "\n" for line in lines).encode("utf-8", "replace")
