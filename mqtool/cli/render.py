"""Renders one stream of rows in many formats. Each renderer turns rows into bytes as they come.

A renderer gets `begin`, then every `row`, then `end` or `fail`. It buffers no more than a screenful.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any, Protocol

import orjson

from mqtool.cli import cells, colour
from mqtool.cli.exits import Failure
from mqtool.cli.schema import Column, OutputSchema

Row = dict[str, Any]

LOOKAHEAD = 64
"""Rows that are seen before a table's column widths are fixed."""


class Renderer(Protocol):
    """Rows in, bytes out."""

    def begin(self) -> bytes:
        """Returns what precedes the first row."""

    def row(self, row: Row) -> bytes:
        """Renders one row; may buffer it."""

    def lines(self, block: bytes | memoryview) -> bytes | memoryview:
        """Renders rows that are lines of JSON already."""

    def end(self, ok: bool) -> bytes:
        """Returns buffered rows and what follows the last row."""

    def fail(self, failure: Failure) -> bytes:
        """Like `end`, if the rows end because the command failed."""


def encode(value: Any, *, indent: bool = False) -> bytes:
    """Returns JSON in UTF-8.

    Values that orjson cannot write are rare: a lone surrogate becomes a question mark, as in Java, and an integer of
    more than 64 bits a string of digits.
    """
    option = orjson.OPT_INDENT_2 if indent else 0
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        return orjson.dumps(_writable(value), option=option)


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, dict):
        return {_writable(key): _writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(inner) for inner in value]
    return value


def failure_object(failure: Failure) -> dict[str, Any]:
    """Returns the JSON output of a failed command."""
    return {"ok": False, "error": failure.as_json()}


class JsonLines:
    """`jsonl`: one row per line; a failure is one last line with `ok: false`."""

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def row(self, row: Row) -> bytes:
        """One line."""
        return encode(row) + b"\n"

    def lines(self, block: bytes | memoryview) -> bytes | memoryview:
        """The same lines."""
        return block

    def end(self, ok: bool) -> bytes:  # noqa: ARG002 - the exit code says it
        """Nothing."""
        return b""

    def fail(self, failure: Failure) -> bytes:
        """One line."""
        return encode(failure_object(failure)) + b"\n"


class JsonDocument:
    """`json`: one object with an array of rows, written as they come; `ok` is at the end."""

    def __init__(self, head: dict[str, Any], name: str = "rows", *, line_feeds: bool = True) -> None:
        """Takes what comes before the array.

        Args:
            head: the object without the array.
            name: of the array.
            line_feeds: write each row on a line of its own; else everything is one line.
        """
        self._head = head
        self._name = name
        self._line_feed = b"\n" if line_feeds else b""
        self._separator = self._line_feed

    def begin(self) -> bytes:
        """The object up to its rows."""
        return encode(self._head)[:-1] + b"," + encode(self._name) + b":["

    def row(self, row: Row) -> bytes:
        """One row inside the array."""
        separator, self._separator = self._separator, b"," + self._line_feed
        return separator + encode(row)

    def lines(self, block: bytes | memoryview) -> bytes | memoryview:
        """Lines inside the array; line feeds occur only between rows, never inside one."""
        separator, self._separator = self._separator, b",\n"
        return separator + bytes(block[:-1]).replace(b"\n", b",\n")

    def end(self, ok: bool) -> bytes:
        """The rest of the object."""
        return self._line_feed + b'],"ok":' + (b"true" if ok else b"false") + b"}\n"

    def fail(self, failure: Failure) -> bytes:
        """The rest of the object, with the error."""
        return self._line_feed + b"]," + encode(failure_object(failure))[1:] + b"\n"


class Plain:
    """Base of formats without an object around the rows: only stderr and the exit code report a failure."""

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def lines(self, block: bytes | memoryview) -> bytes | memoryview:
        """Not for this format."""
        raise TypeError(f"{type(self).__name__} takes no ready lines, got {len(block)} bytes")

    def end(self, ok: bool) -> bytes:  # noqa: ARG002 - the exit code says it
        """Nothing."""
        return b""

    def fail(self, failure: Failure) -> bytes:  # noqa: ARG002 - stderr and the exit code say it
        """Nothing."""
        return b""


class Csv(Plain):
    """`csv`: every column, a header line; objects and arrays as JSON inside their cell, null empty."""

    def __init__(self, schema: OutputSchema) -> None:
        self._names = [column.name for column in schema.columns]
        self._text = io.StringIO()
        self._writer = csv.writer(self._text, lineterminator="\n")

    def begin(self) -> bytes:
        """The header."""
        return self._line(self._names)

    def row(self, row: Row) -> bytes:
        """One line, or more if a value contains line breaks."""
        return self._line([_csv_value(row.get(name)) for name in self._names])

    def _line(self, values: list[Any]) -> bytes:
        self._text.seek(0)
        self._text.truncate()
        self._writer.writerow(values)
        return self._text.getvalue().encode("utf-8", "replace")


def _csv_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return encode(value).decode() if isinstance(value, dict | list | tuple) else value


class Table(Plain):
    """`table` and `wide`: aligned columns; widths are those of the first rows, longer cells shift the line."""

    def __init__(self, columns: tuple[Column, ...], *, wide: bool, lookahead: int = LOOKAHEAD) -> None:
        self._columns = columns
        self._right = [cells.is_number(column) for column in columns]
        self._limit = None if wide else cells.CELL_WIDTH
        self._lookahead = lookahead
        self._held: list[list[str]] = []
        self._widths: list[int] | None = None

    def row(self, row: Row) -> bytes:
        """One line, or all buffered lines."""
        line = [self._cell(row.get(column.name), column) for column in self._columns]
        if self._widths is not None:
            return self._line(line, self._widths)
        self._held.append(line)
        return self._release() if len(self._held) >= self._lookahead else b""

    def end(self, ok: bool) -> bytes:  # noqa: ARG002 - the exit code says it
        """The buffered lines; a table without rows is its header."""
        return self._release() if self._widths is None else b""

    def fail(self, failure: Failure) -> bytes:  # noqa: ARG002 - stderr and the exit code say it
        """The buffered lines, if any."""
        return self._release() if self._held else b""

    def _cell(self, value: Any, column: Column) -> str:
        text = cells.cell(value, column)
        return text if self._limit is None else cells.clip(text, self._limit)

    def _release(self) -> bytes:
        return b"".join(self._all_lines())

    def _all_lines(self) -> Iterator[bytes]:
        header = [column.name for column in self._columns]
        lines = [header, *self._held]
        self._held = []
        self._widths = widths = [max(cells.width(line[i]) for line in lines) for i in range(len(header))]
        yield self._line(header, widths, colour.Style.HEADER)
        yield from (self._line(line, widths) for line in lines[1:])

    def _line(self, texts: list[str], widths: list[int], style: colour.Style | None = None) -> bytes:
        line = "  ".join(map(cells.pad, texts, widths, self._right)).rstrip()
        return (colour.paint(line, style) if style else line).encode("utf-8", "replace") + b"\n"


class Upright(Plain):
    """`table` and `wide` of commands that print few rows: one line per value, an empty line between rows."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._width = max(len(column.name) for column in columns)
        self._apart = b""

    def row(self, row: Row) -> bytes:
        """Every value of the row that is not null."""
        shown = [column for column in self._columns if row.get(column.name) is not None]
        lines = [f"{column.name:<{self._width}}  {cells.cell(row[column.name], column)}".rstrip() for column in shown]
        apart, self._apart = self._apart, b"\n"
        return apart + "".join(line + "\n" for line in lines).encode("utf-8", "replace")
