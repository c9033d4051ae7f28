"""`mqtool report`: all that is known about a store on one page."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import (
    ConfigOption,
    DebugOption,
    FormatOption,
    ProgressMode,
    ProgressOption,
    StoreArgument,
    TopicOption,
    option,
)
from mqtool.cli.report_schema import REPORT
from mqtool.cli.schema import prints

HELP = """
mqtool report /data/store -o report.html

One page of HTML to attach to a ticket: the verdict of verify, what to do, what is lost for whom, a map of the segments
and of the damage, messages over time, queues and consumers that are behind, what is odd in the configuration. The page
is one file, loads nothing and holds no message bodies. Exit code 1 if the store is corrupt, as for verify.

impact: writes --output, as a whole or not at all; the store is only read
"""

WORK = "Work"


@prints(REPORT)
def report(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    output: Annotated[Path, option("--output", "-o", metavar="FILE", help="The page; an old one is replaced.")],
    topic: TopicOption = None,
    jobs: Annotated[
        int | None, option("--jobs", "-j", metavar="N", panel=WORK, min=1, help="Processes; as for verify.")
    ] = None,
    throttle: Annotated[
        str | None, option("--throttle", metavar="SIZE", panel=WORK, help="Read at most SIZE bytes a second, e.g. 50M.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.report_run import run  # noqa: PLC0415 - `--help` loads no numpy

    topics = tuple(topic) if topic else None
    return run(ctx.obj, store, config, output, output_format, progress, topics=topics, jobs=jobs, throttle=throttle)
