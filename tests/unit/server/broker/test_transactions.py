"""Transactions: a half is seen by nobody, its end decides, and who does not say is asked."""

import pytest

from tests.support.remoting import bodies, records
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
