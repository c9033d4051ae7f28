"""Consent to a change: `--yes`, or the answer to a question on a terminal."""

import sys
from typing import Annotated

import typer

from mqtool.cli.options import option

KeepOption = Annotated[
    bool,
    option("--keep/--no-keep", help="Keep the old files in STORE/.mqtool for `mqtool undo STORE`; they need no space."),
]


def is_confirmed(question: str, *, yes: bool) -> bool:
    """Returns whether a change may go ahead; asks on stderr if stdin and stderr are a terminal.

    Args:
        question: what is about to happen, as a question.
        yes: `--yes` was given.
    """
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(question, default=False, err=True)
