"""`mqtool finalize`: the way back given up, the space freed."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.apply import DryRunOption
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption, option
from mqtool.cli.plan_schema import FINALIZE
from mqtool.cli.schema import prints
from mqtool.cli.undo import TargetArgument

HELP = """
mqtool finalize /data/store --yes

Give the way back up: the quarantine and the journal go, nothing of mqtool's stays in the store. Best done when a
broker has run on it for a while; it need not stop for this.

impact: deletes STORE/.mqtool with the old files; nothing without --yes
"""


@prints(FINALIZE)
def finalize(
    ctx: typer.Context,
    target: TargetArgument,
    *,
    yes: Annotated[bool, option("--yes", help="The old files are not needed any more.")] = False,
    dry_run: DryRunOption = False,
    keep_journal: Annotated[
        Path | None, option("--keep-journal", metavar="FILE", help="New file that takes the journal.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.apply_run import run_finalize  # noqa: PLC0415 - `--help` loads no numpy

    return run_finalize(ctx.obj, target, output_format, yes=yes, dry_run=dry_run, keep_journal=keep_journal)
