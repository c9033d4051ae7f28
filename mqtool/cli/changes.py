"""Output of `plan`, `apply`, `undo` and `discard-undo`: steps of a change, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.cli.schema import DATA, NEXT_STEPS, OutputSchema, count, flag, listing, size, text
from mqtool.commands import command

if TYPE_CHECKING:
    from mqtool.repair import ApplyResult, Step, UndoResult

ChangedArgument = Annotated[
    Path, typer.Argument(metavar="STORE|JOURNAL", help="Root of the store, or STORE/.mqtool/journal.")
]


def refuse_half_changed(root: Path) -> None:
    """Raises RefusedError if a change of a store was interrupted: old and new files together are not its messages."""
    from mqtool.repair.journal import check_finished

    if root.is_dir():
        check_finished(root)


STEPS = listing(
    "steps",
    "what becomes of which file",
    text("action", "create, replace or set-aside"),
    text("path", "file, below the store"),
    size("before", "bytes now; null where there is no file", nullable=True),
    size("after", "bytes afterwards; null if the file is removed", nullable=True),
    text("sha256_before", "of the file now", show=DATA, nullable=True),
    text("sha256_after", "of the file then", show=DATA, nullable=True),
)


def step_rows(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Returns the rows of the column `STEPS`."""
    return [
        {
            "action": step.action,
            "path": step.path,
            "before": step.before and step.before.size,
            "after": step.after and step.after.size,
            "sha256_before": step.before and step.before.sha256,
            "sha256_after": step.after and step.after.sha256,
        }
        for step in steps
    ]


def after_apply(applied: ApplyResult) -> list[str]:
    """Returns what to do with a changed store: append what a recovery cut, and predict a start."""
    from mqtool.engine.start.quarantine import LISTING

    named = applied.opened
    cut = [step.path for step in applied.steps if step.before is None and Path(step.path).name == LISTING]
    append = [command("append", named, "--from", applied.store / path) for path in cut]
    if applied.verification is None or not applied.errors:
        return [*append, command("explain-start", named)]
    from mqtool.cli.next_steps import next_steps_of

    config = named.config if isinstance(named.config, str | Path) else None
    steps = next_steps_of(applied.store, config, applied.verification)
    undo = command("undo", applied.store, "--yes")  # printed apart
    return [*append, *(step for step in steps if step != undo)]


def undo_schema(name: str, doc: str) -> OutputSchema:
    """Returns the output of `undo` or `discard-undo`."""
    return OutputSchema(
        name,
        1,
        doc,
        (
            text("store", "root of the store"),
            flag("dry_run", "gates were tried, nothing was written"),
            count("files", "how many files were concerned, or would be"),
            size("freed", "bytes of disk space freed, or that would be"),
            NEXT_STEPS,
        ),
        single=True,
    )


def print_undo(
    invocation: Invocation,
    schema: OutputSchema,
    output_format: Format,
    result: UndoResult,
    next_step: str,
    code: ExitCode = ExitCode.OK,
    *,
    dry_run: bool = False,
) -> ExitCode:
    """Prints how a change ended, or would end; returns the exit code."""
    document = {
        "store": str(result.store),
        "dry_run": dry_run,
        "files": result.files,
        "freed": result.bytes,
        "next_steps": [next_step],
    }
    return Output(invocation, schema, output_format).document(document, code)
