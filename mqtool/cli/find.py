"""`mqtool find`: messages by what is in them."""

from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Format
from mqtool.cli.kind_rows import MAIN
from mqtool.cli.message_rows import MESSAGE
from mqtool.cli.options import (
    SELECTION,
    BodyOption,
    ConfigOption,
    DebugOption,
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
    StoreArgument,
    TagOption,
    TimeOption,
    TopicOption,
    UniqueKeyOption,
    WayName,
    ZoneOption,
    option,
)
from mqtool.cli.schema import prints

HELP = """
mqtool find /data/store --key order-4711

Find messages by key, unique key, tag, property, time, range or body. Keys are looked up in the index files, and the
ends of the log that these do not cover are scanned; all else is a scan. stderr says which way was taken. Nothing found:
exit code 1.

impact: read-only
"""


@prints(MESSAGE, *MAIN)
def find(
    ctx: typer.Context,
    store: StoreArgument,
    *,
    key: KeyOption = None,
    unique_key: UniqueKeyOption = None,
    tag: TagOption = None,
    user_property: PropertyOption = None,
    grep: GrepOption = None,
    time: TimeOption = None,
    offset: RangeOption = None,
    topic: TopicOption = None,
    queue: QueueOption = None,
    limit: LimitOption = None,
    max_bytes: MaxBytesOption = None,
    way: Annotated[WayName, option("--by", panel=SELECTION, help="How to look.")] = WayName.AUTO,
    output_format: FormatOption = Format.TABLE,
    body: BodyOption = None,
    max_body: MaxBodyOption = None,
    raw: RawOption = False,
    redact: RedactOption = False,
    config: ConfigOption = None,
    progress: ProgressOption = ProgressMode.AUTO,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.find_run import run  # noqa: PLC0415 - `--help` loads no numpy
    from mqtool.cli.message_view import MessageView  # noqa: PLC0415

    filters = Filters(offset, time, topic, queue, tag, key, unique_key, user_property, grep, limit, max_bytes)
    view = MessageView(format=output_format, body=body, max_body=max_body, raw=raw, redact=redact, progress=progress)
    return run(ctx.obj, store, config, filters, view, way)
