"""What `apply`, `undo` and `finalize` do once their options are read."""

import shlex
from pathlib import Path

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.cli.plan_run import step_rows
from mqtool.cli.plan_schema import APPLY, FINALIZE, UNDO
from mqtool.cli.schema import OutputSchema
from mqtool.errors import RefusedError, UsageError
from mqtool.repair import Ended, Plan, apply, finalize, undo
from mqtool.repair.plan import LARGEST
from mqtool.store.files import read_file
from mqtool.verify import Severity


def run_apply(
    invocation: Invocation, path: Path, output_format: Format, *, yes: bool, dry_run: bool, verify: bool
) -> ExitCode:
    """Carries a plan out and shows what came of it."""
    _check(yes=yes, dry_run=dry_run)
    plan = Plan.from_json(read_file(path, LARGEST), path)
    done = apply(plan, backup_acknowledged=yes, dry_run=dry_run, verify_after=verify)
    store = shlex.quote(str(done.store))
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
        "next_step": f"mqtool apply {shlex.quote(str(path))} --yes"
        if dry_run
        else f"mqtool undo {store}, or once all is well mqtool finalize {store} --yes",
    }
    return Output(invocation, APPLY, output_format).document(document)


def _check(*, yes: bool, dry_run: bool) -> None:
    if yes and dry_run:
        raise UsageError("--yes and --dry-run exclude each other")


def run_undo(invocation: Invocation, path: Path, output_format: Format, *, dry_run: bool) -> ExitCode:
    """Takes a change back."""
    return _end(invocation, UNDO, output_format, undo(path, dry_run=dry_run), dry_run=dry_run)


def run_finalize(
    invocation: Invocation, path: Path, output_format: Format, *, yes: bool, dry_run: bool, keep_journal: Path | None
) -> ExitCode:
    """Gives the way back up."""
    _check(yes=yes, dry_run=dry_run)
    if not yes and not dry_run:
        raise RefusedError("finalize", "say that the old files are not needed any more: --yes", path)
    done = finalize(path, dry_run=dry_run, keep_journal=keep_journal)
    return _end(invocation, FINALIZE, output_format, done, dry_run=dry_run)


def _end(
    invocation: Invocation, schema: OutputSchema, output_format: Format, done: Ended, *, dry_run: bool
) -> ExitCode:
    document = {"store": str(done.store), "dry_run": dry_run, "files": done.files, "freed": done.bytes}
    return Output(invocation, schema, output_format).document(document)
