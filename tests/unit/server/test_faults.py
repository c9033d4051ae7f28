"""Faults that a test asks for, as clients of both protocols see them."""

import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mqtool.errors import UsageError
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient, code
from tests.support.remoting import Client, bodies
from tests.unit.server.broker.conftest import until

BUSY, UNAVAILABLE, NOT_FOUND = 2, 14, 19


@pytest.fixture(scope="module")
def shared():
    with MqServer() as found:
        found.create_topic("T", queues=1)
        yield found


@pytest.fixture
def server(shared):
    yield shared
    shared.clear_faults()


@pytest.fixture
def client(server):
    with Client(server.broker_address) as found:
        yield found


def test_sends_fail_and_leave_no_message(server, client):
    server.create_topic("Sends", queues=1)
    server.fail(send=2)
    answers = [client.put("Sends", b"%d" % number) for number in range(3)]
    assert [answer.code for answer in answers] == [BUSY, BUSY, 0]
    assert answers[0].remark == "SYSTEM_BUSY, as a test asked"
    assert bodies(client.pull("Sends")) == [b"2"]


def test_only_requests_of_the_kind_and_the_topic_fail_with_the_code(server, client):
    server.create_group("G")
    server.fail(pull=1, code="SERVICE_NOT_AVAILABLE", topic="T")
    server.fail(ack=1, code="1")
    assert client.put("T").code == 0
    assert client.pull("Other").code != UNAVAILABLE
    assert [client.pull("T").code for _ in range(2)] == [UNAVAILABLE, 0]
    commit = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 0}
    assert [client.call(15, **commit).code for _ in range(2)] == [1, 0]
    assert server.call(server.controls.faults) == []


def test_calls_of_grpc_fail_alike(server):
    with GrpcClient(server.endpoints) as producer, GrpcClient(server.endpoints) as consumer:
        producer.produce("T")
        consumer.consume("G", "T")
        server.fail(send=1, pull=1, ack=1)
        assert code(producer.send("T", b"fails")) == "TOO_MANY_REQUESTS"
        assert code(producer.send("T", b"goes")) == "OK"
        fields = {"group": d.Resource(name="G"), "message_queue": d.MessageQueue(topic=d.Resource(name="T"), id=-1)}
        refused = consumer.call("ReceiveMessage", batch_size=1, invisible_duration={"seconds": 30}, **fields)
        assert code(refused[0]) == "TOO_MANY_REQUESTS"
        (message, *_) = consumer.receive("G", "T")
        assert [code(consumer.ack("G", "T", message)) for _ in range(2)] == ["TOO_MANY_REQUESTS", "OK"]
        listed = [request for request in server.requests() if request.code == "ACK_MESSAGE"]
        assert [(request.topic, request.group) for request in listed] == [("T", "G")] * 2
        busy = "TOO_MANY_REQUESTS: CODE: 2  DESC: SYSTEM_BUSY, as a test asked"
        assert [request.outcome for request in listed] == [busy, "OK"]


@pytest.mark.parametrize("name", ["SUCCESS", "FLUSH_DISK_TIMEOUT", "BUSY", "99999"])
def test_a_code_that_is_not_one_of_a_refusal_is_told(server, name):
    with pytest.raises(
        UsageError, match=f"expected the response code of a refusal, such as SYSTEM_BUSY, found '{name}'"
    ):
        server.fail(send=1, code=name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda server: server.fail(send=1.5), "send: expected a number of requests, found 1.5"),
        (lambda server: server.fail(ack=-1), "ack: expected a number of requests, found -1"),
        (lambda server: server.fail(pull=float("nan")), "pull: expected a number of requests, found nan"),
        (lambda server: server.delay(float("nan")), "ms: expected 0 or more, found nan"),
        (lambda server: server.clock.advance(hours=float("inf")), "expected to advance by .*, found inf seconds"),
        (lambda server: server.create_topic("U", queues=0), "queues of topic U: expected 1 to 65536, found 0"),
        (lambda server: server.create_topic("U", queues=1.5), "queues of topic U: expected 1 to 65536, found 1.5"),
        (lambda server: server.create_group("a b"), "group 'a b': "),
        (
            lambda server: server.create_group("G", max_retries=1 << 31),
            "max_retries of group G: expected 0 to 2147483647",
        ),
        (lambda server: server.start(), "the server is started already"),
        (lambda server: server.restore(Path("/nowhere")), "/nowhere: expected a snapshot of this server"),
        (lambda _: MqServer(flushDiskTpye="SYNC_FLUSH"), "did you mean flushDiskType"),
    ],
    ids=[
        "half a request",
        "a negative count",
        "a count that is no number",
        "a delay that is no number",
        "an endless time",
        "no queue",
        "half a queue",
        "a group with a space",
        "too many retries",
        "a second start",
        "no snapshot",
        "an unknown key",
    ],
)
def test_a_wrong_value_is_refused(server, change, reason):
    with pytest.raises(UsageError, match=reason):
        change(server)
    assert server.call(server.controls.faults) == []


