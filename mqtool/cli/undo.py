"""`mqtool undo`: a change taken back."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.apply import DryRunOption
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption
from mqtool.cli.plan_schema import UNDO
from mqtool.cli.schema import prints

HELP = """
mqtool undo /data/store

Take the last change back: the store is as it was before, byte for byte and with its times, and nothing of mqtool's
stays in it. Works on a change that was not finished, too. It is refused (exit code 4) if the store has been written to
since, for instance by a broker: that would be lost.

impact: changes the store back to what it was before `mqtool apply`
"""

TargetArgument = Annotated[
    Path, typer.Argument(metavar="STORE|JOURNAL", help="Root of the store, or STORE/.mqtool/journal.")
]


@prints(UNDO)
def undo(
    ctx: typer.Context,
    target: TargetArgument,
    *,
    dry_run: DryRunOption = False,
    output_format: FormatOption = Format.TABLE,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.apply_run import run_undo  # noqa: PLC0415 - `--help` loads no numpy

    return run_undo(ctx.obj, target, output_format, dry_run=dry_run)
