"""Implements commands for stores of other systems (`mqtool.siblings`), and has the schemas of their tables."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqtool.cli import sibling_rows
from mqtool.cli.damage import DamageReport
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format, Invocation, note
from mqtool.cli.message_rows import BodyView, MessageView
from mqtool.cli.options import Body, OnSpark, spark_session
from mqtool.cli.output import Output
from mqtool.cli.ranges import Range, parse_size, parse_times
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema, row_of
from mqtool.cli.selection import Filters
from mqtool.errors import CorruptionError, UnsupportedFormatError, UsageError
from mqtool.records.damage import Damage
from mqtool.siblings import Row, Table
from mqtool.siblings.registry import KINDS, Kind

if TYPE_CHECKING:
    from mqtool.siblings.base import OpenedStore
    from mqtool.verify.findings import Finding

_SHOWN = (TABLE, WIDE, DATA)

_TYPES = {
    "int32": "integer",
    "int64": "int64",
    "time": "int64",
    "boolean": "boolean",
    "string": "string",
    "bytes": "any",
}

_OPTIONS = ("offset", "time", "topic", "queue", "tag", "key", "unique_key", "user_property", "grep", "max_bytes")

_QUEUE = ("broker", "topic", "queue_id")
"""Columns that name a queue; a table has some of them."""

_REBUILDABLE = ("consumequeue", "all")
"""What can be rebuilt of another kind of store: its queues."""

_NOTED = 10
"""Damaged ranges of a table that get a line on stderr."""


def _columns(table: Table) -> tuple[Column, ...]:
    columns = []
    for column in table.columns:
        shown, is_time = _SHOWN[column.shown], column.type == "time"
        columns.append(Column(column.name, _TYPES[column.type], column.doc, show=shown, time=is_time, nullable=True))
        if column.type == "bytes":
            doc = f"text, hex, base64, json or none: what {column.name} is"
            columns.append(Column(f"{column.name}_encoding", "string", doc, show=DATA))
    return tuple(columns)


TABLES = {table.name: OutputSchema(table.name, table.doc, _columns(table)) for kind in KINDS for table in kind.tables}
"""Output of each table, by its name."""


MAIN = tuple(TABLES[kind.tables[0].name] for kind in KINDS)
"""Output of each kind's first table: what `get` and `find` print."""


def table_row(values: Row, table: Table, body: BodyView) -> dict[str, Any]:
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


def info(invocation: Invocation, kind: Kind, path: Path, output_format: Format, *, deep: bool) -> ExitCode:
    """Describes a store; `deep` also verifies it."""
    code = ExitCode.OK
    with kind.open(path) as opened:
        layout = opened.layout()
        description: dict[str, Any] = {
            "kind": kind.name,
            "path": str(path),
            "release": layout.pop("release"),
            "oddities": [str(oddity) for oddity in layout.pop("oddities")],
            "layout": sibling_rows.layout_rows(layout),
        }
        if deep:
            findings = list(opened.verify())
            description["findings"] = [_finding(finding) for finding in findings]
            code = ExitCode.NO if any(item.severity.is_serious for item in findings) else ExitCode.OK
        return Output(invocation, sibling_rows.KIND_INFO, output_format).document(description, code)


def _finding(finding: "Finding") -> dict[str, Any]:
    return row_of(sibling_rows.VERIFY_KIND.columns, finding)


def explain_start(invocation: Invocation, kind: Kind, path: Path, output_format: Format) -> ExitCode:
    """Predicts a start of the store's own system; ends with 1 if it would fail or lose messages."""
    with kind.open(path) as opened:
        prediction = opened.explain()
    if prediction is None:
        raise UnsupportedFormatError(
            f"{path}: cannot predict a start on a store of kind {kind.name}; see `mqtool help formats`"
        )
    code = ExitCode.OK if prediction["harmless"] else ExitCode.NO
    value = {"kind": kind.name, "path": str(path), **prediction}
    return Output(invocation, sibling_rows.EXPLAIN_KIND, output_format).document(value, code)


