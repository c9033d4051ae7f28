"""`mqtool checks`: lists the codes that verify can report."""

from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption
from mqtool.cli.output import Output
from mqtool.cli.schema import OutputSchema, prints, text
from mqtool.errors import UsageError

HELP = """
mqtool checks queue-hole

Explain the codes of verify: what each means, how the broker reacts, and what to do. Without CODE, list all codes. A
prefix such as log- selects several.

impact: read-only
"""


CHECKS = OutputSchema(
    "checks",
    1,
    "a code that verify can report",
    (
        text("code", "stable name"),
        text("check", "which check reports it"),
        text("severity", "error, unknown, warning or note, unless `meaning` states when it differs"),
        text("meaning", "what is broken, and how the broker reacts"),
        text("remedy", "what to do", show="wide"),
        text("next_step", "the command to type; {store} and the like are filled in", show="wide"),
        text("runbooks", "runbooks that cover it, the first one to try; empty if there is none"),
        text("no_runbook", "where there is no runbook, why not", show="wide"),
    ),
)


@prints(CHECKS)
def checks(
    ctx: typer.Context,
    code: Annotated[list[str] | None, typer.Argument(metavar="[CODE]...", help="Codes or code prefixes.")] = None,
    *,
    output_format: FormatOption = Format.TABLE,
    _debug: DebugOption = False,
) -> ExitCode:
    """Prints the requested codes."""
    from mqtool.verify.catalogue import CATALOGUE

    prefixes = code or [""]
    unknown = [prefix for prefix in prefixes if not any(known.startswith(prefix) for known in CATALOGUE)]
    if unknown:
        raise UsageError(f"no code starts with {unknown[0]!r}; `mqtool checks` lists all codes")
    chosen = [check for known, check in CATALOGUE.items() if any(known.startswith(prefix) for prefix in prefixes)]
    output = Output(ctx.obj, CHECKS, output_format, upright=code is not None and len(chosen) <= 3)
    output.rows(
        {
            "code": check.code,
            "check": check.area.value,
            "severity": check.severity.value,
            "meaning": check.meaning,
            "remedy": check.remedy,
            "next_step": check.next_step,
            "runbooks": " ".join(check.runbooks),
            "no_runbook": check.no_runbook,
        }
        for check in chosen
    )
    return output.finish()
