"""`mqtool sql`: questions in SQL, answered by DuckDB, and the prompt: history, and completion of names."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool.choices import Trust
from mqtool.cli import cells, options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.options import SELECTION, Include, is_there, option
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema, count, prints, row_of, text
from mqtool.errors import MqtoolError, UsageError

if TYPE_CHECKING:
    from mqtool.duckdb import Session

HELP = """
mqtool sql /data/store "SELECT topic, count(*) FROM messages GROUP BY topic"

Query one or more stores in SQL. Tables: messages, message_keys, queue_units, index_entries, offsets, pending, findings,
topics, segments, damage; `DESCRIBE messages` lists the columns of one. The column broker names the store. Without a
statement, statements are read from stdin, each up to its semicolon; on a terminal this is a prompt, with .tables,
.schema, .mode and .help. Reads only the columns and the parts of the log that the query needs. Needs duckdb, the extra
sql: see `mqtool help install`. Exit code 1 if the query read damaged data.

impact: read-only
"""

ROW = OutputSchema("sql.row", "a row of the result; its columns are those of the statement", ())

SCAN = OutputSchema(
    "sql.scan",
    "what the query read of a store's messages",
    (
        text("broker", "the store"),
        text("path", "how records were found: walk, queues, index, or nothing to read"),
        count("rows", "rows that match the condition"),
        count("bytes_read", "bytes of the log that were read"),
        count("bytes_needed", "bytes of the records that match the condition"),
        count("log_bytes", "bytes of the log"),
        count("segments", "segments of the log", show=WIDE),
        count("segments_skipped", "segments of which no record was read"),
        count("damage", "damaged ranges in what was read"),
        text("why", "why this path"),
    ),
)

_LINE = "line"

_SHORT = {".tables": "SHOW TABLES", ".schema": "DESCRIBE {}"}
"""Statements of the prompt's own commands."""

_TYPES = (("bool", "boolean"), ("int", "int64"), ("uint", "int64"), ("double", "number"), ("float", "number"))

_WORDS = """
SELECT FROM WHERE GROUP ORDER BY LIMIT AND OR NOT IN LIKE BETWEEN COUNT SUM DISTINCT JOIN HAVING DESCRIBE
"""

PROMPT_HELP = """
.tables          list the tables
.schema TABLE    list the columns of a table
.mode MODE       print results as table, line (one value a line), wide, csv, json or jsonl
.exit            leave, as exit and Ctrl-D do

Anything else is SQL, up to a semicolon. Ctrl-C discards unfinished input; Tab completes names.
"""

_MAX_LINES = 1000


