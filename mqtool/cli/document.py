"""One object instead of rows, as printed by `info` and similar commands, in every format."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from mqtool.cli import cells
from mqtool.cli.invocation import JSON_FORMATS, Format
from mqtool.cli.render import Csv, JsonDocument, Plain, Renderer, Row, Table, encode, fields
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema
from mqtool.cli.terminal import Style, paint

SECTION_ROWS = 20
"""Rows of each list that `--format table` prints; `wide` prints all."""

_FLAT = OutputSchema(
    "document", "a document as lines", (Column("field", "string", "path"), Column("value", "any", "value"))
)


class Listing(Struct, frozen=True):
    """An array of a document that is made while it is written."""

    name: str  # column of the schema
    count: int  # how many rows are expected
    rows: Iterable[Row]  # its rows


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
        self._head = joined([*blocks(schema.columns, value, wide=wide), _titled(column.heading)])
        self._table = Table(_shown(column.fields, wide=wide), wide=wide, is_section=True)

    def begin(self) -> bytes:
        """The document, and the name of the section."""
        return self._head

    def row(self, row: Row) -> bytes:
        """A row, or all that were held back."""
        return self._table.row(row)

    def end(self, ok: bool) -> bytes:
        """Rows that were held back."""
        return self._table.end(ok)


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


def joined(parts: Iterable[bytes]) -> bytes:
    """Returns blocks with an empty line between them."""
    return b"\n".join(part for part in parts if part)


def blocks(
    columns: tuple[Column, ...],
    value: dict[str, Any],
    style: Style | None = None,
    title: str = "",
    *,
    wide: bool,
    has_all_rows: bool = False,
) -> Iterator[bytes]:
    """Yields an object for readers: verdict, plain values, commands to type, then each of its parts as a section.

    What is empty is left out. The style is the verdict's; the title is for an object that is part of another.
    """
    shown = [column for column in _shown(columns, wide=wide) if value.get(column.name) not in (None, "", [], {}, ())]
    plain = [column for column in shown if column.type not in {"object", "array"} and not column.is_command]
    yield from (prose(value[column.name], style=style) for column in plain if column.is_verdict)
    yield labelled(((c.heading, cells.cell(value[c.name], c, exact=wide)) for c in plain if not c.is_verdict), title)
    for column in shown:
        inner = value[column.name]
        path = f"{title}: {column.heading}" if title else column.heading
        if column.is_command:
            yield commands(column.heading, [inner] if isinstance(inner, str) else inner)
        elif column.type == "object" and column.fields:
            yield from blocks(column.fields, inner, title=path, wide=wide, has_all_rows=has_all_rows)
        elif column not in plain:
            yield section(path, inner, column.fields, wide=wide, has_all_rows=has_all_rows)


def prose(*texts: str, style: Style | None = None) -> bytes:
    """Returns texts, each in a line of its own or more; further lines are indented."""
    room = cells.screen_width()
    lines = (line for text in map(cells.escape, texts) for line in cells.wrap(text, room, 4))
    return _encoded(paint(line, style) if style else line for line in lines)


def labelled(pairs: Iterable[tuple[str, str]], title: str = "") -> bytes:
    """Returns a line for each label with its value, in a section if there is a title."""
    indent = "  " if title else ""
    lines = [indent + line for line in fields([(label, cells.escape(text)) for label, text in pairs], indent)]
    return (_titled(title) if title else b"") + _encoded(lines) if lines else b""


def commands(label: str, steps: Iterable[str]) -> bytes:
    """Returns commands to type, each on a line of its own."""
    return _encoded(f"{label}: {paint(cells.escape(step), Style.COMMAND)}" for step in steps)


def section(
    title: str, rows: Sequence[Any], columns: tuple[Column, ...] = (), *, wide: bool, has_all_rows: bool = False
) -> bytes:
    """Returns objects as a table, by default of their keys, or texts, under a title; nothing if there are none."""
    some = rows if wide or has_all_rows else rows[:SECTION_ROWS]
    if not some:
        return b""
    rest = f"  … {len(rows) - len(some)} more: --format wide shows all\n".encode() if len(some) < len(rows) else b""
    if not isinstance(some[0], dict):
        return _titled(title) + prose(*(f"  {cells.plain(text)}" for text in some)) + rest
    columns = columns or tuple(
        Column(name, "int64" if isinstance(value, int) else "string", "", show=TABLE) for name, value in rows[0].items()
    )
    table = Table(_shown(columns, wide=wide), wide=wide, lookahead=len(some) + 1, is_section=True)
    return _titled(title) + b"".join(map(table.row, some)) + table.end(ok=True) + rest


def _titled(title: str) -> bytes:
    return prose(title[0].upper() + title[1:], style=Style.HEADER)


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(f"{line.rstrip()}\n" for line in lines).encode("utf-8", "replace")


def _shown(columns: tuple[Column, ...], *, wide: bool) -> tuple[Column, ...]:
    return tuple(column for column in columns if column.show == TABLE or (wide and column.show == WIDE))
