"""`mqtool backup`: a snapshot of a store."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.backup_schema import BACKUP
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import (
    ConfigOption,
    DebugOption,
    FormatOption,
    ProgressMode,
    ProgressOption,
    StoreArgument,
    option,
)
from mqtool.cli.schema import prints

HELP = """
mqtool backup /data/store /backup/store

Take a snapshot of a store, also while a broker writes to it: files are copied in an order with which the broker's own
recovery makes the copy whole (docs/backup.md). DEST keeps pieces of files by their SHA-256, compressed; the next run
stores only what is new, and zeros are never stored. A run that was interrupted leaves no snapshot, only pieces that
the next run uses. `mqtool restore DEST --check` reads everything back.

impact: writes below DEST; the store is only read
"""


@prints(BACKUP)
def backup(
    ctx: typer.Context,
    store: StoreArgument,
    destination: Annotated[
        Path, typer.Argument(metavar="DEST", help="New directory, or one with earlier backups.", show_default=False)
    ],
    *,
    check: Annotated[
        bool, option("--check/--no-check", help="Read everything back at the end.", show_default=False)
    ] = False,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.backup_run import run_backup  # noqa: PLC0415 - `--help` loads no numpy

    return run_backup(ctx.obj, store, destination, config, output_format, progress, check=check)
