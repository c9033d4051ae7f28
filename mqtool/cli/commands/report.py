"""`mqtool report`: writes everything known about a store on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli import options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ProgressMode, check_result_file, workers
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.ranges import parse_rate
from mqtool.cli.schema import TABLE, Column, OutputSchema, count, prints, size
from mqtool.cli.selection import require_selected
from mqtool.errors import UsageError

HELP = """
mqtool report /data/store -o report.html

Write one HTML page to attach to a ticket: the result of verify, what to do, what is lost for whom, a map of the
segments and of the damage, messages over time, queues and consumers that lag, configuration that needs attention. The
page is one file, loads nothing and contains no message bodies. Exit code 1 if the store is corrupt, as for verify.

impact: writes --output atomically; the store is only read
"""


REPORT = OutputSchema(
    "report",
    "the page that was written",
    (
        Column("store", "string", "as given", show=TABLE),
        Column("report", "string", "the page, as given", show=TABLE),
        size("size", "size of the page in bytes"),
        Column("status", "string", "clean, dirty, corrupt or unknown, as for verify", show=TABLE),
        count("errors", "findings of this severity"),
        count("unknown", "findings of this severity"),
        count("warnings", "findings of this severity"),
        count("notes", "findings of this severity"),
        count("lost_messages", "in all"),
        size("lost_bytes", "in all"),
    ),
    single=True,
)


@prints(REPORT)
def report(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    output: Annotated[Path, options.output_option("File for the page; an existing one is replaced.")],
    topic: options.TopicOption = None,
    jobs: options.JobsOption = None,
    throttle: options.ThrottleOption = None,
    output_format: options.FormatOption = Format.TABLE,
    config: options.FoundConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Checks a store, writes the page and prints where it is."""
    from mqtool.cli.verification_formats import next_steps
    from mqtool.jobs.atomic import replace_file
    from mqtool.report import report as make_page
    from mqtool.store import open_readable
    from mqtool.verify import Options, Severity

    if not output.parent.is_dir():
        raise UsageError(f"{output}: directory {output.parent} does not exist; name a file in an existing one")
    topics, limit = tuple(topic) if topic else None, parse_rate(throttle)
    with open_readable(store, config) as opened:
        check_result_file(store, output)
        require_selected([opened], topics)
        size = sum(segment.size for segment in opened.commit_log.segments)
        options = Options(topics, workers(jobs, size), limit)
        with show_progress(progress, "report", 0, size) as bar:
            page, verification = make_page(opened, options, share_of(bar, size), next_steps)
            bar.update(size)
    data = page.encode("utf-8", "replace")
    replace_file(output, data)
    document = {
        "store": str(store),
        "report": str(output),
        "size": len(data),
        "status": verification.state.value,
        "errors": verification.count(Severity.ERROR),
        "unknown": verification.count(Severity.UNKNOWN),
        "warnings": verification.count(Severity.WARNING),
        "notes": verification.count(Severity.NOTE),
        "lost_messages": verification.losses.messages,
        "lost_bytes": verification.losses.bytes,
    }
    return Output(ctx.obj, REPORT, output_format).document(
        document, ExitCode.NO if verification.serious else ExitCode.OK
    )
