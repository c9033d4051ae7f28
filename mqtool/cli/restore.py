"""`mqtool restore`: a backup brought back."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.backup_schema import RESTORE
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption, ProgressMode, ProgressOption, option
from mqtool.cli.schema import prints

HELP = """
mqtool restore /backup/store /data/restored

Bring the newest snapshot of a backup, or the one that --snapshot names, into a new directory. Every piece is held to
its SHA-256, every file to that of the whole, and the new store is verified. It appears under its name when it is whole
and on disk. A damaged or incomplete backup is refused, with the piece that is wrong (exit code 4). --check reads and
proves everything and makes nothing; --list shows the snapshots.

impact: writes NEWROOT, beside it while it is made; nothing with --check or --list
"""


@prints(RESTORE)
def restore(
    ctx: typer.Context,
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory that `mqtool backup` wrote.")],
    target: Annotated[
        Path | None, typer.Argument(metavar="[NEWROOT]", help="Root of the new store; must not exist.")
    ] = None,
    *,
    snapshot: Annotated[
        str | None, option("--snapshot", metavar="NAME", help="Which; the newest if not given.")
    ] = None,
    check: Annotated[bool, option("--check", help="Prove the snapshot, make nothing.")] = False,
    show: Annotated[bool, option("--list", help="Name the snapshots, make nothing.")] = False,
    output_format: FormatOption = Format.TABLE,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.backup_run import run_restore  # noqa: PLC0415 - `--help` loads no numpy
    from mqtool.errors import UsageError  # noqa: PLC0415

    if (target is None) != (check or show):
        raise UsageError("expected NEWROOT, or --check, or --list")
    return run_restore(ctx.obj, backup, target, snapshot, output_format, progress, show=show)
