"""`mqtool export`: messages into Parquet."""

from enum import StrEnum
from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.exits import ExitCode
from mqtool.cli.export_schema import EXPORT
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Format
from mqtool.cli.options import (
    ConfigOption,
    DebugOption,
    FormatOption,
    ProgressMode,
    ProgressOption,
    QueueOption,
    RangeOption,
    TimeOption,
    TopicOption,
    ZoneOption,
    option,
)
from mqtool.cli.schema import prints
from mqtool.cli.sibling_rows import EXPORT_KIND
from mqtool.cli.spark_session import LOCAL, SPARK, ConfOption, MasterOption, on_spark

HELP = """
mqtool export /data/store --output orders-lake --topic Orders

Write messages as Parquet: typed columns, sorted by topic, queue and offset, with statistics. DIR holds the tables
messages, damage (what could not be read) and dead_letters (what could not be written as asked for). All files of a run
appear, or none; an interrupted run is simply run again. --state FILE makes it incremental: the next run adds exactly
what is new. Several stores, NAME=STORE or globs go into one table with a column broker. --spark runs the same tasks on
Spark, on this machine or a cluster that reaches stores and DIR under the same names. Of a store of another kind (see
`mqtool formats`) each table becomes a Parquet file in DIR.

impact: writes below --to and the --state file, and nothing else; stores are only read
"""

CONTENT = "Content"
FILES = "Files"


class Include(StrEnum):
    """Values of `--include`."""

    COMMITTED = "committed"
    ALL = "all"


class LakeBody(StrEnum):
    """Values of `--body`."""

    BINARY = "binary"
    TEXT = "text"
    JSON = "json"


class Mode(StrEnum):
    """Values of `--on-damage`."""

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


StoresArgument = Annotated[
    list[str], typer.Argument(metavar="STORE...", help="Roots of stores: paths, globs, URLs, NAME=PATH.")
]
ToOption = Annotated[
    str,
    option("--output", "-o", metavar="DIR", help="Directory or URL for the result; new, empty, or made with --state."),
]
StateOption = Annotated[
    str | None, option("--state", metavar="FILE", help="Remembers how far the export came; later runs go on.")
]
WorkersOption = Annotated[
    int | None, option("--jobs", "-j", metavar="N", min=1, help="Worker processes. Default: one a processor.")
]
IncludeOption = Annotated[
    Include, option("--include", panel=CONTENT, help="What consumers can see, or half and system records too.")
]
ColumnsOption = Annotated[
    str | None, option("--columns", metavar="NAME,…", panel=CONTENT, help="Columns of the messages table.")
]
BodyOption = Annotated[
    LakeBody, option("--body-type", panel=CONTENT, help="Type of bodies; values that cannot be converted are listed.")
]
RedactOption = Annotated[
    list[str] | None,
    option("--redact-columns", metavar="NAME,…", panel=CONTENT, help="Columns whose values become salted hashes."),
]
ModeOption = Annotated[Mode, option("--on-damage", panel=CONTENT, help="Report damage and skip it, or fail.")]
PartitionOption = Annotated[
    str | None, option("--partition-by", metavar="topic,date,hour", panel=FILES, help="Directories, as in Hive.")
]
FileSizeOption = Annotated[
    str, option("--file-size", metavar="SIZE", panel=FILES, help="Files end soon after this size.")
]
SplitOption = Annotated[
    str | None, option("--split", metavar="SIZE", panel=FILES, help="Log bytes of a task; each writes its own files.")
]
SparkOption = Annotated[bool, option("--spark", panel=SPARK, help="Run the tasks on Spark (needs Java 17).")]
LevelOption = Annotated[
    int, option("--level", panel=FILES, help="zstd compression level, 1-22. Higher is smaller and slower.")
]


class TableName(StrEnum):
    """Values of `--table-format`."""

    DELTA = "delta"
    ICEBERG = "iceberg"


RewindOption = Annotated[
    bool, option("--rewind", help="If a log was cut back, remove the exported rows of the part that was cut.")
]
TableOption = Annotated[
    TableName | None,
    option("--table-format", panel=FILES, help="Also commit the messages to a Delta or Iceberg table."),
]


@prints(EXPORT, EXPORT_KIND)
def export(
    ctx: typer.Context,
    stores: StoresArgument,
    *,
    to: ToOption,
    state: StateOption = None,
    rewind: RewindOption = False,
    include: IncludeOption = Include.COMMITTED,
    columns: ColumnsOption = None,
    body: BodyOption = LakeBody.BINARY,
    redact: RedactOption = None,
    mode: ModeOption = Mode.PERMISSIVE,
    topic: TopicOption = None,
    queue: QueueOption = None,
    time: TimeOption = None,
    offset: RangeOption = None,
    partition_by: PartitionOption = None,
    file_size: FileSizeOption = "256M",
    split: SplitOption = None,
    level: LevelOption = 1,
    table: TableOption = None,
    workers: WorkersOption = None,
    spark: SparkOption = False,
    master: MasterOption = LOCAL,
    conf: ConfOption = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.export_run import Wanted, run  # noqa: PLC0415 - `--help` loads no numpy

    wanted = Wanted(
        stores,
        to,
        state,
        include is Include.ALL,
        columns,
        body.value,
        redact,
        mode is Mode.FAILFAST,
        Filters(offset=offset, time=time, topic=topic, queue=queue),
        partition_by,
        file_size,
        split,
        level,
        workers,
        None if config is None else str(config),
        None if table is None else table.value,
        rewind,
    )
    return run(ctx.obj, wanted, on_spark(spark, master, conf), output_format, progress)
