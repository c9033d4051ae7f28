"""The mirror beside a real master: the copy is its log, byte for byte, while it is written to."""

import asyncio
import json
import struct
from pathlib import Path

import pytest

import mqtool
from mqtool.formats.properties import encode
from mqtool.protocol import Command, RequestCode
from mqtool.server.mirror import Mirror
from mqtool.server.net.connections import Connection
from mqtool.verify import verify
from mqtool.verify.findings import Severity
from tests.support.remoting import Client
from tests.support.rocketmq import Broker, free_ports
from tests.support.served import KEYS, until
from tests.support.tiers import night

pytestmark = pytest.mark.interop

SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def send(number: int) -> Command:
    """A message; the header's letters are those of SendMessageRequestHeaderV2."""
    properties = encode([("KEYS", f"k{number}"), ("TAGS", "tag"), ("UNIQ_KEY", f"{number:032X}")]).decode()
    return Command(
        RequestCode.SEND_MESSAGE_V2,
        body=bytes([65 + number % 26]) * (1 + number * 37 % 3000),
        fields={
            "a": "producers",
            "b": "Mirrored",
            "c": "TBW102",
            "d": "2",
            "e": str(number % 2),
            "f": "0",
            "g": "1700000000000",
            "h": "0",
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "false",
        },
    )


async def produce(broker: Broker, numbers: range) -> None:
    """Sends messages, one after the other; each is stored on return."""
    connection = await Connection.open(broker.address)
    for number in numbers:
        answer = await connection.call(send(number), 10)
        assert answer.code == 0, answer.remark
    connection.close()


async def max_offset(broker: Broker) -> int:
    """Where the master's log ends."""
    connection = await Connection.open(broker.address)
    try:
        answer = await connection.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO), 10)
        return int(json.loads(bytes(answer.body))["table"]["commitLogMaxOffset"])
    finally:
        connection.close()


async def follow(broker: Broker, copy: Path) -> int:
    """Starts a copy of a log of several segments, goes on while it grows, and starts it once more."""
    await produce(broker, range(120))
    mirror = Mirror(broker.address, copy, tables_seconds=0.2)
    await mirror.start()
    running = asyncio.ensure_future(mirror.run())
    await mirror.caught_up.wait()
    await produce(broker, range(120, 180))
    end = await max_offset(broker)
    await reached(mirror, end)
    mirror.stop()
    await running
    await produce(broker, range(180, 240))
    end = await max_offset(broker)
    mirror = Mirror(broker.address, copy, tables_seconds=0.2)
    await mirror.start()
    running = asyncio.ensure_future(mirror.run())
    await reached(mirror, end)
    mirror.stop()
    await running
    return end


async def reached(mirror: Mirror, end: int) -> None:
    """Waits until the copy ends where the master does."""
    while mirror.store.end < end:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("version", [night("5.5.0"), "4.9.7"])
def test_the_copy_of_a_real_master_is_its_log_and_verifies_clean(rocketmq, tmp_path, version):
    broker = rocketmq(version).start_broker(tmp_path / "real", brokerRole="ASYNC_MASTER", **SMALL)
    copy = tmp_path / "copy"
    end = asyncio.run(asyncio.wait_for(follow(broker, copy), 120))
    broker.stop()
    ours, theirs = (
        b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir())) for root in (copy, broker.store)
    )
    assert end > 3 * SMALL["mappedFileSizeCommitLog"]
    assert ours[:end] == theirs[:end]
    with mqtool.open(copy, config={key: str(value) for key, value in SMALL.items()}) as store:
        assert [one for one in verify(store).findings if one.severity is not Severity.NOTE] == []
        assert sum(store.queue("Mirrored", queue).max_offset for queue in (0, 1)) == 240


def traffic(address: str) -> int:
    """Sends what a log can hold: records beyond one piece of 32 KiB and beyond 64 KiB, batches, and ends of segments. Returns how many."""
    sent = 0
    with Client(address) as client:
        for number in range(12):
            body = bytes([97 + number]) * (70_000 + 9_000 * number if number % 2 else 40_000)
            assert client.put("Mirrored", body, number % 2, properties={"KEYS": f"big{number}"}).code == 0
            parts = [
                struct.pack(">iiiii", 0, 0, 0, 0, len(part)) + part + struct.pack(">h", 9) + b"KEYS\x01ba\x02\x02"
                for part in (b"one %d" % number, b"two %d" % number, b"three %d" % number)
            ]
            batch = b"".join(struct.pack(">i", len(part)) + part[4:] for part in parts)
            assert client.put("Mirrored", batch, number % 2, code=320, m=True).code == 0
            sent += 4
    return sent


@pytest.mark.parametrize("version", [night("5.5.0"), "4.9.7"])
def test_a_real_slave_follows_a_served_store(rocketmq, serve, tmp_path, version):
    """The slave's log is ours to the last byte while it grows, and verifies clean. For topics 4.9.7 asks every ten seconds, a
    5.x slave once a minute."""
    release = rocketmq(version)
    keys = KEYS | {"haListenPort": free_ports(1)[0]}
    served = serve(tmp_path / "master", keys)
    master = Broker(release, tmp_path / "real", served.name_server, served.address)
    asyncio.run(produce(master, range(20)))
    slave = Broker(release, tmp_path / "slave")
    release.brokers.append(slave)
    slave.store.mkdir(parents=True)
    own = free_ports(4)[2]
    slave._launch(
        "broker",
        "org.apache.rocketmq.broker.BrokerStartup",
        {
            **KEYS,
            "brokerId": 1,
            "brokerRole": "SLAVE",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": served.name_server,
            "listenPort": own,
            "haListenPort": own + 1,
            "diskMaxUsedSpaceRatio": 95,
            "storePathRootDir": slave.store,
            "storePathCommitLog": slave.store / "commitlog",
        },
    )
    until(lambda: log_of(slave.store)[:1000] == log_of(tmp_path / "master")[:1000])
    sent = 20 + traffic(served.address)
    asyncio.run(produce(master, range(20, 40)))
    sent += 20
    end = asyncio.run(max_offset(master))
    until(lambda: log_of(slave.store)[:end] == log_of(tmp_path / "master")[:end])
    if version == "4.9.7":
        until(lambda: topics_came(slave))
    with Client(f"127.0.0.1:{own}") as client:
        until(
            lambda: (
                sum(int(client.call(30, topic="Mirrored", queueId=queue).fields["offset"]) for queue in (0, 1)) == sent
            )
        )
    slave.stop()
    assert end > 3 * KEYS["mappedFileSizeCommitLog"]
    with mqtool.open(slave.store, config={key: str(value) for key, value in KEYS.items()}) as store:
        late = {"config-topic-missing"} if version == "5.5.0" else set()
        assert {one.code for one in verify(store).findings if one.severity is not Severity.NOTE} <= late
        assert sum(store.queue("Mirrored", queue).max_offset for queue in (0, 1)) == sent


def log_of(root: Path) -> bytes:
    """The CommitLog of a store."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").glob("0*")))


def topics_came(slave: Broker) -> bool:
    """Whether the slave has taken the master's topics over."""
    path = slave.store / "config" / "topics.json"
    return path.exists() and "Mirrored" in path.read_text("utf-8")
