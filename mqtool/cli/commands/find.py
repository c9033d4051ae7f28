"""`mqtool find`: finds messages by their content."""

from __future__ import annotations

from typing import Annotated

import typer

from mqtool.choices import SearchMethod
from mqtool.cli import cells, options, siblings
from mqtool.cli.damage import DamageReport
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.message_rows import MESSAGE, MessageView
from mqtool.cli.options import SELECTION, ProgressMode, option
from mqtool.cli.output import Output
from mqtool.cli.progress import show_progress
from mqtool.cli.schema import prints
from mqtool.cli.selection import Filters, require_selected
from mqtool.errors import UsageError
from mqtool.siblings.registry import recognise

HELP = """
mqtool find /data/store --key order-4711

Find messages by key, unique key, tag, property, time, range or body. Keys are looked up in the index files; parts of
the log that the index does not cover are scanned, and all of a log of up to 8 MiB. In a larger one the index does not
show rolled-back transactions and topics without queue and configuration; --by scan does. All other searches scan the
log. stderr reports which method was used. Exit code 1 if nothing is found.

impact: read-only
"""


_CRITERIA = ("key", "unique_key", "tag", "user_property", "grep", "time", "offset", "topic", "queue")
"""Options of which one must be given."""


@prints(MESSAGE, *siblings.MAIN)
def find(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    key: options.KeyOption = None,
    unique_key: options.UniqueKeyOption = None,
    tag: options.TagOption = None,
    user_property: options.PropertyOption = None,
    grep: options.GrepOption = None,
    time: options.TimeOption = None,
    offset: options.RangeOption = None,
    topic: options.TopicOption = None,
    queue: options.QueueOption = None,
    limit: options.LimitOption = None,
    max_bytes: options.MaxBytesOption = None,
    method: Annotated[
        SearchMethod, option("--by", panel=SELECTION, help="Lookup method: index, scan, or whichever applies.")
    ] = SearchMethod.AUTO,
    output_format: options.FormatOption = Format.TABLE,
    body: options.BodyOption = None,
    max_body: options.MaxBodyOption = None,
    raw: options.RawOption = False,
    redact: options.RedactOption = False,
    config: options.ConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Prints the messages that match."""
    from mqtool.cli.message_rows import MessageStream
    from mqtool.store import open_readable
    from mqtool.store.find import find_messages

    filters = Filters(offset, time, topic, queue, tag, key, unique_key, user_property, grep, limit, max_bytes)
    view = MessageView(format=output_format, body=body, max_body=max_body, raw=raw, redact=redact, progress=progress)
    if all(getattr(filters, name) is None for name in _CRITERIA):
        raise UsageError("no condition: give --key, --tag, --grep, …; `mqtool dump` prints every message")
    kind = recognise(store)
    if kind is not None:
        return siblings.find(ctx.obj, kind, store, filters, view)
    report = DamageReport()
    stream = MessageStream(report, filters.limit, filters.byte_limit())
    with open_readable(store, config) as opened:
        report.unknown([*opened.unlisted_parts(of_log=True), *opened.skip_unreadable()])
        require_selected([opened], filters.topic, filters.queue)
        log = opened.commit_log
        rows = view.rows()
        output = Output(ctx.obj, rows.schema, view.format)
        search = find_messages(opened, method, **filters.keywords(log.min_offset, log.max_offset))
        note(f"searching by {', and '.join(search.methods)}")
        with show_progress(view.progress, "find", log.min_offset, log.max_offset) as bar:
            stream.write(search.items, rows, output, bar, view.damage)
        if not stream.count:
            note("no message matches")
            report.missing()
        return output.finish(report.code())
