"""`mqtool serve` with the real clients, and in turns with the real broker on one directory."""

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from mqtool.formats import java
from tests.support.remoting import Client, records
from tests.support.served import KEYS, until
from tests.support.tiers import night

pytestmark = pytest.mark.interop

TOPIC, GROUP, QUEUES = "Turns", "GTurns", 4


@pytest.mark.parametrize(("version", "vip"), [night("5.5.0", "false"), ("4.9.7", "false"), ("5.5.0", "true")])
def test_a_real_client_creates_a_topic_by_sending_and_consumes_what_it_sent(rocketmq, serve, tmp_path, version, vip):
    """With the VIP channel it sends to the port two below the broker's (MixAll.brokerVIPChannel)."""
    real = rocketmq(version)
    served = serve(tmp_path / "store")
    work = tmp_path / "client"
    work.mkdir()
    words = (f"-Dcom.rocketmq.sendMessageWithVIPChannel={vip}", "Consume", served.name_server)
    command = real._java(*words, "MadeBySending", "GReal", "40", home=work)
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, stdin=subprocess.DEVNULL)
    said = [line.split(" ", 1) for line in result.stdout.splitlines() if line.startswith(("sent ", "got "))]
    sent = sorted(rest for word, rest in said if word == "sent")
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert len(sent) == 40
    assert sorted(rest for word, rest in said if word == "got") == sent


INTERVAL = {"transactionCheckInterval"}
"""30 s in `serve` on every store, as in 5.5.0; 60 s in 4.9.7."""
NAMES = {"brokerIP1", "brokerIP2", "brokerName", "listenPort", "namesrvAddr", "rocketmqHome"}
"""Keys that name a broker and its place."""


@pytest.mark.parametrize("version", ["5.5.0", night("4.9.7")])
def test_the_configuration_is_answered_with_every_key_and_value_of_a_real_broker(rocketmq, serve, tmp_path, version):
    def answer(address: str) -> dict[str, str]:
        with Client(address) as client:
            return java.parse_properties(bytes(client.call(26).body))

    broker = rocketmq(version).start_broker(tmp_path / "broker", **KEYS)
    real = answer(broker.address)
    broker.stop()
    configured = java.parse_properties((broker.directory / "broker.conf").read_bytes())
    served = answer(serve(broker.store, {key: value for key, value in configured.items() if key not in NAMES}).address)
    assert real.keys() - served.keys() == set()
    assert {key for key, value in real.items() if served[key] != value} <= NAMES | INTERVAL


def load(address: str, log: dict[int, list[bytes]], turn: int, count: int = 60) -> None:
    """Sends to every queue and commits where a group is; notes what was acknowledged, by queue."""
    with Client(address) as client:
        for number in range(count):
            queue = number % QUEUES
            body = b"turn %d number %d " % (turn, number) + b"." * 500
            answer = client.put(TOPIC, body, queue, properties={"KEYS": f"{turn}-{number}"})
            assert answer.code == 0, answer.remark
            assert int(answer.fields["queueOffset"]) == len(log[queue])
            log[queue].append(body)
        client.heartbeat("turns@1", consumers={GROUP: [TOPIC]})
        for queue in range(QUEUES):
            until(
                lambda queue=queue: int(client.call(30, topic=TOPIC, queueId=queue).fields["offset"]) == len(log[queue])
            )
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue, "commitOffset": len(log[queue]) - turn}
            assert client.call(15, **fields).code == 0


def check(address: str, log: dict[int, list[bytes]], turn: int) -> None:
    """Reads everything: what was acknowledged is there, in its order, once; offsets and keys are as they were left."""
    with Client(address) as client:
        for queue, expected in log.items():
            found: list[bytes] = []
            while len(found) < len(expected):
                answer = client.pull(TOPIC, queue, len(found), count=32)
                assert answer.code == 0, (queue, len(found), answer.code, answer.remark)
                rows = records(answer)
                assert [facts["queue_offset"] for facts, _ in rows] == list(range(len(found), len(found) + len(rows)))
                found += [body for _, body in rows]
            assert found == expected
            assert client.pull(TOPIC, queue, len(found)).code == 19
            offset = client.call(14, consumerGroup=GROUP, topic=TOPIC, queueId=queue).fields["offset"]
            assert int(offset) == len(expected) - turn
        answer = client.call(12, topic=TOPIC, key=f"{turn}-7", maxNum=10, beginTimestamp=0, endTimestamp=(1 << 63) - 1)
        assert [body.startswith(b"turn %d number 7 " % turn) for _, body in records(answer)] == [True]


