"""`mqtool clean`: what retention removes, and what it would take from consumers."""

from typing import Annotated

import typer

from mqtool.cli.clean_schema import CLEAN
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, StoreArgument, option
from mqtool.cli.schema import prints

HELP = """
mqtool clean /data/store --dry-run

Which files of the log a broker's retention removes now, when it removes the others, why they stay, and which messages
each group has not read in each of them; and the files of queues and index that follow. The rules are those of the
broker: 72 hours, at 04:00, or when the disk is fuller than 75, 85, 90 per cent; --config broker.conf gives others.
--at and --used ask what would be at another time, or with another disk. Without --dry-run one turn is carried out,
on a store that was closed in order.

impact: removes files from the store, under its lock; with --dry-run nothing
"""

DryRunOption = Annotated[bool, option("--dry-run", help="Only say what would go; nothing is removed.")]
NowOption = Annotated[bool, option("--now", help="Expired files go whatever the hour.")]
AtOption = Annotated[
    str | None, option("--at", metavar="TIME", help="With --dry-run: as if it were then; RFC 3339 or epoch ms.")
]
UsedOption = Annotated[
    int | None, option("--used", metavar="PERCENT", min=0, max=100, help="With --dry-run: as if disks were that full.")
]
ReservedOption = Annotated[
    int | None, option("--reserved-hours", metavar="N", min=0, help="How long a file is kept; fileReservedTime, 72.")
]


@prints(CLEAN)
def clean(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    dry_run: DryRunOption = False,
    now: NowOption = False,
    at: AtOption = None,
    used: UsedOption = None,
    reserved_hours: ReservedOption = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.clean_run import Request, run  # noqa: PLC0415 - `--help` loads no numpy

    request = Request(store, dry_run, now, at, used, reserved_hours, config)
    return run(ctx.obj, request, output_format)
