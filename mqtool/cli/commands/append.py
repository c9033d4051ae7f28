"""`mqtool append`: appends messages to a new or existing store."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from mqtool.choices import Compat
from mqtool.cli import options, terminal
from mqtool.cli.cells import counted
from mqtool.cli.changes import DryRunOption
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import Duplicates, option, stated_release
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema, count, prints, row_of, text
from mqtool.errors import StoreError, UsageError

if TYPE_CHECKING:
    from mqtool.engine import StoreOptions
    from mqtool.ingest import bulk_ingest
    from mqtool.ingest.bulk_ingest import Row


HELP = """
mqtool append /data/store --from messages.jsonl --flush sync

Append messages to a store as a broker would: to CommitLog, queues and index, adding topics to topics.json where they
are missing. A missing or empty directory becomes a new store. An existing store keeps its layout and release; input
that contradicts them is rejected before a byte is written. Input is JSON Lines,
{"topic": "Orders", "queue_id": 0, "body": "text", "tags": "a", "keys": ["k1"], "properties": {}, "delay_level": 3},
in the format of `dump`, or Parquet in the format of `export`. Each row is reported on one line: its place and ids, or
the reason why it was rejected. Rejected rows do not prevent others from being stored, unless --all-or-nothing is given.
Input that the store already has is rejected, so running a command twice does not duplicate messages (--duplicates).
Exit code 1 if a row was rejected, or if a line is longer than 256 MiB, which ends the run.

impact: writes to the store, under its lock; with --dry-run nothing
"""

ACK = OutputSchema(
    "append.ack",
    "result for one row of the input",
    (
        Column("row", "int64", "line of the text or row of the table, counted from 1", show=TABLE),
        text(
            "status",
            "status that the store returned, by RocketMQ's name; null for a row that is not a message",
            nullable=True,
        ),
        Column("stored", "boolean", "the message is in the log", show=TABLE),
        text("topic", "topic that it is stored in; for a delayed message, the schedule topic", nullable=True),
        Column("queue_id", "integer", "queue of the topic", show=TABLE, nullable=True),
        Column("queue_offset", "int64", "ordinal in the queue; null if it was not stored", show=TABLE, nullable=True),
        count(
            "physical_offset", "byte address of its record in the CommitLog; null if it was not stored", nullable=True
        ),
        text(
            "offset_message_id", "store host and physical offset; null if it was not stored", show=WIDE, nullable=True
        ),
        Column("reason", "string", "why it was not stored; null if it was", show=TABLE, nullable=True),
    ),
)


class Flush(StrEnum):
    """Values of `--flush`."""

    SYNC = "sync"
    ASYNC = "async"
    POOL = "pool"


_POOL_BUFFERS = 5
"""transientStorePoolSize of the broker."""
_PIECE = 1 << 20
"""Bytes of stdin that are copied at a time."""

StoreToWrite = Annotated[
    Path, typer.Argument(metavar="STORE", help="Root directory of a store; created if missing or empty.")
]
FromOption = Annotated[
    str,
    option("--from", metavar="FILE|-", help="JSON Lines, Parquet, or a directory of `export`; - is stdin, JSON Lines."),
]
FlushOption = Annotated[
    Flush,
    option(
        "--flush",
        help="sync: each row is on disk before it is reported. async, pool: all rows are on disk at "
        "the end of the run.",
    ),
]
ReleaseOption = Annotated[
    Compat | None,
    options.release_option("Release whose on-disk format to write. Default: that of the store; 5.5 for a new one."),
]
WholeOption = Annotated[
    bool, option("--all-or-nothing", help="Check all rows first; store none if one would be rejected.")
]


@prints(ACK)
def append(
    ctx: typer.Context,
    store: StoreToWrite,
    *,
    source: FromOption,
    flush: FlushOption = Flush.ASYNC,
    release: ReleaseOption = None,
    all_or_nothing: WholeOption = False,
    dry_run: DryRunOption = False,
    duplicates: options.DuplicatesOption = Duplicates.REFUSE,
    output_format: options.FormatOption = Format.JSONL,
    config: options.ConfigOption = None,
) -> ExitCode:
    """Appends rows, or reports the result for each row without writing."""
    from mqtool.engine.start.detect import config_for_reading
    from mqtool.engine.store import open_store
    from mqtool.ingest import bulk_ingest
    from mqtool.ingest.bulk_ingest import peeked, refuse_duplicates

    options = _store_options(store, flush, release, config)
    validator = bulk_ingest.PutValidator(options, bulk_ingest.batch_topics(store, options))
    report = _Report(Output(ctx.obj, ACK, output_format))
    with ExitStack() as stack:
        stack.enter_context(stated_release(store, config, release))
        rows_of = stack.enter_context(_source(source, reread=all_or_nothing and not dry_run)).rows
        if dry_run:
            report.take(bulk_ingest.check(rows_of(options), validator))
            return report.end("would be stored; nothing was written")
        if all_or_nothing:
            refused = [ack for ack in bulk_ingest.check(rows_of(options), validator) if ack.reason]
            if refused:
                report.take(iter(refused))
                return report.end("stored because of --all-or-nothing")
        rows = rows_of(options)
        if duplicates is Duplicates.REFUSE:
            head, rows = peeked(rows)
            messages = (validator.stored_form(row.message) for row in head)
            refuse_duplicates(store, config_for_reading(config, options), messages)
        writer = stack.enter_context(open_store(store, options))
        begin = writer.max_physical_offset
        if not writer.recovered.clean_stop:
            note(
                f"{store} was not shut down cleanly. mqtool recovered it; the log continues at physical offset "
                f"{writer.recovered.end}"
            )
        try:
            report.take(bulk_ingest.append(writer, rows, validator))
        finally:
            bulk_ingest.add_topics(writer, report.queues)
    return report.end(f"stored after the {begin} bytes that the log already had" if begin else "stored")


def _store_options(store: Path, flush: Flush, release: Compat | None, config: Path | None) -> StoreOptions:
    """Returns the options to open the store with."""
    from mqtool.engine import FlushMode
    from mqtool.engine.start.detect import options_for

    chosen: dict[str, Any] = {"flush_mode": FlushMode.SYNC_FLUSH if flush is Flush.SYNC else FlushMode.ASYNC_FLUSH}
    if flush is Flush.POOL:
        chosen["pool_buffers"] = _POOL_BUFFERS
    return options_for(store, config, release, adds_messages=True, **chosen)


class _Report:
    """Writes the results and counts them."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._stored = self._refused = self._late = 0
        self.queues: dict[str, int] = {}

    def take(self, acks: Iterator[bulk_ingest.Ack]) -> None:
        """Writes results as they come."""
        from mqtool.engine import PutStatus
        from mqtool.ingest.bulk_ingest import count_queue

        for ack in acks:
            texts = {"offset_message_id": ack.offset_message_id or None, "reason": ack.reason or None}
            self._output.row(row_of(ACK.columns, ack, row=ack.number, **texts))
            if ack.reason:
                self._refused += 1
                continue
            self._stored += 1
            self._late += ack.stored and ack.status is not PutStatus.PUT_OK
            if ack.stored:
                count_queue(self.queues, ack)

    def end(self, what: str) -> ExitCode:
        """Ends the output; returns the exit code, which shows whether every row was accepted."""
        note(f"{counted(self._stored, 'row')} {what}, {self._refused} rejected")
        if self._late:
            note(f"{self._late} of them were not on disk in time")
        return self._output.finish(ExitCode.NO if self._refused or self._late else ExitCode.OK)


