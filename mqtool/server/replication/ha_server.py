"""The master's side of replication: sends the CommitLog to slaves, both mqtool's and real ones.

Replication is asynchronous: producers are answered without waiting for a slave. Docs page: docs/protocol.md.
Source: DefaultHAService, DefaultHAConnection (4.9.7, 5.5.0).
"""

import asyncio
import contextlib
import logging

from mqtool.engine.store import MessageStore
from mqtool.protocol.replication import REPORT, TRANSFER, Transfer
from mqtool.server.net.listener import listening_on

BATCH_SIZE = 32 << 10
"""Maximum size of one transfer in bytes (haTransferBatchSize)."""

HEARTBEAT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
POLL_SECONDS = 0.01
"""Interval in seconds at which an idle connection checks for new records; only while there is a slave."""

log = logging.getLogger(__name__)


class HaListener:
    """Accepts slaves on one address.

    Args:
        store: store whose log is sent.
        host: address to listen on; "" for all.
        port: port to listen on; 0 selects a free one, see `port` after `start`.

    Attributes:
        acknowledged: physical offset up to which a slave has the log, by address of the slave.
    """

    def __init__(self, store: MessageStore, host: str, port: int) -> None:
        self._store = store
        self._log = store._components.log  # raw bytes are not part of the engine's façade
        self._host, self.port = host, port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.acknowledged: dict[str, int] = {}

    async def start(self) -> None:
        """Starts listening.

        Raises:
            UsageError: the address cannot be bound.
        """
        with listening_on(self._host, self.port, " for slaves"):
            self._server = await asyncio.start_server(self._serve, self._host or None, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        host, port = writer.get_extra_info("peername")[:2]
        slave = f"{host}:{port}"
        sending: asyncio.Task[None] | None = None
        try:
            start = await self._report(reader)
            log.info("slave follows address=%s offset=%d", slave, start)
            sending = asyncio.ensure_future(self._send(writer, start or self._last_segment()))
            while True:
                self.acknowledged[slave] = await self._report(reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.info("slave disconnected address=%s reason=%s", slave, error)
        finally:
            self.acknowledged.pop(slave, None)
            self._tasks.discard(task)
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _report(self, reader: asyncio.StreamReader) -> int:
        async with asyncio.timeout(SILENCE_SECONDS):
            return int(REPORT.parse(await reader.readexactly(REPORT.size)).physical_offset)

    def _last_segment(self) -> int:
        """Returns the physical offset of the last segment, at which an empty slave begins."""
        end = self._log.queue.wrote_offset
        return max(0, self._log.queue.min_offset, end - end % self._store.options.commit_log_file_size)

    async def _send(self, writer: asyncio.StreamWriter, position: int) -> None:
        clock = asyncio.get_running_loop().time
        spoken = -HEARTBEAT_SECONDS
        while not writer.is_closing():
            data = self._read(position)
            if data is None:
                log.warning("the log has no physical offset %d; the slave is closed", position)
                writer.close()
                return
            if len(data) or clock() - spoken >= HEARTBEAT_SECONDS:
                writer.write(TRANSFER.build(Transfer(position, len(data))))
                writer.write(data)
                position += len(data)
                spoken = clock()
                await writer.drain()
            else:
                await asyncio.sleep(POLL_SECONDS)

    def _read(self, position: int) -> memoryview | None:
        """Returns the bytes from a physical offset to the end of its segment or of the log.

        Returns None if the log does not have the offset.
        """
        queue = self._log.queue
        if not max(0, queue.min_offset) <= position <= queue.wrote_offset:
            return None
        file = queue.find(position)
        if position == queue.wrote_offset or file is None:
            return memoryview(b"")
        left = file.read_position - (position - file.file_from_offset)
        return self._log.read(position, min(left, BATCH_SIZE)) or memoryview(b"")
