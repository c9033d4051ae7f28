"""`mqtool rebuild`: derived files made anew from the CommitLog."""

from enum import StrEnum
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
    QueueOption,
    RangeOption,
    StoreArgument,
    TopicOption,
    option,
)
from mqtool.cli.rebuild_schema import REBUILD
from mqtool.cli.schema import prints
from mqtool.cli.sibling_rows import REBUILD_KIND

HELP = """
mqtool rebuild consumequeue /data/store --output rebuilt

Make derived files anew from the CommitLog alone: queues, index, configuration, timer wheel and log. The bytes are
those that the broker writes; docs/rebuild.md lists what can differ. All of it, or some topics, one queue, a range of
physical offsets, one index file. Damaged ranges are skipped and reported, and messages keep their queue offsets; then
the exit code is 1. --state FILE notes how far the run is, --resume goes on there.

impact: writes below --output and the --state file, and nothing else; the store is only read
"""

RUN = "Run"


class What(StrEnum):
    """Values of WHAT."""

    CONSUMEQUEUE = "consumequeue"
    INDEX = "index"
    METADATA = "metadata"
    TIMER = "timer"
    ALL = "all"


WhatArgument = Annotated[
    What,
    typer.Argument(
        metavar="WHAT",
        help="consumequeue, index, metadata (config/*.json, checkpoint), timer, or all but the timer.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path, option("--output", "-o", metavar="DIR", help="New or empty directory for the rebuilt files.")
]
FileOption = Annotated[
    str | None, option("--file", metavar="NAME", help="Only this index file; the one before it must be whole.")
]
JobsOption = Annotated[
    int | None, option("--jobs", "-j", metavar="N", min=1, panel=RUN, help="Processes; one a processor if not given.")
]
StateOption = Annotated[
    Path | None, option("--state", metavar="FILE", panel=RUN, help="Notes how far the run is; removed at its end.")
]
ResumeOption = Annotated[
    bool, option("--resume", panel=RUN, help="Go on where --state says; from the start if it says nothing.")
]
VersionOption = Annotated[
    str | None,
    option("--broker", metavar="X.Y", help="Release whose on-disk format to write, e.g. 4.9 or 5.5."),
]


@prints(REBUILD, REBUILD_KIND)
def rebuild(
    ctx: typer.Context,
    what: WhatArgument,
    store: StoreArgument,
    *,
    out: OutOption,
    topic: TopicOption = None,
    queue: QueueOption = None,
    offset: RangeOption = None,
    file: FileOption = None,
    broker_version: VersionOption = None,
    jobs: JobsOption = None,
    state: StateOption = None,
    resume: ResumeOption = False,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.rebuild_run import Request, run  # noqa: PLC0415 - `--help` loads no numpy

    request = Request(
        what.value, store, out, topic or [], queue, offset, file, broker_version, jobs, state, resume, config
    )
    return run(ctx.obj, request, output_format, progress)
