"""`mqtool clean`: delete what retention deletes, and say first what consumers would lose."""

from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.clean_schema import CLEAN
from mqtool.cli.consent import KeepOption
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, StoreArgument, ZoneOption, option
from mqtool.cli.schema import prints

HELP = """
mqtool clean /data/store --dry-run

Delete the files that a broker's retention deletes now: CommitLog segments, and the files of queues and index that only
lead there. First lists each segment with the reason why it is deleted or stays, when the others expire, and which
messages in it a group has not read. Then asks; without a terminal nothing is deleted unless --yes is given. Deleted
files are kept in STORE/.mqtool: `mqtool undo STORE` restores them, `mqtool finalize STORE --yes` frees their space.
With --no-keep they are deleted at once, without an undo.

The rules are those of the broker: 72 hours, at 04:00 by this machine's clock, or when the disk is fuller than 75, 85,
90 per cent; --config broker.conf gives others. --as-of and --used show what would happen at another time, or with
another disk. The store must have been shut down cleanly; a running broker deletes expired files itself.

impact: deletes files of the store, under its lock, after consent; with --dry-run nothing
"""

DryRunOption = Annotated[bool, option("--dry-run", help="List what would be deleted; delete nothing.")]
YesOption = Annotated[bool, option("--yes", help="Delete without asking.")]
NowOption = Annotated[bool, option("--now", help="Delete expired files whatever the hour.")]
AsOfOption = Annotated[
    str | None, option("--as-of", metavar="TIME", help="With --dry-run: as if it were then; RFC 3339 or epoch ms.")
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
    yes: YesOption = False,
    keep: KeepOption = True,
    now: NowOption = False,
    as_of: AsOfOption = None,
    used: UsedOption = None,
    reserved_hours: ReservedOption = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.clean_run import Request, run  # noqa: PLC0415 - `--help` loads no numpy

    request = Request(store, dry_run, yes, keep, now, as_of, used, reserved_hours, config)
    return run(ctx.obj, request, output_format)