@prints(ROW, SCAN)
def sql(
    ctx: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="STORE... [STATEMENT]", help="Stores: roots, NAME=ROOT or globs. Then a statement."),
    ],
    *,
    trust: Annotated[
        list[Trust] | None,
        option(
            "--trust",
            panel=SELECTION,
            help="Use queues, index or store times to skip parts of the log; do not check bodies that are not needed; "
            "may be repeated.",
        ),
    ] = None,
    include: Annotated[
        Include,
        options.include_option(SELECTION),
    ] = Include.COMMITTED,
    explain: Annotated[
        bool, option("--explain", help="Run the statement and print what it read instead of its result.")
    ] = False,
    output_format: options.FormatOption = Format.TABLE,
    config: options.ConfigOption = None,
    zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Prints the answer."""
    from mqtool.duckdb import Session

    stores, statement = _split(arguments)
    every_class, zone = include is Include.ALL, _zone_name(zone)
    with Session(*stores, config=config, trust=trust or (), every_class=every_class, zone=zone, logs=False) as session:
        if statement is not None:
            return _answer(ctx.obj, session, statement, output_format, explain=explain)
        if sys.stdin.isatty():
            return _prompt(ctx.obj, session, statements(session.names), output_format, explain=explain)
        code = ExitCode.OK
        for query in session.statements(sys.stdin.read()):
            code = max(code, _answer(ctx.obj, session, query, output_format, explain=explain))
        return code


def _split(arguments: list[str]) -> tuple[list[str], str | None]:
    """Returns stores and statement; a last argument with a blank that is not a file is the statement."""
    last = arguments[-1]
    if len(last.split()) < 2 or is_there(last):
        return arguments, None
    if len(arguments) == 1:
        raise UsageError("no store before the statement; run `mqtool sql STORE STATEMENT`")
    return arguments[:-1], last


def _zone_name(zone: str) -> str:
    if zone != cells.LOCAL_ZONE:
        return zone
    raise UsageError("--tz local is not supported here; give the name of the zone, e.g. Europe/Berlin")


def _prompt(
    invocation: Invocation, session: Session, statements: Iterator[str], output_format: Format, *, explain: bool
) -> ExitCode:
    note("SQL over messages, topics, offsets and others, each statement up to a semicolon; .help lists the commands")
    mode: str = output_format
    for statement in statements:
        name, _, argument = statement.rstrip("; ").partition(" ")
        try:
            if name == ".mode":
                mode = _mode(argument.strip())
            elif name.startswith(".") and name not in _SHORT:
                print(PROMPT_HELP.strip(), file=sys.stderr)  # noqa: T201
            else:
                query = _SHORT[name].format(argument.strip() or "messages") if name in _SHORT else statement
                upright = mode == _LINE
                shown = Format.TABLE if upright else Format(mode)
                _answer(invocation, session, query, shown, explain=explain, upright=upright)
        except MqtoolError as error:
            note(str(error))
        session.reports.clear()
    return ExitCode.OK


def _mode(name: str) -> str:
    """Returns a way to print results; raises UsageError for others."""
    modes = [_LINE, *(known.value for known in Format if known is not Format.HELP)]
    if name not in modes:
        raise UsageError(f".mode: expected one of {', '.join(modes)}, found {name!r}")
    return name


def _answer(
    invocation: Invocation,
    session: Session,
    statement: str,
    output_format: Format,
    *,
    explain: bool,
    upright: bool = False,
) -> ExitCode:
    schema, batches = session.ask(statement)
    names = _distinct(schema.names)
    columns = () if explain else tuple(_column(name, field) for name, field in zip(names, schema, strict=True))
    shape = SCAN if explain else OutputSchema(ROW.name, ROW.doc, columns, version=ROW.version)
    output = Output(invocation, shape, output_format, upright=upright)
    for batch in batches:
        if not explain:
            output.rows({name: _plain(value) for name, value in row.items()} for row in _rows(batch, names))
    if explain:
        output.rows(_scan(report) for report in session.reports)
    damaged = {(report.broker, damage) for report in session.reports for damage in report.damage}
    if damaged:
        note(f"{len(damaged)} damaged range(s) of the log were skipped; the table damage lists them")
    if output.is_blank:
        note("the result has no rows")
    return output.finish(ExitCode.NO if damaged else ExitCode.OK)


def _distinct(names: list[str]) -> list[str]:
    """Returns names of columns with a number added to repeated ones: `a`, `a_1`."""
    distinct: list[str] = []
    for name in names:
        numbered = (name, *(f"{name}_{number}" for number in range(1, len(names))))
        distinct.append(next(candidate for candidate in numbered if candidate not in distinct))
    return distinct


def _rows(batch: Any, names: list[str]) -> list[dict[str, Any]]:
    """Returns rows as values of Python, which knows the years 1 to 9999 and microseconds only."""
    import pyarrow as pa

    columns = [_with_nanoseconds(column) for column in batch.columns]
    try:
        rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=names).to_pylist()
    except (OverflowError, ValueError) as error:
        what = "a time is outside the years 1 to 9999, or a time in a list has nanoseconds"
        raise UsageError(f"{what}; cast it to text: ::VARCHAR") from error
    return rows


def _with_nanoseconds(column: Any) -> Any:
    """Returns times in nanoseconds as text, all other columns as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return column
    return pc.replace_substring(pc.cast(column, pa.string()), " ", "T")


def _column(name: str, field: Any) -> Column:
    kind = next((kind for prefix, kind in _TYPES if str(field.type).startswith(prefix)), "any")
    return Column(name, kind, "of the statement", show=TABLE, nullable=True)


def _scan(report: Any) -> dict[str, Any]:
    return row_of(SCAN.columns, report, damage=len(report.damage))


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it: times as RFC 3339, intervals as ISO 8601, bytes as text or hexadecimal."""
    import datetime as dt
    import decimal

    import pyarrow as pa

    match value:
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat().replace("+00:00", "Z")
        case pa.MonthDayNano():
            months, days, nanoseconds = value
            seconds = f"{decimal.Decimal(nanoseconds).scaleb(-9).normalize():f}"
            parts = f"{months}M" * (months != 0) + f"{days}D" * (days != 0)
            return f"P{parts}T{seconds}S" if nanoseconds or not parts else f"P{parts}"
        case decimal.Decimal():
            number = int(value) if value == value.to_integral_value() else float(value)
            return number if decimal.Decimal(repr(number)) == value else f"{value:f}"
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value.hex()
        case list() if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {str(name): _plain(item) for name, item in value}
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def statements(names: Iterable[str]) -> Iterator[str]:
    """Yields statements as they are typed, each up to its semicolon, until the end of the input; completes names."""
    import readline

    candidates = [*sorted(names), *_WORDS.split()]

    def complete(start: str, number: int) -> str | None:
        fitting = [word for word in candidates if word.lower().startswith(start.lower())]
        return fitting[number] if number < len(fitting) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>;.")
    readline.parse_and_bind("tab: complete")
    history = _history()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_MAX_LINES)
    try:
        yield from _typed()
    finally:
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


def _history() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "mqtool" / "sql_history"


def _typed() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            lines.append(input("  ...> " if lines else "mqtool> "))
        except EOFError:
            return
        except KeyboardInterrupt:
            lines = []
            continue
        statement = "\n".join(lines).strip()
        if statement.rstrip(";").lower() in ("exit", "quit", ".exit", ".quit"):
            return
        if not statement or statement.endswith(";") or statement.startswith("."):
            lines = []
            if statement.strip(";"):
                yield statement