def verify(invocation: Invocation, kind: Kind, path: Path, output_format: str, fail_on: str) -> ExitCode:
    """Prints every broken invariant; the exit code follows the worst one."""
    if output_format not in list(Format):
        raise UsageError(
            f"--format {output_format} does not apply to a store of kind {kind.name}; use table, json, jsonl or csv"
        )
    output = Output(invocation, sibling_rows.VERIFY_KIND, Format(output_format))
    is_text = output.format in TABLE_FORMATS
    findings: list[Finding] = []
    with kind.open(path) as opened:
        for finding in opened.verify():
            findings.append(finding)
            if not is_text:
                output.row(_finding(finding))
        if is_text:
            _print_verdict(output, path, findings, opened.explain())
    seen = {finding.severity for finding in findings}
    code = ExitCode.OK
    if any(severity.is_serious for severity in seen) and fail_on != "never":
        code = ExitCode.NO
    elif seen and fail_on == "warning":
        code = ExitCode.WARNINGS
    return code if is_text else output.finish(code)


def _print_verdict(output: Output, path: Path, findings: "list[Finding]", prediction: dict[str, Any] | None) -> None:
    """Prints the result for readers, in the form that a store of RocketMQ gets."""
    from mqtool.cli import verification_formats
    from mqtool.verify.findings import Verification, state_of

    start = [] if prediction is None else [f"next start: {prediction['verdict']}"]
    state = state_of(findings)
    result = Verification(str(path), state, live=False, complete=True, checks=(), findings=tuple(findings))
    output.page([verification_formats.text(result, (), start, wide=output.format is Format.WIDE)])


def dump(
    invocation: Invocation,
    kind: Kind,
    path: Path,
    table: str | None,
    filters: Filters,
    view: MessageView,
    *,
    only: Path | None = None,
) -> ExitCode:
    """Prints one table of a store, or the content of one of its files."""
    if view.follow or view.explode or view.hex or view.redact or view.raw:
        raise UsageError(f"leave out --follow, --explode, --hex, --redact and --raw for a store of kind {kind.name}")
    with kind.open(path) as opened:
        chosen, items = _table(opened, table), None
        if only is not None:
            file_rows = opened.rows_of_file(only)
            if file_rows is None or table is not None:
                raise UsageError(f"{only}: give the root of this store of kind {kind.name}, {path}")
            chosen, items = file_rows
        report = DamageReport()
        output = Output(invocation, TABLES[chosen.name], view.format)
        body = _body_view(view)
        rows = _selected(opened, chosen, filters, report, items)
        any_row = _print(output, rows, chosen, filters.limit, body)
        if not any_row and (filters.topic or filters.queue is not None) and filters.limit != 0:
            _nothing_matches(report)
        return output.finish(report.code())


def get(invocation: Invocation, kind: Kind, path: Path, addresses: list[str], view: MessageView) -> ExitCode:
    """Prints the rows at addresses, in their order."""
    with kind.open(path) as opened:
        chosen = opened.table()
        report = DamageReport()
        output = Output(invocation, TABLES[chosen.name], view.format, upright=True)
        body = _body_view(view, default=Body.TEXT)
        for address in addresses:
            try:
                items = opened.get(address)
            except CorruptionError as error:
                report.report(f"{address}: nothing found: {error}")
                continue
            rows = [item for item in items if not isinstance(item, Damage)]
            if not rows:
                note(f"{address}: nothing found")
                report.missing()
            elif len(rows) > 1:
                note(f"{address}: {len(rows)} messages have this address")
            for item in items:
                if isinstance(item, Damage):
                    report.damage(item)
            output.rows(table_row(row, chosen, body) for row in rows)
        return output.finish(report.code())


def find(invocation: Invocation, kind: Kind, path: Path, filters: Filters, view: MessageView) -> ExitCode:
    """Prints the rows that match, by reading all of them."""
    with kind.open(path) as opened:
        chosen = opened.table()
        report = DamageReport()
        output = Output(invocation, TABLES[chosen.name], view.format)
        body = _body_view(view)
        note(f"searching by reading every row of {chosen.name}")
        if not _print(output, _selected(opened, chosen, filters, report), chosen, filters.limit, body):
            _nothing_matches(report)
        return output.finish(report.code())


