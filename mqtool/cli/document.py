"""One object instead of rows, as printed by `info` and similar commands, in every format."""

from collections.abc import Iterator
from typing import Any

from mqtool.cli import cells
from mqtool.cli.render import Csv, Table, encode
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema

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
    """Returns plain values first, then each object and each list as a section under its name."""
    return b"\n".join(part for part in _sections(schema.columns, value, "", wide=wide) if part)


def _sections(columns: tuple[Column, ...], value: dict[str, Any], name: str, *, wide: bool) -> Iterator[bytes]:
    """Yields the plain values of an object, then its parts; the parts of a part are named `part.inner`."""
    shown = _shown(columns, wide=wide)
    plain = [column for column in shown if column.type not in {"object", "array"}]
    pairs = _pairs(plain, value)
    yield f"{name}\n".encode() + _indented(pairs) if name and pairs else pairs
    for column in shown:
        inner = value.get(column.name)
        if column in plain or not inner:
            continue
        path = f"{name}.{column.name}" if name else column.name
        if column.type == "object" and column.fields:
            yield from _sections(column.fields, inner, path, wide=wide)
        elif column.fields:
            yield _table(path, column.fields, inner, wide=wide)
        else:
            lines = "".join(f"  {cells.cell(item, column)}\n" for item in inner)
            yield f"{path} ({len(inner)})\n{lines}".encode("utf-8", "replace")


def _table(name: str, columns: tuple[Column, ...], rows: list[dict[str, Any]], *, wide: bool) -> bytes:
    some = rows if wide else rows[:SECTION_ROWS]
    table = Table(_shown(columns, wide=wide), wide=wide, lookahead=len(some) + 1)
    lines = b"".join(table.row(row) for row in some) + table.end(ok=True)
    rest = len(rows) - len(some)
    more = f"… {rest} more: --format wide shows all\n" if rest else ""
    return f"{name} ({len(rows)})\n".encode() + _indented(lines + more.encode())


def _shown(columns: tuple[Column, ...], *, wide: bool) -> tuple[Column, ...]:
    return tuple(column for column in columns if column.show == TABLE or (wide and column.show == WIDE))


def _indented(lines: bytes) -> bytes:
    return b"".join(b"  " + line for line in lines.splitlines(keepends=True))


def _pairs(columns: list[Column], value: dict[str, Any]) -> bytes:
    shown = [column for column in columns if column.name in value]
    to = max((len(column.name) for column in shown), default=0)
    lines = [f"{column.name:<{to}}  {cells.cell(value[column.name], column)}" for column in shown]
    return "".join(line.rstrip() + "\n" for line in lines).encode("utf-8", "replace")
