"""One object instead of rows, as printed by `info` and similar commands, in every format."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from mqtool.cli import cells
from mqtool.cli.invocation import JSON_FORMATS, Format
from mqtool.cli.render import Csv, JsonDocument, Plain, Renderer, Row, Table, encode
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema

SECTION_ROWS = 20
"""Rows of each list that `--format table` prints; `wide` prints all."""

_FLAT = OutputSchema(
    "document", 1, "a document as lines", (Column("field", "string", "path"), Column("value", "any", "value"))
)


class Listing(Struct, frozen=True):
    """An array of a document that is made while it is written.

    Attributes:
        name: column of the schema.
        count: how many rows are expected.
        rows: its rows.
    """

    name: str
    count: int
    rows: Iterable[Row]


def listed(schema: OutputSchema, value: dict[str, Any], listing: Listing, output_format: Format) -> Renderer:
    """Returns what writes a document and then the rows of its listing, all of them in every format."""
    if output_format in JSON_FORMATS:
        head = {**schema.head(), **value}
        head.pop(listing.name, None)
        return JsonDocument(head, listing.name, line_feeds=output_format is Format.JSON)
    if output_format is Format.CSV:
        return _ListedCsv(value, listing.name)
    return _ListedText(schema, value, listing, wide=output_format is Format.WIDE)


class _ListedCsv(Plain):
    """A document as CSV, then its listing."""

    def __init__(self, value: dict[str, Any], name: str) -> None:
        self._value, self._name = value, name
        self._csv = Csv(_FLAT)
        self._count = 0

    def begin(self) -> bytes:
        """The document."""
        return as_csv(self._value)

    def row(self, row: Row) -> bytes:
        """A line for each field."""
        path = f"{self._name}.{self._count}"
        self._count += 1
        return b"".join(self._csv.row({"field": name, "value": leaf}) for name, leaf in _leaves(row, path))


class _ListedText(Plain):
    """A document for readers, then its listing as a section."""

    def __init__(self, schema: OutputSchema, value: dict[str, Any], listing: Listing, *, wide: bool) -> None:
        column = next(candidate for candidate in schema.columns if candidate.name == listing.name)
        self._head = as_text(schema, value, wide=wide) + f"\n{listing.name} ({listing.count})\n".encode()
        self._table = Table(_shown(column.fields, wide=wide), wide=wide)

    def begin(self) -> bytes:
        """The document, and the name of the section."""
        return self._head

    def row(self, row: Row) -> bytes:
        """A line, or all that were held back."""
        return _indented(self._table.row(row))

    def end(self, ok: bool) -> bytes:
        """Lines that were held back."""
        return _indented(self._table.end(ok))


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
