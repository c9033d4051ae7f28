"""`mqtool dump`: prints the content of a store, a directory or a single file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mqtool.choices import FileKind
from mqtool.cli import cells, options, siblings
from mqtool.cli.damage import DamageReport
from mqtool.cli.entry_rows import FIELD, SCHEMAS, field_rows
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.message_rows import MESSAGE, MessageView
from mqtool.cli.options import OUTPUT, SELECTION, WORK, DamageMode, ProgressMode, option
from mqtool.cli.output import Output
from mqtool.cli.progress import show_progress
from mqtool.cli.ranges import Range
from mqtool.cli.schema import prints
from mqtool.cli.selection import Filters, require_selected, require_selected_files
from mqtool.errors import FormatError, StoreError, UsageError
from mqtool.records.damage import Damage
from mqtool.siblings.registry import recognise, store_of_file

if TYPE_CHECKING:
    from mqtool.store import Message, Store
    from mqtool.store.config.broker_config import BrokerConfig
    from mqtool.store.known_file import KnownFile


HELP = """
mqtool dump /data/store --topic 'order*' --format jsonl

Print the messages of a store, or the entries of any of its files. PATH is a store, a part of one (commitlog,
consumequeue/TOPIC/0, index, config, …) or a single file, whose kind is detected. Damage is reported on stderr and
reading continues after it; the exit code is then 1.

impact: read-only
"""

JobsOption = Annotated[int, options.jobs_option("Parallel workers for JSON output.", panel=WORK)]
KindOption = Annotated[
    FileKind | None, option("--kind", panel=SELECTION, help="Part of the store, or kind of the file.")
]


_MESSAGES_ONLY = ("time", "tag", "key", "unique_key", "user_property", "grep", "max_bytes")
"""Options that select messages, not entries of other files."""
Row = dict[str, Any]
R = TypeVar("R")


@prints(MESSAGE, *SCHEMAS.values(), *siblings.TABLES.values(), FIELD)
def dump(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A store, a part of one, or a file.")],
    *,
    offset: options.RangeOption = None,
    time: options.TimeOption = None,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    tag: options.TagOption = None,
    key: options.KeyOption = None,
    unique_key: options.UniqueKeyOption = None,
    user_property: options.PropertyOption = None,
    grep: options.GrepOption = None,
    limit: options.LimitOption = None,
    max_bytes: options.MaxBytesOption = None,
    kind: KindOption = None,
    table: Annotated[
        str | None,
        option(
            "--table", metavar="NAME", panel=SELECTION, help="Table of a store of another system, e.g. equeue-entry."
        ),
    ] = None,
    follow: Annotated[bool, option("--follow", "-F", panel=SELECTION, help="Wait for new messages.")] = False,
    output_format: options.FormatOption = Format.TABLE,
    body: options.BodyOption = None,
    max_body: options.MaxBodyOption = None,
    raw: options.RawOption = False,
    explode: Annotated[
        bool, option("--explode", panel=OUTPUT, help="Print the messages of inner batches one by one.")
    ] = False,
    hex_: Annotated[bool, option("--hex", panel=OUTPUT, help="Print each field with its bytes.")] = False,
    damage: options.DamageOption = DamageMode.STDERR,
    redact: options.RedactOption = False,
    config: options.ConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
    jobs: JobsOption = 1,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Prints the content of a path."""
    from mqtool.store.files import recording_unlisted
    from mqtool.store.target import open_target

    filters = Filters(offset, time, topic, queue, tag, key, unique_key, user_property, grep, limit, max_bytes)
    view = MessageView(
        format=output_format,
        body=body,
        max_body=max_body,
        raw=raw,
        redact=redact,
        explode=explode,
        hex=hex_,
        follow=follow,
        damage=damage,
        progress=progress,
        jobs=jobs,
    )
    view.check()
    if kind is None and (sibling := recognise(path)) is not None:
        return siblings.dump(ctx.obj, sibling, path, table, filters, view)
    if kind is None and (file := store_of_file(path)) is not None:
        return siblings.dump(ctx.obj, *file, table, filters, view, only=path)
    if table is not None:
        raise UsageError("--table is only for stores of other systems; see `mqtool help formats`")
    unlisted: dict[Path, str] = {}
    with recording_unlisted(unlisted):
        target = open_target(path, kind, config)
        if target.files:
            return _files(ctx.obj, target.files, config, filters, view)
        with ExitStack() as opened:
            for store in target.stores:
                opened.enter_context(store).unlisted = unlisted
            return _messages(ctx.obj, target.stores, path, config, filters, view)


