"""`mqtool diff`: what two stores do not have in common."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.diff_schema import DIFF
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption, ProgressMode, ProgressOption, option
from mqtool.cli.schema import prints

HELP = """
mqtool diff /data/master /data/slave

What do two stores not have in common: master and slave, before and after, copy and original? Up to which physical
offset their CommitLogs agree and where they part, which bytes and messages each side has alone, which records differ
in place and whose are damaged; each queue's bounds and messages; consumer offsets. What lies behind the end of a log,
stale or torn, is told and makes no difference. Exit code 1 if they differ, 0 if they are equal.

impact: read-only
"""


class Part(StrEnum):
    """Values of `--part`."""

    LOG = "log"
    QUEUES = "queues"
    OFFSETS = "offsets"


def _store(metavar: str, text: str) -> object:
    return typer.Argument(metavar=metavar, help=text, show_default=False)


@prints(DIFF)
def diff(
    ctx: typer.Context,
    a: Annotated[Path, _store("A", "Root directory of one store.")],
    b: Annotated[Path, _store("B", "Root directory of the other.")],
    *,
    part: Annotated[
        list[Part] | None, option("--part", help="Compare only this: log, queues, offsets; may be repeated.")
    ] = None,
    config_a: Annotated[
        Path | None, option("--config-a", metavar="FILE", help="broker.conf of A; overrules what the files tell.")
    ] = None,
    config_b: Annotated[
        Path | None, option("--config-b", metavar="FILE", help="broker.conf of B; overrules what the files tell.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.diff_run import run  # noqa: PLC0415 - `--help` loads no numpy

    parts = tuple(one.value for one in part) if part else None
    return run(ctx.obj, (a, config_a), (b, config_b), parts, output_format, progress)
