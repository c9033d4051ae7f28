"""A command made for tests: prints rows, then ends as it is told."""

import errno
import time
from typing import Annotated

import typer

from mqtool import errors
from mqtool.cli.exits import ExitCode, NotFoundError, Terminated
from mqtool.cli.invocation import Format
from mqtool.cli.options import FormatOption
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, Column, OutputSchema, prints

ROWS = OutputSchema(
    "probe",
    "a row of the probe",
    (
        Column("number", "int64", "a number", show=TABLE),
        Column("text", "string", "a text", show=TABLE, nullable=True),
        Column("stored", "int64", "a time", time=True),
        Column("tags", "object", "a mapping", show="data"),
    ),
    version=3,
)

ERRORS = {
    "none": None,
    "usage": errors.UsageError("range 'x': expected N"),
    "not-found": NotFoundError("no message has key k"),
    "not-a-store": errors.NotAStoreError("holds no commitlog/", "/s"),
    "locked": errors.StoreLockedError("held", "/s/lock"),
    "unsupported": errors.UnsupportedFormatError("/s is a RocksDB"),
    "config-file": errors.ConfigFileError("no", "/b.conf"),
    "layout": errors.LayoutError("sizes differ", "/s"),
    "corruption": errors.CorruptionError("bad CRC", "/s/commitlog/0", 17),
    "format": errors.FormatError("no", layout="record", field="body", position=4),
    "rejected": errors.MessageRejectedError("too large"),
    "protocol": errors.RemoteProtocolError("bad frame"),
    "store-io": errors.StoreError("cannot be read at position 5: Input/output error", "/s/x"),
    "closed": errors.StoreClosedError("used after close", "/s"),
    "connection": ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    "permission": PermissionError(errno.EACCES, "Permission denied", "/s/x"),
    "os": OSError(errno.EIO, "Input/output error", "/s/x"),
    "bug": ZeroDivisionError("division by zero"),
    "interrupt": KeyboardInterrupt(),
    "terminate": Terminated(),
    "pipe": BrokenPipeError(errno.EPIPE, "Broken pipe"),
    "lines": errors.UsageError("one\ntwo\x1b[31m"),
}


HELP = """
mqtool probe none

impact: read-only
"""


@prints(ROWS)
def probe(
    ctx: typer.Context,
    end: Annotated[str, typer.Argument(help="A key of ERRORS, or `answer-no`, or `wait`.")],
    rows: Annotated[int, typer.Option(help="How many rows.")] = 0,
    output_format: FormatOption = Format.TABLE,
) -> int:
    output = Output(ctx.obj, ROWS, output_format) if rows else None
    for number in range(rows):
        text = None if number % 2 else "x\x1b[2J"
        output.row({"number": number, "text": text, "stored": 1700000000000, "tags": {"a": "b"}})
    if end == "answer-no":
        return output.finish(ExitCode.NO)
    if end == "wait":
        output.finish()
        time.sleep(60)
    if ERRORS[end] is not None:
        raise ERRORS[end]
    return output.finish() if output else ExitCode.OK
