"""Twenty situations of reports about positions: real consumers get, message by message, what the plan predicts.

The numbers are those of apache/rocketmq, issues and pull requests, if nothing else is said.
"""

import json
from dataclasses import dataclass
from itertools import chain

import pytest

from mqtool.formats import message_batch
from tests.interop.test_offsets import (
    CREATE_GROUP,
    CREATE_TOPIC,
    KEYS,
    PUT,
    TOPIC,
    fill,
    positions_on,
    receive,
    until,
)
from tests.support.remoting import Client
from tests.support.stores import copy_tree, tree_digest

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SEND_BATCH = 320
RETRIES = 3
"""Messages in the retry topic of a group that has one, and of the batch."""


@dataclass(frozen=True)
class Situation:
    """What was reported, and what the plan does about it.

    Attributes:
        report: number.
        before: positions in the two queues of T; None for no position.
        words: what follows `plan offsets STORE --group NAME`; see `_words` for what is put in.
        topic: that consumers subscribe to.
        retries: position in the retry topic, which then has three messages.
    """

    report: str
    before: tuple[int | None, int | None]
    words: tuple[str, ...]
    topic: str = "T"
    retries: int | None = None


NONE = (None, None)
SITUATIONS = {
    "backlog": Situation("2969: skip a backlog", (2, 2), ("--to", "latest")),
    "diff": Situation("951: one message stays unread after a reset to now", (9, 9), ("--to", "latest")),
    "poison": Situation("2267: skip one message", (4, 6), ("--shift", "1", "--queue", "0", "--topic", "T")),
    "exact": Situation("4470: reset to an offset", (9, 9), ("--to", "4", "--queue", "1", "--topic", "T")),
    "bytime": Situation("290: reset a stopped group by time", (10, 10), ("--to", "@MOMENT")),
    "future": Situation("5752: a time past the last message", (3, 3), ("--to", "@FUTURE")),
    "batch": Situation("5445: a time that a whole batch has", (8, None), ("--to", "@BATCH"), "B"),
    "yesterday": Situation("6971: process messages again", (10, 10), ("--shift", "-3")),
    "ahead": Situation("4215, 551: far past the end of the queue", (99, 10), ("--clamp",)),
    "oneahead": Situation("2181: past the end by one", (11, 11), ("--clamp",)),
    "recreated": Situation("4774: the topic was created again", (99, 50), ("--to", "earliest")),
    "replica": Situation("1094: a master comes back with old positions", (1, 1), ("--positions", "FILE")),
    "switched": Situation("1440: roles were switched", (2, 2), ("--positions", "STORE")),
    "lost": Situation("alibaba 28: positions are lost", NONE, ("--positions", "FILE")),
    "copy": Situation("3551: copy the positions of a group", NONE, ("--from-group", "source", "--topic", "T")),
    "cloneall": Situation("11111: copy those of all topics", NONE, ("--from-group", "source")),
    "newgroup": Situation("334: a new group gets the whole history", NONE, ("--to", "latest", "--topic", "T")),
    "newqueue": Situation(
        "9307: a new queue without a position", (10, None), ("--to", "earliest", "--queue", "1", "--topic", "T")
    ),
    "skipretry": Situation(
        "2604: skip retries, not the topic", (8, 8), ("--to", "latest", "--topic", "%RETRY%skipretry"), retries=0
    ),
    "retrytime": Situation("211: reset a group whose retries are all read", (8, 8), ("--to", "@FUTURE"), retries=3),
}
SAVED = {"replica": (7, 9), "switched": (8, 9), "lost": (10, 9)}
"""Positions in another place: a file, or the store of a replica."""
SOURCE = (3, 8)


def _words(situation, places):
    """The words with times and paths put in."""
    return [places.get(word.removeprefix("@"), word) for word in situation.words]


def _fill(broker):
    positions = {name: one.before for name, one in SITUATIONS.items() if one.topic == "T"}
    fill(broker, positions | {"source": SOURCE})
    with Client(broker.address) as client:
        assert client.call(CREATE_TOPIC, **(TOPIC | {"topic": "B", "readQueueNums": 1, "writeQueueNums": 1})).code == 0
        batch = b"".join(
            message_batch.build(message_batch.make(b"one of a batch", f"UNIQ_KEY\x01{number:032X}\x02".encode()))
            for number in range(RETRIES)
        )
        for body, more in ((b"first", {}), (batch, {"code": SEND_BATCH, "m": True}), (b"last", {})):
            assert client.put("B", body, **more).code == 0
            until(lambda: client.pull("B", 0, 0).code == 0)
        for name, one in SITUATIONS.items():
            assert client.call(CREATE_GROUP, json.dumps({"groupName": name}).encode()).code == 0
            if one.retries is not None:
                for _ in range(RETRIES):
                    assert client.put(f"%RETRY%{name}", b"retry", 0).code == 0
                commit_at(client, name, f"%RETRY%{name}", one.retries)
        commit_at(client, "batch", "B", RETRIES + 2)
        commit_at(client, "source", "B", 2)


