"""`mqtool salvage`: every provable record of a damaged store in a new one."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.kind_rows import SALVAGE_KIND
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, ProgressMode, ProgressOption, option
from mqtool.cli.salvage_schema import SALVAGE
from mqtool.cli.schema import prints

HELP = """
mqtool salvage /data/damaged /data/salvaged --with /backup/slave

Copy every record that can be proved into a new store, and say what is lost, by topic, queue and consumer group.
Records stay at their physical offsets, holes between them are filled with what a broker walks across, and messages
keep their queue offsets; --compact moves records together instead and writes a map of old to new offsets. What the
first store lacks is taken from copies of it (--with, repeatable): a slave, an older backup. Queues and index are
derived anew, config/ is copied where it can be read. The new store appears when it is whole. Exit code 1 if anything
is known to be lost. Of EQueue's and EventStore's chunks what lies between damage is found from either end; DST takes a
new store, or a Parquet file of the records.

impact: writes DST, beside it while it is made, and the --map file; the old stores are only read
"""


@prints(SALVAGE, SALVAGE_KIND)
def salvage(
    ctx: typer.Context,
    store: Annotated[Path, typer.Argument(metavar="SRC", help="Root directory of the damaged store.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="Root of the new store; must not exist.")],
    *,
    copies: Annotated[
        list[Path] | None,
        option("--with", metavar="STORE", help="A further copy of the same log; repeatable, the best first."),
    ] = None,
    compact: Annotated[bool, option("--compact", help="Move records together; physical offsets change.")] = False,
    map_file: Annotated[
        Path | None,
        option("--map", metavar="FILE", help="CSV of old and new offsets; DST.map.csv if not given."),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.salvage_run import run  # noqa: PLC0415 - `--help` loads no numpy

    if compact and map_file is None and target.name:
        map_file = target.with_name(f"{target.name}.map.csv")
    from mqtool.repair.salvage import Options  # noqa: PLC0415

    options = Options(tuple(copies or ()), compact, map_file, config)
    return run(ctx.obj, store, target, options, output_format, progress)
