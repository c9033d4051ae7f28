"""Transactions: a half is seen by nobody, its end decides, and who does not say is asked."""

import pytest

from mqtool.engine import PutResult, PutStatus
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies, records
from tests.unit.server.broker.conftest import until

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def half(client, topic, body=b"tx", group="PTx"):
    answer = client.put(topic, body, group=group, sys_flag=4, properties={"TRAN_MSG": "true", "PGROUP": group})
    assert answer.code == 0, answer.remark
    return int(answer.fields["msgId"][-16:], 16), int(answer.fields["queueOffset"])


def end(client, where, decision, group="PTx", **more):
    return client.send(
        37,
        producerGroup=group,
        commitLogOffset=where[0],
        tranStateTableOffset=where[1],
        commitOrRollback=decision,
        fromTransactionCheck=False,
        msgId="",
        **more,
    )


def test_a_committed_message_appears_with_its_half_s_address(client, topic):
    where = half(client, topic)
    assert client.pull(topic).code == 19
    assert client.answer(end(client, where, COMMIT)).code == 0
    until(lambda: client.pull(topic).code == 0)
    ((facts, body),) = records(client.pull(topic))
    assert (body, facts["prepared"], facts["sys_flag"] & 12) == (b"tx", where[0], 8)
    assert facts["properties"]["REAL_TOPIC"] == topic


def test_a_message_that_is_rolled_back_never_appears(client, topic):
    assert client.answer(end(client, half(client, topic), ROLLBACK)).code == 0
    client.put(topic, b"ordinary")
    until(lambda: client.pull(topic).code == 0)
    assert bodies(client.pull(topic)) == [b"ordinary"]


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"group": "Other"}, "The producer group wrong"),
        ({"queue": 999}, "The transaction state table offset wrong"),
        ({"physical": 1 << 40}, "Find prepared transaction message failed"),
    ],
    ids=["group", "queue offset", "address"],
)
def test_an_end_that_is_not_that_of_the_half_is_refused(client, topic, wrong, remark):
    physical, queue = half(client, topic)
    where = (wrong.get("physical", physical), wrong.get("queue", queue))
    answer = client.answer(end(client, where, COMMIT, wrong.get("group", "PTx")))
    assert (answer.code, answer.remark) == (1, remark)
    client.answer(end(client, (physical, queue), ROLLBACK))


def test_a_producer_that_does_not_say_is_asked_and_its_word_counts(client, topic):
    client.heartbeat("tx@1", producers=("PAsked",))
    half(client, topic, b"asked", "PAsked")
    asked = client.request(39)
    assert bodies(asked) == [b"asked"]
    assert asked.fields["topic"] == topic
    again = int(asked.fields["commitLogOffset"]), int(asked.fields["tranStateTableOffset"])
    assert client.answer(end(client, again, COMMIT, "PAsked")).code == 0
    until(lambda: client.pull(topic).code == 0)
    assert bodies(client.pull(topic)) == [b"asked"]


def test_what_is_done_with_is_passed_over_for_good(client, server, topic):
    where = half(client, topic, group="PSilent")
    client.answer(end(client, where, ROLLBACK, "PSilent"))
    position = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queueId": 0}
    until(lambda: int(client.call(14, **position).fields["offset"]) > where[1])
    ops = client.call(30, topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", queueId=0).fields["offset"]
    at_ops = {**position, "topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
    until(lambda: client.call(14, **at_ops).fields["offset"] == ops)
    assert int(client.call(14, **position).fields["offset"]) > where[1]


def test_a_half_that_was_asked_about_too_often_is_kept_in_a_topic_of_its_own(tmp_path):
    keys = {"transactionCheckInterval": "30", "transactionTimeOut": "10", "transactionCheckMax": "2"}
    with MqServer(tmp_path / "store", **keys) as server, Client(server.broker_address) as client:
        half(client, "Given", b"given up")
        until(lambda: client.pull("TRANS_CHECK_MAX_TIME_TOPIC").code == 0)
        ((facts, body),) = records(client.pull("TRANS_CHECK_MAX_TIME_TOPIC"))
    assert body == b"given up"
    assert (facts["properties"]["REAL_TOPIC"], facts["properties"]["TRANSACTION_CHECK_TIMES"]) == ("Given", "2")


def test_a_half_in_its_own_immunity_time_does_not_keep_later_ones_waiting(client, topic):
    client.heartbeat("tx@2", producers=("PImmune",))
    first = client.put(
        topic,
        b"immune",
        group="PImmune",
        sys_flag=4,
        properties={"TRAN_MSG": "true", "PGROUP": "PImmune", "CHECK_IMMUNITY_TIME_IN_SECONDS": "600"},
    )
    assert first.code == 0
    half(client, topic, b"later", "PImmune")
    assert bodies(client.request(39)) == [b"later"]


def test_a_half_that_the_store_refuses_to_put_back_is_asked_about_later(client, server, topic, monkeypatch):
    """Passing over it would lose it: nothing else refers to it."""
    store, refused = server.broker.writer.store, []

    async def refusing(message):
        if message.topic == "RMQ_SYS_TRANS_HALF_TOPIC" and message.body == b"refused" and len(refused) < 3:
            refused.append(message)
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        return await store(message)

    monkeypatch.setattr(server.broker.writer, "store", refusing)
    client.heartbeat("tx@3", producers=("PRefused",))
    half(client, topic, b"refused", "PRefused")
    assert bodies(client.request(39)) == [b"refused"]
    assert len(refused) == 3
