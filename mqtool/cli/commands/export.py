"""`mqtool export`: writes messages as Parquet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.choices import TableFormat
from mqtool.cli import cells, options, ranges
from mqtool.cli.changes import refuse_half_changed
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.options import LOCAL, WORK, Include, OnSpark, ProgressMode, on_spark, option, spark_session
from mqtool.cli.output import Output
from mqtool.cli.progress import Progress, show_progress
from mqtool.cli.schema import NEXT_STEP, TABLE, WIDE, Column, OutputSchema, count, listing, prints, size
from mqtool.cli.selection import Filters, require_selected
from mqtool.cli.sibling_rows import EXPORT_KIND
from mqtool.commands import command
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.siblings.registry import Kind, recognise

if TYPE_CHECKING:
    from mqtool.export.plain import Patience
    from mqtool.export.run import ExportRequest, ExportResult, Runner
    from mqtool.export.schema import ReadRequest
    from mqtool.export.sources import Source
    from mqtool.jobs.progress import OnProgress
    from mqtool.store import Store
    from mqtool.store.log.selection import Selection


HELP = """
mqtool export /data/store --output orders-lake --topic Orders

Write messages as Parquet: typed columns, sorted by topic, queue and offset, with statistics. DIR contains the tables
messages, damage (what could not be read) and rejected_values (what could not be converted). All files of a run appear,
or none; after an interruption, run the command again. --state FILE makes the export incremental: the next run adds
exactly what is new; --max-bytes, --max-messages and --until limit one run. Several stores, NAME=STORE or globs are
written to one table with a column broker. --spark runs the same tasks on Spark, on this machine or on a cluster that
has stores and DIR under the same paths. For a store of another kind (see `mqtool help formats`), each table becomes a
Parquet file in DIR.

