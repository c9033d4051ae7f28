"""What `mqtool append` does once its options are read."""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mqtool.cli.append_schema import ACK
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.output import Output
from mqtool.engine import Compat, FlushMode, PutStatus, StoreOptions
from mqtool.engine.start.detect import options_for
from mqtool.engine.store import open_store
from mqtool.errors import StoreError, UsageError
from mqtool.ingest import load, row_source
from mqtool.ingest.duplicates import Duplicates, peeked, refuse_duplicates
from mqtool.ingest.intake import Row

_POOL_BUFFERS = 5
"""transientStorePoolSize of the broker."""
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What the options said; see `append`."""

    store: Path
    source: str
    flush: str
    compat: str | None
    all_or_nothing: bool
    dry_run: bool
    config: Path | None
    duplicates: str = Duplicates.REFUSE

    def options(self) -> StoreOptions:
        """Returns how the store is to be opened."""
        chosen: dict[str, Any] = {"flush_mode": FlushMode.SYNC_FLUSH if self.flush == "sync" else FlushMode.ASYNC_FLUSH}
        if self.flush == "pool":
            chosen["pool_buffers"] = _POOL_BUFFERS
        return options_for(self.store, self.config, Compat(self.compat) if self.compat else None, **chosen)


def run(invocation: Invocation, request: Request, output_format: Format) -> ExitCode:
    """Appends, or says what would become of it."""
    options = request.options()
    judge = load.Judge(options, load.batch_topics(request.store, options))
    output = Output(invocation, ACK, output_format)
    report = _Report(output)
    with ExitStack() as stack:
        source = stack.enter_context(_source(request, again=request.all_or_nothing and not request.dry_run))
        if request.dry_run:
            report.take(load.check(source.rows(options), judge))
            return report.end("would be stored; nothing was written")
        if request.all_or_nothing:
            refused = [ack for ack in load.check(source.rows(options), judge) if ack.reason]
            if refused:
                report.take(iter(refused))
                return report.end("stored: nothing is, because of --all-or-nothing")
        rows = source.rows(options)
        if request.duplicates == Duplicates.REFUSE:
            head, rows = peeked(rows)
            refuse_duplicates(request.store, (judge.stored_form(row.message) for row in head))
        store = stack.enter_context(open_store(request.store, options))
        begin = store.max_physical_offset
        if not store.recovered.clean_stop:
            note(f"{request.store}: had not been closed in order: recovered, the log goes on at {store.recovered.end}")
        try:
            report.take(load.append(store, rows, judge))
        finally:
            load.add_topics(store, report.queues)
    return report.end(f"stored after the {begin} bytes that the log already held" if begin else "stored")


class _Report:
    """Writes the answers and counts them."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._stored = self._refused = self._late = 0
        self.queues: Counter[str] = Counter()

    def take(self, acks: Iterator[load.Ack]) -> None:
        """Writes answers as they come."""
        for ack in acks:
            self._output.row(_row(ack))
            if ack.reason:
                self._refused += 1
                continue
            self._stored += 1
            self._late += ack.stored and ack.status is not PutStatus.PUT_OK
            if ack.stored:
                topic, queue_id = ack.sent_to
                self.queues[topic] = max(self.queues[topic], queue_id + 1)

    def end(self, what: str) -> ExitCode:
        """Ends the output; the exit code says whether every row was taken."""
        note(f"{self._stored} row(s) {what}, {self._refused} refused")
        if self._late:
            note(f"{self._late} of them were not on disk in time")
        return self._output.finish(ExitCode.NO if self._refused or self._late else ExitCode.OK)


def _row(ack: load.Ack) -> dict[str, Any]:
    return {
        "row": ack.number,
        "status": ack.status.value if ack.status else None,
        "stored": ack.stored,
        "topic": ack.topic,
        "queue_id": ack.queue_id,
        "queue_offset": ack.queue_offset,
        "physical_offset": ack.physical_offset,
        "offset_message_id": ack.offset_message_id or None,
        "reason": ack.reason or None,
    }


@dataclass(frozen=True, slots=True)
class _Source:
    """The input: a table, or lines that are read from where they begin."""

    table: Path | None = None
    lines: IO[bytes] | None = None

    def rows(self, options: StoreOptions) -> Iterator[Row]:
        """Yields the rows; of a file, from the first on each time."""
        if self.table is not None:
            return row_source.rows_of_parquet(self.table, options)
        assert self.lines is not None
        if self.lines.seekable():
            self.lines.seek(0)
        return row_source.rows_of_lines(self.lines, options)


@contextmanager
def _source(request: Request, *, again: bool) -> Iterator[_Source]:
    """Opens the input; lines of stdin are kept aside if they are needed `again`."""
    if request.source != "-":
        path = Path(request.source)
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
    stdin: Any = sys.stdin.buffer
    if stdin.peek(4)[:4] == b"PAR1":
        raise UsageError("Parquet cannot be read from stdin: its directory is at its end; give the file")
    if not again:
        yield _Source(lines=_Once(stdin))  # type: ignore[arg-type]
        return
    with tempfile.TemporaryFile() as kept:
        _keep(stdin, kept)
        yield _Source(lines=kept)


def _keep(stream: Any, kept: IO[bytes]) -> None:
    """Copies lines.

    Raises:
        FormatError: one has no end.
    """
    number, at = 1, 0  # of the line that is being copied
    while piece := stream.read(_PIECE):
        if b"\n" in piece:
            number += piece.count(b"\n")
            at = kept.tell() + piece.rindex(b"\n") + 1
        kept.write(piece)
        row_source.within_longest(kept.tell() - at, number, at)


class _Once:
    """Stdin: read once, from where it stands, even where it is a file."""

    def __init__(self, stream: Any) -> None:
        self.readline = stream.readline

    @staticmethod
    def seekable() -> bool:
        """It is not gone back in."""
        return False