def _print(output: Output, rows: Iterator[Row], table: Table, limit: int | None, body: BodyView) -> bool:
    """Prints rows; returns whether there was one."""
    any_row = False
    for row in islice(rows, limit):
        any_row = True
        output.row(table_row(row, table, body))
    return any_row


def _nothing_matches(report: DamageReport) -> None:
    note("nothing matches")
    report.missing()


def _table(opened: "OpenedStore", name: str | None) -> Table:
    names = [table.name for table in opened.tables]
    if name is not None and name not in names:
        raise UsageError(f"--table: expected one of {', '.join(names)}, found {name}")
    return opened.table(name)


def _body_view(view: MessageView, default: Body | None = None) -> BodyView:
    by_format = Body.NONE if view.format in TABLE_FORMATS else Body.TEXT
    max_body = parse_size(view.max_body) if view.max_body else None
    return BodyView(view.body or default or by_format, max_bytes=max_body)


def _selected(
    opened: "OpenedStore",
    table: Table,
    filters: Filters,
    report: DamageReport,
    items: Iterator[Row | Damage] | None = None,
) -> Iterator[Row]:
    """Yields the rows that pass every given option; damage goes to the report."""
    columns = dict(table.selected_by)
    filters.refuse(*(name for name in _OPTIONS if name not in columns), why=f"does not select rows of {table.name}")
    tests = _tests(opened, table, filters, columns)
    for item in opened.rows(table.name) if items is None else items:
        if isinstance(item, Damage):
            report.report(f"damage: {item}")
        elif all(test(item) for test in tests):
            yield item


def _tests(opened: "OpenedStore", table: Table, filters: Filters, columns: dict[str, str]) -> list[Any]:
    """Returns a predicate for each option that was given."""
    from mqtool.store.log.selection import Globs

    tests: list[Any] = []
    if filters.topic:
        globs, topic = Globs(filters.topic), columns["topic"]
        tests.append(lambda row: globs.matches(row[topic] or ""))
    for option, value in (("queue", filters.queue), ("tag", filters.tag), ("unique_key", filters.unique_key)):
        if value is not None:
            accepted = set(value) if isinstance(value, list) else {value}
            tests.append(lambda row, name=columns[option], accepted=accepted: row[name] in accepted)
    if filters.grep is not None:
        pattern, body = _pattern(filters.grep), columns["grep"]
        tests.append(lambda row: row[body] is not None and pattern.search(row[body]) is not None)
    if filters.time is not None:
        tests.append(_between(columns["time"], *parse_times(filters.time)))
    if filters.offset is not None:
        chosen = filters.range()
        if chosen.times() != (None, None):
            raise UsageError("--offset: expected offsets; use --time to select by time")
        tests.append(_in_range(opened, table, columns["offset"], chosen))
    return tests


def _in_range(opened: "OpenedStore", table: Table, column: str, chosen: Range) -> Any:
    """Returns the predicate of a range, which may be relative to the offsets of the row's queue, or of all rows."""
    names = [member.name for member in table.columns if member.name in _QUEUE] if column == "queue_offset" else []
    bounds: dict[tuple[Any, ...], tuple[int, int]] = {}
    for item in opened.rows(table.name):
        if not isinstance(item, Damage):
            queue, offset = tuple(item[name] for name in names), item[column]
            first, end = bounds.get(queue, (offset, offset))
            bounds[queue] = min(first, offset), max(end, offset + 1)
    tests = {queue: _between(column, *chosen.offsets(*interval)) for queue, interval in bounds.items()}
    return lambda row: tests[tuple(row[name] for name in names)](row)


def _between(column: str, low: int | None, high: int | None) -> Any:
    return lambda row: (low is None or row[column] >= low) and (high is None or row[column] < high)


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise UsageError(f"--grep: {text!r} is not a regular expression: {error}") from error


def new_directory(store: Path, target: Path) -> None:
    """Checks that a target is new or empty, and outside of the store; raises UsageError if it is not."""
    from mqtool.store.paths import is_inside

    if is_inside(target, store):
        raise UsageError(f"{target}: this is inside the store {store}, which is only read; name a directory elsewhere")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: expected a new or empty directory")


