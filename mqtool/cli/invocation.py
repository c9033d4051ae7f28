"""One run of mqtool: what its options said, and its output once that has begun."""

import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqtool.cli.output import Output


class Format(StrEnum):
    """Values of `--format`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    HELP = "help"


JSON_FORMATS = (Format.JSON, Format.JSONL)


@dataclass(slots=True)
class Invocation:
    """Passed to commands as `ctx.obj`.

    Attributes:
        debug: print tracebacks.
        format: of the output, as soon as it is known.
        output: once it exists.
    """

    debug: bool = False
    format: Format = Format.TABLE
    output: "Output | None" = field(default=None, repr=False)


def note(text: str) -> None:
    """Prints one line to stderr, its control characters escaped."""
    from mqtool.cli import cells  # noqa: PLC0415 - `--help` has nothing to escape

    print(f"mqtool: {cells.escape(' '.join(text.split()))}", file=sys.stderr, flush=True)  # noqa: T201