def test_a_paused_broker_answers_when_it_is_resumed(server, client):
    server.pause()
    asked = client.send_pull("T", 0, 99)
    until(lambda: server.requests()[-1].code == "PULL_MESSAGE")
    assert server.requests()[-1].outcome == ""
    with GrpcClient(server.endpoints) as caller:
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(caller.send("T", b"waits")))
        waiting.start()
        time.sleep(0.2)  # it would answer within a millisecond
        assert answers == []
        server.resume()
        waiting.join(30)
        assert code(answers[0]) == "OK"
    assert client.answer(asked).code == 21


def test_a_slow_broker_answers_late(server, client):
    server.delay(150)
    began = time.monotonic()
    assert client.put("T").code == 0
    assert time.monotonic() - began >= 0.15
    server.delay(0)


def test_connections_are_dropped_and_clients_connect_again(server, client):
    assert client.put("T").code == 0
    assert server.drop_connections() >= 1
    with pytest.raises((OSError, struct.error)):
        client.put("T")
    with Client(server.broker_address) as again:
        assert again.put("T").code == 0


def test_a_reset_ends_all_faults(server, client):
    server.fail(send=1)
    server.delay(60_000)
    server.pause()
    with Client(server.broker_address) as other:
        waiting = other.send_pull("T", 0, 0)
        until(lambda: server.requests()[-1].code == "PULL_MESSAGE")
        server.reset()
        refused = other.answer(waiting)
    assert (refused.code, refused.remark) == (3, "sent before the reset that a test asked for")
    assert client.put("T").code == 0
    until(lambda: client.pull("T").code == 0)
    before = len(server.requests())
    server.snapshot()
    assert len(server.requests()) == before


def test_a_request_that_waits_is_answered_when_the_delay_ends_and_by_the_broker_of_then(server, client):
    assert client.put("T").code == 0
    server.delay(600_000)
    asked = client.send_pull("T", 0, 0)
    server.delay(0)
    assert client.answer(asked).code == 0
    server.pause()
    asked = client.send_pull("T", 0, 0)
    server.restore(server.snapshot())
    server.resume()
    assert client.answer(asked).code == 0


def test_a_paused_server_stops_at_once():
    with MqServer() as server, Client(server.broker_address) as client:
        server.pause()
        client.send_pull("T", 0, 0)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 0.9


def test_requests_that_are_refused_for_their_signature_are_listed():
    with MqServer(authenticationEnabled=True) as server, Client(server.broker_address) as client:
        assert client.put("T").code == 16
        [request] = server.requests()
        assert (request.code, request.outcome) == ("SEND_MESSAGE_V2", "NO_PERMISSION: username cannot be null.")


def test_a_snapshot_that_is_gone_is_not_restored():
    with MqServer() as server, Client(server.broker_address) as client:
        assert client.put("T", b"kept").code == 0
        snapshot = server.snapshot()
        shutil.rmtree(snapshot)
        with pytest.raises(UsageError, match="expected a snapshot of this server since its start"):
            server.restore(snapshot)
        assert [message.body for message in server.wait_for("T")] == [b"kept"]


def test_a_server_that_is_never_stopped_leaves_no_store(tmp_path):
    script = "from mqtool.server.testing import MqServer\ns = MqServer()\ns.start()\nprint(s.store)"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert not Path(ran.stdout.decode().strip()).exists()
