"""`mqtool mirror`: copies a running broker's store by the broker's own replication."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import FormatOption, option, output_option
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, Column, OutputSchema, prints

HELP = """
mqtool mirror 127.0.0.1:10911 -o /data/copy

Follow a running master of RocketMQ 4.9 or 5.x as its slave: copy the CommitLog byte for byte from the master's first
byte, dispatch it to queues and index, and fetch topics, groups and offsets every ten seconds. The master needs no
setting and is not changed; a synchronous master counts the copy as a slave. Runs until SIGTERM or Ctrl-C and
reconnects when a connection ends; --once exits after catching up with what the master had at the start. An existing
copy is continued. A broker can start on the copy after the mirror has stopped. For a master with access control,
requests are signed with the account in mqadmin's conf/tools.yml below ROCKETMQ_HOME, or in MQTOOL_ACCESS_KEY and
MQTOOL_SECRET_KEY.

impact: writes the copy under its lock; the master is not changed
"""


MIRROR = OutputSchema(
    "mirror",
    "result of a mirror when it ended",
    (
        Column("master", "string", "address of the master", TABLE),
        Column("broker", "string", "its name", TABLE),
        Column("store", "string", "root of the copy", TABLE),
        Column("begun_at", "int64", "physical offset where the copy ended before", TABLE),
        Column("end", "int64", "physical offset where it ends now", TABLE),
        Column("caught_up", "boolean", "it has everything that the master had at the start", TABLE),
    ),
    single=True,
)


@prints(MIRROR)
def mirror(
    ctx: typer.Context,
    master: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the master, as clients use it.")],
    *,
    copy: Annotated[Path, output_option("Root of the copy; created if missing.")],
    once: Annotated[bool, option("--once", help="Exit after catching up with the master.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> ExitCode:
    """Follows until stopped or, with --once, until it has caught up; prints the end of the copy."""
    from mqtool.server.mirror import follow

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    output = Output(ctx.obj, MIRROR, output_format)
    return output.document(follow(master, copy, once=once, signals=(signal.SIGTERM, signal.SIGINT)))
