"""Positions that `plan offsets --broker` sets on running brokers, and those of a broker with RocksDB.

Those of stopped stores are in `test_position_reports`. One situation is that of apache/rocketmq #9038: a reset reports
success and changes nothing.
"""

import importlib.util
import json
import subprocess
import time
from collections import defaultdict

import pytest

from tests.support import acl, auth
from tests.support.remoting import Client, bodies
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KEYS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "timerWheelEnable": False,
    "autoCreateSubscriptionGroup": True,
}
QUERY_OFFSET, UPDATE_OFFSET, CREATE_TOPIC, CREATE_GROUP = 14, 15, 17, 200
TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}
PUT = 10
"""Messages in each queue before the positions move; one more arrives afterwards."""


def fill(broker, positions):
    """Gives a broker the topic, ten messages in each queue, groups and their positions; returns a store time."""
    with Client(broker.address) as client:
        assert client.call(CREATE_TOPIC, **TOPIC).code == 0
        for number in range(PUT):
            for queue in (0, 1):
                assert client.put("T", f"{queue}-{number}".encode(), queue, properties={"KEYS": f"k{number}"}).code == 0
            time.sleep(0.02)  # or messages have the same store time
        for group, offsets in positions.items():
            assert client.call(CREATE_GROUP, json.dumps({"groupName": group}).encode()).code == 0
            retry = TOPIC | {"topic": f"%RETRY%{group}", "readQueueNums": 1, "writeQueueNums": 1}
            assert client.call(CREATE_TOPIC, **retry).code == 0  # mqadmin asks for it
            for queue, offset in enumerate(offsets):
                if offset is not None:
                    commit(client, group, queue, offset)
        assert client.call(CREATE_GROUP, json.dumps({"groupName": "copy"}).encode()).code == 0


def commit(client, group, queue, offset):
    """Commits a position as a consumer does."""
    fields = {"consumerGroup": group, "topic": "T", "queueId": queue, "commitOffset": offset}
    assert client.call(UPDATE_OFFSET, **fields).code == 0


def positions_on(broker, group):
    """What a broker answers about both queues; None for no position, for which 4.9.7 answers 0."""
    found = []
    with Client(broker.address) as client:
        for queue in (0, 1):
            answer = client.call(QUERY_OFFSET, consumerGroup=group, topic="T", queueId=queue, setZeroIfNotFound=False)
            found.append(int(answer.fields["offset"]) if answer.code == 0 else None)
    return tuple(found)


def receive(real, broker, work, counts, seconds=4, topics=None):
    """What a real consumer of each group gets: queue and queue offset of each message.

    Args:
        real, broker: which.
        work: directory for files of the client.
        counts: messages that each group is waited for.
        seconds: to wait for more.
        topics: by group; T for the others.
    """
    words = [f"{group}:{(topics or {}).get(group, 'T')}:{count}" for group, count in counts.items()]
    command = real._java("Receive", broker.name_server, str(seconds), *words, home=work)
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert result.returncode == 0, (result.stdout, result.stderr[-3000:])
    return received(result.stdout)


def received(text):
    """Messages in the output of Receive, by group."""
    found = defaultdict(list)
    for line in text.splitlines():
        if line.startswith("got "):
            _, group, queue, offset = line.split()
            found[group].append((int(queue), int(offset)))
    return found


