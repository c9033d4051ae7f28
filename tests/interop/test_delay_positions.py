"""Wrong positions of delay levels: what findings claim, against what a real broker delivers, and against plans."""

import json
import time

import pytest

from mqtool.formats import file_names
from mqtool.store.store import open_store
from tests.interop.test_offsets import CREATE_TOPIC, KEYS, TOPIC, until
from tests.support.remoting import Client, bodies
from tests.support.stores import copy_tree

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.night]

LEVEL = "1"
"""One second."""
SENT = [f"{number}".encode() for number in range(4)]


def positions(store):
    """Positions of delay levels, as the broker wrote them."""
    with open_store(store) as opened:
        return dict(opened.metadata.delay_offsets)


def set_positions(store, table):
    """Puts other positions in the place of the broker's."""
    path = store / file_names.CONFIG / file_names.DELAY_OFFSETS
    path.with_name(f"{path.name}.bak").unlink(missing_ok=True)
    path.write_text(json.dumps({"offsetTable": table}))


def codes(mqtool, store):
    """Codes of the findings about positions of delay levels."""
    found = mqtool("verify", store, "--format", "json").document["findings"]
    return {one["code"] for one in found if one["code"].startswith("config-delay-")}


def pending(mqtool, store):
    """How many delayed messages wait, as mqtool counts them."""
    rows = mqtool("pending", store, "--format", "jsonl").lines
    return sum(row["messages"] for row in rows if row["kind"] == "delay")


def repaired(mqtool, store, plan):
    """Repairs a store by a plan."""
    plan.unlink(missing_ok=True)
    made = mqtool("plan", "repair", store, "-o", plan)
    assert made.code == 0, made.stderr
    assert mqtool("apply", plan, "--yes").code == 0
    assert mqtool("discard-undo", store, "--yes").code == 0


def delivered(broker, count, seconds=4):
    """Bodies in the queue of the topic: at least so many, and what arrives soon after."""
    with Client(broker.address) as client:
        until(lambda: len(bodies(client.pull("T", 0, 0))) >= count)
        time.sleep(seconds)
        return bodies(client.pull("T", 0, 0))


def delay(broker, messages, level=LEVEL):
    with Client(broker.address) as client:
        for body in messages:
            assert client.put("T", body, 0, properties={"DELAY": level}).code == 0


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_brokers_deliver_what_findings_claim_and_no_more_after_the_plan(version, rocketmq, mqtool, tmp_path):
    broker = rocketmq(version).start_broker(tmp_path, **KEYS)
    store, plan = broker.store, tmp_path / "plan.json"
    with Client(broker.address) as client:
        assert client.call(CREATE_TOPIC, **(TOPIC | {"readQueueNums": 1, "writeQueueNums": 1})).code == 0
    delay(broker, SENT)
    assert delivered(broker, 4) == SENT
    broker.stop()
    assert (positions(store)[1], codes(mqtool, store)) == (4, set())

    set_positions(store, {LEVEL: 99})  # past the end: the broker goes to the end, and so does the plan
    assert codes(mqtool, store) == {"config-delay-ahead"}
    other = copy_tree(store, tmp_path / "other")
    repaired(mqtool, other, plan)
    broker.start(KEYS)
    delay(broker, [b"ahead"])
    assert delivered(broker, 5) == [*SENT, b"ahead"]
    broker.stop()
    assert (positions(other)[1], positions(store)[1]) == (4, 5)

    set_positions(store, {LEVEL: 3})  # inside the queue: no finding, and what is pending comes again
    assert (codes(mqtool, store), pending(mqtool, store)) == (set(), 2)
    broker.start(KEYS)
    again = [*SENT, b"ahead", SENT[3], b"ahead"]
    assert delivered(broker, 7) == again
    broker.stop()

    set_positions(store, {})  # none: the broker delivers all again, and after the plan nothing
    assert (codes(mqtool, store), pending(mqtool, store)) == ({"config-delay-missing"}, 5)
    other = copy_tree(store, tmp_path / "third")
    repaired(mqtool, other, plan)
    assert (codes(mqtool, other), pending(mqtool, other)) == (set(), 0)
    broker.start(KEYS)
    assert delivered(broker, 12) == [*again, *SENT, b"ahead"]
    broker.stop()
    set_positions(store, {})
    repaired(mqtool, store, plan)
    broker.start(KEYS)
    assert len(delivered(broker, 12)) == 12
    broker.stop()

    set_positions(store, {LEVEL: 5, "2": 3})  # of a queue that is missing: the broker begins the new one at 0
    assert codes(mqtool, store) == {"config-delay-orphan"}
    broker.start(KEYS)
    delay(broker, [b"a", b"b", b"c", b"d"], "2")
    assert delivered(broker, 16)[12:] == [b"a", b"b", b"c", b"d"]
    broker.stop()
    assert positions(store) == {1: 5, 2: 4}
