"""`mqtool info`: what is this store?"""

from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.exits import ExitCode
from mqtool.cli.info_schema import INFO
from mqtool.cli.invocation import Format
from mqtool.cli.kind_rows import KIND_INFO
from mqtool.cli.options import (
    ConfigOption,
    DebugOption,
    FormatOption,
    ProgressMode,
    ProgressOption,
    StoreArgument,
    ZoneOption,
    option,
)
from mqtool.cli.schema import prints

HELP = """
mqtool info /data/store

What is this store? Release, sizes and where they are known from, clean or unclean stop, the log's bounds, topics,
queues, groups and lag, index files, timer, oddities. Reads names, headers and a few records; --deep reads every record,
counts exactly and lists damage (exit code 1).

impact: read-only
"""


@prints(INFO, KIND_INFO)
def info(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    deep: Annotated[bool, option("--deep", help="Read every record.")] = False,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.info_run import run  # noqa: PLC0415 - `--help` loads no numpy

    return run(ctx.obj, store, config, output_format, progress if deep else None)
