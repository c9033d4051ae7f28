"""The limits of docs/limits.md that concern the wire, and honest clients beside each attack."""

import base64
import contextlib
import json
import struct
import threading
import time
import tracemalloc

import pytest
from msgspec.structs import replace

from mqtool.formats.service_records import MAX_QUEUES
from mqtool.server.broker.pop.acks import MAX_ACKED, MAX_BITS
from mqtool.server.broker.topics import default_group
from mqtool.server.testing import MqServer
from tests.support.hostile import FIELDS, Attack, handled
from tests.support.remoting import Client, bodies
from tests.support.tiers import NIGHT
from tests.unit.server.broker.conftest import until

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
ROUNDS, SENDS = 3, 150
"""Rounds, of which the best counts."""
EXTREMES = ("-1", str(INT_MAX), str(INT_MAX + 1), str(LONG_MAX), str(LONG_MAX + 1), "9" * 5000, "²", "1e9", "0x10")
ACK = {"c": "GLimits", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1}


def make_topic(client, name, reads, writes):
    return client.create_topic(name, reads, writeQueueNums=writes)


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


@pytest.mark.parametrize(
    ("code", "fields", "document"),
    [
        (17, {"perm": INT_MAX + 1}, None),
        (17, {"topicSysFlag": INT_MAX + 1}, None),
        (17, {"topicFilterType": "NONSENSE"}, None),
        (18, {}, {"topicConfigList": [{"topicName": "Wide", "perm": INT_MAX + 1}]}),
        (18, {}, {"topicConfigList": [{"topicName": "Wide", "topicFilterType": "NONSENSE"}]}),
        (200, {}, {"groupName": "GWide", "retryMaxTimes": INT_MAX + 1}),
        (200, {}, {"groupName": "GWide", "groupSysFlag": INT_MAX + 1}),
        (200, {}, {"groupName": "GWide", "groupRetryPolicy": 5}),
        (225, {}, {"groupConfigList": [{"groupName": "GWide", "consumeTimeoutMinute": -INT_MAX - 2}]}),
    ],
    ids=lambda value: next(iter(value), None) if isinstance(value, dict) else None,
)
def test_what_a_broker_does_not_read_from_its_files_is_refused(client, code, fields, document):
    """5.5.0 does not start with an int of more than 32 bits in topics.json or subscriptionGroup.json."""
    if document is None:
        answer = client.create_topic("Wide", **fields)
    else:
        answer = client.call(code, json.dumps(document).encode())
    assert answer.code == 1
    assert "Wide" not in client.call(21).json["topicConfigTable"]
    assert "GWide" not in client.call(201).json["subscriptionGroupTable"]


@pytest.mark.parametrize(("queues", "code"), [(MAX_QUEUES, 0), (MAX_QUEUES + 1, 29)])
def test_a_group_has_no_more_retry_queues_than_a_topic_may(client, queues, code):
    document = {"groupName": f"GRetries{queues}", "retryQueueNums": queues}
    assert client.call(200, json.dumps(document).encode()).code == code


def test_a_retry_topic_has_no_more_queues_than_a_topic_may(server, client):
    group = replace(default_group("GManyRetries"), retry_queue_nums=INT_MAX)  # as from a file
    server.call(lambda: server.broker.groups.put(group))
    client.heartbeat("c@1", consumers={"GManyRetries": []})
    assert client.call(21).json["topicConfigTable"]["%RETRY%GManyRetries"]["readQueueNums"] == MAX_QUEUES


@pytest.mark.parametrize(("queue", "code"), [(MAX_QUEUES - 1, 0), (MAX_QUEUES, 29), (1 << 40, 29)])
def test_an_offset_is_reset_for_a_queue_that_can_be(client, topic, queue, code):
    client.call(200, b'{"groupName": "GLimits"}')
    assert client.call(222, topic=topic, group="GLimits", queueId=queue, timestamp=0, isForce=True).code == code


