"""`mqtool append`: messages into a store, new or old."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mqtool.cli.append_schema import ACK
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import ConfigOption, DebugOption, FormatOption, option
from mqtool.cli.schema import prints

HELP = """
mqtool append /data/store --from messages.jsonl --flush sync

Append messages to a store, as a broker would: into CommitLog, queues and index, with topics.json widened for topics
that it lacks. A directory that is empty or not there becomes a new store; one that is there goes on in its own layout
and release, and whatever contradicts it is refused before a byte is written. Input is JSON Lines,
{"topic": "Orders", "queue_id": 0, "body": "text", "tags": "a", "keys": ["k1"], "properties": {}, "delay_level": 3},
also as `dump` prints them, or Parquet as `export` writes it. Each row is answered by a line: its place and ids, or why
it was refused. Rows that are refused do not keep others from being stored; with --all-or-nothing they do.
Input that the store already holds is refused, so that a command typed twice doubles nothing (--duplicates).
Exit code 1 if a row was refused, or if a line has no end within 256 MiB: that ends the run.

impact: writes to the store, under its lock; with --dry-run nothing
"""


class Flush(StrEnum):
    """Values of `--flush`."""

    SYNC = "sync"
    ASYNC = "async"
    POOL = "pool"


class Duplicates(StrEnum):
    """Values of `--duplicates`: `ingest.duplicates.Duplicates` without loading numpy; a test compares them."""

    REFUSE = "refuse"
    APPEND = "append"


class Bytes(StrEnum):
    """Values of `--broker`."""

    V4_9 = "4.9"
    V5_5 = "5.5"


StoreToWrite = Annotated[
    Path, typer.Argument(metavar="STORE", help="Root directory of a store; made if it is not there or empty.")
]
FromOption = Annotated[
    str,
    option("--from", metavar="FILE|-", help="JSON Lines, Parquet, or a directory of `export`; - is stdin, JSON Lines."),
]
FlushOption = Annotated[
    Flush,
    option("--flush", help="sync: a row is answered once it is on disk. async, pool: on disk when the run has ended."),
]
CompatOption = Annotated[
    Bytes | None,
    option("--broker", help="Release whose on-disk format to write. Default: the store's own; 5.5 for a new one."),
]
WholeOption = Annotated[
    bool, option("--all-or-nothing", help="Check all rows first; store none if one would be refused.")
]
DuplicatesOption = Annotated[
    Duplicates, option("--duplicates", help="If the store already holds the first messages: write nothing, or append.")
]
DryRunOption = Annotated[bool, option("--dry-run", help="Only say what would be answered; nothing is written.")]


@prints(ACK)
def append(
    ctx: typer.Context,
    store: StoreToWrite,
    *,
    source: FromOption,
    flush: FlushOption = Flush.ASYNC,
    compat: CompatOption = None,
    all_or_nothing: WholeOption = False,
    dry_run: DryRunOption = False,
    duplicates: DuplicatesOption = Duplicates.REFUSE,
    output_format: FormatOption = Format.JSONL,
    config: ConfigOption = None,
    _debug: DebugOption = False,
) -> ExitCode:
    """Reads the options and runs."""
    from mqtool.cli.append_run import Request, run  # noqa: PLC0415 - `--help` loads no numpy

    request = Request(
        store,
        source,
        flush.value,
        compat.value if compat else None,
        all_or_nothing=all_or_nothing,
        dry_run=dry_run,
        config=config,
        duplicates=duplicates.value,
    )
    return run(ctx.obj, request, output_format)
