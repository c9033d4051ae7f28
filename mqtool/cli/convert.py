"""`mqtool convert`: a store in another shape, with the same messages."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.convert_schema import CONVERT
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, ProgressMode, ProgressOption
from mqtool.cli.schema import prints

HELP = """
mqtool convert dledger /data/store /data/plain

Make a store of another shape with the same messages in the same queues at the same queue offsets.
dledger: a store whose log is kept by DLedger becomes an ordinary one; queues and index are made anew, physical
offsets and with them offset message ids change. rocksdb-queues: queues that are in RocksDB become files, and so do
topics, groups and offsets; file-queues: the way back. The result is verified. Damaged ranges are left out and
reported, then the exit code is 1. What DST lacks is listed as left_behind. Nothing appears under DST before all of it
is on disk.

impact: writes DST, a new or empty directory, and DST.unfinished meanwhile; the source is only read
"""


class Conversion(StrEnum):
    """Values of WHAT."""

    DLEDGER = "dledger"
    ROCKSDB_QUEUES = "rocksdb-queues"
    FILE_QUEUES = "file-queues"


WhatArgument = Annotated[
    Conversion,
    typer.Argument(metavar="WHAT", help="What SRC has: dledger, rocksdb-queues or file-queues.", show_default=False),
]
SourceArgument = Annotated[Path, typer.Argument(metavar="SRC", help="Root of the store to read.", show_default=False)]
TargetArgument = Annotated[
    Path, typer.Argument(metavar="DST", help="New or empty directory that takes the new store.", show_default=False)
]


@prints(CONVERT)
def convert(
    ctx: typer.Context,
    what: WhatArgument,
    source: SourceArgument,
    target: TargetArgument,
    *,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.convert_run import run  # noqa: PLC0415 - `--help` loads no numpy

    return run(ctx.obj, what.value, (source, target), config, output_format, progress)
