"""Transactions: a half is seen by nobody, its end decides, and who does not say is asked."""

import time
from types import SimpleNamespace

import pytest

from mqtool.engine import Compat, GetStatus, PutResult, PutStatus, StoreOptions, open_store
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.formats import properties
from mqtool.server.broker.send.transactions import half_message
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies, records
from tests.unit.server.broker.conftest import until

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def half(client, topic, body=b"tx", group="PTx", *, immunity=None, age_h=0):
    values = {"TRAN_MSG": "true", "PGROUP": group}
    if immunity is not None:
        values["CHECK_IMMUNITY_TIME_IN_SECONDS"] = immunity
    born = int(time.time() * 1000) - age_h * 3_600_000
    answer = client.put(topic, body, group=group, sys_flag=4, properties=values, g=born)
    assert answer.code == 0, answer.remark
    return int(answer.fields["msgId"][-16:], 16), int(answer.fields["queueOffset"])


def end(client, where, decision, group="PTx", *, from_check=False):
    return client.send(
        37,
        producerGroup=group,
        commitLogOffset=where[0],
        tranStateTableOffset=where[1],
        commitOrRollback=decision,
        fromTransactionCheck=from_check,
        msgId="",
    )


@pytest.fixture
def old_store(tmp_path):
    """An empty store of release 4.9."""
    path = tmp_path / "old"
    with open_store(path, StoreOptions(compat=Compat.V4_9)) as store:
        assert store.put("Other", 0, b"first").ok
    return path


def test_a_committed_message_appears_with_its_half_s_address(client, topic):
    where = half(client, topic)
    assert client.pull(topic).code == 19
    assert client.answer(end(client, where, COMMIT)).code == 0
    until(lambda: client.pull(topic).code == 0)
    ((facts, body),) = records(client.pull(topic))
    assert (body, facts["prepared"], facts["sys_flag"] & 12) == (b"tx", where[0], 8)
    assert facts["properties"]["WAIT"] == "true"
    assert not {"REAL_TOPIC", "REAL_QID"} & facts["properties"].keys()  # as in fixtures/orders-5.5.0


def test_a_broker_that_is_drained_still_ends_transactions(client, topic):
    where = half(client, topic, b"drained")
    client.call(25, b"brokerPermission=4\n")
    try:
        assert client.answer(end(client, where, COMMIT)).code == 0
    finally:
        client.call(25, b"brokerPermission=6\n")
    until(lambda: bodies(client.pull(topic)) == [b"drained"])


@pytest.mark.parametrize(
    ("retries", "delay", "parked"),
    [
        (1, "3", ("SCHEDULE_TOPIC_XXXX", "%RETRY%GAgain")),
        (0, "3", ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")),
        (1, "0", ("RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%GAgain")),
    ],
)
def test_a_consumer_s_retry_of_a_transactional_message_is_no_half(client, retries, delay, parked):
    """SendMessageProcessor.sendMessage of 5.5.0."""
    client.heartbeat("c@1", consumers={"GAgain": ["T"]})
    values = {"TRAN_MSG": "true", "PGROUP": "PTx", "DELAY": delay}
    answer = client.put("%RETRY%GAgain", b"again", properties=values, j=retries)
    assert answer.code == 0
    ((facts, _),) = records(client.call(33, offset=int(answer.fields["msgId"][-16:], 16)))
    assert (facts["topic"], facts["properties"]["REAL_TOPIC"]) == parked


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
    half(client, topic, b"immune", "PImmune", immunity="600")
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


@pytest.mark.parametrize("refused", ["the message", "the end"])
def test_a_commit_that_the_store_refuses_is_an_error_and_may_be_repeated(client, server, topic, monkeypatch, refused):
    store, where = server.broker.writer.store, half(client, topic, b"again", "PAgain", immunity="7200")

    async def refusing(message):
        is_end = message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE) if is_end is (refused == "the end") else await store(message)

    with monkeypatch.context() as patched:
        patched.setattr(server.broker.writer, "store", refusing)
        answer = client.answer(end(client, where, COMMIT, "PAgain"))
    expected = (
        (1, "the end could not be stored: SERVICE_NOT_AVAILABLE")
        if refused == "the end"
        else (14, "service not available now: the disk may be full, or the store is being shut down")
    )
    assert (answer.code, answer.remark) == expected
    assert client.answer(end(client, where, COMMIT, "PAgain")).code == 0
    until(lambda: bodies(client.pull(topic)) == [b"again"] * (2 if refused == "the end" else 1))


