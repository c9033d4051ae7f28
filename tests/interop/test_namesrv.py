"""The real name server, brokers and tools, with ours on the other side."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqtool.protocol import Command, RequestCode
from mqtool.protocol.registration_body import document_in
from mqtool.server.namesrv import NameServer
from mqtool.server.net.connections import Connection
from tests.support.name_server import ask, converse, in_a_thread, registration, route
from tests.support.rocketmq import Broker, free_ports
from tests.support.tiers import night

pytestmark = pytest.mark.interop

RECORDED = Path(__file__).parents[1] / "unit" / "server" / "answers" / "name-server-5.5.0.jsonl"


def real_name_server(rocketmq, version: str, directory: Path) -> str:
    """Starts only a name server of a release and returns its address."""
    release = rocketmq(version)
    broker = Broker(release, directory)
    release.brokers.append(broker)
    port = free_ports(1)[0]
    directory.mkdir(parents=True)
    broker._launch("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", {"listenPort": port})
    return f"127.0.0.1:{port}"


def test_the_recorded_answers_are_those_of_the_real_name_server(rocketmq, tmp_path):
    real = asyncio.run(converse(real_name_server(rocketmq, "5.5.0", tmp_path / "real")))
    recorded = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]
    assert json.loads(json.dumps(real)) == recorded


def real_broker(rocketmq, version: str, directory: Path, name_server: str, **keys: object) -> Broker:
    """Starts only a broker of a release, at another name server; waits until the broker serves."""
    release = rocketmq(version)
    broker = Broker(release, directory)
    release.brokers.append(broker)
    broker.store.mkdir(parents=True)
    port = free_ports(4)[2]
    broker.name_server, broker.address = name_server, f"127.0.0.1:{port}"
    broker._launch(
        "broker",
        "org.apache.rocketmq.broker.BrokerStartup",
        {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": name_server,
            "listenPort": port,
            "haListenPort": port + 1,
            "diskMaxUsedSpaceRatio": 95,
            "storePathRootDir": broker.store,
            "storePathCommitLog": broker.store / "commitlog",
            **keys,
        },
    )
    return broker


def call(address: str, command: Command) -> Command:
    """One request over a connection of its own."""

    async def main() -> Command:
        connection = await Connection.open(address)
        try:
            return await connection.call(command, 10)
        finally:
            connection.close()

    return asyncio.run(main())


def until(found: Callable[[], bool]) -> None:
    """Waits for what another process does."""
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("version", "keys"),
    [("5.5.0", {"compressedRegister": True}), night("4.9.7", {})],
    ids=["5.5.0-compressed", "4.9.7"],
)
def test_a_real_broker_registers_and_its_death_is_noticed_at_once(rocketmq, tmp_path, version, keys):
    with in_a_thread(NameServer("127.0.0.1", 0)) as address:
        broker = real_broker(rocketmq, version, tmp_path / "real", address, **keys)
        until(lambda: call(address, route("TBW102")).code == 0)
        found = document_in(call(address, route("TBW102")).body)
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
        assert found["queueDatas"][0] == {
            "brokerName": "broker-a",
            "perm": 7,
            "readQueueNums": 8,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        broker.stop(kill=True)
        until(lambda: call(address, route("TBW102")).code == 17)


@pytest.mark.night
def test_topics_that_the_tools_make_on_a_real_broker_are_found(rocketmq, tmp_path):
    with in_a_thread(NameServer("127.0.0.1", 0)) as address:
        broker = real_broker(rocketmq, "5.5.0", tmp_path / "real", address)
        until(lambda: call(address, route("TBW102")).code == 0)
        broker.admin("updateTopic", "-n", address, "-c", "DefaultCluster", "-t", "Fresh", "-r", "3", "-w", "3")
        until(lambda: call(address, route("Fresh")).code == 0)
        queues = document_in(call(address, route("Fresh")).body)["queueDatas"]
        assert [one["readQueueNums"] for one in queues] == [3]
        broker.stop()
        until(lambda: call(address, route("Fresh")).code == 17)


def test_the_tools_change_our_name_server_and_read_it(rocketmq):
    release = rocketmq("5.5.0")
    with in_a_thread(NameServer("127.0.0.1", 0)) as address:
        release.admin("updateKvConfig", "-s", "space", "-k", "key", "-v", "value", name_server=address)
        value = call(address, ask(RequestCode.GET_KV_CONFIG, namespace="space", key="key")).fields
        shown = release.admin("getNamesrvConfig", name_server=address)
    assert value == {"value": "value"}
    assert "orderMessageEnable" in shown


@pytest.mark.parametrize("version", [night("5.5.0"), "4.9.7"])
def test_our_broker_registers_at_a_real_name_server_and_takes_leave(rocketmq, tmp_path, version):
    address = real_name_server(rocketmq, version, tmp_path / "real")
    command = [
        sys.executable,
        "-m",
        "mqtool",
        "serve",
        str(tmp_path / "store"),
        "--port",
        "0",
        "--no-namesrv",
        "--set",
        f"namesrvAddr={address}",
        "--set",
        "haListenPort=0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
        assert served.stdout is not None
        try:
            ours = json.loads(served.stdout.readline())
            until(lambda: call(address, route("TBW102")).code == 0)
            found = document_in(call(address, route("TBW102")).body)
            slave = registration("broker-a", "10.0.0.2:10911", 1, "DefaultCluster")
            answered = call(address, slave).fields
        finally:
            served.terminate()
        until(lambda: call(address, route("TBW102")).code == 17)
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": ours["broker"]}
    assert answered == {"masterAddr": ours["broker"], "haServerAddr": ours["ha"]}