def persisted(store: Path, log: dict[int, list[bytes]], turn: int) -> bool:
    """Whether the group's offsets are in the file."""
    path = store / "config" / "consumerOffset.json"
    expected = {f'"{TOPIC}@{GROUP}"', *(f"{queue}:{len(bodies) - turn}" for queue, bodies in log.items())}
    text = "".join(path.read_text("utf-8").split()) if path.exists() else ""
    return all(one in text for one in expected)


OURS_KILLED, REAL_KILLED, OURS, REAL = (True, True), (False, True), (True, False), (False, False)
ROUNDS = {"five rounds": [OURS_KILLED, REAL_KILLED, OURS, REAL, OURS_KILLED], "two rounds": [OURS_KILLED, REAL_KILLED]}


@pytest.mark.parametrize("rounds", [night("five rounds"), "two rounds"])
@pytest.mark.parametrize("version", ["5.5.0", night("4.9.7")])
def test_a_directory_changes_hands_under_load_and_nothing_is_lost(rocketmq, serve, tmp_path, version, rounds):
    log: dict[int, list[bytes]] = defaultdict(list)
    directory = tmp_path / "broker"
    store = directory / "store"
    store.mkdir(parents=True)
    for turn, (ours, kill) in enumerate(ROUNDS[rounds], 1):
        broker = serve(store) if ours else rocketmq(version).start_broker(directory, **KEYS)
        if turn > 1:
            check(broker.address, log, turn - 1)
        else:
            with Client(broker.address) as client:
                made = client.create_topic(TOPIC, QUEUES)
                assert made.code == 0
        load(broker.address, log, turn)
        if kill:
            until(lambda turn=turn: persisted(store, log, turn))
        broker.stop(kill=kill)
    check(serve(store).address, log, turn)


def park(address: str) -> None:
    """Leaves a delayed message, a timer message and a half message behind, and one of each kind that is done with."""
    with Client(address) as client:
        made = client.create_topic("Parked")
        assert made.code == 0
        assert client.put("Parked", b"delayed, early", properties={"DELAY": "1"}).code == 0
        assert client.put("Parked", b"timed, early", properties={"TIMER_DELAY_MS": "1500"}).code == 0
        for body in (b"half, committed", b"half, silent"):
            answer = client.put(
                "Parked", body, group="PParked", sys_flag=4, properties={"TRAN_MSG": "true", "PGROUP": "PParked"}
            )
            assert answer.code == 0
            if body == b"half, committed":
                client.send(
                    37,
                    producerGroup="PParked",
                    commitLogOffset=int(answer.fields["msgId"][-16:], 16),
                    msgId="",
                    tranStateTableOffset=answer.fields["queueOffset"],
                    commitOrRollback=8,
                    frame_flag=2,
                )
        until(lambda: len(records(client.pull("Parked"))) == 3)
        assert client.put("Parked", b"delayed, late", properties={"DELAY": "2"}).code == 0
        assert client.put("Parked", b"timed, late", properties={"TIMER_DELAY_MS": "5000"}).code == 0
        until(lambda: client.call(30, topic="rmq_sys_wheel_timer", queueId=0).fields["offset"] == "2")
        until(lambda: int(client.call(28).json["table"]["timerOffsetBehind"]) == 0)


def collect(address: str) -> list[bytes]:
    """Commits the half message when the broker asks, and returns everything that was delivered."""
    with Client(address) as client:
        client.heartbeat("parked@1", producers=("PParked",))
        asked = client.request(39)
        assert [body for _, body in records(asked)] == [b"half, silent"]
        client.send(
            37,
            producerGroup="PParked",
            commitLogOffset=asked.fields["commitLogOffset"],
            msgId="",
            tranStateTableOffset=asked.fields["tranStateTableOffset"],
            commitOrRollback=8,
            fromTransactionCheck=True,
            frame_flag=2,
        )
        until(lambda: len(records(client.pull("Parked"))) >= 6)
        return [body for _, body in records(client.pull("Parked"))]


@pytest.mark.parametrize("first", ["ours", night("real")])
def test_what_waits_in_a_store_is_delivered_once_by_whoever_opens_it_next(rocketmq, serve, tmp_path, first):
    directory = tmp_path / "broker"
    store = directory / "store"
    store.mkdir(parents=True)

    def start(ours: bool, **more: int):
        keys = KEYS | {"transactionTimeOut": 1_000, "flushDelayOffsetInterval": 100, **more}
        return serve(store, keys) if ours else rocketmq("5.5.0").start_broker(directory, **keys)

    broker = start(first == "ours")  # asks after half a minute, by which time nobody is left to be asked
    park(broker.address)
    broker.stop()
    broker = start(first != "ours", transactionCheckInterval=1_000)
    expected = [
        b"delayed, early",
        b"delayed, late",
        b"half, committed",
        b"half, silent",
        b"timed, early",
        b"timed, late",
    ]
    assert sorted(collect(broker.address)) == expected
    broker.stop()
