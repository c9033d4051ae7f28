"""Mirror: acts as a slave of a real master for as long as it runs.

    mirror = Mirror("127.0.0.1:10911", Path("copy"))
    await mirror.start()
    await mirror.run()      # until `stop` is called, or a permanent error occurs

The copy's log equals the master's byte for byte, from the master's first byte on; a real slave that starts empty begins
at the master's last segment. The engine's dispatch builds queues and index. Docs page: docs/protocol.md. Source:
DefaultHAClient, SlaveSynchronize (4.9.7, 5.5.0), DefaultMessageStore.appendToCommitLog (5.5.0).
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from signal import Signals
from typing import Any

from msgspec.structs import replace

from mqtool.engine.clock import SystemClock
from mqtool.engine.components import assemble
from mqtool.engine.disk.files import Files
from mqtool.engine.options import StoreOptions
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.engine.statuses import AppendFailedError
from mqtool.engine.store import MessageStore
from mqtool.errors import FormatError, RemoteProtocolError, StoreClosedError, StoreError
from mqtool.formats import commit_log, file_names
from mqtool.server.net import loop_factory
from mqtool.server.net.acl import own_signing
from mqtool.server.net.connections import Connection, parse_address
from mqtool.server.replication import (
    REPORT,
    MasterFacts,
    Piece,
    RecordAssembler,
    Report,
    TransferReader,
    fetch_facts,
    sync_tables,
)

KEEP_ALL = RetentionPolicy(
    reserved_hours=1_000_000, max_used_per_cent=100, force_ratio=1.0, warning_ratio=1.0, forcibly=False
)
"""Options with which the copy keeps records that the master has deleted; a full disk is reported when a write fails."""


class ReplicaStore(MessageStore):
    """A store to which only complete frames of another log can be appended. Only one thread may append."""

    @property
    def end(self) -> int:
        """Physical offset of the end of the log."""
        return self._components.log.queue.wrote_offset

    def last_bytes(self, count: int) -> bytes:
        """Returns the bytes before the end of the log: at most this many, and of one segment."""
        queue = self._components.log.queue
        file = queue.find(self.end - 1) if self.end else None
        if file is None:
            return b""
        start = max(file.file_from_offset, self.end - count)
        return bytes(self._components.log.read(start, self.end - start) or b"")

    def append(self, frame: Piece) -> None:
        """Appends a record, or a BLANK with the rest of its segment; it is on disk after the next flush.

        Raises StoreError if the frame does not continue the log, or cannot be written.
        """
        log = self._log
        size = len(frame.data)
        with log.lock:
            if self._closed:
                raise StoreClosedError("used after close", self.path)
            if frame.physical_offset != self.end:
                raise StoreError(f"physical offset {frame.physical_offset} does not follow {self.end}", self.path)
            try:
                blank = commit_log.is_blank(frame.data)
                file = log.make_room(size - commit_log.BLANK_SIZE if blank else size)
                if (here := file.file_from_offset + file.wrote) != frame.physical_offset:
                    raise StoreError(
                        f"segments are not the master's: its record at {frame.physical_offset} would be at {here}",
                        self.path,
                    )
                if not blank:
                    file.store_timestamp = _store_timestamp(frame.data)
                log.write(file, frame.data)
            except AppendFailedError as error:
                raise StoreError("the record cannot be written; check whether the disk is full", self.path) from error
        if self._loop.idle:
            self._loop.wake()


def open_replica(path: Path, options: StoreOptions, *, first_offset: int = 0) -> ReplicaStore:
    """Opens the copy; creates it if it does not exist. Raises StoreError as `engine.open_store`.

    `options` has the file sizes of the master; `first_offset`, where a new copy begins, is the start of a segment.
    """
    files, directory = Files(), path / file_names.COMMIT_LOG
    if first_offset and not (directory.is_dir() and any(directory.iterdir())):
        files.make_directory(directory)
        files.create(directory / file_names.mapped_file_name(first_offset), options.commit_log_file_size).close()
    components = assemble(
        path,
        replace(options, positional_writes=True, pool_buffers=0),
        KEEP_ALL,
        SystemClock(),
        files,
        None,
        background=True,
    )
    return ReplicaStore(components, ())


def _store_timestamp(record: bytes) -> int:
    try:
        return commit_log.parse_record(record).store_timestamp
    except FormatError as error:
        raise StoreError(f"the master sent an invalid record: {error}", "master") from error


REPORT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
RETRY_SECONDS = 5.0
TABLES_SECONDS = 10.0
_READ_SIZE = 256 << 10
_COMPARED_SIZE = 64 << 10
"""Bytes before the end of the copy that are compared with the master's: dozens of messages, with their times."""