def _messages(
    invocation: Invocation,
    stores: Sequence[Store],
    path: Path,
    config: Path | None,
    filters: Filters,
    view: MessageView,
) -> ExitCode:
    from mqtool.cli.message_rows import MessageStream
    from mqtool.store.log.json_lines import json_lines
    from mqtool.store.target import LogFiles, follow

    if view.follow and isinstance(stores[0], LogFiles):
        raise UsageError("--follow needs the root directory of a store; give it as PATH")
    report = DamageReport(lines=view.damage is DamageMode.STDERR)
    for store in stores:
        report.unknown([*store.unlisted_parts(of_log=True), *store.skip_unreadable()])
    if not view.follow:  # who follows may wait for a topic that is still to come
        require_selected(stores, filters.topic, filters.queue)
    stream = MessageStream(report, filters.limit, filters.byte_limit(), view.explode)
    rows = view.rows()
    schema = FIELD if view.hex else rows.schema
    output = Output(invocation, schema, view.format, live=view.follow)
    for store in stores:
        selection = filters.keywords(store.commit_log.min_offset, store.commit_log.max_offset)
        if view.hex:
            output.rows(_fields(store, stream.items(store.messages(**selection))))
        else:
            body_mode = None if stream.max_bytes is not None else view.ready_lines()
            first, last = _extent(store, selection)
            with show_progress(view.progress, "dump", first, last) as bar:
                if body_mode is None:
                    messages = follow(path, config, **selection) if view.follow else store.messages(**selection)
                    stream.write(messages, rows, output, bar, view.damage)
                else:
                    left = None if stream.limit is None else stream.limit - stream.count
                    lines = json_lines(store, body_mode, raw=view.raw, jobs=view.jobs, limit=left, **selection)
                    stream.write_lines(lines, output, bar, view.damage)
        if not view.follow and "end" not in selection and filters.limit is None and filters.max_bytes is None:
            report.tail(store.commit_log.tail)
    if output.is_blank:
        note("no message matches")
    return output.finish(report.code())


def _extent(store: Store, selection: dict[str, Any]) -> tuple[int, int]:
    """Returns the first and last physical offset that will be read."""
    log = store.commit_log
    return selection.get("start", log.min_offset), selection.get("end", log.max_offset)


def _fields(store: Store, items: Iterable[Message | Damage]) -> Iterator[Row]:
    from mqtool.store import Message
    from mqtool.store.entries import record_fields

    for item in items:
        if isinstance(item, Message):
            yield from field_rows([record_fields(store.commit_log, item.physical_offset, item.store_size)])


def _files(
    invocation: Invocation, files: Sequence[KnownFile], config: Path | None, filters: Filters, view: MessageView
) -> ExitCode:
    """Prints files of one kind without messages: units, entries, slots, configuration."""
    from mqtool.store.config import broker_config
    from mqtool.store.entries import file_fields
    from mqtool.store.log.selection import Globs

    filters.refuse(*_MESSAGES_ONLY, why="selects messages; these are files of another kind")
    if view.follow or view.explode:
        raise UsageError("--follow and --explode are only for messages; leave them out")
    if view.hex:
        filters.refuse("offset", why="does not apply to --hex for these files; leave it out")
    keys = broker_config.load(config)
    globs = Globs(filters.topic)
    require_selected_files(files, filters.topic, filters.queue)
    chosen = [file for file in files if filters.queue in (None, file.queue_id) and globs.matches(file.topic or "")]
    report = DamageReport()
    if view.hex:
        each = (_readable(file_fields(file, keys, _noting(report)), report, chosen) for file in chosen)
        rows = field_rows(annotated for fields in each for annotated in fields)
    else:
        rows = _selected(chosen, keys, filters, report)
    output = Output(invocation, FIELD if view.hex else SCHEMAS[files[0].kind], view.format)
    output.rows(islice(rows, filters.limit))
    if output.is_blank:
        note("no entry matches")
    return output.finish(report.code())


def _noting(report: DamageReport) -> Callable[[FormatError], None]:
    return lambda error: report.report(f"damage: {error}")


def _readable(rows: Iterator[R], report: DamageReport | None, files: Sequence[KnownFile]) -> Iterator[R]:
    """Yields what one of several files contains; an error ends only this file, and is reported. A single one raises."""
    try:
        yield from rows
    except FormatError as error:
        if len(files) == 1:
            raise
        if report is not None:
            report.report(f"damage: {error}")
    except StoreError as error:
        if len(files) == 1:
            raise
        if report is not None:
            report.unknown([str(error)])


def _rows(files: Sequence[KnownFile], keys: BrokerConfig, report: DamageReport | None) -> Iterator[Row]:
    """Yields the rows of files; without a report, damage is passed over."""
    from mqtool.store.entries import rows_of

    damaged = (lambda _: None) if report is None else _noting(report)
    for file in files:
        yield from _readable(rows_of(file, keys, damaged), report, files)


def _selected(files: list[KnownFile], keys: BrokerConfig, filters: Filters, report: DamageReport) -> Iterator[Row]:
    """Yields rows whose number is in the range; files of a queue are numbered consecutively."""
    from mqtool.store.entries import ORDINALS

    if not filters.offset or not files:
        yield from _rows(files, keys, report)
        return
    limits = filters.range()
    if files[0].kind not in ORDINALS:
        raise UsageError(f"--offset does not apply to files of kind {files[0].kind}; leave it out")
    if limits.times() != (None, None):
        raise UsageError("--time selects messages, and these files contain none; leave it out")
    series: dict[Path, list[KnownFile]] = {}
    for file in files:
        series.setdefault(file.path if file.kind is FileKind.INDEX_FILE else file.path.parent, []).append(file)
    for same in series.values():
        yield from _readable(_in_range(same, keys, limits, report), report, files)


def _in_range(files: list[KnownFile], keys: BrokerConfig, limits: Range, report: DamageReport) -> Iterator[Row]:
    from mqtool.store.entries import ORDINALS

    name = ORDINALS[files[0].kind]
    first, end = 0, 0
    for row in _rows(files, keys, None):
        first = row[name] if not end else first
        end = row[name] + 1
    low, high = limits.offsets(first, end)
    for row in _rows(files, keys, report):
        if (low is None or row[name] >= low) and (high is None or row[name] < high):
            yield row
