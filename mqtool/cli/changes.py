"""Changes of a store: consent to them, their steps, and how they ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool.cli import terminal
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format, Invocation, note
from mqtool.cli.options import option
from mqtool.cli.output import Output
from mqtool.cli.schema import DATA, NEXT_STEPS, OutputSchema, count, flag, listing, size, text
from mqtool.commands import Opened, command
from mqtool.errors import UsageError

if TYPE_CHECKING:
    from mqtool.repair import ApplyResult, Step, UndoResult

YesOption = Annotated[bool, option("--yes", help="Make the change without asking.")]

DryRunOption = Annotated[bool, option("--dry-run", help="Show what would be done, and change nothing.")]

AllowUnreadOption = Annotated[
    bool, option("--allow-unread", help="Also delete messages that are not yet read or delivered.")
]

KeepOption = Annotated[
    bool,
    option(
        "--keep/--no-keep",
        help="Keep the old files for `mqtool undo STORE`; their space is taken until `mqtool discard-undo STORE`.",
    ),
]

ChangedArgument = Annotated[
    Path, typer.Argument(metavar="STORE|JOURNAL", help="Root of the store, or STORE/.mqtool/journal.")
]

STEPS = listing(
    "steps",
    "what happens to each file",
    text("action", "create, replace or set-aside"),
    text("path", "file, below the store"),
    size("before", "bytes now; null where there is no file", nullable=True),
    size("after", "bytes afterwards; null if the file is removed", nullable=True),
    text("sha256_before", "of the file now", show=DATA, nullable=True),
    text("sha256_after", "of the file then", show=DATA, nullable=True),
)


def consent(
    invocation: Invocation, question: str, show: Callable[[ExitCode], ExitCode], *, yes: bool, dry_run: bool
) -> ExitCode | None:
    """Returns None if a change may go ahead; otherwise the exit code of the command, which has changed nothing.

    Without `--yes`, what would be done is shown first; `show` returns the given exit code, or another one if nothing
    can be done. Then the question is asked, if tables are printed, and stdin and stderr are a terminal. Raises
    UsageError if both --yes and --dry-run were given.
    """
    if yes and dry_run:
        raise UsageError("--yes and --dry-run cannot be combined; give one of them")
    if yes:
        return None
    is_asked = invocation.format in TABLE_FORMATS and sys.stdin.isatty() and sys.stderr.isatty()
    code = ExitCode.OK if dry_run or is_asked else ExitCode.REFUSED
    shown = show(code)
    if dry_run or shown is not code:
        return shown
    terminal.hide_bars()
    if is_asked and typer.confirm(question, default=False, err=True):
        terminal.show_bars()
        return None
    note("nothing was changed: add --yes to make the change")
    return ExitCode.REFUSED


def refuse_half_changed(root: Path) -> None:
    """Raises RefusedError if a change of a store was interrupted: old and new files together are not its messages."""
    from mqtool.repair.journal import check_finished

    if root.is_dir():
        check_finished(root)


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


def after_apply(applied: ApplyResult, named: Opened) -> list[str]:
    """Returns what to do with a changed store, as it was named: append what a recovery cut, and predict a start."""
    from mqtool.engine.start.quarantine import LISTING

    root = Path(named.root)
    cut = [step.path for step in applied.steps if step.before is None and Path(step.path).name == LISTING]
    append = [command("append", named, "--from", root / path) for path in cut]
    if applied.verification is None or not applied.errors:
        return [*append, command("explain-start", named)]
    from mqtool.cli.verification_formats import next_steps_of

    config = named.config if isinstance(named.config, str | Path) else None
    steps = next_steps_of(root, config, applied.verification)
    undo = command("undo", root, "--yes")  # printed apart
    return [*append, *(step for step in steps if step != undo)]


def undo_schema(name: str, doc: str) -> OutputSchema:
    """Returns the output of `undo` or `discard-undo`."""
    return OutputSchema(
        name,
        doc,
        (
            text("store", "root of the store"),
            flag("dry_run", "only the preconditions were checked; nothing was written"),
            count("files", "number of files changed, or that would be"),
            size("freed", "bytes of disk space freed, or that would be"),
            listing(
                "final", "what the change deleted, which cannot be undone then", label="the change that becomes final"
            ),
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
        "final": list(result.final),
        "next_steps": [next_step],
    }
    return Output(invocation, schema, output_format).document(document, code)