@pytest.mark.slow
def test_acknowledgements_of_one_request_are_counted_before_they_are_made(client):
    many = [{**ACK, "b": "AQ=="}] * (MAX_ACKED + 1)
    assert client.call(200151, json.dumps({"acks": many, "brokerName": "broker-a"}).encode()).code == 29
    full = base64.b64encode(b"\xff" * (1 << 20)).decode()
    started = time.monotonic()
    assert client.call(200151, json.dumps({"acks": [{**ACK, "b": full}], "brokerName": "broker-a"}).encode()).code == 0
    wide = [{**ACK, "b": base64.b64encode(b"\xff" * (MAX_BITS // 8)).decode()}] * 2
    assert client.call(200151, json.dumps({"acks": wide, "brokerName": "broker-a"}).encode()).code == 29
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("name", "is_taken"), [("g" * 120, True), ("g" * 121, False), ("../g", False), ("g\0", False)])
def test_a_group_has_a_name_of_limited_length_in_rocketmq_s_letters(client, name, is_taken):
    answer = client.call(200, json.dumps({"groupName": name}).encode())
    assert (answer.code == 0) == is_taken
    assert (client.call(352, group=name).code == 0) == is_taken


def test_however_many_are_asked_for_fewer_are_returned(client, topic):
    keyed = b"KEYS\x01many\x02"
    one = struct.pack(">iiiii", 22 + 1 + len(keyed), 0, 0, 0, 1) + b"m" + struct.pack(">h", len(keyed)) + keyed
    assert client.put(topic, one * 1100, code=320, m=True).code == 0
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == "1100")
    assert len(bodies(client.pull(topic, count=INT_MAX))) == 32
    times = {"beginTimestamp": 0, "endTimestamp": LONG_MAX}
    until(lambda: client.call(12, topic=topic, key="many", maxNum=1, **times).code == 0)
    assert len(bodies(client.call(12, topic=topic, key="many", maxNum=INT_MAX, **times))) == 64
    assert len(client.call(321, topic=topic, queueId=0, index=0, count=INT_MAX).json["queueData"]) == 1024


def test_a_request_is_held_no_longer_than_the_broker_holds_any(server, client, topic):
    long_polling = server.broker.long_polling
    assert long_polling.longest_s == 30
    long_polling.longest_s = 0.2
    try:
        begun = time.monotonic()
        assert client.pull(topic, hold_ms=LONG_MAX).code == 19
        client.call(200, b'{"groupName": "GLimits"}')
        pop = {"consumerGroup": "GLimits", "topic": topic, "queueId": 0, "maxMsgNums": 1, "invisibleTime": 500}
        more = {"bornTime": int(time.time() * 1000), "initMode": 0, "exp": "*", "expType": "TAG"}
        assert client.call(200050, **pop, **more, pollTime=LONG_MAX).code != 0
        client.call(
            200054, consumerGroup="GLimits", topic=topic, queueId=0, pollTime=LONG_MAX, bornTime=more["bornTime"]
        )
        assert time.monotonic() - begun < 10
    finally:
        del long_polling.longest_s


@pytest.mark.parametrize("value", EXTREMES)
def test_a_setting_that_is_no_number_is_refused_and_services_go_on(client, value):
    answer = client.call(25, f"flushConsumerOffsetInterval={value}".encode())
    assert (answer.code == 0) == (value in {"-1", str(INT_MAX)})  # a Java int
    assert client.call(25, b"flushConsumerOffsetInterval=50").code == 0


@pytest.mark.long
@pytest.mark.slow
def test_every_number_of_every_request_may_be_extreme(caplog):
    numbers = [name for name, value in FIELDS.items() if value.lstrip("-").isdigit()]
    assert len(numbers) > 30
    with MqServer() as server, Client(server.broker_address) as client:
        server.broker.long_polling.longest_s = 0
        codes = handled(server.broker_address)
        assert len(codes) > 60
        client.call(28)
        tracemalloc.start()
        try:
            for number, code in enumerate(codes):
                for value in EXTREMES if NIGHT else EXTREMES[number % 3 :: 3]:
                    for name in numbers:
                        client.send(code, **{**FIELDS, name: value})
                    assert client.call(28).code == 0, (code, value)  # and read what was answered meanwhile
                    client.early.clear()
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


def extreme_numbers(address):
    with Client(address) as client:
        for value in EXTREMES:
            for code in (11, 310, 200050, 200051, 321):
                client.send(code, **{**FIELDS, "queueId": value, "e": value, "maxMsgNums": value, "count": value})
        client.call(28)


def useless_messages(address):
    """Those that the services skip, by way of an ordinary client."""
    with Client(address) as client:
        for found in ({"REAL_QID": "abc"}, {"TIMER_OUT_MS": "9" * 5000}, {}):
            client.put("rmq_sys_wheel_timer", b"x", properties=found)
        client.put("Useless", struct.pack(">iiiiibh", 23, 0, 0, 0, 1, 1, 0), code=320, m=True, properties=LATER)
        client.put("rmq_sys_REVIVE_LOG_DefaultCluster", b"[" * 10_000, properties={"TAGS": "ck"})


LATER = {"TIMER_DELAY_SEC": "1"}
ATTACKS = {
    "extreme numbers": extreme_numbers,
    "useless messages": useless_messages,
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
        clock = time.pthread_getcpuclockid(server.call(threading.get_ident))
        best = min(p99_of(client, topic, clock) for _ in range(ROUNDS))
    finally:
        ended.set()
        thread.join()
    assert best < 0.1
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == str(ROUNDS * SENDS))


def p99_of(client, topic, clock):
    """How long the server works until it has answered, in seconds of its thread: others may have the processors."""
    times = []
    for number in range(SENDS):
        begun = time.clock_gettime(clock)
        assert client.put(topic, b"honest %d" % number).code == 0
        times.append(time.clock_gettime(clock) - begun)
    return sorted(times)[SENDS * 99 // 100]
