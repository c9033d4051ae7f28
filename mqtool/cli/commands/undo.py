"""`mqtool undo`: undo a change."""

import typer

from mqtool.cli.changes import ChangedArgument, DryRunOption, YesOption, consent, print_undo, undo_schema
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import FormatOption
from mqtool.cli.schema import prints
from mqtool.commands import command

HELP = """
mqtool undo /data/store --yes

Undo the last change: every file is restored byte for byte with its times, and STORE/.mqtool is removed. An unfinished
change can be undone too. It is refused (exit code 4) if the store has been written to since, for instance by a broker,
because that would be lost.

impact: changes the store back to what it was before `mqtool apply`; after consent
"""

UNDO = undo_schema("undo", "result of undoing a change")


@prints(UNDO)
def undo(
    ctx: typer.Context,
    target: ChangedArgument,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output_format: FormatOption = Format.TABLE,
) -> ExitCode:
    """Undoes the change after consent, and prints how it ended."""
    from mqtool.repair import undo as undo_change

    def show(code: ExitCode) -> ExitCode:
        planned, next_step = undo_change(target, dry_run=True), command("undo", target, "--yes")
        return print_undo(ctx.obj, UNDO, output_format, planned, next_step, code, dry_run=True)

    code = consent(ctx.obj, f"Undo the last change of {target}?", show, yes=yes, dry_run=dry_run)
    if code is not None:
        return code
    ended = undo_change(target)
    return print_undo(ctx.obj, UNDO, output_format, ended, command("verify", ended.opened.named_like(target)))
