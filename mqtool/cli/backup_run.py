"""What `mqtool backup` and `mqtool restore` do once their options are read."""

import os
from pathlib import Path

from mqtool.cli.backup_schema import BACKUP, RESTORE
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.commands import command
from mqtool.repair.backup import backup, restore, snapshots
from mqtool.repair.backup.snapshots import load


def run_backup(
    invocation: Invocation,
    root: Path,
    destination: Path,
    config: Path | None,
    output_format: Format,
    mode: ProgressMode,
    *,
    check: bool,
) -> ExitCode:
    """Backs up and reports."""
    total = sum((Path(directory) / name).lstat().st_size for directory, _, names in os.walk(root) for name in names)
    with progress(mode, "backup", 0, total) as bar:
        made = backup(root, destination, config, lambda done: bar.update(min(done, total)))
    if check:
        restore(destination, None, made.snapshot.name)
    snapshot = made.snapshot
    document = {
        "store": str(root),
        "backup": str(destination),
        "snapshot": snapshot.name,
        "live": snapshot.live,
        "log_end": snapshot.log_end,
        "resumed": made.resumed,
        "checked": check,
        "files": len(snapshot.files),
        "bytes": made.read,
        "pieces": made.pieces,
        "new_pieces": made.new_pieces,
        "stored": made.stored,
        "manifest": str(made.manifest),
        "notes": list(snapshot.notes),
        "next_step": command("restore", destination, "./restored", "--snapshot", snapshot.name),
    }
    return Output(invocation, BACKUP, output_format).document(document)


def run_restore(
    invocation: Invocation,
    path: Path,
    target: Path | None,
    name: str | None,
    output_format: Format,
    mode: ProgressMode,
    *,
    show: bool,
) -> ExitCode:
    """Restores, checks or lists, and reports."""
    snapshot = load(path, name)
    done = None
    if not show:
        total = sum(file.size for file in snapshot.files)
        with progress(mode, "restore", 0, total) as bar:
            done = restore(path, target, snapshot.name, bar.update)
    document = {
        "backup": str(path),
        "snapshot": snapshot.name,
        "of": snapshot.store,
        "live": snapshot.live,
        "log_end": snapshot.log_end,
        "target": None if target is None else str(target),
        "checked": done is not None,
        "files": len(snapshot.files),
        "bytes": sum(file.size for file in snapshot.files),
        "verify": None if done is None else done.verify,
        "snapshots": snapshots(path),
        "notes": list(snapshot.notes),
    }
    return Output(invocation, RESTORE, output_format).document(document)
