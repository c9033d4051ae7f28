"""What `mqtool dump` does once its options are read: messages here, entries of other files in `dump_entries`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mqtool.cli import dump_entries, field_rows, kind_run
from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Invocation
from mqtool.cli.message_stream import MessageStream
from mqtool.cli.message_view import MessageView
from mqtool.cli.options import DamageMode, FileKindName
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.cli.report import Report
from mqtool.cli.selected import require_selected
from mqtool.errors import UsageError
from mqtool.records.damage import Damage
from mqtool.siblings.registry import recognise, store_of_file
from mqtool.store import Message, Store
from mqtool.store.fields import record_fields
from mqtool.store.file_kind import FileKind
from mqtool.store.follow import follow
from mqtool.store.json_lines import json_lines
from mqtool.store.log_file import LogFiles
from mqtool.store.target import open_target

Items = Iterable[Message | Damage]


def run(
    invocation: Invocation,
    path: Path,
    kind: FileKindName | None,
    config: Path | None,
    filters: Filters,
    view: MessageView,
    table: str | None = None,
) -> ExitCode:
    """Dumps what is at a path."""
    view.check()
    other = recognise(path) if kind is None else None
    if other is not None:
        return kind_run.dump(invocation, other, path, table, filters, view)
    within = store_of_file(path) if kind is None else None
    if within is not None:
        return kind_run.dump(invocation, *within, table, filters, view, only=path)
    if table is not None:
        raise UsageError("--table is for a store of another kind; see `mqtool formats`")
    target = open_target(path, FileKind(kind) if kind else None, config)
    if isinstance(target, list):
        return dump_entries.run(invocation, target, config, filters, view)
    with target as store:
        return _messages(invocation, store, path, config, filters, view)


def _messages(
    invocation: Invocation, store: Store, path: Path, config: Path | None, filters: Filters, view: MessageView
) -> ExitCode:
    if view.follow and isinstance(store, LogFiles):
        raise UsageError("--follow needs a store's root directory")
    if not isinstance(store, LogFiles) and not view.follow:  # who follows may wait for a topic that is still to come
        require_selected([store], filters.topic, filters.queue)
    report = Report(lines=view.damage is DamageMode.STDERR)
    wanted = filters.keywords(store.commit_log.min_offset, store.commit_log.max_offset)
    stream = MessageStream(report, filters.limit, filters.byte_limit(), view.explode)
    if view.hex:
        output = Output(invocation, field_rows.FIELD, view.format)
        output.rows(_fields(store, stream.items(store.messages(**wanted))))
    else:
        rows = view.rows()
        output = Output(invocation, rows.schema, view.format, live=view.follow)
        body_mode = None if stream.max_bytes is not None else view.ready_lines()
        first, last = _extent(store, wanted)
        with progress(view.progress, "dump", first, last) as bar:
            if body_mode is None:
                found = follow(path, config, **wanted) if view.follow else store.messages(**wanted)
                stream.write(found, rows, output, bar, view.damage)
            else:
                lines = json_lines(store, body_mode, raw=view.raw, jobs=view.jobs, limit=stream.limit, **wanted)
                stream.write_lines(lines, output, bar, view.damage)
    if not view.follow and "end" not in wanted and filters.limit is None and filters.max_bytes is None:
        report.tail(store.commit_log.tail)
    return output.finish(report.code())


def _extent(store: Store, wanted: dict[str, Any]) -> tuple[int, int]:
    """Returns the first and last physical offset that will be looked at."""
    log = store.commit_log
    return wanted.get("start", log.min_offset), wanted.get("end", log.max_offset)


def _fields(store: Store, items: Items) -> Iterator[dict[str, Any]]:
    for item in items:
        if isinstance(item, Message):
            yield from field_rows.rows([record_fields(store.commit_log, item.physical_offset, item.store_size)])
