"""`mqtool apply`: applies a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool.cli.changes import STEPS, DryRunOption, YesOption, after_apply, consent, step_rows
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.options import FormatOption, is_dash, option, read_input
from mqtool.cli.output import Output
from mqtool.cli.schema import NEXT_STEPS, TABLE, Column, OutputSchema, count, listing, prints, text
from mqtool.commands import command

if TYPE_CHECKING:
    from mqtool.repair import ApplyResult

HELP = """
mqtool apply plan.json --yes

Apply a plan, or finish applying it after an interruption. It is refused (exit code 4) if the plan was edited, if a
file has changed since the plan was made, or if a broker has the store open. New files are built aside and must match
the plan's SHA-256; old ones move to STORE/.mqtool/quarantine; every step is written to the journal first. A broker
cannot start on the store during the swap. At the end the store is verified. Next: `mqtool undo STORE` restores the old
files, `mqtool discard-undo STORE` deletes them.

A plan for a running broker (`plan offsets --broker`) sets the positions there. It first writes a plan that sets them
back, named like the plan with .undo.json at its end; apply that one to undo it.

impact: changes the store, or positions on the broker, as the plan says; after consent
"""

APPLY = OutputSchema(
    "apply",
    "result of applying a plan",
    (
        text("store", "root of the store"),
        Column("dry_run", "boolean", "only the preconditions were checked; nothing was written", show=TABLE),
        Column("already", "boolean", "it had already been applied; nothing was done", TABLE, label="applied before"),
        count("files", "number of files changed, or that would be"),
        text("quarantine", "directory with the old files", nullable=True, label="old files"),
        text("journal", "what was done, and how to undo it", nullable=True),
        text(
            "status",
            "state that verify gives the store: clean, dirty, corrupt, unknown; null if it was not verified",
            nullable=True,
            label="verify says",
        ),
        count("errors", "findings of verify that are errors or unknown", nullable=True),
        count("warnings", "findings of verify that are warnings", nullable=True),
        Column("codes", "array", "codes of these errors and warnings", show=TABLE, label="still there"),
        STEPS,
        Column(
            "undo", "string", "the command that undoes it; null for a dry run", TABLE, nullable=True, is_command=True
        ),
        NEXT_STEPS,
    ),
    single=True,
    version=2,
)

BROKER_APPLY = OutputSchema(
    "apply.broker",
    "result of setting positions on a running broker",
    (
        text("broker", "HOST:PORT"),
        Column("dry_run", "boolean", "only the preconditions were checked; nothing was set", show=TABLE),
        count("moved", "queues whose position was set, or would be"),
        count("already", "queues that already had the new position"),
        listing("notified", "groups whose running consumers were notified; they follow within some 15 s"),
        text("undo", "file with the plan that sets the positions back; null if nothing was set", nullable=True),
        NEXT_STEPS,
    ),
    single=True,
)


@prints(APPLY, BROKER_APPLY)
def apply(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="File that `mqtool plan` wrote; - for stdin.")],
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    verify: Annotated[
        bool, option("--verify/--no-verify", help="Verify the complete store at the end.", show_default=False)
    ] = True,
    output_format: FormatOption = Format.TABLE,
) -> ExitCode:
    """Applies the plan after consent, and prints the result."""
    from mqtool.repair import Plan
    from mqtool.repair import apply as apply_plan
    from mqtool.repair.plan import LARGEST

    data = read_input(plan, LARGEST)
    if b'"mqtool.broker-offsets"' in data[:200]:  # or the server's modules would be loaded for every plan
        return _apply_to_broker(Output(ctx.obj, BROKER_APPLY, output_format), ctx.obj, data, plan, yes, dry_run)
    output = Output(ctx.obj, APPLY, output_format)
    known = Plan.from_json(data, plan)

    def show(code: ExitCode) -> ExitCode:
        planned = apply_plan(known, dry_run=True)
        again = command("apply", _named(plan), "--yes")
        return output.document(_document(planned, planned.store, [again], dry_run=True), code)

    question = f"Change {len(known.steps)} file(s) of {known.store}? `mqtool undo` undoes it; a backup is safer."
    code = consent(ctx.obj, question, show, yes=yes, dry_run=dry_run)
    if code is not None:
        return code
    applied = apply_plan(known, backup_acknowledged=True, verify_after=verify)
    named = applied.opened.named_like(plan)
    return output.document(_document(applied, Path(named.root), after_apply(applied, named)))


def _apply_to_broker(
    output: Output, invocation: Invocation, data: bytes, plan: Path, yes: bool, dry_run: bool
) -> ExitCode:
    from mqtool.cli.offset_plan import apply_to_broker

    def show(code: ExitCode) -> ExitCode:
        return output.document(apply_to_broker(data, plan, dry_run=True), code)

    code = consent(invocation, "Change these positions on the running broker?", show, yes=yes, dry_run=dry_run)
    return output.document(apply_to_broker(data, plan)) if code is None else code


def _named(plan: Path) -> str | Path:
    return "-" if is_dash(plan) else plan


def _document(applied: ApplyResult, root: Path, next_steps: list[str], *, dry_run: bool = False) -> dict[str, Any]:
    from mqtool.verify import Severity

    verification = applied.verification
    findings = verification.findings if verification else ()
    return {
        "store": str(applied.store),
        "dry_run": dry_run,
        "already": applied.already,
        "files": len(applied.steps),
        "quarantine": None if applied.quarantine is None else str(applied.quarantine),
        "journal": None if applied.journal is None else str(applied.journal),
        "status": None if verification is None else verification.state.value,
        "errors": applied.errors,
        "warnings": None if verification is None else verification.count(Severity.WARNING),
        "codes": sorted({finding.code for finding in findings if finding.severity is not Severity.NOTE}),
        "steps": step_rows(applied.steps),
        "undo": None if dry_run else command("undo", root, "--yes"),
        "next_steps": next_steps,
    }
