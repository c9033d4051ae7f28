"""What `apply`, `undo` and `finalize` do once their options are read."""

from pathlib import Path

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.cli.plan_run import is_dash, read_input, step_rows
from mqtool.cli.plan_schema import APPLY, FINALIZE, UNDO
from mqtool.cli.schema import OutputSchema
from mqtool.commands import command
from mqtool.errors import RefusedError, UsageError
from mqtool.repair import Applied, Ended, Plan, apply, finalize, undo
from mqtool.repair.plan import LARGEST
from mqtool.verify import Severity


def run_apply(
    invocation: Invocation, path: Path, output_format: Format, *, yes: bool, dry_run: bool, verify: bool
) -> ExitCode:
    """Carries a plan out and shows what came of it."""
    _check(yes=yes, dry_run=dry_run)
    plan = Plan.from_json(read_input(path, LARGEST), path)
    done = apply(plan, backup_acknowledged=yes, dry_run=dry_run, verify_after=verify)
    found = done.verification
    serious = [one for one in found.findings if one.severity is not Severity.NOTE] if found else []
    document = {
        "store": str(done.store),
        "dry_run": dry_run,
        "already": done.already,
        "files": len(done.steps),
        "quarantine": None if done.quarantine is None else str(done.quarantine),
        "journal": None if done.journal is None else str(done.journal),
        "status": None if found is None else found.state.value,
        "errors": done.errors,
        "warnings": None if found is None else found.count(Severity.WARNING),
        "codes": sorted({one.code for one in serious}),
        "steps": step_rows(done.steps),
        "next_steps": [command("apply", "-" if is_dash(path) else path, "--yes")] if dry_run else _after_apply(done),
    }
    return Output(invocation, APPLY, output_format).document(document)


def _after_apply(done: Applied) -> list[str]:
    """Returns what to do with a changed store: see what a start of the broker would do, then keep it or go back."""
    look = command("runbook", "match", done.store) if done.errors else command("explain-start", done.store)
    return [look, command("undo", done.store), command("finalize", done.store, "--yes")]


def _check(*, yes: bool, dry_run: bool) -> None:
    if yes and dry_run:
        raise UsageError("--yes and --dry-run exclude each other")


def run_undo(invocation: Invocation, path: Path, output_format: Format, *, dry_run: bool) -> ExitCode:
    """Takes a change back."""
    done = undo(path, dry_run=dry_run)
    next_step = command("undo", path) if dry_run else command("verify", done.store)
    return _end(invocation, UNDO, output_format, done, next_step, dry_run=dry_run)


def run_finalize(
    invocation: Invocation, path: Path, output_format: Format, *, yes: bool, dry_run: bool, keep_journal: Path | None
) -> ExitCode:
    """Gives the way back up."""
    _check(yes=yes, dry_run=dry_run)
    if not yes and not dry_run:
        raise RefusedError("finalize", "say that the old files are not needed any more: --yes", path)
    done = finalize(path, dry_run=dry_run, keep_journal=keep_journal)
    next_step = command("finalize", path, "--yes") if dry_run else command("explain-start", done.store)
    return _end(invocation, FINALIZE, output_format, done, next_step, dry_run=dry_run)


def _end(
    invocation: Invocation, schema: OutputSchema, output_format: Format, done: Ended, next_step: str, *, dry_run: bool
) -> ExitCode:
    document = {
        "store": str(done.store),
        "dry_run": dry_run,
        "files": done.files,
        "freed": done.bytes,
        "next_steps": [next_step],
    }
    return Output(invocation, schema, output_format).document(document)