def commit_at(client, group, topic, offset):
    """Commits a position in the first queue of a topic."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    assert client.call(15, **fields).code == 0


def _unread(name, situation):
    """Messages that consumers of a group would get without a plan: topic, queue, queue offset."""
    if situation.topic == "B":
        return set()
    found = {
        ("T", queue, at) for queue, low in enumerate(situation.before) for at in range(min(low or 0, PUT), PUT + 1)
    }
    if situation.retries is not None:
        found |= {(f"%RETRY%{name}", 0, at) for at in range(situation.retries, RETRIES)}
    return found


def _predicted(name, situation, document):
    """Those messages, with those that the plan says come again, and without those that it says never come."""
    found = _unread(name, situation)
    for row in document["messages"]:
        place = row["topic"], row["queue_id"], row["queue_offset"]
        if row["topic"] != situation.topic and not row["topic"].startswith("%RETRY%"):
            continue  # consumers of this test subscribe to one topic
        if row["change"] == "again":
            assert place not in found, place
            found.add(place)
        else:
            found.remove(place)
    return found


def _planned(mqtool, store, tmp_path, name, words):
    """Plans, applies, undoes and applies again; returns what the plan prints."""
    before, plan = tree_digest(store), tmp_path / f"{name}.json"
    result = mqtool("plan", "offsets", store, "--group", name, *words, "--list", "-o", plan, "--format", "json")
    assert result.code == 0, (name, result.stderr)
    assert mqtool("apply", plan, "--yes").code == 0
    assert tree_digest(store) != before
    assert mqtool("undo", store, "--yes").code == 0
    assert tree_digest(store) == before, "undo brings the first state back"
    assert mqtool("apply", plan, "--yes", "--no-verify").code == 0
    assert mqtool("discard-undo", store, "--yes").code == 0
    return result.document


def _places(mqtool, store, tmp_path):
    """What the words of the situations stand for: times, and positions in another place."""
    saved = tmp_path / "saved.json"
    saved.write_text(
        json.dumps({"offsetTable": {f"T@{name}": dict(enumerate(offsets)) for name, offsets in SAVED.items()}})
    )
    replica = copy_tree(store, tmp_path / "replica")
    (replica / "config" / "consumerOffset.json").write_bytes(saved.read_bytes())
    times = {
        name: mqtool("get", store, address, "--format", "jsonl").lines[0]["store_timestamp"]
        for name, address in (("MOMENT", "T/0@6"), ("BATCH", "B/0@1"))
    }
    assert mqtool("get", store, "B/0@3", "--format", "jsonl").lines[0]["store_timestamp"] == times["BATCH"]
    found = {name: f"@{time}" for name, time in times.items()}
    return found | {"FUTURE": f"@{times['MOMENT'] + 3_600_000}", "FILE": str(saved), "STORE": str(replica)}


def test_the_situations_are_twenty():
    reports = set(chain.from_iterable(one.report.partition(":")[0].split(", ") for one in SITUATIONS.values()))
    assert (len(SITUATIONS), len(reports)) == (20, 21)


@pytest.mark.night
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_consumers_get_what_the_plans_predict(version, rocketmq, mqtool, tmp_path):
    real = rocketmq(version)
    broker = real.start_broker(tmp_path, **KEYS)
    _fill(broker)
    broker.stop()
    store = broker.store
    places = _places(mqtool, store, tmp_path)
    documents = {name: _planned(mqtool, store, tmp_path, name, _words(one, places)) for name, one in SITUATIONS.items()}
    broker.start(KEYS)
    assert positions_on(broker, "source") == SOURCE, "nobody else moves"
    with Client(broker.address) as client:  # one that a position past the end would have skipped
        for queue in (0, 1):
            assert client.put("T", b"new", queue).code == 0
    expected = {name: _predicted(name, one, documents[name]) for name, one in SITUATIONS.items()}
    counts = {name: len(one) for name, one in expected.items()}
    found = receive(real, broker, tmp_path, counts, topics={name: one.topic for name, one in SITUATIONS.items()})
    broker.stop()
    assert {name: sorted(found[name]) for name in expected} == {
        name: sorted((queue, offset) for _, queue, offset in one) for name, one in expected.items()
    }
