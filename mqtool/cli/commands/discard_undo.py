"""`mqtool discard-undo`: discards the undo data of a change and frees its space."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.changes import ChangedArgument, DryRunOption, YesOption, consent, print_undo, undo_schema
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import FormatOption, option
from mqtool.cli.schema import prints
from mqtool.commands import command

HELP = """
mqtool discard-undo /data/store --yes

Discard the undo data of a change and free its space: the quarantine and the journal are deleted. Run it after a broker
has worked on the store for a while; the broker can stay up.

impact: deletes STORE/.mqtool with the old files; after consent
"""


DISCARD_UNDO = undo_schema("discard-undo", "result of discarding the undo data")


@prints(DISCARD_UNDO)
def discard_undo(
    ctx: typer.Context,
    target: ChangedArgument,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    keep_journal: Annotated[
        Path | None, option("--keep-journal", metavar="FILE", help="New file for a copy of the journal.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> ExitCode:
    """Discards the undo data after consent, and prints how it ended."""
    from mqtool.repair import discard_undo as discard

    def show(code: ExitCode) -> ExitCode:
        planned, next_step = discard(target, dry_run=True), command("discard-undo", target, "--yes")
        return print_undo(ctx.obj, DISCARD_UNDO, output_format, planned, next_step, code, dry_run=True)

    question = f"Delete the old files of {target}? The change can then no longer be undone."
    code = consent(ctx.obj, question, show, yes=yes, dry_run=dry_run)
    if code is not None:
        return code
    ended = discard(target, keep_journal=keep_journal)
    next_step = command("explain-start", ended.opened.named_like(target))
    return print_undo(ctx.obj, DISCARD_UNDO, output_format, ended, next_step)