def test_a_half_without_a_unique_key_has_no_transaction_id():
    with_key = half_message(OutgoingMessage("T", 3, b"x", properties.encode({"UNIQ_KEY": "0A"}.items())))
    without = half_message(OutgoingMessage("T", 3, b"x", b""))
    place = {"REAL_TOPIC": "T", "REAL_QID": "3"}
    assert properties.decode(without.properties) == place
    assert properties.decode(with_key.properties) == {"UNIQ_KEY": "0A", "__transactionId__": "0A", **place}


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    ("immunity", "from_check", "code"),
    [("1", False, 604), ("none", False, 604), ("7200", False, 0), ("1", True, 0), (None, False, 0)],
)
def test_an_end_after_the_half_s_immunity_time_counts_only_in_answer_to_a_check(
    client, topic, decision, immunity, from_check, code
):
    """EndTransactionProcessor.rejectCommitOrRollback (5.5.0); it looks before it compares group and offsets."""
    where = half(client, topic, group="PLate", immunity=immunity, age_h=1)
    assert client.answer(end(client, where, decision, "PLate", from_check=from_check)).code == code
    if code == 604:
        assert client.answer(end(client, where, decision, "Other")).code == 604


def test_a_broker_of_4_9_takes_an_end_at_any_time_and_states_it_by_one_number(old_store):
    """4.9.7 has no rejectCommitOrRollback, and reads the body of an op message with Long.parseLong."""
    with MqServer(old_store) as server, Client(server.broker_address) as client:
        where = half(client, "Late", immunity="1", age_h=1)
        assert client.answer(end(client, where, COMMIT)).code == 0
        until(lambda: client.pull("Late").code == 0)
        ((facts, _),) = records(client.pull("Late"))
        kept = {name: facts["properties"].get(name) for name in ("REAL_TOPIC", "REAL_QID", "WAIT")}
        assert kept == {"REAL_TOPIC": "Late", "REAL_QID": "0", "WAIT": "true"}  # as in fixtures/orders-4.9.7
        until(lambda: client.pull("RMQ_SYS_TRANS_OP_HALF_TOPIC").code == 0)
        assert bodies(client.pull("RMQ_SYS_TRANS_OP_HALF_TOPIC")) == [b"%d" % where[1]]


def test_a_half_is_given_up_once_its_files_expire(tmp_path):
    """TransactionalMessageServiceImpl.needSkip: fileReservedTime, 72 hours if it is not configured."""
    keys = {"transactionCheckInterval": "30", "transactionTimeOut": "10", "transactionCheckMax": "100"}
    with (
        MqServer(tmp_path / "store", fileReservedTime="240", **keys) as server,
        Client(server.broker_address) as client,
    ):
        half(client, "Old", b"100 hours", age_h=100)
        half(client, "Old", b"300 hours", age_h=300)
        until(lambda: client.pull("TRANS_CHECK_MAX_TIME_TOPIC").code == 0)
        assert bodies(client.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"300 hours"]


def test_halves_after_expired_ones_are_asked_about(tmp_path, monkeypatch):
    keys = {"transactionCheckInterval": "3600000", "transactionTimeOut": "0"}
    with MqServer(tmp_path / "store", **keys) as server, Client(server.broker_address) as client:
        client.heartbeat("tx@9", producers=("PHole",))
        for body in (b"0", b"1", b"2"):
            half(client, "Hole", body, "PHole")
        messages = server.broker.messages
        until(lambda: server.call(lambda: messages.queue_bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0)) == (0, 3))
        get = messages.get_message

        def expired(topic, queue_id, offset, *more):
            if topic == "RMQ_SYS_TRANS_HALF_TOPIC" and offset < 2:
                return SimpleNamespace(records=[], status=GetStatus.OFFSET_TOO_SMALL, next_begin_offset=2)
            return get(topic, queue_id, offset, *more)

        with monkeypatch.context() as patched:
            patched.setattr(messages, "get_message", expired)
            time.sleep(0.002)  # a check looks at halves that are older than itself
            server.run(server._server.service.transactions.check())
        assert bodies(client.request(39)) == [b"2"]
