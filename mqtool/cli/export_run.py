"""What `mqtool export` does once its options are read."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqtool.cli import ranges, siblings
from mqtool.cli.exits import ExitCode
from mqtool.cli.export_schema import EXPORT
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import Progress, show_progress
from mqtool.cli.selected import require_selected
from mqtool.cli.spark_session import OnSpark, spark_session
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.export import redact
from mqtool.export.parquet import WriteOptions
from mqtool.export.plain import Done, ExportRequest, ExportResult, export
from mqtool.export.request import ReadRequest
from mqtool.export.schema import ALL_COLUMNS, Body, Table
from mqtool.export.sources import Source, resolve
from mqtool.export.tables import TableFormat
from mqtool.export.workers import LocalRunner
from mqtool.siblings.registry import recognise
from mqtool.store import Store
from mqtool.store.remote import is_url
from mqtool.store.selection import Selection


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options said; see `export`."""

    stores: list[str]
    to: str
    state: str | None = None
    every_class: bool = False
    columns: str | None = None
    body: str = Body.BINARY.value
    redact: list[str] | None = None
    fail_fast: bool = False
    filters: Filters = field(default_factory=Filters)
    partition_by: str | None = None
    file_size: str = "256M"
    split: str | None = None
    level: int = 1
    workers: int | None = None
    config: str | None = None
    table: str | None = None
    rewind: bool = False

    def request(self) -> ExportRequest:
        """Returns the library's request.

        Raises:
            UsageError: an option makes no sense.
        """
        sources = resolve(self.stores, self.config)
        for source in sources:
            _require_rocketmq(source)
        require_selected(_opened(sources), self.filters.topic, self.filters.queue)
        hidden = redact.closure(_names(self.redact))
        columns = ALL_COLUMNS if self.columns is None else tuple(_names([self.columns]))
        read = ReadRequest(
            self._selection(sources),
            columns,
            self.every_class,
            Body(self.body),
            hidden,
            redact.new_salt() if hidden else b"",
            self.fail_fast,
        )
        write = WriteOptions(tuple(_names([self.partition_by])), ranges.parse_size(self.file_size), self.level)
        split = None if self.split is None else ranges.parse_size(self.split)
        table = None if self.table is None else TableFormat(self.table)
        return ExportRequest(tuple(sources), self.to, read, write, self.state, split, table, self.rewind)

    def _selection(self, sources: list[Source]) -> Selection:
        first, end = 0, (1 << 63) - 1
        if self.filters.offset is not None:
            if len(sources) > 1:
                raise UsageError("--offset means one store; give --time, or export the stores one by one")
            with sources[0].open() as store:
                first, end = store.commit_log.min_offset, store.commit_log.max_offset
        return Selection.of(**self.filters.keywords(first, end))


def _opened(sources: list[Source]) -> Iterator[Store]:
    for source in sources:
        with source.open() as store:
            yield store


def _require_rocketmq(source: Source) -> None:
    """Names stores of other systems as what they are.

    Raises:
        UnsupportedFormatError: it is one.
    """
    kind = None if is_url(source.path) else recognise(Path(source.path))
    if kind is not None:
        words = f"a store of kind {kind.name}, which is exported by itself"
        raise UnsupportedFormatError(f"{source.path}: {words}, not together with others")


def _names(given: "list[str | None] | list[str] | None") -> list[str]:
    return [name.strip() for text in given or () if text for name in text.split(",") if name.strip()]


def run(
    invocation: Invocation,
    wanted: Wanted,
    spark: OnSpark | None,
    output_format: Format,
    mode: ProgressMode,
) -> ExitCode:
    """Exports and reports; `spark` says where, None is for worker processes of this machine."""
    only = wanted.stores[0] if len(wanted.stores) == 1 else ""
    kind = None if not only or is_url(only) else recognise(Path(only))
    if kind is not None:
        if wanted != Wanted([only], wanted.to):
            raise UsageError(f"a store of kind {kind.name} is exported whole, table by table: give --to only")
        if spark is not None:
            return siblings.export_on_spark(invocation, kind, Path(only), Path(wanted.to), spark, output_format)
        return siblings.export(invocation, kind, Path(only), Path(wanted.to), output_format)
    request = wanted.request()
    with ExitStack() as shown:
        if spark is None:
            result = export(request, LocalRunner(wanted.workers), bar_in(shown, mode))
        else:
            result = _on_spark(request, spark, bar_in(shown, mode))
    return report(invocation, request, result, output_format)


def _on_spark(request: ExportRequest, where: OnSpark, move: Done) -> ExportResult:
    with spark_session(where) as session:
        from mqtool.spark.export import SparkRunner  # noqa: PLC0415 - an extra

        return export(request, SparkRunner(session, move), move)


def bar_in(shown: ExitStack, mode: ProgressMode) -> Done:
    """Returns what moves a bar that begins when the plan is made and its length is known."""
    bars: list[Progress] = []

    def move(done: int, total: int) -> None:
        if not bars:
            bars.append(shown.enter_context(show_progress(mode, "export", 0, total)))
        bars[0].update(done)

    return move


def report(invocation: Invocation, request: ExportRequest, result: ExportResult, output_format: Format) -> ExitCode:
    """Prints what an export did; the exit code says whether all of the log could be read."""
    found = _document(request, result)
    if found["damage"]:
        note(f"{found['damage']} damaged range(s), {found['damaged_bytes']} bytes: {request.target}/{Table.DAMAGE}")
    if found["dead_letters"]:
        note(f"{found['dead_letters']} value(s) not written as asked for: {request.target}/{Table.DEAD_LETTERS}")
    code = ExitCode.NO if found["damage"] else ExitCode.OK
    return Output(invocation, EXPORT, output_format).document(found, code)


def _document(request: ExportRequest, result: ExportResult) -> dict[str, Any]:
    manifest = result.manifest
    new = result.committed
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
        "dead_letters": rows[Table.DEAD_LETTERS],
        "stores": [{"broker": broker, **part} for broker, part in sorted(stores.items())],
        "topics": [{"topic": topic, "messages": n} for topic, n in totals["topics"].items()] if new else [],
        "classes": [{"record_class": kind, "messages": n} for kind, n in totals["classes"].items()] if new else [],
    }