def predicted(document, group, now, arrived):
    """The messages that a group gets according to a plan: those unread, with those again and without those never.

    Args:
        document: of `plan offsets --list`.
        group: which.
        now: its positions before, None for none.
        arrived: messages of a queue after the plan.
    """
    found = {
        (queue, offset)
        for queue, position in enumerate(now)
        for offset in range(min(PUT, position or 0), PUT + arrived)
    }
    for row in document["messages"]:
        if row["group"] == group:
            place = row["queue_id"], row["queue_offset"]
            if row["change"] == "again":
                assert place not in found
                found.add(place)
            else:
                found.remove(place)
    return found


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_positions_on_a_running_broker_move_and_go_back(version, rocketmq, mqtool, tmp_path):
    real = rocketmq(version)
    broker = real.start_broker(tmp_path, **KEYS)
    fill(broker, {"stopped": (8, 8), "source": (3, 8)})
    plan, undo = tmp_path / "plan.json", tmp_path / "plan.undo.json"
    words = ("--broker", broker.address, "--topic", "T", "--list", "--format", "json")
    made = mqtool("plan", "offsets", *words, "--group", "stopped", "--shift", "-3", "-o", plan)
    assert made.code == 0, made.stderr
    assert positions_on(broker, "stopped") == (8, 8), "a plan changes nothing"
    assert [(row["queue_offset"], row["key"]) for row in made.document["messages"] if row["queue_id"] == 0] == [
        (5, "k5"),
        (6, "k6"),
        (7, "k7"),
    ]
    assert mqtool("apply", plan).code == 4, "nothing without --yes"
    done = mqtool("apply", plan, "--yes", "--format", "json")
    assert (done.code, done.document["moved"], done.document["undo"]) == (0, 2, str(undo))
    assert positions_on(broker, "stopped") == (5, 5)
    progress = broker.admin("consumerProgress", "-g", "stopped")
    assert [line.split()[4] for line in progress.splitlines() if line.startswith("T ")] == ["5", "5"], progress
    again = mqtool("apply", plan, "--yes", "--format", "json")
    assert (again.code, again.document["moved"], again.document["already"]) == (0, 0, 2)
    assert mqtool("apply", undo, "--yes").code == 0
    assert positions_on(broker, "stopped") == (8, 8)
    plan.with_name("plan.redo.json").unlink()
    undo.unlink()
    # a group without positions gets some, and has none again
    copy, first = tmp_path / "copy.json", positions_on(broker, "copy")
    assert mqtool("plan", "offsets", *words, "--group", "copy", "--from-group", "source", "-o", copy).code == 0
    assert mqtool("apply", copy, "--yes").code == 0
    assert positions_on(broker, "copy") == (3, 8)
    assert mqtool("apply", tmp_path / "copy.undo.json", "--yes").code == 0
    assert positions_on(broker, "copy") == first
    # what somebody else changed meanwhile is not written over
    with Client(broker.address) as client:
        commit(client, "stopped", 0, 9)
    assert mqtool("apply", plan, "--yes").code == 4
    with Client(broker.address) as client:
        commit(client, "stopped", 0, 8)
    assert mqtool("apply", plan, "--yes").code == 0
    found = receive(real, broker, tmp_path, {"stopped": 10})
    assert sorted(found["stopped"]) == [(queue, offset) for queue in (0, 1) for offset in range(5, 10)]


ADMINISTRATOR = {"4.9.7": ("AdminKey", "AdminSecret"), "5.5.0": (auth.ADMIN, auth.ADMIN_PASSWORD)}
"""Access key and secret key of the account that may do everything, by release: ACL 1.0 and 2.0."""