def export(invocation: Invocation, kind: Kind, path: Path, target: Path, output_format: Format) -> ExitCode:
    """Writes each table of a store as one Parquet file; ends with 1 if something could not be read."""
    from mqtool.siblings.arrow import export as write

    new_directory(path, target)
    output = Output(invocation, sibling_rows.EXPORT_KIND, output_format)
    damaged = False
    with kind.open(path) as opened:
        target.mkdir(parents=True, exist_ok=True)
        for table in opened.tables:
            damage: list[Damage] = []
            file = target / f"{table.name}.parquet"
            rows = write(opened, file, table.name, damage.append)
            damaged |= _print_table(output, table, rows, damage, file)
    return output.finish(ExitCode.NO if damaged else ExitCode.OK)


def _print_table(output: Output, table: Table, rows: int, damage: Sequence[object], file: Path) -> bool:
    """Prints what was written of a table, and notes its first damaged ranges; returns whether there are any."""
    _note_damage(damage)
    output.row({"table": table.name, "rows": rows, "damage": len(damage), "file": str(file)})
    return bool(damage)


def _note_damage(damage: Sequence[object]) -> None:
    for item in damage[:_NOTED]:
        note(f"damage: {item}")


def rebuild(invocation: Invocation, kind: Kind, path: Path, out: Path, what: str, output_format: Format) -> ExitCode:
    """Rebuilds a store's queues; ends with 1 if entries lead nowhere, or messages may be missing."""
    if what not in _REBUILDABLE:
        raise UsageError(
            f"only the queues of a store of kind {kind.name} can be rebuilt; use rebuild consumequeue, not {what}"
        )
    damage: list[Damage] = []
    rows = _write_new(kind, path, out, "rebuilt", lambda opened, new: opened.rebuild(new, damage.append))
    _note_damage(damage)
    code = _print_written(Output(invocation, sibling_rows.REBUILD_KIND, output_format), rows, "filled")
    return ExitCode.NO if damage else code


def salvage(invocation: Invocation, kind: Kind, path: Path, target: Path, output_format: Format) -> ExitCode:
    """Writes what can be read of each file, and reports the damage; ends with 1 if there is any."""
    rows = _write_new(kind, path, target, "salvaged", lambda opened, new: opened.salvage(new))
    return _print_written(Output(invocation, sibling_rows.SALVAGE_KIND, output_format), rows, "damaged_bytes")


def _write_new(
    kind: Kind, path: Path, target: Path, done: str, write: "Callable[[OpenedStore, Path], list[Row] | None]"
) -> list[Row]:
    """Writes a new directory, which gets its name when it is complete; returns the rows that describe it.

    `write` returns them, or None if the kind cannot do it; the error then names it by its participle, `done`.
    """
    from mqtool.jobs.atomic import staged_directory

    new_directory(path, target)
    with kind.open(path) as opened, staged_directory(target, into_empty=True) as work:
        rows = write(opened, work / "store")
        if rows is None:
            raise UnsupportedFormatError(
                f"{path}: a store of kind {kind.name} cannot be {done}; see `mqtool help formats`"
            )
    return rows


def _print_written(output: Output, rows: Sequence[Row], lost: str) -> ExitCode:
    """Prints the written files; ends with 1 if a row counts something as lost."""
    output.rows(iter(rows))
    return output.finish(ExitCode.NO if any(row[lost] for row in rows) else ExitCode.OK)


def export_on_spark(
    invocation: Invocation, kind: Kind, path: Path, target: Path, spark: OnSpark, output_format: Format
) -> ExitCode:
    """Exports and prints; ends with 1 if something could not be read."""
    new_directory(path, target)
    output = Output(invocation, sibling_rows.EXPORT_KIND, output_format)
    damaged = False
    with spark_session(spark) as session:
        from mqtool.spark.kinds import export_table

        for table in kind.tables:
            folder = target.absolute() / f"{table.name}.parquet"
            written = export_table(session, str(path.absolute()), table, folder)
            damage = [text for report in written for text in report.damage]
            damaged |= _print_table(output, table, sum(report.rows for report in written), damage, folder)
    return output.finish(ExitCode.NO if damaged else ExitCode.OK)
