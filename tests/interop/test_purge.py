"""A real broker runs on a purged store: it serves the other topics as before, and the purged one goes on where it was."""

import json
import shutil
import time

import pytest

from tests.interop.test_offsets import CREATE_GROUP, CREATE_TOPIC, TOPIC, commit, positions_on, receive, until
from tests.support.remoting import Client, bodies
from tests.support.stores import tree_digest

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.night]

KEYS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "autoCreateSubscriptionGroup": True,
}
PUT = 150
"""Messages of each topic and queue: several segments, more than one file of a queue."""


def served(client, topic, queue):
    """Bodies of the messages of a queue up to the first that is not served."""
    found = []
    while len(found) < PUT:
        got = bodies(client.pull(topic, queue, len(found), count=32))
        if not got:
            break
        found += got
    return found


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_broker_serves_all_but_the_purged_topic(version, rocketmq, mqtool, tmp_path):
    real = rocketmq(version)
    broker = real.start_broker(tmp_path, **KEYS)
    with Client(broker.address) as client:
        for topic in ("T", "Kept"):
            assert client.call(CREATE_TOPIC, **(TOPIC | {"topic": topic})).code == 0
        for number in range(PUT):
            for queue in (0, 1):
                for topic in ("T", "Kept"):
                    body = f"{topic}-{queue}-{number}".encode() + b"." * 100
                    assert client.put(topic, body, queue, properties={"KEYS": f"{topic}{number}"}).code == 0
        for topic in ("T", "Kept"):  # parked; they become due after the purge
            assert client.put(topic, b"late", 0, properties={"DELAY": "5"}).code == 0
        expected = {queue: [f"Kept-{queue}-{n}".encode() + b"." * 100 for n in range(PUT)] for queue in (0, 1)}
        until(lambda: all(served(client, "Kept", queue) == expected[queue] for queue in (0, 1)))
        for group in ("reader",):
            assert client.call(CREATE_GROUP, json.dumps({"groupName": group}).encode()).code == 0
            retry = TOPIC | {"topic": f"%RETRY%{group}", "readQueueNums": 1, "writeQueueNums": 1}
            assert client.call(CREATE_TOPIC, **retry).code == 0
        for queue in (0, 1):
            commit(client, "reader", queue, PUT - 3)
    sent = time.monotonic()
    broker.stop()
    store, plan = broker.store, tmp_path / "plan.json"
    digest = tree_digest(store)
    made = mqtool("plan", "purge", store, "--topic", "T", "--allow-unread", "-o", plan, "--format", "json")
    assert made.code == 0, made.stderr
    assert any("1 delay message(s) of these topics are waiting" in note for note in made.document["notes"])
    assert mqtool("apply", plan, "--yes").code == 0
    assert mqtool("undo", store, "--yes").code == 0
    assert tree_digest(store) == digest
    assert mqtool("apply", plan, "--yes").code == 0
    shutil.rmtree(tmp_path / "logs", ignore_errors=True)
    broker.start(KEYS)
    assert mqtool("discard-undo", store, "--yes").code == 0
    with Client(broker.address) as client:
        for queue in (0, 1):
            assert served(client, "Kept", queue) == expected[queue]
        assert positions_on(broker, "reader") == (PUT - 3, PUT - 3)
        for queue in (0, 1):
            assert client.put("T", b"new", queue).code == 0
            assert bodies(client.pull("T", queue, PUT, count=1)) == [b"new"]
        until(lambda: bodies(client.pull("Kept", 0, PUT, count=1)) == [b"late"], 150)
        until(lambda: bodies(client.pull("T", 0, PUT + 1, count=1)) == [b"late"])
        assert time.monotonic() - sent >= 50, "delay level 5 is a minute"
    by_key = broker.admin("queryMsgByKey", "-t", "Kept", "-k", "Kept7")
    rows = [line.split()[1:3] for line in by_key.splitlines() if not line.startswith("#") and line]
    assert rows == [["0", "7"], ["1", "7"]], by_key
    found = receive(real, broker, tmp_path, {"reader": 3})
    broker.stop()
    assert sorted(found["reader"]) == [(0, PUT), (0, PUT + 1), (1, PUT)]
    assert mqtool("verify", store, "--fail-on", "error").code == 0


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_broker_starts_on_a_log_of_which_nothing_is_left(version, rocketmq, mqtool, tmp_path):
    broker = rocketmq(version).start_broker(tmp_path, **KEYS)
    with Client(broker.address) as client:
        assert client.call(CREATE_TOPIC, **TOPIC).code == 0
        for number in range(PUT):
            assert client.put("T", f"{number}".encode(), 0).code == 0
    broker.stop()
    plan = tmp_path / "plan.json"
    assert mqtool("plan", "purge", broker.store, "--topic", "*", "--allow-unread", "-o", plan).code == 0
    assert mqtool("apply", plan, "--yes").code == 0
    broker.start(KEYS)
    with Client(broker.address) as client:
        assert client.put("T", b"new", 0).code == 0
        until(lambda: bodies(client.pull("T", 0, PUT, count=1)) == [b"new"])
    broker.stop(kill=True)
    broker.start(KEYS)  # after a crash: the log is read from its first segment
    with Client(broker.address) as client:
        until(lambda: bodies(client.pull("T", 0, PUT, count=1)) == [b"new"])
    broker.stop()
