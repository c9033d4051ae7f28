"""A server that serves another state of its store: connections stay, and what they ask meanwhile is answered after it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from mqtool.errors import UsageError
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server import scratch
from mqtool.server.serve import ServeOptions, Server
from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient
from tests.support.remoting import Client, bodies
from tests.support.served import until

HEARTBEAT = {
    "clientID": "c1",
    "consumerDataSet": [
        {
            "groupName": "G",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": "Orders", "subString": "*", "subVersion": 1}],
        }
    ],
}


def test_connections_members_and_held_pulls_outlive_a_reset():
    with MqServer() as server, Client(server.broker_address) as client, Client(server.namesrv) as names:
        client.put("Orders", b"gone")
        assert names.call(105, topic="Orders").code == 0
        client.call(34, json.dumps(HEARTBEAT).encode())
        held = client.send_pull("Orders", 0, 1, hold_ms=60_000)
        until(lambda: server.call(lambda: server.broker.long_polling.count))
        server.reset()
        assert client.answer(held).code == 19  # PULL_NOT_FOUND, as at a shutdown: the client pulls again
        assert names.call(105, topic="Orders").code == 17
        assert client.call(351, topic="Orders").code == 17
        assert client.call(38, consumerGroup="G").json == {"consumerIdList": ["c1"]}
        assert client.put("Orders", b"new").fields["queueOffset"] == "0"
        assert bodies(client.pull("Orders")) == [b"new"]


def test_a_grpc_client_stays_connected_and_known():
    with MqServer() as server, GrpcClient(server.endpoints) as client:
        server.create_topic("Orders")
        client.consume("G", "Orders")
        for _ in range(2):
            server.reset()
            assert client.call("QueryRoute", topic=d.Resource(name="Orders")).status.code == d.TOPIC_NOT_FOUND
            server.create_topic("Orders")
            sent = client.send("Orders", b"x")
            assert (sent.status.code, sent.entries[0].offset) == (d.OK, 0)
            assert (
                client.call("Heartbeat", group=d.Resource(name="G"), client_type=d.SIMPLE_CONSUMER).status.code == d.OK
            )


def test_sends_during_resets_wait_and_are_stored(tmp_path):
    async def main() -> None:
        options = ServeOptions(tmp_path / "store", topics={"Orders": "NORMAL"}, temporary=True)
        async with Server(options) as server:
            address, stopped = server.addresses["broker"], threading.Event()

            def send() -> list[tuple[int, int]]:
                with Client(address) as client, GrpcClient(address) as other:
                    answers = []
                    while not stopped.is_set():
                        answers.append((client.put("Orders").code, other.send("Orders", b"x").status.code))
                    return answers

            sending = asyncio.create_task(asyncio.to_thread(send))
            await asyncio.sleep(0.2)
            for _ in range(10):
                await server.reset()
                await asyncio.sleep(0.05)
            stopped.set()
            answers = await sending
            assert set(answers) == {(0, d.OK)}
            assert len(answers) > 10

    asyncio.run(main())


def test_a_snapshot_is_restored_as_often_as_wanted():
    with MqServer() as server, Client(server.broker_address) as client:
        server.create_topic("Orders", queues=1)
        server.create_group("G")
        client.put("Orders", b"before")
        client.call(15, consumerGroup="G", topic="Orders", queueId=0, commitOffset=1)
        snapshot = server.snapshot()
        for body in (b"one", b"two"):
            assert client.put("Orders", body).fields["queueOffset"] == "1"
            client.call(15, consumerGroup="G", topic="Orders", queueId=0, commitOffset=2)
            client.put("Other")
            server.restore(snapshot)
            assert bodies(client.pull("Orders")) == [b"before"]
            assert client.call(14, consumerGroup="G", topic="Orders", queueId=0).fields["offset"] == "1"
            assert client.call(351, topic="Other").code == 17
        with pytest.raises(UsageError, match="expected a snapshot of this server"):
            server.restore(server.store)
        assert bodies(client.pull("Orders")) == [b"before"]
    assert not snapshot.exists()


def test_users_are_those_of_the_store_that_is_served():
    keys = {"authenticationEnabled": "true", "initAuthenticationUser": '{"username":"admin","password":"secret"}'}
    with MqServer(**keys) as server, Client(server.broker_address) as client:
        server.reset()
        assert client.call(28).remark == "username cannot be null."
        assert server.call(lambda: "admin" in server._server._guard.tables.users)


def test_the_address_that_clients_are_given_can_be_changed(tmp_path):
    async def main() -> None:
        async with Server(ServeOptions(tmp_path / "store", topics={"Orders": "NORMAL"})) as server:
            bound = server.addresses["broker"]
            await server.reopen(lambda: None, "localhost:32771")

            def ask() -> None:
                with Client(server.addresses["namesrv"]) as names, Client(bound) as client, GrpcClient(bound) as other:
                    assert names.call(105, topic="Orders").json["brokerDatas"][0]["brokerAddrs"] == {
                        "0": "localhost:32771"
                    }
                    place = client.put("Orders").fields["msgId"]
                    assert bytes.fromhex(place)[:8] == bytes([127, 0, 0, 1]) + (32771).to_bytes(4, "big")
                    route = other.call("QueryRoute", topic=d.Resource(name="Orders"), endpoints=other.endpoints)
                    assert route.message_queues[0].broker.endpoints.addresses[0].port == 32771

            await asyncio.to_thread(ask)

    asyncio.run(main())


async def dispatched(server: Server) -> None:
    """Waits for the one message of the seed in Orders."""
    async with asyncio.timeout(30):
        while server.broker.messages.dispatch_behind:
            await asyncio.sleep(0.01)
    assert server.broker.messages.queue_bounds("Orders", 1) == (0, 1)


def test_a_server_that_could_not_open_the_store_again_can_be_stopped(tmp_path):
    async def main() -> bool:
        server = Server(ServeOptions(tmp_path, port=0))
        await server.start()

        def fail() -> None:
            raise OSError("no space")

        with pytest.raises(OSError, match="no space"):
            await server.reopen(fail)
        await asyncio.wait_for(server.stop(), 60)
        return Path(tmp_path, "abort").exists()

    assert not asyncio.run(main())


def test_a_seed_and_the_topics_of_the_command_line_come_back(tmp_path):
    seed = tmp_path / "seed.jsonl"
    seed.write_text('{"topic":"Orders","queue_id":1,"body":"paid"}\n{"topic":"Other","body":"x","queue_id":9}\n')

    async def main() -> None:
        options = ServeOptions(tmp_path / "store", topics={"Orders": "FIFO"}, seed=seed, temporary=True)
        async with Server(options) as server:
            for _ in range(2):
                topics = server.broker.topics
                assert (topics.get("Orders").message_type, topics.get("Orders").write_queue_nums) == ("FIFO", 8)
                assert topics.get("Other").write_queue_nums == 10
                await dispatched(server)
                await server.reset()
            await dispatched(server)
        async with Server(options) as server:  # not a second time
            await dispatched(server)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("rows", "reason"),
    [('{"topic":"T","body":"x"}\n{"topic":""}\n', "row 2: topic: expected a name, found ''"), (None, "cannot be read")],
)
def test_a_seed_that_cannot_be_stored_is_named(tmp_path, rows, reason):
    seed = tmp_path / "seed.jsonl"
    if rows is not None:
        seed.write_text(rows)
    with pytest.raises(UsageError, match=reason):
        asyncio.run(Server(ServeOptions(tmp_path / "store", seed=seed)).start())


def test_a_memory_without_room_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_ROOM", 1 << 62)
    created = scratch.new_directory()
    assert created.parent == tmp_path
    assert created.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def _hang_up():
    """A process that is started here gets SIGHUP; under nohup it would ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_hang_up")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_temporary_store_is_gone_after_a_signal(tmp_path, number):
    words = [sys.executable, "-m", "mqtool", "serve", "--temporary", "--port", "0", "--namesrv-port", "0"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment
    ) as served:
        ready = json.loads(served.stdout.readline())
        assert Path(ready["store"]).is_dir()
        with Client(ready["broker"]) as client:
            client.put("Orders")
        served.send_signal(number)
        assert served.wait(60) == 0
    assert not Path(ready["store"]).exists()
    assert list(tmp_path.iterdir()) == []
