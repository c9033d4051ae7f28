"""`mqtool explain-start`: predicts what a broker would do to a store on startup."""

from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import FormatOption, FoundConfigOption, StartedReleaseOption, StoreArgument, option
from mqtool.cli.ranges import parse_size
from mqtool.cli.schema import prints
from mqtool.cli.sibling_rows import EXPLAIN_KIND
from mqtool.cli.start_outcome import EXPLAIN_START, print_start_outcome
from mqtool.errors import UsageError
from mqtool.siblings.registry import recognise

HELP = """
mqtool explain-start /data/store

Show what a broker would do to the store if it were started now. The default is the release that wrote the store; the
output names it. Shows whether it starts, or the error with which it refuses; where recovery starts to scan, where it
cuts the log, which files it deletes; the messages that consumers lose, and with --format wide every queue's bounds;
which delays, timers, transactions and pops wait, and how many of them are lost; which expired messages retention then
deletes unread, and which timer messages the broker skips after more than seven days; what it would accept silently;
what cannot be predicted from the files. Works on a copy or in place, also while a broker is running; nothing is
written. Exit code 1 if the broker would not start, would lose or not serve messages that are still in the store, or
that is unknown because files are damaged or unreadable. Messages that are lost already are reported, and are no reason
for exit code 1.

impact: read-only
"""


@prints(EXPLAIN_START, EXPLAIN_KIND)
def explain_start(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    release: StartedReleaseOption = None,
    quick: Annotated[
        bool, option("--quick", help="Do not read the entire log: reports everything except which messages are lost.")
    ] = False,
    heap: Annotated[
        str | None,
        option("--heap", metavar="SIZE", help="The broker's heap (-Xmx); 4.9 may run out of it. Default: 8G."),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    config: FoundConfigOption = None,
) -> ExitCode:
    """Predicts and prints; ends with 1 if a broker should not be started."""
    heap_bytes = None if heap is None else parse_size(heap)
    if heap_bytes == 0:
        raise UsageError(f"--heap: expected a size above 0, found {heap!r}")
    kind = recognise(store)
    if kind is not None:
        from mqtool.cli import siblings

        return siblings.explain_start(ctx.obj, kind, store, output_format)
    from mqtool.recovery.proof import read_once

    with read_once():  # a start and, where it is advised against, the check of the store
        return print_start_outcome(
            ctx.obj,
            store,
            config,
            output_format,
            broker=release and release.value,
            read_log=not quick,
            heap_bytes=heap_bytes,
        )
