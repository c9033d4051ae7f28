"""A command's output in the requested format. Nothing else is written to stdout."""

import sys
from collections.abc import Iterable
from typing import Any, BinaryIO

from mqtool.cli import document, terminal
from mqtool.cli.exits import QUIET, ExitCode, Failure
from mqtool.cli.invocation import JSON_FORMATS, TABLE_FORMATS, Format, Invocation
from mqtool.cli.render import LOOKAHEAD, Csv, JsonDocument, JsonLines, Renderer, Row, Table
from mqtool.cli.schema import OutputSchema
from mqtool.cli.terminal import Style

_STYLES = {ExitCode.OK: Style.GOOD, ExitCode.NO: Style.BAD}
"""Colours of verdicts, by the exit code; of others the verdict is doubtful."""


class Output:
    """Writes rows, or one object, in one format.

    A command creates it, feeds it and returns `finish(code)`. If the command fails instead, `run` in app.py calls
    `fail`, so that a JSON document is complete and contains the error.
    """

    def __init__(
        self,
        invocation: Invocation,
        schema: OutputSchema,
        output_format: Format,
        *,
        live: bool = False,
        upright: bool = False,
    ) -> None:
        """Starts no output yet.

        Rows that come slowly (`live`) are shown at once; tables of few rows (`upright`) have a line for each value.
        """
        self.schema = schema
        self.format = output_format
        self._stream: BinaryIO = sys.stdout.buffer
        self._terminal = sys.stdout.isatty()
        self._live = live
        lookahead = 1 if live else LOOKAHEAD
        self._renderer = _renderer(schema, output_format, lookahead=lookahead, upright=upright)
        self._begun = False
        invocation.output = self

    def row(self, row: Row) -> None:
        """Writes one row."""
        self._begin()
        self._write(self._renderer.row(row))
        if self._live:
            self._stream.flush()

    def rows(self, rows: Iterable[Row]) -> None:
        """Writes rows as they come."""
        for row in rows:
            self.row(row)

    def lines(self, block: bytes | memoryview) -> None:
        """Writes complete lines of JSON as rows; only for JSON formats."""
        self._begin()
        self._write(self._renderer.lines(block))

    def document(
        self,
        value: dict[str, Any],
        code: ExitCode = ExitCode.OK,
        listing: document.Listing | None = None,
        *,
        style: Style | None = None,
    ) -> ExitCode:
        """Writes the one object and returns the exit code given; the verdict's colour follows it, or is the style.

        The listing is an array of the object that is too long to keep in memory; it is written last.
        """
        if listing is not None:
            self._renderer = document.listed(self.schema, value, listing, self.format)
            self._begin()
            self.rows(listing.rows)
            return self.finish(code)
        if self.format in JSON_FORMATS:
            indent = self.format is Format.JSON
            data = document.as_json(self.schema, value, ok=code is ExitCode.OK, indent=indent)
        elif self.format is Format.CSV:
            data = document.as_csv(value)
        else:
            style = style or _STYLES.get(code, Style.DOUBTFUL)
            return self.page(document.blocks(self.schema.columns, value, style, wide=self.format is Format.WIDE), code)
        self._write(data)
        self._stream.flush()
        return code

    def page(self, blocks: Iterable[bytes], code: ExitCode = ExitCode.OK) -> ExitCode:
        """Writes blocks of `document` for readers in place of the object, and returns the exit code given."""
        self._write(document.joined(blocks))
        self._stream.flush()
        return code

    def finish(self, code: ExitCode = ExitCode.OK) -> ExitCode:
        """Ends the rows and returns the given exit code."""
        self._begin()
        self._write(self._renderer.end(code is ExitCode.OK))
        self._stream.flush()
        return code

    @property
    def is_blank(self) -> bool:
        """Whether tables are printed, and no row so far."""
        return self.format in TABLE_FORMATS and not self._begun

    def fail(self, failure: Failure) -> None:
        """Ends the rows because of a failure; the output so far remains parsable."""
        if not (self.format is Format.JSONL and failure.code in QUIET):
            renderer = JsonLines() if self.format is Format.JSON and not self._begun else self._renderer
            self._write(renderer.fail(failure))
        self._stream.flush()

    def _write(self, data: bytes | memoryview) -> None:
        if self._terminal:
            terminal.hide_bars()
        self._stream.write(data)
        if self._terminal:  # at once, or the bar would be drawn above rows that are still buffered
            self._stream.flush()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._write(self._renderer.begin())


def _renderer(schema: OutputSchema, output_format: Format, *, lookahead: int, upright: bool) -> Renderer:
    if output_format is Format.JSONL:
        return JsonLines()
    if output_format is Format.JSON:
        return JsonDocument(schema.head())
    if output_format is Format.CSV:
        return Csv(schema)
    wide = output_format is Format.WIDE
    columns = schema.columns if upright else schema.shown(wide)
    return Table(columns, wide=wide or upright, lookahead=lookahead, upright=upright)
