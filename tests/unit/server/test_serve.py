"""The start of a server: what it serves, and what is left of one that cannot start."""

import asyncio
import socket
import sys
import tempfile
import threading

import pytest

from mqtool.choices import Compat
from mqtool.commands import with_extra
from mqtool.engine import FlushMode
from mqtool.errors import NotAStoreError, UsageError
from mqtool.protocol.command import Command, RequestCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server import scratch
from mqtool.server.net.connections import Connection, Listener
from mqtool.server.serve import ServeOptions, Server, parse_flush
from mqtool.server.testing import MqServer
from mqtool.store.config.broker_config import BrokerConfig
from tests.support.grpc_client import GrpcClient
from tests.support.remoting import Client
from tests.unit.server.broker.conftest import until


@pytest.fixture
def directories(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path / "none")
    return tmp_path


def test_a_server_that_cannot_start_leaves_no_thread_and_no_directory(directories):
    before = set(threading.enumerate())
    with pytest.raises(UsageError, match="maxMessageSize"), MqServer(maxMessageSize="much"):
        pass
    until(lambda: set(threading.enumerate()) <= before)  # a loop that is closed does not wait for its executor
    assert list(directories.iterdir()) == []


def test_a_file_in_place_of_a_store_is_named_and_not_changed(tmp_path):
    (tmp_path / "store").write_text("notes")
    with pytest.raises(NotAStoreError, match="expected a directory, found a file"), MqServer(tmp_path / "store"):
        pass
    assert (tmp_path / "store").read_text() == "notes"


def test_a_store_is_created_next_to_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    with MqServer(tmp_path) as server:
        server.create_topic("Orders")
    assert (tmp_path / "notes.txt").read_text() == "notes"
    assert "Orders" in (tmp_path / "config" / "topics.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("value", "mode"), [(None, None), ("sync", FlushMode.SYNC_FLUSH), ("ASYNC", FlushMode.ASYNC_FLUSH)]
)
def test_a_flush_mode_is_one_of_two_words(value, mode):
    assert parse_flush(value) is mode


def test_another_flush_mode_is_refused():
    with pytest.raises(UsageError, match="expected sync or async, found 'never'"):
        parse_flush("never")


@pytest.mark.parametrize(
    ("release", "number", "name"),
    [
        ("4.9", 407, "V4_9_7"),
        ("5.3", 479, "V5_3_3"),
        ("5.4", 493, "V5_4_0"),
        ("5.5", 513, "V5_5_0"),
        ("5.5.1", 515, "V5_5_1"),
    ],
)
def test_broker_and_name_server_state_the_version_of_the_release(tmp_path, release, number, name):
    registered = []

    def ask(addresses):
        with Client(addresses["broker"]) as client, Client(addresses["namesrv"]) as name_server:
            answers = [client.create_topic("T"), client.put("T"), client.call(28), name_server.call(105, topic="T")]
        return {answer.version for answer in answers}, answers[2].json["table"]

    async def run():
        other = Listener("127.0.0.1", 0, {}, lambda command, _: registered.append(command.version) or command.reply(0))
        await other.start()
        config = BrokerConfig({"namesrvAddr": other.address}, source="settings")
        options = ServeOptions(tmp_path / "store", port=0, name_server_port=0, config=config, release=Compat(release))
        server = Server(options)
        await server.start()
        try:
            return await asyncio.to_thread(ask, server.addresses)
        finally:
            await server.stop()
            await other.stop(0)

    versions, table = asyncio.run(run())
    assert versions | {*registered} == {number}
    assert registered
    assert (table["brokerVersion"], table["brokerVersionDesc"]) == (str(number), name)


def test_the_flush_mode_of_the_command_line_is_that_of_the_store(tmp_path):
    server = Server(ServeOptions(tmp_path / "store", flush=FlushMode.SYNC_FLUSH))
    with server._open() as store:
        assert store.options.flush_mode is FlushMode.SYNC_FLUSH


