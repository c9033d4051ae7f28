"""`mqtool undo`: undo a change."""

import typer

from mqtool.cli.changes import ChangedArgument, DryRunOption, print_undo, undo_schema
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption
from mqtool.cli.schema import prints
from mqtool.commands import command

HELP = """
mqtool undo /data/store

Undo the last change: every file is restored byte for byte with its times, and STORE/.mqtool is removed. An unfinished
change can be undone too. It is refused (exit code 4) if the store has been written to since, for instance by a broker,
because that would be lost.

impact: changes the store back to what it was before `mqtool apply`
"""

UNDO = undo_schema("undo", "result of undoing a change")


@prints(UNDO)
def undo(
    ctx: typer.Context,
    target: ChangedArgument,
    *,
    dry_run: DryRunOption = False,
    output_format: FormatOption = Format.TABLE,
    _debug: DebugOption = False,
) -> ExitCode:
    """Undoes the change and prints how it ended."""
    from mqtool.repair import undo as undo_change

    ended = undo_change(target, dry_run=dry_run)
    next_step = command("undo", target) if dry_run else command("verify", ended.opened)
    return print_undo(ctx.obj, UNDO, output_format, ended, next_step, dry_run=dry_run)