impact: writes below --output and the --state file, and nothing else; stores are only read
"""


EXPORT = OutputSchema(
    "export",
    "what an export wrote",
    (
        Column("target", "string", "directory or URL", show=TABLE),
        Column("outcome", "string", "exported, nothing-new, or completed (an interrupted run)", show=TABLE),
        count("sequence", "number of the commit in the directory"),
        count("messages", "rows of the messages table"),
        count("files", "of all tables"),
        size("size", "bytes of them", label="written"),
        size("log_bytes", "bytes of CommitLog that were read", label="read"),
        count("damage", "rows of the damage table", label="damaged ranges"),
        size("damaged_bytes", "bytes of CommitLog in it", label="damaged"),
        count("rejected_values", "rows of the table of rejected values"),
        replace(size("left", "bytes of CommitLog after the limit of this run; only if it had one"), optional=True),
        replace(NEXT_STEP, doc="the command that exports them; null if none are left", nullable=True),
        listing(
            "stores",
            "what was read",
            Column("broker", "string", "value of the column broker", show=TABLE),
            count("start", "physical offset of the first byte"),
            count("end", "physical offset after the last; fixed before reading began"),
            Column("path", "string", "root", show=TABLE),
        ),
        listing(
            "topics", "messages by topic", Column("topic", "string", "name", show=TABLE), count("messages", "rows")
        ),
        listing(
            "classes",
            "messages by class of record",
            Column("record_class", "string", "committed, half, rolled-back or system", show=TABLE),
            count("messages", "rows"),
            show=WIDE,
        ),
    ),
    single=True,
)

CONTENT = "Content"
FILES = "Files"
INCREMENTAL = "Incremental"
SIZE = "256M"
"""Default of `--file-size`."""


class LakeBody(StrEnum):
    """Values of `--body`."""

    BINARY = "binary"
    TEXT = "text"
    JSON = "json"


class Mode(StrEnum):
    """Values of `--on-damage`."""

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


StoresArgument = Annotated[
    list[str], typer.Argument(metavar="STORE...", help="Roots of stores: paths, globs, URLs, NAME=PATH.")
]
ToOption = Annotated[
    str,
    options.output_option("Directory or URL for the result; new, empty, or written with --state before."),
]
StateOption = Annotated[
    str | None,
    option("--state", metavar="FILE", panel=INCREMENTAL, help="Checkpoint file: later runs export only what is new."),
]
WorkersOption = Annotated[int | None, options.jobs_option(panel=WORK)]
IncludeOption = Annotated[Include, options.include_option(CONTENT)]
ColumnsOption = Annotated[
    str | None, option("--columns", metavar="NAME,…", panel=CONTENT, help="Columns of the messages table.")
]
BodyOption = Annotated[
    LakeBody, option("--body-type", panel=CONTENT, help="Type of bodies; values that cannot be converted are listed.")
]
RedactOption = Annotated[
    list[str] | None,
    option("--redact-columns", metavar="NAME,…", panel=CONTENT, help="Columns whose values become salted hashes."),
]
ModeOption = Annotated[Mode, option("--on-damage", panel=CONTENT, help="Report damage and skip it, or fail.")]
PartitionOption = Annotated[
    str | None,
    option(
        "--partition-by", metavar="topic,date,hour", panel=FILES, help="Columns that become directories, as in Hive."
    ),
]
FileSizeOption = Annotated[str, option("--file-size", metavar="SIZE", panel=FILES, help="Target size of the files.")]
SplitOption = Annotated[
    str | None,
    option(
        "--split", metavar="SIZE", panel=FILES, help="Bytes of the log for one task; each task writes its own files."
    ),
]
LevelOption = Annotated[
    int, option("--level", panel=FILES, help="zstd compression level, 1-22. Higher is smaller and slower.")
]


RewindOption = Annotated[
    bool,
    option(
        "--rewind", panel=INCREMENTAL, help="If a log was cut back, remove the exported rows of the part that was cut."
    ),
]
TableOption = Annotated[
    TableFormat | None,
    option(
        "--table-format",
        panel=FILES,
        help="Also commit the messages to a Delta or Iceberg table, locally or on s3://, gs:// or abfs://.",
    ),
]

MaxBytesOption = Annotated[str | None, options.max_bytes_option(INCREMENTAL)]
MaxMessagesOption = Annotated[
    int | None, option("--max-messages", panel=INCREMENTAL, min=1, help="Stop after this many messages.")
]
UntilOption = Annotated[
    str | None,
    option(
        "--until",
        metavar="TIME",
        panel=INCREMENTAL,
        help="End before the first message stored at TIME or later; the next run goes on there.",
    ),
]

_WEEK = 7 * 86400.0
"""Seconds; the system cannot wait for any number of them."""
_EVERY, _MAX_WAIT = 5.0, 300.0
FollowOption = Annotated[
    bool, option("--follow", panel=INCREMENTAL, help="Repeat the export until Ctrl-C or SIGTERM. Needs --state.")
]
EveryOption = Annotated[
    float | None,
    option(
        "--every",
        metavar="SECONDS",
        panel=INCREMENTAL,
        min=0.1,
        max=_WEEK,
        help=f"Pause between runs of --follow; {_EVERY:.0f} by default.",
    ),
]
MinBytesOption = Annotated[
    str | None,
    option(
        "--min-bytes", metavar="SIZE", panel=INCREMENTAL, help="With --follow, export once this much of the log is new."
    ),
]
MaxWaitOption = Annotated[
    float | None,
    option(
        "--max-wait",
        metavar="SECONDS",
        panel=INCREMENTAL,
        min=0,
        max=_WEEK,
        help=f"With --follow, export once a new message is this old; {_MAX_WAIT:.0f} if only --min-bytes is given.",
    ),
]


@prints(EXPORT, EXPORT_KIND)
def export(
    ctx: typer.Context,
    stores: StoresArgument,
    *,
    to: ToOption,
    state: StateOption = None,
    rewind: RewindOption = False,
    max_bytes: MaxBytesOption = None,
    max_messages: MaxMessagesOption = None,
    until: UntilOption = None,
    follow: FollowOption = False,
    every: EveryOption = None,
    min_bytes: MinBytesOption = None,
    max_wait: MaxWaitOption = None,
    include: IncludeOption = Include.COMMITTED,
    columns: ColumnsOption = None,
    body: BodyOption = LakeBody.BINARY,
    redact: RedactOption = None,
    mode: ModeOption = Mode.PERMISSIVE,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    time: options.TimeOption = None,
    offset: options.RangeOption = None,
    partition_by: PartitionOption = None,
    file_size: FileSizeOption = SIZE,
    split: SplitOption = None,
    level: LevelOption = 1,
    table: TableOption = None,
    workers: WorkersOption = None,
    spark: options.SparkOption = False,
    master: options.MasterOption = LOCAL,
    conf: options.ConfOption = None,
    output_format: options.FormatOption = Format.TABLE,
    config: options.ConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Exports and reports; ends with 1 if some of the log could not be read."""
    from mqtool.export.plain import LocalRunner
    from mqtool.export.plain import export as export_messages
    from mqtool.export.sources import resolve

    filters = Filters(offset=offset, time=time, topic=topic, queue=queue)
    files = (partition_by, file_size, split, level, table)
    limits = (max_bytes, max_messages, until)
    options = _Options(state, rewind, include, columns, body, redact, mode, filters, *files, workers, config, *limits)
    where = on_spark(spark, master, conf)
    if follow and until is not None:
        raise UsageError("--until ends a run, and --follow repeats it; leave one out")
    if not follow and (every, min_bytes, max_wait) != (None, None, None):
        raise UsageError("--every, --min-bytes and --max-wait say when to export again; add --follow")
    kind = _sibling(stores[0]) if len(stores) == 1 else None
    if kind is not None:
        if options != _Options():
            raise UsageError(f"a store of kind {kind.name} is exported completely, table by table: give only --output")
        from mqtool.cli import siblings

        if where is not None:
            return siblings.export_on_spark(ctx.obj, kind, Path(stores[0]), Path(to), where, output_format)
        return siblings.export(ctx.obj, kind, Path(stores[0]), Path(to), output_format)
    sources = resolve(stores, config)
    _require_rocketmq(sources)
    for source in sources:
        refuse_half_changed(Path(source.path))
    require_selected(_opened(sources), topic, queue)
    request = options.request(sources, to)
    if table is TableFormat.ICEBERG:  # it warns of columns that have no statistics on purpose, for each file
        logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)
    with ExitStack() as shown:
        move = _bar_in(shown, progress)
        runner = LocalRunner(workers) if where is None else _spark_runner(shown, where, move)
        shown.push(_note_kept)
        if follow:
            return _follow(ctx.obj, request, runner, every or _EVERY, _patience(min_bytes, max_wait), output_format)
        result = export_messages(request, runner, move)
    return _print(ctx.obj, request, result, output_format)


