"""A master that is played by the files of a real one: its HA port, its properties and its tables."""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator

import mqtool
from mqtool.protocol import Command
from mqtool.server.net.connections import Listener
from mqtool.server.net.peer import Handler
from tests.support.stores import fixture

SEGMENT = 65536
CODES = {21: "topics.json", 43: "consumerOffset.json", 45: "delayOffset.json", 201: "subscriptionGroup.json"}


class Master:
    """Plays a master: sends the log from where the slave says, as far as `visible`, in pieces of `step` bytes."""

    def __init__(self, name: str, *, step: int = 32768, first: int = 0) -> None:
        self.directory = fixture(f"{name}/store-master")
        with mqtool.open(self.directory) as store:
            self.end = store.commit_log.max_offset
        self.log = b"".join(path.read_bytes() for path in sorted((self.directory / "commitlog").iterdir()))
        self.config = fixture(f"{name}/broker-store-master.conf").read_text("utf-8")
        self.version = 407 if name.startswith("ha-4") else 513
        self.first, self.visible, self.step = first, self.end, step
        self.reports: list[list[int]] = []
        self.writers: set[asyncio.StreamWriter] = set()
        self.moved = asyncio.Event()
        self.changes: dict[str, str] = {}
        self.request_modes = b""

    def answer(self, body: bytes) -> Handler:
        return lambda command, _peer: command.reply(0, None, {}, body)

    def properties(self, port: int) -> Handler:
        def handler(command: Command, _peer: object) -> Command:
            lines = [f"{key}={value}" for key, value in {"haListenPort": port, **self.changes}.items()]
            return command.reply(0, None, {}, "\n".join([self.config, *lines]).encode())

        return handler

    def runtime(self, command: Command, _peer: object) -> Command:
        table = {"commitLogMinOffset": str(self.first), "commitLogMaxOffset": str(self.visible)}
        return command.reply(0, None, {}, json.dumps({"table": table}).encode())

    async def serve_log(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reports: list[int] = []
        self.reports.append(reports)
        self.writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            reports.append(*struct.unpack(">q", await reader.readexactly(8)))
            sending = asyncio.ensure_future(self.send(writer, reports[0] or self.visible - self.visible % SEGMENT))
            try:
                await self.collect(reader, reports)
            finally:
                sending.cancel()
        writer.close()

    async def collect(self, reader: asyncio.StreamReader, reports: list[int]) -> None:
        while True:
            reports.append(*struct.unpack(">q", await reader.readexactly(8)))

    async def send(self, writer: asyncio.StreamWriter, position: int) -> None:
        while True:
            while position < self.visible:
                end = min(position + self.step, self.visible, position - position % SEGMENT + SEGMENT)
                writer.write(struct.pack(">qi", position, end - position))
                writer.write(self.log[position:end])
                position = end
            writer.write(struct.pack(">qi", position, 0))
            await writer.drain()
            await self.moved.wait()
            self.moved.clear()

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.close()


@contextlib.asynccontextmanager
async def playing(master: Master) -> AsyncIterator[str]:
    server = await asyncio.start_server(master.serve_log, "127.0.0.1", 0)
    tables = {code: master.answer((master.directory / "config" / name).read_bytes()) for code, name in CODES.items()}
    if master.request_modes:
        tables[402] = master.answer(master.request_modes)
    port = server.sockets[0].getsockname()[1]
    listener = Listener(
        "127.0.0.1", 0, {26: master.properties(port), 28: master.runtime, **tables}, version=master.version
    )
    await listener.start()
    try:
        yield listener.address
    finally:
        await listener.stop(0.2)
        server.close()
        master.hang_up()
        await server.wait_closed()
