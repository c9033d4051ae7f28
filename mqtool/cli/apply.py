"""`mqtool apply`: a plan carried out."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption, option
from mqtool.cli.plan_schema import APPLY
from mqtool.cli.schema import prints

HELP = """
mqtool apply plan.json --yes

Carry a plan out, or finish what an earlier run began. It is refused (exit code 4) if the plan was edited, if a file is
not as it was when the plan was made, or if a broker has the store open. New files are built aside and must come out
with the plan's SHA-256; old ones move to STORE/.mqtool/quarantine; every step is in the journal before it happens.
While files change places no broker starts on the store. At the end the store is verified. Then: `mqtool undo STORE`,
or `mqtool finalize STORE`.

impact: changes the store as the plan says; nothing without --yes
"""

YesOption = Annotated[
    bool, option("--yes", help="There is a backup or snapshot of the store, or none is needed: go ahead.")
]
DryRunOption = Annotated[bool, option("--dry-run", help="Try all gates and write nothing.")]


@prints(APPLY)
def apply(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="File that `mqtool plan` wrote; - for stdin.")],
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    verify: Annotated[
        bool, option("--verify/--no-verify", help="Verify the whole store at the end.", show_default=False)
    ] = True,
    output_format: FormatOption = Format.TABLE,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.apply_run import run_apply  # noqa: PLC0415 - `--help` loads no numpy

    return run_apply(ctx.obj, plan, output_format, yes=yes, dry_run=dry_run, verify=verify)
