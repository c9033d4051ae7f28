"""NOTIFICATION, PEEK_MESSAGE and POLLING_INFO; queries of keys that share a hash; offsets of light queues."""

import time

import pytest

from mqtool.formats import config_files
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_pop import ack, fill, pop

MINUTE_MS = 60_000


def notify(client, queue_topic, poll=0, **more):
    fields = {"consumerGroup": "GLook", "topic": queue_topic, "queueId": -1, "pollTime": poll, "bornTime": 0}
    return client.send(200054, **(fields | more))


def has_message(client, opaque):
    answer = client.answer(opaque)
    assert (answer.code, answer.fields["pollingFull"]) == (0, "false")
    return answer.fields["hasMsg"]


def test_a_notification_says_whether_there_is_a_message_to_pop(client, topic):
    assert has_message(client, notify(client, topic)) == "false"
    fill(client, topic, 1)
    assert has_message(client, notify(client, topic)) == "true"
    assert bodies(pop(client, topic, group="GLook")) == [b"p0"]
    assert has_message(client, notify(client, topic)) == "false"


def test_a_notification_that_waits_is_answered_by_the_message(connect, client, topic):
    waiting = connect()
    opaque = notify(waiting, topic, poll=20_000)
    asked = {"consumerGroup": "GLook", "topic": topic, "queueId": 0}
    until(lambda: client.call(200055, **asked).fields["pollingNum"] == "1")
    client.put(topic, b"comes")
    assert has_message(waiting, opaque) == "true"
    assert client.call(200055, **asked).fields["pollingNum"] == "0"


def test_a_notification_waits_for_a_queue_whose_messages_are_out_in_order(client, topic):
    fill(client, topic, 2)
    answer = pop(client, topic, group="GLook", order=True, queue=0, count=1)
    assert has_message(client, notify(client, topic, queueId=0, order=True)) == "false"
    assert ack(client, topic, answer, 0, group="GLook").code == 0
    assert has_message(client, notify(client, topic, queueId=0, order=True)) == "true"


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"topic": "NoSuchTopic"}, 17), ({"queueId": 99}, 1), ({"consumerGroup": "no such group"}, 26)],
    ids=["topic", "queue", "group"],
)
def test_a_notification_for_what_is_not_there_is_refused(client, topic, fields, code):
    assert client.answer(notify(client, topic, **fields)).code == code


def test_what_is_peeked_stays_where_it_is(client, topic):
    fields = {"consumerGroup": "GPeek", "topic": topic, "queueId": -1, "maxMsgNums": 2}
    empty = client.call(200052, **fields)
    assert (empty.code, empty.remark) == (19, "NO_MESSAGE_IN_QUEUE")
    assert empty.fields == {"restNum": "0", "popTime": "0", "invisibleTime": "0", "reviveQid": "0"}  # as 5.5.0 says
    fill(client, topic, 3)
    for _ in range(2):
        answer = client.call(200052, **fields)
        assert (answer.code, answer.remark, answer.fields["restNum"]) == (0, "FOUND", "3")
        assert bodies(answer) == [b"p0", b"p1"]
    assert len(bodies(pop(client, topic, group="GPeek"))) == 3


def test_a_query_by_key_leaves_out_other_keys_of_the_same_hash(client, topic):
    for key in ("Aa", "BB"):  # as Java hashes them
        client.put(topic, key.encode(), properties={"KEYS": f"x-{key} other"})
    now = int(time.time() * 1000)
    window = {"maxNum": 8, "beginTimestamp": now - MINUTE_MS, "endTimestamp": now + MINUTE_MS}
    until(lambda: client.call(12, topic=topic, key="other", **window).code == 0)
    until(lambda: len(bodies(client.call(12, topic=topic, key="other", **window))) == 2)
    assert bodies(client.call(12, topic=topic, key="x-Aa", **window)) == [b"Aa"]
    assert bodies(client.call(12, topic=topic, key="x-BB", **window)) == [b"BB"]


def test_offsets_of_light_queues_are_kept_in_their_own_file(tmp_path):
    store = tmp_path / "store"
    light = {"consumerGroup": "%LMQ%group", "topic": "%LMQ%queue", "queueId": 0}
    with MqServer(store, enableLmq="true", enableMultiDispatch="true") as server:
        with Client(server.broker_address) as client:
            client.put("Plain", b"m", properties={"INNER_MULTI_DISPATCH": "%LMQ%queue"})
            until(lambda: client.pull("%LMQ%queue", group="%LMQ%group").code == 0)
            assert client.call(15, commitOffset=1, **light).code == 0
            assert client.call(15, commitOffset=1, consumerGroup="TOOLS_CONSUMER", topic="Plain", queueId=0).code == 0
        server.restart()
        with Client(server.broker_address) as client:
            assert client.call(14, **light).fields["offset"] == "1"
    found = config_files.parse_consumer_offsets((store / "config" / "lmqConsumerOffset.json").read_bytes())
    assert found.lmq_offset_table == {"%LMQ%queue@%LMQ%group": 1}
    assert found.offset_table["Plain@TOOLS_CONSUMER"] == {0: 1}
    assert "%LMQ%queue@%LMQ%group" not in found.offset_table
    assert not (store / "config" / "consumerOffset.json").exists()
