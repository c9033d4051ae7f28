"""`mqtool verify`: what is wrong with a store, exactly, and what to do."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import FORMAT_OPTIONS
from mqtool.cli.options import (
    OUTPUT,
    Broker,
    ConfigOption,
    DebugOption,
    ProgressMode,
    ProgressOption,
    StoreArgument,
    TopicOption,
    option,
    print_schema,
)
from mqtool.cli.schema import prints
from mqtool.cli.sibling_rows import VERIFY_KIND
from mqtool.cli.spark_session import LOCAL, SPARK, ConfOption, MasterOption, on_spark
from mqtool.cli.verify_schema import LINES, VERIFY

HELP = """
mqtool verify /data/store

Check everything: the CommitLog record by record, every queue and index entry against it in both directions,
checkpoint, configuration, timer, controller files. Says what is damaged, which messages are lost for which consumer
groups, and what to type next; `mqtool checks` explains the codes. --config adds a check of the configuration against
the files. A store that a broker is writing to may be checked: only what is certain is reported.

impact: read-only; writes --state and --output where they are given
"""

WORK = "Work"


class VerifyFormat(StrEnum):
    """Values of `--format`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    JUNIT = "junit"
    PROMETHEUS = "prometheus"
    NAGIOS = "nagios"
    HELP = "help"


class FailOn(StrEnum):
    """Values of `--fail-on`."""

    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


def _help_of_output(ctx: typer.Context, value: VerifyFormat) -> VerifyFormat:
    if value is VerifyFormat.HELP and not ctx.resilient_parsing:
        print_schema(ctx)
        raise typer.Exit(0)
    return value


VerifyFormatOption = Annotated[
    VerifyFormat,
    option(
        *FORMAT_OPTIONS,
        panel=OUTPUT,
        is_eager=True,
        callback=_help_of_output,
        help="How the answer is written; csv has the findings only, help prints the JSON Schema.",
    ),
]
FailOnOption = Annotated[
    FailOn,
    option("--fail-on", panel=OUTPUT, help="error: exit 1 for errors; warning: also 3 for warnings, unknown checks."),
]
OutfileOption = Annotated[
    Path | None,
    option("--output", "-o", metavar="FILE", panel=OUTPUT, help="Write to FILE atomically instead of stdout."),
]
JobsOption = Annotated[
    int | None,
    option("--jobs", "-j", metavar="N", panel=WORK, min=1, help="Processes; else one for small stores, or all cores."),
]
ThrottleOption = Annotated[
    str | None, option("--throttle", metavar="SIZE", panel=WORK, help="Read at most SIZE bytes a second, e.g. 50M.")
]
StateOption = Annotated[
    Path | None,
    option("--state", metavar="FILE", panel=WORK, help="Keep finished parts here; run again with it to go on."),
]
MaxTimeOption = Annotated[
    float | None,
    option("--max-time", metavar="SECONDS", panel=WORK, min=0, help="Begin nothing after this; exit 5 if any is left."),
]

BrokerOption = Annotated[
    Broker | None,
    option("--broker", panel=WORK, help="Release whose next start is judged. [default: the detected one]"),
]
SparkOption = Annotated[bool, option("--spark", panel=SPARK, help="Let executors of Spark read (needs Java 17).")]


@prints(VERIFY, *LINES, VERIFY_KIND)
def verify(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    topic: TopicOption = None,
    jobs: JobsOption = None,
    throttle: ThrottleOption = None,
    state: StateOption = None,
    max_time: MaxTimeOption = None,
    broker: BrokerOption = None,
    spark: SparkOption = False,
    master: MasterOption = LOCAL,
    conf: ConfOption = None,
    output_format: VerifyFormatOption = VerifyFormat.TABLE,
    outfile: OutfileOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.verify_run import Work, run

    work = Work(
        tuple(topic) if topic else None,
        jobs,
        throttle,
        state,
        max_time,
        progress,
        on_spark(spark, master, conf),
        None if broker is None else broker.value,
    )
    return run(ctx.obj, store, config, work, output_format.value, outfile, fail_on.value)
