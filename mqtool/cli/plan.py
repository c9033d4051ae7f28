"""`mqtool plan`: what a change would do to a store, as a file to read before it is carried out."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import (
    ConfigOption,
    DebugOption,
    FormatOption,
    GrepOption,
    KeyOption,
    QueueOption,
    TagOption,
    TimeOption,
    TopicOption,
    UniqueKeyOption,
    ZoneOption,
    option,
)
from mqtool.cli.plan_schema import PLAN
from mqtool.cli.schema import prints

HELP = """
mqtool plan rebuild consumequeue /data/store --topic Orders --queue 3 -o plan.json

Work out a change and write it down: which files change, from which to which SHA-256, what it needs. Nothing is changed
before `mqtool apply`. WORDS are a verb and the store:

repair: verify the store and repair all that a plan can.
rebuild consumequeue|index|metadata|timer|all: derived files made anew in place; narrowed by --topic, --queue, --file.
The timer's are not among all.
undelete: --topic brings topics back from the log, configuration and queues.
truncate: cut the log at --at, a record's physical offset, so that it stays cut; without --at what lies behind its end.
redact: blank bodies of the messages at --at (offset, TOPIC/QUEUE@OFFSET or id) or of those that match.
trim: set the segments aside that end at or before --before, with what only leads there.
set-aside: move files (--file) out of the way.
rename-segments: give CommitLog files (--file, or all) the names that the offsets in their records ask for.
pad: make short segments (--file) as long as the others.

Or --from FINDINGS, what `mqtool verify --format json` printed, `-` for stdin: the changes that repair it. Exit code 1
if an error is left that the plan does not repair, or if there is nothing to change.

impact: writes the plan file and scratch files in --work-dir; the store is only read
"""

CHANGE = "Change"

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[VERB [WHAT]] [STORE]", help="What to change, and the store's root.", show_default=False),
]
PlanOption = Annotated[Path, option("--output", "-o", metavar="PLAN", help="New file for the plan; - for stdout.")]
FromOption = Annotated[
    Path | None, option("--from", metavar="FINDINGS", panel=CHANGE, help="Output of verify --format json; - for stdin.")
]
FileOption = Annotated[
    list[str] | None,
    option("--file", metavar="NAME", panel=CHANGE, help="Index file, config/NAME or path below the store; repeatable."),
]
AtOption = Annotated[
    list[str] | None, option("--at", metavar="ADDRESS", panel=CHANGE, help="Where: see truncate and redact above.")
]
BeforeOption = Annotated[
    int | None, option("--before", metavar="OFFSET", panel=CHANGE, help="Physical offset that stays, for trim.")
]
WorkOption = Annotated[
    Path | None, option("--work-dir", metavar="DIR", help="Takes scratch files; the system's own place if not given.")
]


@prints(PLAN)
def plan(
    ctx: typer.Context,
    words: WordsArgument = None,
    *,
    out: PlanOption,
    findings: FromOption = None,
    topic: TopicOption = None,
    queue: QueueOption = None,
    file: FileOption = None,
    at: AtOption = None,
    before: BeforeOption = None,
    key: KeyOption = None,
    unique_key: UniqueKeyOption = None,
    tag: TagOption = None,
    time: TimeOption = None,
    grep: GrepOption = None,
    work_dir: WorkOption = None,
    config: ConfigOption = None,
    output_format: FormatOption = Format.TABLE,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.filters import Filters
    from mqtool.cli.plan_run import Request, run

    filters = Filters(topic=topic, queue=queue, key=key, unique_key=unique_key, tag=tag, time=time, grep=grep)
    request = Request(words or [], out, findings, file or [], at or [], before, filters, work_dir, config)
    return run(ctx.obj, request, output_format)
