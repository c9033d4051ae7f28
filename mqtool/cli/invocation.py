"""One run of mqtool: its global options, and its output once that has started."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Protocol

from mqtool.cli import cells, terminal
from mqtool.cli.exits import Failure

FORMAT_OPTIONS = ("--format", "-f")
JSON_OPTION = "--json"
"""Short for `--format json`."""


class Format(StrEnum):
    """Values of `--format`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    HELP = "help"


JSON_FORMATS = (Format.JSON, Format.JSONL)
TABLE_FORMATS = (Format.TABLE, Format.WIDE)


class StartedOutput(Protocol):
    """An output that has started: `mqtool.cli.output.Output`."""

    def fail(self, failure: Failure) -> None:
        """Ends it because of a failure."""


class Invocation:
    """Passed to commands as `ctx.obj`.

    Attributes:
        arguments: all words after `mqtool`.
        command: the word that names it, if there is one.
        debug: print tracebacks.
        format: of the output.
        output: once it exists.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        """Finds the options that the end of a run needs even if the arguments turn out to be wrong."""
        self.arguments = tuple(arguments)
        formats = [value for name, value in pairwise(arguments) if name in FORMAT_OPTIONS]
        formats += [argument.removeprefix("--format=") for argument in arguments if argument.startswith("--format=")]
        formats += [Format.JSON] if JSON_OPTION in arguments else []
        chosen = formats[-1] if formats and formats[-1] in list(Format) else Format.TABLE
        self.command = next((argument for argument in arguments if not argument.startswith("-")), "")
        self.debug = "--debug" in arguments
        self.format = Format(chosen)
        self.output: StartedOutput | None = None


def note(text: str) -> None:
    """Prints one line to stderr, its control characters escaped; on a terminal it is wrapped."""
    terminal.hide_bars()
    room = cells.screen_width() if sys.stderr.isatty() else None
    for line in cells.wrap(f"mqtool: {cells.escape(' '.join(text.split()))}", room, 4):
        print(line, file=sys.stderr, flush=True)  # noqa: T201
