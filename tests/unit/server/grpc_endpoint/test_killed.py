"""kill -9 while gRPC clients send: what was acknowledged is there, in order, and half messages are checked back."""

import contextlib
import re
import threading
import time

import grpc
import pytest

from mqtool.protocol.rocketmq_v2 import definition as d
from tests.support.grpc_client import GrpcClient, code
from tests.support.remoting import Client
from tests.support.served import KEYS, Served, until

TOPICS = {"Killed": "NORMAL", "KilledFifo": "FIFO", "KilledTrans": "TRANSACTION"}


def create_topics(address):
    with Client(address) as remoting:
        for name, kind in TOPICS.items():
            answer = remoting.create_topic(name, 2, attributes=f"+message.type={kind}")
            assert answer.code == 0, answer.remark


def receive_all(client, group, topic, count):
    """Receives and acknowledges until `count` bodies have come."""
    bodies = []
    client.consume(group, topic)
    while len(set(bodies)) < count:
        received = client.receive(group, topic, batch_size=32)
        assert received, f"{len(set(bodies))} of {count} came"
        for one in received:
            bodies.append(one.body)
            assert code(client.ack(group, topic, one)) == "OK"
    return bodies


@pytest.mark.slow
def test_what_was_acknowledged_outlives_a_kill(tmp_path):
    keys = {**KEYS, "transactionTimeOut": 100, "transactionCheckInterval": 200}
    served = Served(tmp_path / "store", tmp_path, keys)
    create_topics(served.address)
    acknowledged, ordered, halves = set(), [], {}
    enough = threading.Event()

    def send(thread):
        with GrpcClient(served.address) as client, contextlib.suppress(grpc.RpcError):
            for number in range(100_000):
                body = b"%d-%d" % (thread, number)
                if code(client.send("Killed", body)) == "OK":
                    acknowledged.add(body)
                if thread == 0 and code(client.send("KilledFifo", b"%d" % number, message_group="g")) == "OK":
                    ordered.append(b"%d" % number)
                if thread == 1 and number < 3:
                    sent = client.send("KilledTrans", body, message_type=d.TRANSACTION)
                    halves[sent.entries[0].transaction_id] = body
                if len(ordered) > 30 and len(acknowledged) > 200:
                    enough.set()

    threads = [threading.Thread(target=send, args=(one,)) for one in range(4)]
    for one in threads:
        one.start()
    assert enough.wait(60)
    served.stop(kill=True)
    for one in threads:
        one.join()

    served = Served(tmp_path / "store", tmp_path, keys)
    try:
        with GrpcClient(served.address) as client:
            found = receive_all(client, "GKilled", "Killed", len(acknowledged))
            assert acknowledged <= set(found)
        with GrpcClient(served.address) as client:
            found = receive_all(client, "GKilledFifo", "KilledFifo", len(ordered))
            assert found[: len(ordered)] == ordered
        with GrpcClient(served.address) as client:
            client.produce("KilledTrans")
            asked = {}
            while len(asked) < len(halves):
                command = client.arrived.get(timeout=30).recover_orphaned_transaction_command
                asked[command.transaction_id] = command.message.body
            assert asked == halves
    finally:
        served.stop()


def popped_offsets(store):
    """The sum of the offsets of the group that pops, as the broker's file has them."""
    found = (store / "config" / "consumerOffset.json").read_text() if (store / "config").exists() else ""
    entry = re.search(r'"Killed@GPop":\{([^}]*)\}', found.replace("\n", "").replace("\t", ""))
    return sum(int(one.partition(":")[2]) for one in entry[1].split(",")) if entry else 0


@pytest.mark.slow
def test_what_was_not_acknowledged_comes_again_after_its_time(tmp_path):
    served = Served(tmp_path / "store", tmp_path)
    create_topics(served.address)
    with GrpcClient(served.address) as client:
        for number in range(20):
            assert code(client.send("Killed", b"%d" % number)) == "OK"
        client.consume("GPop", "Killed")
        received = []
        while len(received) < 20:
            received += client.receive("GPop", "Killed", batch_size=32, invisible=10)
        popped = time.monotonic()
        for one in received[:10]:
            assert code(client.ack("GPop", "Killed", one)) == "OK"
    until(lambda: popped_offsets(tmp_path / "store") == 20)  # a group's offsets reach the disk at intervals
    served.stop(kill=True)
    served = Served(tmp_path / "store", tmp_path)
    try:
        with GrpcClient(served.address) as client:
            client.consume("GPop", "Killed")
            again = []
            while len(again) < 10:
                again += client.receive(
                    "GPop", "Killed", batch_size=32, seconds=40, long_polling_timeout={"seconds": 20}
                )
                assert again, "nothing came again"
                assert time.monotonic() - popped > 9.5
            assert sorted(one.body for one in again) == sorted(one.body for one in received[10:])
            assert {one.system_properties.delivery_attempt for one in again} == {2}
    finally:
        served.stop()
