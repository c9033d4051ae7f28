"""`mqtool explain-start`: what would a broker do to this store if it were started now?"""

from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.explain_start_schema import EXPLAIN_START
from mqtool.cli.invocation import Format
from mqtool.cli.options import Broker, ConfigOption, DebugOption, FormatOption, StoreArgument, option
from mqtool.cli.schema import prints
from mqtool.cli.sibling_rows import EXPLAIN_KIND

HELP = """
mqtool explain-start /data/store

What would a broker do to the store if it were started now? By default one of the release that wrote the store; the
output states which was assumed. Whether it starts, or with which words it refuses;
where its recovery scans, where it cuts the log, which files it deletes; every queue's bounds and the messages that
consumers no longer get; what it would accept without a word; what the files do not decide. Works on a copy or in
place, also while a broker runs: not a byte is touched. Exit code 1 if it would not start, or messages would be lost.

impact: read-only
"""


@prints(EXPLAIN_START, EXPLAIN_KIND)
def explain_start(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    broker: Annotated[
        Broker | None, option("--broker", help="Release that would be started. [default: the detected one]")
    ] = None,
    quick: Annotated[
        bool, option("--quick", help="Do not read the whole log: says all but which messages are lost.")
    ] = False,
    heap: Annotated[
        str | None,
        option("--heap", metavar="SIZE", help="The broker's heap (-Xmx); 4.9 may run out of it. Default: 8G."),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.explain_start_run import run  # noqa: PLC0415 - `--help` loads no numpy
    from mqtool.cli.ranges import parse_size  # noqa: PLC0415

    heap_bytes = None if heap is None else parse_size(heap)
    release = None if broker is None else broker.value
    return run(ctx.obj, store, config, output_format, broker=release, read_log=not quick, heap_bytes=heap_bytes)
