"""`mqtool discard-undo`: discards the undo data of a change and frees its space."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.changes import ChangedArgument, DryRunOption, print_undo, refuse_both, undo_schema
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption, option
from mqtool.cli.schema import prints
from mqtool.commands import command
from mqtool.errors import RefusedError

HELP = """
mqtool discard-undo /data/store --yes

Discard the undo data of a change and free its space: the quarantine and the journal are deleted. Run it after a broker
has worked on the store for a while; the broker can stay up.

impact: deletes STORE/.mqtool with the old files; nothing without --yes
"""


DISCARD_UNDO = undo_schema("discard-undo", "result of discarding the undo data")


@prints(DISCARD_UNDO)
def discard_undo(
    ctx: typer.Context,
    target: ChangedArgument,
    *,
    yes: Annotated[bool, option("--yes", help="Confirm that the old files are no longer needed.")] = False,
    dry_run: DryRunOption = False,
    keep_journal: Annotated[
        Path | None, option("--keep-journal", metavar="FILE", help="New file for a copy of the journal.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
    _debug: DebugOption = False,
) -> ExitCode:
    """Discards the undo data and prints how it ended."""
    from mqtool.repair import discard_undo as discard

    refuse_both(yes=yes, dry_run=dry_run)
    if not yes and not dry_run:
        raise RefusedError("consent", "confirm that the old files are no longer needed: --yes", target)
    ended = discard(target, dry_run=dry_run, keep_journal=keep_journal)
    next_step = command("discard-undo", target, "--yes") if dry_run else command("explain-start", ended.opened)
    return print_undo(ctx.obj, DISCARD_UNDO, output_format, ended, next_step, dry_run=dry_run)
