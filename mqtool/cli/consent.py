"""Consent to a change. What changes or deletes is dry by default: it is done with `--yes`, or after a question."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from mqtool.cli import bars
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Invocation, note
from mqtool.cli.options import option
from mqtool.errors import UsageError

YesOption = Annotated[bool, option("--yes", help="Make the change without asking.")]
DryRunOption = Annotated[bool, option("--dry-run", help="Show what would be done, and change nothing.")]
AllowUnreadOption = Annotated[
    bool, option("--allow-unread", help="Delete messages that are not read or not delivered yet, too.")
]
KeepOption = Annotated[
    bool,
    option(
        "--keep/--no-keep",
        help="Keep the old files for `mqtool undo STORE`; their space is taken until `mqtool discard-undo STORE`.",
    ),
]


def consent(
    invocation: Invocation, question: str, show: Callable[[ExitCode], ExitCode], *, yes: bool, dry_run: bool
) -> ExitCode | None:
    """Returns None if a change may go ahead; otherwise the exit code of the command, which has changed nothing.

    Without `--yes`, what would be done is shown first. Then the question is asked, if tables are printed, and stdin and
    stderr are a terminal.

    Args:
        invocation: `ctx.obj`.
        question: what is about to happen, as a question.
        show: prints what would be done, and returns the given exit code, or another one if nothing can be done.
        yes: `--yes` was given.
        dry_run: `--dry-run` was given.

    Raises:
        UsageError: both were given.
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
    bars.hide()
    if is_asked and typer.confirm(question, default=False, err=True):
        bars.show()
        return None
    note("nothing was changed: add --yes to make the change")
    return ExitCode.REFUSED
