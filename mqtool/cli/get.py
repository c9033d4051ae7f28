"""`mqtool get`: the message at an address."""

from typing import Annotated

import typer

from mqtool.cli import zones
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.kind_rows import MAIN
from mqtool.cli.message_rows import MESSAGE
from mqtool.cli.options import (
    BodyOption,
    ConfigOption,
    DebugOption,
    FormatOption,
    MaxBodyOption,
    RawOption,
    RedactOption,
    StoreArgument,
    ZoneOption,
)
from mqtool.cli.schema import prints

HELP = """
mqtool get /data/store 4096 TopicTest/0@17 7F0000010000522B0000000000001000

Print the messages at addresses: a physical offset, TOPIC/QUEUE@OFFSET, an offset message id or a unique key. Ids of the
two kinds look alike: the first that leads to a message is taken, and stderr says which. Nothing there: exit code 1.

impact: read-only
"""


@prints(MESSAGE, *MAIN)
def get(
    ctx: typer.Context,
    store: StoreArgument,
    address: Annotated[list[str], typer.Argument(metavar="ADDRESS...", help="Offset, place in a queue, or id.")],
    *,
    output_format: FormatOption = Format.TABLE,
    body: BodyOption = None,
    max_body: MaxBodyOption = None,
    raw: RawOption = False,
    redact: RedactOption = False,
    config: ConfigOption = None,
    _zone: ZoneOption = zones.DEFAULT,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.get_run import run  # noqa: PLC0415 - `--help` loads no numpy
    from mqtool.cli.message_view import MessageView  # noqa: PLC0415

    view = MessageView(format=output_format, body=body, max_body=max_body, raw=raw, redact=redact)
    return run(ctx.obj, store, config, address, view)
