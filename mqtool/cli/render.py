"""Renders one stream of rows in many formats. Each renderer turns rows into bytes as they come.

A renderer gets `begin`, then every `row`, then `end` or `fail`. It buffers no more than a screenful.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Protocol

import orjson

from mqtool.cli import cells, terminal
from mqtool.cli.exits import Failure
from mqtool.cli.schema import Column, OutputSchema

Row = dict[str, Any]

LOOKAHEAD = 64
"""Rows that are seen before a table's column widths are fixed."""
_HANG = 2
"""Blanks before the further lines of a wrapped cell."""
_READABLE = 20
"""Columns that a wrapped cell has at least."""
_NARROWEST = 10
"""Columns that a value next to its label has at least."""
_UNWRAPPED = 60
"""Columns that a cell has at most where there is no terminal; a longer one shifts its line."""


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
        """Takes what comes before the array and the array's name; rows have lines of their own, or all is one line."""
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
    """`table` and `wide`: aligned columns that fit the terminal, or one field a line where a row cannot fit.

    The first rows decide that, and the widths. Where there is no terminal, longer cells shift the line.
    """

    def __init__(
        self,
        columns: tuple[Column, ...],
        *,
        wide: bool,
        lookahead: int = LOOKAHEAD,
        upright: bool = False,
        is_section: bool = False,
    ) -> None:
        """Prints nothing yet. `wide` cuts no cell, `lookahead` rows decide, `upright` prints one field a line.

        A section of a document for readers is indented and has labels in place of names.
        """
        self._columns = columns
        self._headings: list[str] = [column.heading if is_section else column.name for column in columns]
        self._right = [cells.is_number(column) for column in columns]
        self._is_cut = not wide and not is_section
        self._lookahead = 0 if upright else lookahead
        self._is_exact = wide or not is_section
        self._indent = "  " * is_section
        self._held: list[list[str | None]] = []
        self._widths: list[int] | None = None
        self._wraps = False
        self._upright = upright
        self._has_rows = False

    def row(self, row: Row) -> bytes:
        """One row, or all buffered rows."""
        line = [self._cell(row.get(column.name), column) for column in self._columns]
        if self._upright or self._widths is not None:
            return self._encoded(self._lines(line))
        self._held.append(line)
        return self._release() if len(self._held) >= self._lookahead else b""

    def end(self, ok: bool) -> bytes:  # noqa: ARG002 - the exit code says it
        """The buffered rows, if any: a table without rows has no header."""
        return self._release() if self._held else b""

    def fail(self, failure: Failure) -> bytes:  # noqa: ARG002 - stderr and the exit code say it
        """The buffered rows, if any."""
        return self._release() if self._held else b""

    def _cell(self, value: Any, column: Column) -> str | None:
        if value is None:
            return None
        text = cells.cell(value, column, exact=self._is_exact)
        return cells.shorten(text) if self._is_cut else text

    def _release(self) -> bytes:
        held, self._held = self._held, []
        room = _room(self._indent)
        self._wraps = room is not None
        self._widths = _fitted([self._headings, *held], room)
        self._upright = self._widths is None
        header = [] if self._upright else self._aligned(self._headings, terminal.Style.HEADER)
        return self._encoded([*header, *(line for row in held for line in self._lines(row))])

    def _encoded(self, lines: Iterable[str]) -> bytes:
        return "".join(f"{self._indent}{line}".rstrip() + "\n" for line in lines).encode("utf-8", "replace")

    def _lines(self, row: list[str | None]) -> list[str]:
        if not self._upright:
            return self._aligned(["-" if text is None else text for text in row])
        pairs = zip(self._headings, row, strict=True)
        lines = fields([(heading, text) for heading, text in pairs if text], self._indent)
        has_rows, self._has_rows = self._has_rows, True
        return ["", *lines] if has_rows else lines

    def _aligned(self, texts: list[str], style: terminal.Style | None = None) -> list[str]:
        """Returns the lines of a row: one, unless a cell is wrapped."""
        widths, hang = self._widths or [], 0 if style else _HANG
        limits = widths if self._wraps else [None] * len(widths)
        wrapped = [cells.wrap(text, limit, hang, cells.PARTS) for text, limit in zip(texts, limits, strict=True)]
        lines = ("  ".join(map(cells.pad, line, widths, self._right)) for line in zip_longest(*wrapped, fillvalue=""))
        return [terminal.paint(line.rstrip(), style) if style else line for line in lines]


def _fitted(lines: Sequence[Sequence[str | None]], room: int | None) -> list[int] | None:
    """Returns the widths of columns that fit into a room, the widest of which are narrowed; None if they cannot."""
    columns = [["-" if text is None else text for text in column] for column in zip(*lines, strict=True)]
    widest = [max(map(cells.width, column)) for column in columns]
    if room is None:
        return [min(width, _UNWRAPPED) for width in widest]
    room -= 2 * (len(columns) - 1)
    parts = ((part.strip() for text in column for part in cells.PARTS.findall(text)) for column in columns)
    longest = (max(map(cells.width, column), default=0) for column in parts)
    minimal = [max(part + _HANG, min(width, _READABLE)) for part, width in zip(longest, widest, strict=True)]
    minimal = [min(low, width) for low, width in zip(minimal, widest, strict=True)]
    if sum(minimal) > room:
        return None
    for limit in range(min(room, max(widest, default=0)), 0, -1):
        widths = [max(low, min(width, limit)) for low, width in zip(minimal, widest, strict=True)]
        if sum(widths) <= room:
            return widths
    return minimal


def _room(indent: str) -> int | None:
    room = cells.screen_width()
    return None if room is None else room - len(indent)


def fields(pairs: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """Returns a line for each label with its value, or more where a value is wrapped."""
    room, to = _room(indent), max((cells.width(label) for label, _ in pairs), default=0)
    lines = []
    for label, value in pairs:
        first, *rest = cells.wrap(value, None if room is None else max(room - to - 2, _NARROWEST))
        lines += [f"{cells.pad(label, to, right=False)}  {first}", *(" " * (to + 2) + line for line in rest)]
    return lines
