"""`mqtool restore`: restores a backup."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mqtool.cli import options
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ProgressMode, option
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.schema import NEXT_STEPS, TABLE, Column, OutputSchema, count, flag, prints, size, text
from mqtool.commands import Opened, command, path_word
from mqtool.errors import UsageError

if TYPE_CHECKING:
    from mqtool.repair.backup.snapshots import Snapshot

HELP = """
mqtool restore /backup/store -o /data/restored

Restore the newest snapshot of a backup, or the one named by --snapshot, into a new directory. Every piece and every
file is checked against its SHA-256, and the new store is verified. It appears only when it is complete and on
disk. A damaged or incomplete backup is refused, naming the wrong piece (exit code 4). --check reads and verifies
everything without restoring it; --snapshots lists the snapshots.

impact: writes what -o names, next to it while it is incomplete; nothing with --check or --snapshots
"""


RESTORE = OutputSchema(
    "restore",
    "contents of a snapshot, and the result of restoring it",
    (
        text("backup", "directory with the backups"),
        text("snapshot", "its name: when it was begun, UTC"),
        text("of", "root of the store that was backed up"),
        flag("live", "a broker was running on that store meanwhile"),
        count("log_end", "physical offset up to which the log was copied; null if all of it was", nullable=True),
        text("target", "root of the new store; null if none was created", nullable=True),
        flag("checked", "every byte was verified"),
        count("files", "in the snapshot"),
        size("bytes", "bytes of all files, zeros included"),
        text("verify", "state that `mqtool verify` gives the new store; null if none was created", nullable=True),
        Column("snapshots", "array", "all complete snapshots, oldest first", show=TABLE),
        Column("notes", "array", "worth knowing", show=TABLE),
        NEXT_STEPS,
    ),
    single=True,
)


@prints(RESTORE)
def restore(
    ctx: typer.Context,
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory that `mqtool backup` wrote.")],
    *,
    target: Annotated[Path | None, options.output_option("Root of the new store; must not exist.")] = None,
    snapshot: Annotated[
        str | None, option("--snapshot", metavar="NAME", help="Snapshot to restore. Default: the newest.")
    ] = None,
    check: Annotated[bool, option("--check", help="Verify the snapshot without restoring it.")] = False,
    show: Annotated[bool, option("--snapshots", help="List the snapshots without restoring one.")] = False,
    output_format: options.FormatOption = Format.TABLE,
    config: options.ConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Restores, checks or lists, and reports."""
    from mqtool.repair.backup import restore as restore_snapshot
    from mqtool.repair.backup import snapshots
    from mqtool.repair.backup.snapshots import load

    if (target is None) != (check or show):
        raise UsageError("name the directory for the new store with -o, or add --check or --snapshots")
    chosen = load(backup, snapshot)
    total = sum(file.size for file in chosen.files)
    result = None
    if not show:
        with show_progress(progress, "restore", 0, total) as bar:
            result = restore_snapshot(backup, target, chosen.name, share_of(bar, total), config)
    document = {
        "backup": str(backup),
        "snapshot": chosen.name,
        "of": chosen.store,
        "live": chosen.live,
        "log_end": chosen.log_end,
        "target": None if target is None else str(target),
        "checked": result is not None,
        "files": len(chosen.files),
        "bytes": total,
        "verify": None if result is None else result.verify,
        "snapshots": snapshots(backup),
        "notes": list(chosen.notes),
        "next_steps": [] if target is None else _steps(target, chosen, config),
    }
    return Output(ctx.obj, RESTORE, output_format).document(document)


def _steps(target: Path, snapshot: Snapshot, config: Path | None) -> list[str]:
    """Returns the commands that give a new store to the owner that the old one had, if it is another, and check it."""
    from mqtool.store.paths import owner_of

    own = ["chown", "-R", snapshot.owner, path_word(target)]
    differs = snapshot.owner not in ("", owner_of(target))
    return [*([shlex.join(own)] if differs else []), command("explain-start", Opened(target, config))]
