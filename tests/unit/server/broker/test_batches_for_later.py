"""Batches with a delay level or a timer are refused or stored where real brokers do so, whose answers were recorded."""

import json
from pathlib import Path

import pytest

import mqtool
from mqtool.server.testing import MqServer
from mqtool.verify.store import verify
from tests.support.batches_for_later import TOPIC, converse
from tests.support.refusals import BATCH_OF_ONE, JAVA
from tests.support.remoting import Client
from tests.support.stores import copy_store
from tests.support.tiers import one_in
from tests.unit.server.broker.conftest import until

ANSWERS = Path(__file__).parents[1] / "answers"
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched.",
    "timer message illegal, the delay time should not be bigger than the max delay",
)


def recorded(version):
    return list(map(json.loads, (ANSWERS / f"batches-for-later-{version}.jsonl").read_text("utf-8").splitlines()))


def comparable(row):
    """A row without what the real broker adds to a remark, and what Java says where ours names the property."""
    remark = row.get("remark")
    if remark is None:
        return row
    if remark == JAVA or remark.startswith("the property DELAY is not a delay level"):
        return row | {"remark": JAVA}
    return row | {"remark": next(start for start in ILLEGAL if remark.startswith(start))}


@pytest.mark.parametrize("fast", one_in(2, [True, False]), ids=["fast sends", "ordinary sends"])
def test_a_batch_for_later_is_answered_and_stored_as_by_5_5_0(fast):
    with MqServer(fast_sends=fast) as server:
        found = converse(server.broker_address)
    assert list(map(comparable, found)) == list(map(comparable, recorded("5.5.0")))


@pytest.mark.slow
def test_a_batch_for_later_is_answered_and_stored_as_by_4_9_7(tmp_path):
    store = copy_store("orders-4.9.7", tmp_path)
    with MqServer(store) as server:
        found = converse(server.broker_address, has_inner=False)
    found = [row for row in found if not row["label"].startswith("SCHEDULE_TOPIC_XXXX")]  # those of the fixture
    for row in found:
        row.pop("transactionId", None)  # ours has it in the answer to a single message also where 4.9 has not
    assert list(map(comparable, found)) == list(map(comparable, recorded("4.9.7")))


@pytest.mark.slow
def test_the_timer_goes_on_after_a_batch_that_it_cannot_use(tmp_path):
    """That of 5.5.0 stops there for good."""
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        later = {"TIMER_DELAY_MS": "1500"}
        assert client.put(TOPIC, BATCH_OF_ONE, code=320, m=True, properties=later).code == 0
        assert client.put(TOPIC, b"behind it", properties=later).code == 0
        until(lambda: client.call(30, topic=TOPIC, queueId=0).fields.get("offset") == "1")
    with mqtool.open(tmp_path / "store") as store:
        found = [one.topic for one in verify(store).findings if one.code == "log-unusable-message"]
    assert found == ["rmq_sys_wheel_timer"]
