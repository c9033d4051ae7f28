"""`mqtool replay`: messages of a store, of JSON Lines or of an export, stored again or sent to a broker."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.append import Bytes, Duplicates, DuplicatesOption
from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Format
from mqtool.cli.options import (
    ConfigOption,
    DebugOption,
    FormatOption,
    GrepOption,
    KeyOption,
    LimitOption,
    PropertyOption,
    QueueOption,
    RangeOption,
    TagOption,
    TimeOption,
    TopicOption,
    UniqueKeyOption,
    ZoneOption,
    option,
)
from mqtool.cli.replay_schema import REPLAY
from mqtool.cli.schema import prints

HELP = """
mqtool replay /data/store --to /data/rescue --topic Orders --ids ids.jsonl --state replay.state

Store messages again, in the order they were stored in. SOURCE is a store, JSON Lines as `dump` prints them, or Parquet
as `export` writes it; what consumers could see is replayed, with its keys, tags, properties, queue and born host, and
gets new offsets. --ids writes old and new places, a line for each message. --state makes it resumable: a run that was
killed anywhere is simply run again, and no message is missing or there twice. The target is made if it is not there;
otherwise it goes on in its own layout and release. Exit code 1 if a message was refused or the source is damaged.

--to HOST:PORT is a name server instead: messages are sent to its running brokers, at least once after a crash.

impact: writes to the --to store, under its lock, or sends to brokers; and the --ids and --state files; with --dry-run
nothing
"""

SourceArgument = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="A store, a file of JSON Lines or Parquet, or a directory of `export`.")
]
ToOption = Annotated[
    str, option("--to", metavar="TARGET", help="Store that takes them, new or stopped; or HOST:PORT of a name server.")
]
IdsOption = Annotated[
    Path | None, option("--ids", metavar="FILE", help="Write old and new places here, as JSON Lines; a new file.")
]
StateOption = Annotated[
    Path | None, option("--state", metavar="FILE", help="Remember how far it is here; run again with it to go on.")
]
RateOption = Annotated[float | None, option("--rate", metavar="N", help="Messages a second at most.")]
KeepTimesOption = Annotated[
    bool, option("--keep-times", help="Keep the producers' born times; else they are those of the replay.")
]


class Flush(StrEnum):
    """Values of `--flush`."""

    SYNC = "sync"
    ASYNC = "async"


FlushOption = Annotated[
    Flush | None,
    option("--flush", help="When messages are on disk in a --to store: as they are stored, or at the end."),
]
CompatOption = Annotated[
    Bytes | None,
    option("--broker", help="Release whose on-disk format to write. Default: the --to store's; 5.5 for a new one."),
]
DryRunOption = Annotated[bool, option("--dry-run", help="Only say what would be stored; nothing is written.")]


@prints(REPLAY)
def replay(
    ctx: typer.Context,
    source: SourceArgument,
    *,
    to: ToOption,
    ids: IdsOption = None,
    state: StateOption = None,
    rate: RateOption = None,
    keep_times: KeepTimesOption = False,
    flush: FlushOption = None,
    compat: CompatOption = None,
    dry_run: DryRunOption = False,
    duplicates: DuplicatesOption = Duplicates.REFUSE,
    offset: RangeOption = None,
    time: TimeOption = None,
    topic: TopicOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    key: KeyOption = None,
    unique_key: UniqueKeyOption = None,
    user_property: PropertyOption = None,
    grep: GrepOption = None,
    limit: LimitOption = None,
    output_format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.replay_run import Wanted, run  # noqa: PLC0415 - `--help` loads no numpy

    filters = Filters(
        offset=offset,
        time=time,
        topic=topic,
        queue=queue,
        tag=tag,
        key=key,
        unique_key=unique_key,
        user_property=user_property,
        grep=grep,
        limit=limit,
    )
    wanted = Wanted(
        source,
        to,
        ids,
        state,
        rate,
        keep_times,
        flush,
        None if compat is None else compat.value,
        dry_run,
        filters,
        config,
        duplicates.value,
    )
    return run(ctx.obj, wanted, output_format)
