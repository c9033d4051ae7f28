"""`mqtool backup`: a snapshot of a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli import options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ProgressMode, option
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.schema import NEXT_STEP, TABLE, WIDE, Column, OutputSchema, count, flag, prints, size, text
from mqtool.commands import command, with_config

HELP = """
mqtool backup /data/store -o /backup/store

Take a snapshot of a store, also while a broker writes to it: files are copied in an order from which the broker's own
recovery produces a consistent copy (docs/backup.md). A backup stores pieces of files by their SHA-256, compressed; the
next run stores only new pieces, and zeros are never stored. An interrupted run leaves no snapshot, only pieces that the
next run uses. `mqtool restore BACKUP --check` reads everything back.

impact: writes below the directory of -o; the store is only read
"""


BACKUP = OutputSchema(
    "backup",
    "result of a backup",
    (
        text("store", "root of the store"),
        text("backup", "directory with the backups"),
        text("snapshot", "its name: when it was begun, UTC"),
        flag("live", "a broker was running on the store meanwhile"),
        count("log_end", "physical offset up to which the log was copied; null if all of it was", nullable=True),
        flag("resumed", "an earlier run had not finished"),
        flag("checked", "everything was read back"),
        count("files", "in the snapshot"),
        size("bytes", "that were read", label="read"),
        count("pieces", "pieces of files in the snapshot"),
        count("new_pieces", "of these, new"),
        size("stored", "bytes that the new pieces take up"),
        text("manifest", "files and pieces in the snapshot", show=WIDE),
        Column("notes", "array", "worth knowing", show=TABLE),
        NEXT_STEP,
    ),
    single=True,
)


@prints(BACKUP)
def backup(
    ctx: typer.Context,
    store: options.StoreArgument,
    *,
    destination: Annotated[Path, options.output_option("New directory, or one with earlier backups.")],
    check: Annotated[
        bool, option("--check/--no-check", help="Read everything back at the end.", show_default=False)
    ] = False,
    without_users: Annotated[
        bool, option("--without-users", help="Leave out users, whose passwords are in plain text in a store.")
    ] = False,
    output_format: options.FormatOption = Format.TABLE,
    config: options.ConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Backs up and reports."""
    from mqtool.repair import backup as snapshots
    from mqtool.repair.backup.create import size_of

    total = sum(size_of(Path(directory) / name) for directory, _, names in os.walk(store) for name in names)
    with show_progress(progress, "backup", 0, total) as bar:
        result = snapshots.backup(store, destination, config, share_of(bar, total), redact=without_users)
    if check:
        snapshots.restore(destination, None, result.snapshot.name)
    snapshot = result.snapshot
    document = {
        "store": str(store),
        "backup": str(destination),
        "snapshot": snapshot.name,
        "live": snapshot.live,
        "log_end": snapshot.log_end,
        "resumed": result.resumed,
        "checked": check,
        "files": len(snapshot.files),
        "bytes": result.read,
        "pieces": result.pieces,
        "new_pieces": result.new_pieces,
        "stored": result.stored,
        "manifest": str(result.manifest),
        "notes": list(snapshot.notes),
        "next_step": command(
            "restore", destination, "-o", "./restored", "--snapshot", snapshot.name, *with_config(config)
        ),
    }
    return Output(ctx.obj, BACKUP, output_format).document(document)