log = logging.getLogger(__name__)


class Mirror:
    """Follows the master at "host:port"; the copy is a new store, or an earlier copy of this master.

    `caught_up` is set once the copy has everything that the master had at the start.
    """

    def __init__(
        self, address: str, path: Path, *, retry_seconds: float = RETRY_SECONDS, tables_seconds: float = TABLES_SECONDS
    ) -> None:
        self._address, self._path, self._sign = address, path, own_signing()
        self._retry_seconds, self._tables_seconds = retry_seconds, tables_seconds
        self._stopped = asyncio.Event()
        self.caught_up = asyncio.Event()
        self._tables_taken = asyncio.Event()
        self.store: ReplicaStore
        self._facts: MasterFacts

    async def start(self) -> None:
        """Queries the layout of the master's files and opens the copy.

        Raises RemoteProtocolError if the server is not a master; StoreError if the copy cannot be opened, or is not a
        copy of this master's log; ConnectionError or TimeoutError if the master does not answer.
        """
        self._facts = facts = await self._fetch()
        loop = asyncio.get_running_loop()
        self.store = await loop.run_in_executor(
            None, lambda: open_replica(self._path, facts.options, first_offset=max(0, facts.min_offset))
        )
        try:
            self._check_range(facts)
        except StoreError:
            await loop.run_in_executor(None, self.store.close)
            raise
        log.info("mirror begins master=%s end=%d master_end=%d", self._address, self.store.end, facts.max_offset)

    async def _fetch(self) -> MasterFacts:
        with contextlib.closing(await Connection.open(self._address, sign=self._sign)) as connection:
            return await fetch_facts(connection)

    async def _facts_again(self) -> MasterFacts:
        """Queries the master after a lost connection: it may have lost the end of its log, or be another broker.

        Raises StoreError if the copy is not one of its log, ConnectionError if it does not answer as a master does yet.
        """
        try:
            facts = await self._fetch()
        except RemoteProtocolError as error:
            raise ConnectionError(str(error)) from error
        if facts.name != self._facts.name:
            raise StoreError(f"{self._address} is now {facts.name}, but the copy is of {self._facts.name}", self._path)
        self._check_range(facts)
        return facts

    def _check_range(self, facts: MasterFacts) -> None:
        end = self.store.end
        if not facts.min_offset <= end <= facts.max_offset:
            raise StoreError(
                f"the copy ends at physical offset {end}, but the master {self._address} has {facts.min_offset} to "
                f"{facts.max_offset}: it is another log, or the bytes in between have been deleted",
                self._path,
            )

    async def run(self) -> None:
        """Follows the master until `stop` is called; reconnects when a connection ends.

        Raises StoreError if the copy cannot be written, or is not a copy of the log of the server at the address;
        RemoteProtocolError if the master sends bytes that are not records.
        """
        tables = asyncio.ensure_future(self._keep_tables())
        facts: MasterFacts | None = self._facts
        try:
            while not self._stopped.is_set():
                try:
                    await self._follow(facts or await self._facts_again())
                except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    log.warning("no longer following master=%s error=%s", self._facts.ha_address, error)
                facts = None
                await self._pause(self._retry_seconds)
        finally:
            self._stopped.set()
            tables.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await tables
            await asyncio.get_running_loop().run_in_executor(None, self.store.close)

    @property
    def name(self) -> str:
        """Name of the master."""
        return self._facts.name

    async def until_complete(self) -> None:
        """Waits until the copy has everything that the master had at the start, both log and tables."""
        await self.caught_up.wait()
        await self._tables_taken.wait()

    def stop(self) -> None:
        """Makes `run` end; when `run` returns, everything received is on disk."""
        self._stopped.set()

    async def _follow(self, facts: MasterFacts) -> None:
        host, port = parse_address(facts.ha_address)
        reader, writer = await asyncio.open_connection(host, port)
        stop = asyncio.ensure_future(self._stopped.wait())
        reports = asyncio.ensure_future(self._report_regularly(writer))
        try:
            pieces = _Pieces(self.store, facts)
            writer.write(REPORT.build(Report(pieces.first_report)))
            while not self._stopped.is_set():
                reading = asyncio.ensure_future(reader.read(_READ_SIZE))
                await asyncio.wait({reading, stop}, timeout=SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    if stop.done():
                        return
                    raise TimeoutError(f"nothing received for {SILENCE_SECONDS:g} s")
                data = reading.result()
                if not data:
                    raise ConnectionResetError("the master closed the connection")
                self._take(data, pieces, writer)
        finally:
            stop.cancel()
            reports.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _take(self, data: bytes, pieces: "_Pieces", writer: asyncio.StreamWriter) -> None:
        before = self.store.end, pieces.is_compared
        for frame in pieces.feed(data):
            self.store.append(frame)
        if (self.store.end, pieces.is_compared) != before:
            writer.write(REPORT.build(Report(self.store.end)))
        if pieces.is_compared and self.store.end >= self._facts.max_offset:
            self.caught_up.set()

    async def _report_regularly(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self.store.end:
                writer.write(REPORT.build(Report(self.store.end)))

    async def _keep_tables(self) -> None:
        release = self._facts.options.release
        while not self._stopped.is_set():
            try:
                with contextlib.closing(await Connection.open(self._address, sign=self._sign)) as connection:
                    await sync_tables(connection, self._path, release=release)
                    self._tables_taken.set()
            except (OSError, TimeoutError, RemoteProtocolError) as error:
                log.warning("topics, groups and offsets not copied master=%s error=%s", self._address, error)
            await self._pause(self._tables_seconds)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()


def follow(address: str, path: Path, *, once: bool, signals: Iterable[Signals] = ()) -> dict[str, Any]:
    """Follows a master until a signal arrives; with `once`, until the copy has everything that was there at the start.

    Must be called in the main thread if `signals` is not empty. Returns a summary with the keys master, broker, store,
    begun_at, end, caught_up; raises as `Mirror.start` and `Mirror.run`.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_follow(address, path, once, signals))


async def _follow(address: str, path: Path, once: bool, signals: Iterable[Signals]) -> dict[str, Any]:
    mirror, loop = Mirror(address, path), asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, mirror.stop)
    await mirror.start()
    begun_at = mirror.store.end
    running = asyncio.ensure_future(mirror.run())
    if once:
        caught_up = asyncio.ensure_future(mirror.until_complete())
        await asyncio.wait({running, caught_up}, return_when=asyncio.FIRST_COMPLETED)
        caught_up.cancel()
        mirror.stop()
    await running
    return {
        "master": address,
        "broker": mirror.name,
        "store": str(path),
        "begun_at": begun_at,
        "end": mirror.store.end,
        "caught_up": mirror.caught_up.is_set(),
    }


class _Pieces:
    """Converts the bytes of one HA connection to frames of the log.

    The copy reports a physical offset before its end, so that the master sends bytes that the copy has: only if they
    are the same does the rest continue the copy's log. Borders of records may be the same in another log. A master
    interprets a reported offset of 0 as a request to start at its last segment. To get everything from physical offset
    0, the copy reports 1. The skipped byte is 0 in every log: it is the highest byte of the size of the first record,
    which is below 16 MiB.
    """

    def __init__(self, store: ReplicaStore, facts: MasterFacts) -> None:
        end = store.end
        self._path = store.path
        self._reader = TransferReader()
        self._assembler = RecordAssembler(end, facts.options.commit_log_file_size)
        self._known = memoryview(store.last_bytes(min(_COMPARED_SIZE, end - facts.min_offset)))
        self.first_report = end - len(self._known)
        if self.first_report == 0 and facts.max_offset >= facts.options.commit_log_file_size:
            self.first_report = 1
            if self._known:
                self._known = self._known[1:]
            else:
                list(self._assembler.feed(Piece(0, b"\0")))

    @property
    def is_compared(self) -> bool:
        """Whether the bytes that the copy has are those of the master."""
        return not self._known

    def feed(self, data: bytes) -> list[Piece]:
        """Returns the frames after the end of the copy that are complete now.

        Raises StoreError if the copy is not one of the master's log, RemoteProtocolError if the bytes are no log.
        """
        pieces = (self._after_known(piece) for piece in self._reader.feed(data) if piece.data)
        return [frame for piece in pieces if piece.data for frame in self._assembler.feed(piece)]

    def _after_known(self, piece: Piece) -> Piece:
        """Compares a piece with what the copy has; returns the part after it."""
        known = self._known[: len(piece.data)]
        if not known:
            return piece
        start = self._assembler.expected - len(self._known)
        if piece.physical_offset != start:
            raise RemoteProtocolError(f"the master sends physical offset {piece.physical_offset}, not {start}")
        if known != piece.data[: len(known)]:
            raise StoreError(
                f"the copy is of another log: from physical offset {start} on, its last bytes are not the master's; "
                f"follow this master into a new directory",
                self._path,
            )
        self._known = self._known[len(known) :]
        return Piece(start + len(known), piece.data[len(known) :])
