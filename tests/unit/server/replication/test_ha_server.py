"""The master's side: our own mirror follows a served store while it is written to."""

import asyncio
import struct
from pathlib import Path

import pytest

from mqtool.errors import UsageError
from mqtool.protocol import Command, RequestCode
from mqtool.server.mirror import Mirror
from mqtool.server.net.connections import Connection
from mqtool.server.replication import HaListener, TransferReader
from mqtool.server.serve import ServeOptions, Server
from mqtool.server.testing import MqServer
from mqtool.store.config.broker_config import BrokerConfig
from tests.support.engine import findings_of
from tests.support.remoting import Client
from tests.support.stores import copy_store, tree_digest

KEYS = {
    "haListenPort": "0",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


def options(path: Path) -> ServeOptions:
    return ServeOptions(path, name_server_port=None, config=BrokerConfig(KEYS))


async def produce(server: Server, count: int) -> None:
    connection = await Connection.open(server.addresses["broker"])
    for number in range(count):
        answer = await connection.call(
            Command(
                RequestCode.SEND_MESSAGE_V2,
                body=bytes(2000),
                fields={
                    "a": "producers",
                    "b": "Followed",
                    "c": "TBW102",
                    "d": "2",
                    "e": str(number % 2),
                    "f": "0",
                    "g": "1",
                    "h": "0",
                    "i": "KEYS\x01k\x02",
                    "j": "0",
                    "k": "false",
                    "m": "false",
                },
            )
        )
        assert answer.code == 0, answer.remark
    connection.close()


def log_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))


def test_a_mirror_follows_a_served_store(tmp_path):
    async def main() -> tuple[int, object]:
        async with Server(options(tmp_path / "master")) as server:
            await produce(server, 60)
            mirror = Mirror(server.addresses["broker"], tmp_path / "copy", tables_seconds=0.1)
            await mirror.start()
            running = asyncio.ensure_future(mirror.run())
            await produce(server, 60)
            while mirror.store.end < server.broker.messages.max_physical_offset or not server._slaves.acknowledged:
                await asyncio.sleep(0.01)
            end = mirror.store.end
            while server._slaves.acknowledged and max(server._slaves.acknowledged.values()) < end:
                await asyncio.sleep(0.01)
            await mirror.until_complete()
            mirror.stop()
            await running
            return end, mirror.store.options

    end, opened = asyncio.run(asyncio.wait_for(main(), 60))
    assert end > 200_000
    assert log_of(tmp_path / "copy")[:end] == log_of(tmp_path / "master")[:end]
    assert findings_of(tmp_path / "copy", opened) == []


def test_a_slave_that_has_nothing_gets_the_last_segment(tmp_path):
    async def main() -> tuple[int, int]:
        async with Server(options(tmp_path / "master")) as server:
            await produce(server, 60)
            end = server.broker.messages.max_physical_offset
            host, _, port = server.addresses["ha"].rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(struct.pack(">q", 0))
            pieces: list[int] = []
            transfers = TransferReader()
            while not pieces:
                pieces += [piece.physical_offset for piece in transfers.feed(await reader.read(1 << 16))]
            writer.close()
            return pieces[0], end

    begins, end = asyncio.run(asyncio.wait_for(main(), 60))
    assert begins == end - end % 65536 > 0


@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_a_place_that_the_log_does_not_have_ends_the_connection(tmp_path, offset):
    async def main() -> bytes:
        async with Server(options(tmp_path / "master")) as server:
            host, _, port = server.addresses["ha"].rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(struct.pack(">q", offset))
            found = await reader.read()
            writer.close()
            return found

    assert asyncio.run(asyncio.wait_for(main(), 60)) == b""


def test_a_slave_that_says_nothing_is_let_go(tmp_path, caplog):
    caplog.set_level("INFO")

    async def main() -> None:
        async with Server(options(tmp_path / "master")) as server:
            host, _, port = server.addresses["ha"].rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            while "slave disconnected" not in caplog.text:
                await asyncio.sleep(0.005)
            assert server._slaves.acknowledged == {}

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nothing_is_sent_to_a_slave_whose_connection_is_closing(tmp_path):
    sent: list[bytes] = []

    class Closing:
        write = sent.append

        def is_closing(self) -> bool:
            return True

    async def main() -> None:
        async with Server(options(tmp_path / "master")) as server:
            await produce(server, 1)
            await server._slaves._send(Closing(), 0)  # type: ignore[arg-type, union-attr]

    asyncio.run(asyncio.wait_for(main(), 60))
    assert sent == []


def test_a_port_for_slaves_that_is_taken_is_an_error_and_can_be_stopped(tmp_path):
    async def main() -> None:
        async with Server(options(tmp_path / "master")) as server:
            port = int(server.addresses["ha"].rpartition(":")[2])
            second = HaListener(server._store, "127.0.0.1", port)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="for slaves"):
                await second.start()
            await second.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize(
    ("store", "replicas", "is_served"), [("new", "1", True), ("new", "2", False), ("4.9", "1", False)]
)
def test_a_master_that_would_wait_for_a_slave_is_not_served(tmp_path, store, replicas, is_served):
    root = copy_store("orders-4.9.7", tmp_path) if store == "4.9" else tmp_path / "store"
    before = tree_digest(root) if root.exists() else None
    server = MqServer(root, brokerRole="SYNC_MASTER", inSyncReplicas=replicas)
    if is_served:
        with server, Client(server.broker_address) as client:
            assert client.put("T").code == 0
        return
    with pytest.raises(UsageError, match="set brokerRole=ASYNC_MASTER to serve without waiting"), server:
        pass
    assert (tree_digest(root) if root.exists() else None) == before