@pytest.mark.night
@pytest.mark.parametrize("version", ADMINISTRATOR)
def test_a_broker_with_access_control_takes_signed_positions_only(version, rocketmq, mqtool, monkeypatch, tmp_path):
    broker = rocketmq(version).start_broker(tmp_path, **KEYS)
    fill(broker, {"G": (8, 8)})
    broker.stop()
    (tmp_path / "conf").mkdir(exist_ok=True)
    (tmp_path / "conf" / "plain_acl.yml").write_text(acl.ACCOUNTS, "utf-8")
    broker.start(KEYS | ({"aclEnable": True} if version == "4.9.7" else auth.KEYS))
    plan, undo = tmp_path / "plan.json", tmp_path / "plan.undo.json"
    ask = ("plan", "offsets", "--broker", broker.address, "--group", "G", "--topic", "T", "--shift", "-3", "-o", plan)

    def sign(secret):
        monkeypatch.setenv("MQTOOL_ACCESS_KEY", ADMINISTRATOR[version][0])
        monkeypatch.setenv("MQTOOL_SECRET_KEY", secret)

    for secret in (None, "wrong secret"):
        if secret:
            sign(secret)
        refused = mqtool(*ask)
        assert refused.code != 0, refused.stdout
        assert not plan.exists()
    sign(ADMINISTRATOR[version][1])
    assert mqtool(*ask).code == 0
    sign("wrong secret")
    assert mqtool("apply", plan, "--yes").code != 0
    sign(ADMINISTRATOR[version][1])
    moved = mqtool("apply", plan, "--yes", "--format", "json")
    assert (moved.code, moved.document["moved"]) == (0, 2), moved.stderr
    back = mqtool("apply", undo, "--yes", "--format", "json")
    assert (back.code, back.document["moved"]) == (0, 2), back.stderr
    assert mqtool("apply", plan, "--yes").code == 0
    broker.stop()
    shown = mqtool("offsets", broker.store, "--group", "G", "--topic", "T", "--format", "jsonl").lines
    assert [row["offset"] for row in shown if row["kind"] == "committed"] == [5, 5]


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_running_consumers_are_refused_and_moved_by_the_broker_s_reset(version, rocketmq, mqtool, tmp_path):
    real = rocketmq(version)
    broker = real.start_broker(tmp_path, **KEYS)
    fill(broker, {"running": (10, 10)})
    moment = int(stored_on(broker, 0, 7))
    command = real._java("Receive", broker.name_server, "3", "running:T:6", home=tmp_path)
    log = tmp_path / "received"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    try:
        until(lambda: "ready" in log.read_text())
        words = ("--broker", broker.address, "--topic", "T", "--group", "running")
        refused = mqtool("plan", "offsets", *words, "--to", f"@{moment}", "-o", tmp_path / "no.json")
        assert (refused.code, "--online" in refused.stderr) == (4, True), refused.stderr
        if version == "4.9.7":
            refused = mqtool("plan", "offsets", *words, "--shift", "-3", "--online", "-o", tmp_path / "no.json")
            assert (refused.code, "a time only" in refused.stderr) == (4, True), refused.stderr
        plan = tmp_path / "plan.json"
        made = mqtool(
            "plan", "offsets", *words, "--to", f"@{moment}", "--online", "-o", plan, "--format", "json", "--list"
        )
        assert made.code == 0, made.stderr
        assert mqtool("apply", plan, "--yes").code == 0
        process.wait(120)
    finally:
        process.kill()
        process.wait()
    expected = predicted(made.document, "running", (10, 10), 0)
    assert min(offset for queue, offset in expected if queue == 0) == 7
    assert set(received(log.read_text())["running"]) == expected


def until(condition, seconds=60):
    """Waits for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def stored_on(broker, queue, offset):
    """Store time of a message of a running broker, by hand out of the record."""
    with Client(broker.address) as client:
        answer = client.pull("T", queue, offset, count=1)
    assert bodies(answer) == [f"{queue}-{offset}".encode()]
    return int.from_bytes(answer.body[56:64], "big")


@pytest.mark.night
def test_a_broker_with_rocksdb_takes_the_planned_positions_over(rocketmq, mqtool, tmp_path):
    """Also a whole group's deletion, and still after the next start."""
    if importlib.util.find_spec("rocksdict") is None:
        pytest.skip("rocksdict is not installed: the extra rocksdb has it")
    keys = KEYS | {"storeType": "defaultRocksDB"}
    broker = rocketmq("5.5.0").start_broker(tmp_path, **keys)
    fill(broker, {"moved": (4, 8), "deleted": (3, 3), "untouched": (9, 9)})
    broker.stop()
    config = tmp_path / "plan.conf"
    config.write_text("storeType=defaultRocksDB\n")
    shown = mqtool("offsets", broker.store, "--config", config, "--format", "jsonl").lines
    assert {row["source"] for row in shown if row["read"]} == {"config/consumerOffsets"}
    words = ("--group", "moved", "--topic", "T", "--shift", "-2")
    for name, options in (("moved", words), ("deleted", ("--group", "deleted", "--delete"))):
        plan = tmp_path / f"{name}.json"
        made = mqtool("plan", "offsets", broker.store, *options, "--config", config, "-o", plan, "--format", "json")
        assert made.code == 0, made.stderr
        assert [step["path"] for step in made.document["steps"]] == ["config/consumerOffset.json"]
        assert mqtool("apply", plan, "--yes").code == 0
        assert mqtool("discard-undo", broker.store, "--yes").code == 0
    for _ in range(2):
        broker.start(keys)
        assert positions_on(broker, "moved") == (2, 6)
        assert positions_on(broker, "untouched") == (9, 9)
        assert positions_on(broker, "deleted") == (None, None)
        broker.stop()