class _Source(Struct, frozen=True):
    """The input: a table, or lines that are read from their first one."""

    table: Path | None = None
    lines: IO[bytes] | None = None

    def rows(self, options: StoreOptions) -> Iterator[Row]:
        """Yields the rows; a file is read from its start each time."""
        from mqtool.export.published import message_files
        from mqtool.ingest import row_source

        if self.table is not None:
            return row_source.rows_of_parquet(message_files(self.table), options)
        assert self.lines is not None
        if self.lines.seekable():
            self.lines.seek(0)
        return row_source.rows_of_lines(self.lines, options)


@contextmanager
def _source(source: str, *, reread: bool) -> Iterator[_Source]:
    """Opens the input; lines of stdin are saved if they are needed `reread`."""
    from mqtool.ingest import row_source

    if source != "-":
        path = Path(source)
        if row_source.is_parquet(path):
            yield _Source(table=path)
            return
        try:
            file = path.open("rb")
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", path) from error
        with file:
            yield _Source(lines=file)
        return
    terminal.hide_bars()
    stdin: Any = sys.stdin.buffer
    if stdin.peek(4)[:4] == b"PAR1":
        raise UsageError("Parquet cannot be read from stdin; give the name of the file")
    if not reread:
        yield _Source(lines=_UnseekableInput(stdin))  # type: ignore[arg-type]
        return
    with tempfile.TemporaryFile() as copy:
        _copy_lines(stdin, copy)
        yield _Source(lines=copy)


def _copy_lines(stream: Any, copy: IO[bytes]) -> None:
    """Copies lines; raises FormatError for one without an end."""
    from mqtool.ingest import row_source

    number, at = 1, 0  # of the line that is being copied
    while piece := stream.read(_PIECE):
        if b"\n" in piece:
            number += piece.count(b"\n")
            at = copy.tell() + piece.rindex(b"\n") + 1
        copy.write(piece)
        row_source.within_longest(copy.tell() - at, number, at)


class _UnseekableInput:
    """Stdin, read once from its present position, even if it is a file."""

    def __init__(self, stream: Any) -> None:
        self.readline = stream.readline

    @staticmethod
    def seekable() -> bool:
        """Returns False: it is not read again."""
        return False