def _note_kept(_: object, error: BaseException | None, __: object) -> None:
    """Prints what a run that failed keeps for the next one."""
    for text in getattr(error, "__notes__", ()):
        note(text)


def _patience(min_bytes: str | None, max_wait: float | None) -> Patience | None:
    from mqtool.export.plain import Patience

    if min_bytes is None and max_wait is None:
        return None
    size = None if min_bytes is None else ranges.parse_size(min_bytes)
    return Patience(size, _MAX_WAIT if max_wait is None else max_wait)


def _follow(
    invocation: Invocation,
    request: ExportRequest,
    runner: Runner,
    every: float,
    patience: Patience | None,
    output_format: Format,
) -> ExitCode:
    """Exports until a signal arrives; reports each commit on stderr, and prints the last one's result."""
    import signal
    import threading

    from mqtool.export.plain import follow

    ends = threading.Event()
    previous = {number: signal.signal(number, lambda *_: ends.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    code = ExitCode.OK
    try:
        last = None
        for last in follow(request, runner, lambda: not ends.wait(every), patience):
            rows = last.manifest.totals["rows"]["messages"]
            note(f"commit {last.manifest.state.sequence}: {rows} messages; Ctrl-C ends")
            damaged = last.manifest.totals["rows"]["damage"]
            code = ExitCode.NO if damaged else code
        assert last is not None
        return max(code, _print(invocation, request, last, output_format))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Options(Struct, frozen=True):
    """Options other than stores and target; equal to `_Options()` if none was given."""

    state: str | None = None
    rewind: bool = False
    include: Include = Include.COMMITTED
    columns: str | None = None
    body: LakeBody = LakeBody.BINARY
    redact: list[str] | None = None
    mode: Mode = Mode.PERMISSIVE
    filters: Filters = field(default_factory=Filters)
    partition_by: str | None = None
    file_size: str = SIZE
    split: str | None = None
    level: int = 1
    table: TableFormat | None = None
    workers: int | None = None
    config: Path | None = None
    max_bytes: str | None = None
    max_messages: int | None = None
    until: str | None = None

    def request(self, sources: list[Source], target: str) -> ExportRequest:
        """Returns the request to the library; raises UsageError for an invalid option."""
        from mqtool.export.limits import Limits
        from mqtool.export.parquet import WriteOptions
        from mqtool.export.run import ExportRequest

        return ExportRequest(
            tuple(sources),
            target,
            self._read(sources),
            WriteOptions(tuple(_names([self.partition_by])), ranges.parse_size(self.file_size), self.level),
            self.state,
            None if self.split is None else ranges.parse_size(self.split),
            self.table,
            self.rewind,
            Limits(
                None if self.max_bytes is None else ranges.parse_size(self.max_bytes),
                self.max_messages,
                None if self.until is None else ranges.parse_time(self.until),
            ),
        )

    def _read(self, sources: list[Source]) -> ReadRequest:
        from mqtool.export import schema as redaction
        from mqtool.export.schema import ALL_COLUMNS, Body, ReadRequest

        hidden = redaction.closure(_names(self.redact))
        return ReadRequest(
            _selection(sources, self.filters),
            tuple(_names([self.columns])) if self.columns is not None else ALL_COLUMNS,
            self.include is Include.ALL,
            Body(self.body),
            hidden,
            redaction.new_salt() if hidden else b"",
            self.mode is Mode.FAILFAST,
        )


def _sibling(path: str) -> Kind | None:
    """Returns the other system that a store belongs to, None for RocketMQ's own and for remote paths."""
    from mqtool.store.remote import is_url

    return None if is_url(path) else recognise(Path(path))


def _selection(sources: list[Source], filters: Filters) -> Selection:
    from mqtool.store.log.selection import Selection

    first, end = 0, (1 << 63) - 1
    if filters.offset is not None:
        if len(sources) > 1:
            raise UsageError("--offset applies to one store; use --time, or export the stores one by one")
        with sources[0].open() as store:
            first, end = store.commit_log.min_offset, store.commit_log.max_offset
    return Selection.of(**filters.keywords(first, end))


def _spark_runner(stack: ExitStack, where: OnSpark, on_progress: OnProgress) -> Runner:
    """Starts Spark, until the stack ends."""
    session = stack.enter_context(spark_session(where))
    from mqtool.spark.job import SparkRunner  # an extra

    return SparkRunner(session, on_progress)


def _opened(sources: list[Source]) -> Iterator[Store]:
    for source in sources:
        with source.open() as store:
            yield store


def _require_rocketmq(sources: list[Source]) -> None:
    """Raises UnsupportedFormatError, which names them, if there are stores of other systems."""
    for source in sources:
        kind = _sibling(source.path)
        if kind is not None:
            reason = f"a store of kind {kind.name}, which must be exported by itself"
            raise UnsupportedFormatError(f"{source.path}: {reason}, not together with others")


def _names(given: list[str | None] | list[str] | None) -> list[str]:
    return [name.strip() for text in given or () if text for name in text.split(",") if name.strip()]


def _bar_in(stack: ExitStack, mode: ProgressMode) -> OnProgress:
    """Returns a progress callback whose bar starts when the plan is made and its length is known."""
    bars: list[Progress] = []

    def move(done: int, total: int) -> None:
        if not bars:
            bars.append(stack.enter_context(show_progress(mode, "export", 0, total)))
        bars[0].update(done)

    return move


def _print(invocation: Invocation, request: ExportRequest, result: ExportResult, output_format: Format) -> ExitCode:
    """Prints the result of an export; the exit code shows whether all of the log could be read."""
    from mqtool.export.schema import Table

    document = _document(invocation, request, result)
    if document["damage"]:
        note(
            f"{document['damage']} damaged range(s), {document['damaged_bytes']} bytes; see "
            f"{request.target}/{Table.DAMAGE}"
        )
    if document["rejected_values"]:
        note(
            f"{document['rejected_values']} value(s) could not be converted; see "
            f"{request.target}/{Table.REJECTED_VALUES}"
        )
    if result.taken_over:
        note(f"{result.taken_over} of {result.tasks} tasks had been finished by a run that ended early")
    completed_damage = _note_completed(result)
    code = ExitCode.NO if document["damage"] or completed_damage else ExitCode.OK
    return Output(invocation, EXPORT, output_format).document(document, code)


def _note_completed(result: ExportResult) -> int:
    """Notes the commit of an interrupted run that this one published besides its own; returns its damaged ranges."""
    from mqtool.export.schema import Table

    if result.completed is None or not result.committed:
        return 0
    rows = result.completed.totals["rows"]
    damaged = int(rows[Table.DAMAGE])
    note(
        f"an interrupted run was completed: {rows[Table.MESSAGES]} messages, {damaged} damaged range(s); "
        f"they are not in these figures"
    )
    return damaged


def _document(invocation: Invocation, request: ExportRequest, result: ExportResult) -> dict[str, Any]:
    from mqtool.export.schema import Table

    manifest = result.manifest
    new = result.committed or result.finished_earlier
    totals = manifest.totals
    rows = totals["rows"] if new else dict.fromkeys(totals["rows"], 0)
    outcome = "completed" if result.finished_earlier else "exported" if new else "nothing-new"
    stores = manifest.stores
    return {
        "target": request.target,
        "outcome": outcome,
        "sequence": manifest.state.sequence,
        "messages": rows[Table.MESSAGES],
        "files": len(manifest.files) if new else 0,
        "size": sum(entry.size for entry in manifest.files) if new else 0,
        "log_bytes": totals["log_bytes"] if new else 0,
        "damage": rows[Table.DAMAGE],
        "damaged_bytes": totals["damaged_bytes"] if new else 0,
        "rejected_values": rows[Table.REJECTED_VALUES],
        **({"left": result.left} if request.limits else {}),
        "next_step": _next_step(invocation, result) if result.left else None,
        "stores": [{"broker": broker, **part} for broker, part in sorted(stores.items())],
        "topics": [{"topic": topic, "messages": n} for topic, n in totals["topics"].items()] if new else [],
        "classes": [{"record_class": kind, "messages": n} for kind, n in totals["classes"].items()] if new else [],
    }


def _next_step(invocation: Invocation, result: ExportResult) -> str:
    """Returns this command again, without `--until` if only that kept it from more."""
    words = list(invocation.arguments)
    for at in reversed(range(len(words) if result.is_late else 0)):
        if words[at].partition("=")[0] == "--until":
            del words[at : at + (1 if "=" in words[at] else 2)]
    return command(*words)
