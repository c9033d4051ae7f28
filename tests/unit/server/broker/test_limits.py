"""The limits of docs/limits.md that concern the wire: a test for each row, and honest clients beside each attack."""

import base64
import contextlib
import json
import struct
import threading
import time
import tracemalloc

import pytest

from mqtool.formats.service_records import MAX_QUEUES
from mqtool.server.broker.pop.acks import MAX_ACKED, MAX_BITS
from mqtool.server.testing import MqServer
from tests.support.hostile import FIELDS, Attack
from tests.support.remoting import Client
from tests.unit.server.broker.conftest import until

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
ROUNDS, SENDS = 3, 150
"""Rounds, of which the best counts: another process may take the processor away for one of them."""
EXTREMES = ("-1", str(INT_MAX), str(INT_MAX + 1), str(LONG_MAX), str(LONG_MAX + 1), "9" * 5000, "²", "1e9", "0x10")
ACK = {"c": "GLimits", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1}


def make_topic(client, name, reads, writes):
    return client.call(
        17,
        topic=name,
        defaultTopic="TBW102",
        readQueueNums=reads,
        writeQueueNums=writes,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )


@pytest.mark.parametrize(
    ("reads", "writes", "code"),
    [(MAX_QUEUES, 1, 0), (MAX_QUEUES + 1, 1, 29), (INT_MAX, 1, 29), (INT_MAX, -INT_MAX + 5, 29), (0, 0, 29)],
)
def test_a_topic_has_no_more_queues_than_loops_may_follow(client, reads, writes, code):
    assert make_topic(client, f"Queues{reads}-{abs(writes)}", reads, writes).code == code


@pytest.mark.parametrize(("queue", "code"), [(0, 0), (MAX_QUEUES - 1, 0), (MAX_QUEUES, 29), (-1, 29), (INT_MAX, 29)])
def test_an_offset_is_kept_for_a_queue_that_can_be(client, topic, queue, code):
    client.call(200, b'{"groupName": "GLimits"}')
    answer = client.call(15, consumerGroup="GLimits", topic=topic, queueId=queue, commitOffset=1)
    assert answer.code == code


def test_acknowledgements_of_one_request_are_counted_before_they_are_made(client):
    many = [{**ACK, "b": "AQ=="}] * (MAX_ACKED + 1)
    assert client.call(200151, json.dumps({"acks": many, "brokerName": "broker-a"}).encode()).code == 29
    full = base64.b64encode(b"\xff" * (1 << 20)).decode()
    started = time.monotonic()
    assert client.call(200151, json.dumps({"acks": [{**ACK, "b": full}], "brokerName": "broker-a"}).encode()).code == 0
    wide = [{**ACK, "b": base64.b64encode(b"\xff" * (MAX_BITS // 8)).decode()}] * 2
    assert client.call(200151, json.dumps({"acks": wide, "brokerName": "broker-a"}).encode()).code == 29
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("value", EXTREMES)
def test_a_setting_that_is_no_number_is_refused_and_services_go_on(client, value):
    answer = client.call(25, f"flushConsumerOffsetInterval={value}".encode())
    is_number = value.lstrip("-").isascii() and value.lstrip("-").isdigit() and abs(int(value[:30])) <= LONG_MAX
    assert (answer.code == 0) == is_number
    assert client.call(25, b"flushConsumerOffsetInterval=50").code == 0


NUMBERS = {
    11: ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion"),
    12: ("maxNum", "beginTimestamp", "endTimestamp"),
    29: ("queueId", "timestamp"),
    33: ("offset",),
    222: ("queueId", "timestamp", "offset"),
    310: ("d", "e", "f", "g", "h", "j", "l"),
    321: ("queueId", "index", "count"),
    200050: ("queueId", "maxMsgNums", "invisibleTime", "bornTime", "initMode"),
    200051: ("queueId", "offset"),
    200052: ("queueId", "maxMsgNums"),
    200053: ("queueId", "offset", "invisibleTime"),
    200054: ("queueId",),
}


def test_every_number_of_a_request_may_be_extreme(client, topic, caplog):
    fields = {**FIELDS, "topic": topic, "b": topic}
    tracemalloc.start()
    try:
        for code, named in NUMBERS.items():
            for name in named:
                for value in EXTREMES:
                    client.call(code, **{**fields, name: value})
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert [one.getMessage() for one in caplog.records if one.getMessage().startswith("handler failed")] == []


@pytest.mark.slow
def test_topics_of_a_file_with_more_queues_are_bounded(tmp_path):
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        make_topic(client, "Wide", 2, 2)
    path = tmp_path / "store" / "config" / "topics.json"
    text = path.read_text("utf-8")
    head, tail = text.split('"Wide"', 1)
    path.write_text(head + '"Wide"' + tail.replace('"readQueueNums":2', f'"readQueueNums":{INT_MAX}', 1), "utf-8")
    with MqServer(tmp_path / "store") as server:
        assert server.call(lambda: server.broker.topics.get("Wide").read_queue_nums) == MAX_QUEUES
        with Client(server.broker_address) as client:
            assert client.call(202, topic="Wide").code == 0


def raw(address, data):
    with Client(address) as client:
        client.socket.sendall(data)


def acks(address):
    body = json.dumps({"acks": [{**ACK, "b": "//8="}] * 2_000, "brokerName": "broker-a"}).encode()
    with Client(address) as client:
        client.call(200151, body)


ATTACKS = {
    "claimed length": lambda address: raw(address, struct.pack(">ii", (16 << 20) - 1, 100) + b"{" * 1000),
    "gRPC": lambda address: raw(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64),
    "mutated frames": lambda address: Attack(address, 3).run(40),
    "wide acknowledgements": acks,
    "deep JSON": lambda address: raw(address, struct.pack(">ii", 4 + 60_000, 60_000) + b"[" * 60_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_honest_client_beside_an_attack_is_served_at_once(server, client, topic, attack):
    ended = threading.Event()

    def attacks():
        while not ended.is_set():
            with contextlib.suppress(OSError):  # the broker closes connections
                ATTACKS[attack](server.broker_address)
            ended.wait(0.01)

    thread = threading.Thread(target=attacks)
    thread.start()
    try:
        best = min(p99_of(client, topic) for _ in range(ROUNDS))
    finally:
        ended.set()
        thread.join()
    assert best < 0.1
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == str(ROUNDS * SENDS))


def p99_of(client, topic):
    times = []
    for number in range(SENDS):
        begun = time.perf_counter()
        assert client.put(topic, b"honest %d" % number).code == 0
        times.append(time.perf_counter() - begun)
    return sorted(times)[SENDS * 99 // 100]
