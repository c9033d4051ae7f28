"""`mqtool dump`: what a store, a directory or a single file holds."""

from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.entry_rows import SCHEMAS
from mqtool.cli.exits import ExitCode
from mqtool.cli.field_rows import FIELD
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Format
from mqtool.cli.kind_rows import TABLES
from mqtool.cli.message_rows import MESSAGE
from mqtool.cli.options import (
    SELECTION,
    BodyOption,
    ConfigOption,
    DamageMode,
    DamageOption,
    DebugOption,
    FileKindName,
    FormatOption,
    GrepOption,
    KeyOption,
    LimitOption,
    MaxBodyOption,
    MaxBytesOption,
    ProgressMode,
    ProgressOption,
    PropertyOption,
    QueueOption,
    RangeOption,
    RawOption,
    RedactOption,
    TagOption,
    TimeOption,
    TopicOption,
    UniqueKeyOption,
    ZoneOption,
    option,
)
from mqtool.cli.schema import prints

JobsOption = Annotated[int, option("--jobs", "-j", metavar="N", min=1, help="Processes for JSON.")]
KindOption = Annotated[
    FileKindName | None, option("--kind", panel=SELECTION, help="Which part of a store, or what a file is.")
]

HELP = """
mqtool dump /data/store --topic 'order*' --format jsonl

Print the messages of a store, or the entries of any of its files. PATH is a store, a part of one (commitlog,
consumequeue/TOPIC/0, index, config, …) or a single file, whose kind is recognised. Damage is told on stderr and does
not end the reading; the exit code is then 1.

impact: read-only
"""


@prints(MESSAGE, *SCHEMAS.values(), *TABLES.values(), FIELD)
def dump(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A store, a part of one, or a file.")],
    *,
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
    max_bytes: MaxBytesOption = None,
    kind: KindOption = None,
    table: Annotated[
        str | None,
        option("--table", metavar="NAME", panel=SELECTION, help="Which rows of a store of another kind: equeue-entry."),
    ] = None,
    follow: Annotated[bool, option("--follow", "-F", panel=SELECTION, help="Wait for new messages.")] = False,
    output_format: FormatOption = Format.TABLE,
    body: BodyOption = None,
    max_body: MaxBodyOption = None,
    raw: RawOption = False,
    explode: Annotated[bool, option("--explode", help="Inner batches as their messages.")] = False,
    hex_: Annotated[bool, option("--hex", help="Each field beside its bytes.")] = False,
    damage: DamageOption = DamageMode.STDERR,
    redact: RedactOption = False,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    jobs: JobsOption = 1,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.dump_run import run  # noqa: PLC0415 - `--help` loads no numpy
    from mqtool.cli.message_view import MessageView  # noqa: PLC0415

    filters = Filters(offset, time, topic, queue, tag, key, unique_key, user_property, grep, limit, max_bytes)
    view = MessageView(
        format=output_format,
        body=body,
        max_body=max_body,
        raw=raw,
        redact=redact,
        explode=explode,
        hex=hex_,
        follow=follow,
        damage=damage,
        progress=progress,
        jobs=jobs,
    )
    return run(ctx.obj, path, kind, config, filters, view, table)