def test_a_grpc_client_of_a_server_without_its_packages_is_refused_with_advice(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setitem(sys.modules, "mqtool.server.grpc.endpoint", None)
    with MqServer() as server:
        host, _, port = server.broker_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert client.recv(100) == b""
    assert f"a gRPC connection: to serve it, {with_extra('serve')}" in caplog.text


async def code_at(address: str) -> int:
    """The code of the answer to GET_BROKER_RUNTIME_INFO at an address."""
    connection = await Connection.open(address)
    try:
        return (await connection.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO), 20)).code
    finally:
        connection.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_clients_with_the_vip_channel_are_served_two_ports_below_the_broker(tmp_path, read_only):
    with MqServer(tmp_path):
        pass

    async def main() -> tuple[int, int]:
        async with Server(ServeOptions(tmp_path, read_only=read_only)) as server:
            host, _, port = server.addresses["broker"].rpartition(":")
            assert server.addresses["vip"] == f"{host}:{int(port) - 2}"
            return await code_at(server.addresses["vip"]), await code_at(server.addresses["broker"])

    assert asyncio.run(main()) == (0, 0)


def test_a_free_port_is_one_with_a_free_port_for_the_vip_channel(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        proposed = iter([taken + 2, 0, 0])
        new = Server._new_listener
        monkeypatch.setattr(Server, "_new_listener", lambda self, port: new(self, port or next(proposed)))

        async def main() -> tuple[int, int]:
            async with Server(ServeOptions(tmp_path)) as server:
                assert server.addresses["broker"] != f"127.0.0.1:{taken + 2}"
                return await code_at(server.addresses["vip"])

        assert asyncio.run(main()) == 0


def test_a_port_that_is_given_for_something_else_is_not_taken_for_the_vip_channel(tmp_path, caplog):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def main() -> dict[str, str]:
        async with Server(ServeOptions(tmp_path, port=port, grpc_port=port - 2)) as server:
            return server.addresses

    addresses = asyncio.run(main())
    assert addresses["grpc"] == f"127.0.0.1:{port - 2}"
    assert "vip" not in addresses
    assert (
        f"no VIP channel, so real slaves get no topics: port {port - 2} is already given for another purpose"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("advertised", "host"),
    [("127.0.0.1:11911", "127.0.0.1"), ("[::1]:11911", "[::1]"), ("localhost:11911", "localhost")],
)
def test_a_mapped_port_is_what_clients_are_given(tmp_path, advertised, host):
    async def main() -> None:
        async with Server(ServeOptions(tmp_path, advertise=advertised)) as server:
            assert server.addresses["broker"] == f"{host}:11911"
            assert server.addresses["vip"] == f"{host}:11909"
            connection = await Connection.open(f"127.0.0.1:{server.name_server.port}")
            answer = await connection.call(Command(RequestCode.GET_BROKER_CLUSTER_INFO), 20)
            connection.close()
            assert f'"{host}:11911"'.encode() in answer.body
            assert server.broker.settings.text("brokerIP1") == host.strip("[]")

    asyncio.run(main())


def test_grpc_clients_are_given_the_mapped_port_too(tmp_path):
    async def main() -> None:
        options = ServeOptions(tmp_path, advertise="127.0.0.1:11911", topics={"T": "NORMAL"})
        async with Server(options) as server:
            address = f"127.0.0.1:{server.broker.settings.number('listenPort')}"

            def ports() -> set[int]:
                with GrpcClient(address) as client:
                    route = client.call("QueryRoute", topic=d.Resource(name="T"), endpoints=client.endpoints)
                    return {at.port for queue in route.message_queues for at in queue.broker.endpoints.addresses}

            assert await asyncio.to_thread(ports) == {11911}

    asyncio.run(main())


@pytest.mark.parametrize("advertised", ["host:0", "host:65536", "host:x", ":10911", "host:", "[::1]:"])
def test_a_port_to_advertise_that_is_none_is_refused_with_what_is_expected(tmp_path, advertised):
    with pytest.raises(UsageError, match=r"--advertise: expected HOST or HOST:PORT, with a port from 1 to 65535"):
        asyncio.run(Server(ServeOptions(tmp_path, advertise=advertised)).start())


@pytest.mark.parametrize("advertised", ["127.0.0.1", "::1", "[::1]"])
def test_a_host_alone_is_advertised_with_the_port_of_the_broker(tmp_path, advertised):
    async def main() -> None:
        async with Server(ServeOptions(tmp_path, advertise=advertised)) as server:
            host = server.addresses["broker"].rpartition(":")[0]
            assert host == ("127.0.0.1" if advertised == "127.0.0.1" else "[::1]")
            port = server.broker.settings.number("listenPort")
            assert server.addresses["broker"] == f"{host}:{port}"

    asyncio.run(main())
