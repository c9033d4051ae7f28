"""Which check point an acknowledgement refers to: waiting messages and a message's life by the broker's rule.

PopReviveService.consumeReviveMessage (5.5.0): an acknowledgement without the name of a broker is one of the broker itself;
a check point without a name is that of no broker.
"""

import json
import shutil

import pytest

from mqtool.formats import topics
from mqtool.store import open_store
from mqtool.store.waiting.held_back import WaitingKind, waiting_messages
from mqtool.story import StepKind, histories_of
from tests.support.builder import FIRST_TIME, StoreBuilder

POPPED_AT = FIRST_TIME + 100
SHORT = {"so": 0, "q": 0, "t": "T", "c": "G", "pt": POPPED_AT}
LONG = {"startOffset": 0, "queueId": 0, "topic": "T", "consumerGroup": "G", "popTime": POPPED_AT}
CASES = {
    "no name": ({"bn": "a"}, SHORT | {"ao": 0}, None, True),
    "no name, at the broker": ({"bn": "a"}, SHORT | {"ao": 0}, "a", True),
    "no name, at another broker": ({"bn": "a"}, SHORT | {"ao": 0}, "b", False),
    "the name": ({"bn": "a"}, SHORT | {"ao": 0, "bn": "a"}, "b", True),
    "another name": ({"bn": "a"}, SHORT | {"ao": 0, "bn": "b"}, None, False),
    "both without": ({}, SHORT | {"ao": 0}, None, False),
    "both without, at a broker": ({}, SHORT | {"ao": 0}, "a", False),
    "another time": ({"bn": "a"}, SHORT | {"ao": 0, "bn": "a", "pt": POPPED_AT + 1}, None, False),
    "as 5.0.0 writes it": ({"bn": "a"}, LONG | {"ackOffset": 0, "brokerName": "a"}, None, True),
}


def park(builder: StoreBuilder, tag: str, key: str, body: dict[str, object]) -> None:
    values = {
        "UNIQ_KEY": key,
        "TAGS": tag,
        "REAL_TOPIC": f"{topics.REVIVE_TOPIC_PREFIX}DefaultCluster",
        "REAL_QID": "0",
        "TIMER_OUT_MS": str(POPPED_AT + 60_000),
    }
    encoded = "".join(f"{name}\1{value}\2" for name, value in values.items()).encode()
    builder.put(json.dumps(body).encode(), topics.TIMER_TOPIC, tags=tag, unique_key=key, properties=encoded)


@pytest.mark.parametrize("case", CASES)
def test_an_acknowledgement_refers_to_the_check_point_of_its_broker(case, tmp_path):
    named, ack, broker_name, is_acknowledged = CASES[case]
    builder = StoreBuilder()
    builder.put(topic="T", unique_key="U1")
    park(builder, "ck", "CK", SHORT | {"n": 1, "d": [0], "it": 60_000, **named})
    name = ack.get("bn", ack.get("brokerName", "null"))
    park(builder, "ack", f"T@0@0@G@{POPPED_AT}@{name}@ack", ack)
    config = {} if broker_name is None else {"brokerName": broker_name}
    with open_store(builder.write(tmp_path / "store"), config) as store:
        popped = [one.queue_offsets.tolist() for one in waiting_messages(store) if one.kind is WaitingKind.POPPED]
        (life,), _ = histories_of(store, "U1")
    assert popped == ([] if is_acknowledged else [[0]])
    end = [step.kind for step in life.steps if step.kind in (StepKind.ACKNOWLEDGED, StepKind.WAITS)]
    assert end == [StepKind.ACKNOWLEDGED if is_acknowledged else StepKind.WAITS]


def test_a_popped_message_whose_queue_is_deleted_waits_nowhere(tmp_path):
    builder = StoreBuilder()
    builder.put(topic="T", unique_key="U1")
    park(builder, "ck", "CK", SHORT | {"n": 1, "d": [0], "it": 60_000, "bn": "a"})
    root = builder.write(tmp_path / "store")
    with open_store(root) as store:
        assert [one.topic for one in waiting_messages(store) if one.kind is WaitingKind.POPPED] == ["T"]
    shutil.rmtree(root / "consumequeue" / "T")
    with open_store(root) as store:
        assert [one.topic for one in waiting_messages(store) if one.kind is WaitingKind.POPPED] == []
