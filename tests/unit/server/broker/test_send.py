"""Sending: the forms of a message, what is refused with which code, and what comes back on reading."""

import json
import struct

import pytest

from mqtool.engine import MessageStore, PutStatus
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies, records
from tests.unit.server.broker.conftest import until


def batch_of(*messages: bytes) -> bytes:
    """The body of a batch, by hand."""
    pieces = []
    for body in messages:
        properties = b"UNIQ_KEY\x01" + body.hex().encode().ljust(32, b"0") + b"\x02"
        size = 22 + len(body) + len(properties)
        pieces.append(
            struct.pack(">iiiii", size, 0, 0, 7, len(body)) + body + struct.pack(">h", len(properties)) + properties
        )
    return b"".join(pieces)


def test_a_topic_comes_into_being_with_its_first_message(client, server):
    answer = client.put("NewByASend", b"first")
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "0", "0")
    found = client.call(351, topic="NewByASend").json
    assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (4, 4, 6)
    assert b'"NewByASend"' in (server.store / "config" / "topics.json").read_bytes()


def test_queue_offsets_count_up_and_ids_lead_to_the_message(client, topic):
    answers = [client.put(topic, b"m%d" % number, 2) for number in range(3)]
    assert [answer.fields["queueOffset"] for answer in answers] == ["0", "1", "2"]
    place = int(answers[1].fields["msgId"][-16:], 16)
    assert bodies(client.call(33, topic=topic, offset=place)) == [b"m1"]


def test_the_long_header_says_the_same_as_the_short_one(client, topic):
    answer = client.call(
        10,
        b"long",
        producerGroup="P",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=1,
        sysFlag=0,
        bornTimestamp=5,
        flag=9,
        properties="KEYS\x01k\x02",
        reconsumeTimes=0,
    )
    until(lambda: client.pull(topic, 1).code == 0)
    ((facts, body),) = records(client.pull(topic, 1))
    assert (answer.code, body, facts["flag"], facts["born"], facts["properties"]["KEYS"]) == (0, b"long", 9, 5, "k")


def test_a_message_without_a_unique_key_gets_one(client, topic):
    answer = client.call(310, b"x", a="P", b=topic, c="TBW102", d=4, e=0, f=0, g=1, h=0, i="", j=0)
    until(lambda: client.pull(topic).code == 0)
    assert records(client.pull(topic))[0][0]["properties"]["UNIQ_KEY"] == answer.fields["transactionId"] != ""


def test_of_two_unique_keys_the_last_one_is_that_of_the_message(client, topic):
    answer = client.call(
        310, b"x", a="P", b=topic, c="TBW102", d=4, e=0, f=0, g=1, h=0, i="UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02", j=0
    )
    assert answer.fields["transactionId"] == "B"


@pytest.mark.parametrize(
    ("named", "waits"),
    [
        ({}, True),
        ({"DONT_WAIT": "false"}, True),
        ({"WAIT": "TRUE"}, True),
        ({"WAIT": "false"}, False),
        ({"WAIT": "no"}, False),
    ],
)
def test_a_send_waits_for_the_flush_unless_its_own_property_says_no(monkeypatch, named, waits):
    monkeypatch.setattr(MessageStore, "wait_flushed", lambda *_: PutStatus.FLUSH_DISK_TIMEOUT)
    with MqServer(flushDiskType="SYNC_FLUSH") as server, Client(server.broker_address) as client:
        assert client.put("T", properties=named).code == (10 if waits else 0)


def test_a_compressed_body_stays_as_it_came(client, topic):
    client.put(topic, b"\x78\x9c not really zlib", sys_flag=0x301)
    until(lambda: client.pull(topic).code == 0)
    ((facts, body),) = records(client.pull(topic))
    assert (facts["sys_flag"], body) == (0x301, b"\x78\x9c not really zlib")


@pytest.mark.parametrize("mark", ["true", "1"])
def test_a_batch_becomes_messages(client, topic, mark):
    answer = client.put(topic, batch_of(b"one", b"two", b"three"), 3, code=320, m=mark)
    assert (answer.fields["queueOffset"], len(answer.fields["msgId"].split(","))) == ("0", 3)
    until(lambda: len(bodies(client.pull(topic, 3))) == 3)
    assert bodies(client.pull(topic, 3)) == [b"one", b"two", b"three"]


def test_nobody_waits_for_an_answer_to_a_oneway_send(client, topic):
    client.send(310, b"quiet", frame_flag=2, a="P", b=topic, c="TBW102", d=4, e=0, f=0, g=1, h=0, i="", j=0)
    loud = client.put(topic, b"loud")
    assert (loud.code, loud.fields["queueOffset"]) == (0, "1")


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"queue": 4}, 29), ({"body": bytes((4 << 20) + 1)}, 13), ({"properties": {"p": "v" * 33_000}}, 13)],
    ids=["queue that is not there", "body over 4 MiB", "properties over 32 KiB"],
)
def test_what_does_not_fit_is_refused_with_the_real_broker_s_code(client, topic, fields, code):
    assert client.put(topic, **fields).code == code
    assert client.put(topic).fields["queueOffset"] == "0"


@pytest.mark.parametrize(
    ("name", "code"),
    [("SCHEDULE_TOPIC_XXXX", 16), ("RMQ_SYS_TRANS_HALF_TOPIC", 16), ("with space", 29), ("t" * 128, 29), ("", 29)],
    ids=["schedule", "half", "space", "too long", "empty"],
)
def test_topics_that_nobody_may_send_to(client, name, code):
    assert client.put(name).code == code


def test_a_topic_that_may_not_be_created_is_asked_for(client):
    answer = client.put("NeverMade", c="NoSuchPattern")
    assert (answer.code, answer.remark.startswith("topic[NeverMade] not exist, apply first please!")) == (17, True)


def test_a_missing_field_is_named(client):
    answer = client.call(310, b"x", a="P")
    assert answer.code == 1
    assert "<b>" in answer.remark


def test_a_code_that_nobody_knows_is_answered_as_the_real_broker_does(client):
    answer = client.call(4711)
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")


@pytest.mark.slow
def test_a_delayed_message_comes_after_its_time(client, topic):
    sent = client.put(topic, b"late", properties={"DELAY": "1"})
    assert sent.code == 0
    assert client.pull(topic).code == 19
    ((facts, body),) = records(client.pull(topic, hold_ms=20_000))
    assert (body, facts["properties"]["REAL_TOPIC"], facts["properties"]["DELAY"]) == (b"late", topic, "1")
    place = int(sent.fields["msgId"][-16:], 16)
    ((parked, _),) = records(client.call(33, offset=place))
    assert parked["topic"] == "SCHEDULE_TOPIC_XXXX"
    assert facts["stored"] - parked["stored"] >= 1000
    assert facts["properties"]["WAIT"] == "true"  # as in fixtures/orders-5.5.0


def test_a_reply_is_pushed_to_the_client_that_asked(client, connect, topic):
    asker = connect()
    asker.heartbeat("asker@1", producers=("Q",))
    sent = client.send(
        325,
        b"the reply",
        a="P",
        b=topic,
        c="TBW102",
        d=4,
        e=0,
        f=0,
        g=1,
        h=0,
        j=0,
        i="REPLY_TO_CLIENT\x01asker@1\x02CORRELATION_ID\x01c1\x02",
    )
    pushed = asker.request(326)
    assert pushed.body == b"the reply"
    assert "CORRELATION_ID\x01c1" in pushed.fields["properties"]
    asker.reply(pushed)
    assert client.answer(sent).code == 0


def test_a_reply_to_nobody_says_so(client, topic):
    answer = client.call(
        325, b"x", a="P", b=topic, c="TBW102", d=4, e=0, f=0, g=1, h=0, j=0, i="REPLY_TO_CLIENT\x01gone\x02"
    )
    assert (answer.code, "<gone> not found" in answer.remark) == (1, True)


def stored_as(client, answer):
    """What the stored message says of itself."""
    ((facts, _),) = records(client.call(33, topic="", offset=int(answer.fields["msgId"][-16:], 16)))
    return facts


@pytest.mark.parametrize(
    ("times", "limit", "kept"), [(3, 3, True), (4, 3, False), (16, None, True), (17, None, False), (17, 20, True)]
)
def test_a_retry_past_its_limit_or_the_group_s_is_a_dead_letter(client, times, limit, kept):
    more = {} if limit is None else {"l": limit}
    answer = client.put("%RETRY%GLimit", properties={"DELAY": "3", "KEYS": "k"}, j=times, **more)
    facts = stored_as(client, answer)
    if kept:
        assert (facts["topic"], facts["properties"]["REAL_TOPIC"]) == ("SCHEDULE_TOPIC_XXXX", "%RETRY%GLimit")
    else:
        assert (facts["topic"], facts["reconsume_times"], facts["properties"]["KEYS"]) == ("%DLQ%GLimit", times, "k")


def test_a_retry_of_a_group_that_holds_locks_is_a_dead_letter(client, topic):
    locked = {
        "consumerGroup": "GOrdered",
        "clientId": "c@1",
        "mqSet": [{"topic": topic, "brokerName": "b", "queueId": 0}],
    }
    assert client.call(41, json.dumps(locked).encode()).json["lockOKMQSet"] != []
    assert stored_as(client, client.put("%RETRY%GOrdered", j=0, l=16))["topic"] == "%DLQ%GOrdered"


def test_a_batch_of_retries_is_refused(client):
    answer = client.put("%RETRY%GLimit", batch_of(b"a"), code=320, m=True, j=17)
    assert (answer.code, answer.remark) == (13, "batch request does not support retry group %RETRY%GLimit")


def test_a_retry_of_a_group_that_is_not_to_be_created_is_refused():
    with MqServer(autoCreateSubscriptionGroup="false") as server, Client(server.broker_address) as client:
        answer = client.put("%RETRY%GNone", j=0, l=16)
    assert (answer.code, answer.remark) == (26, "subscription group not exist, GNone")


@pytest.mark.parametrize(("priority", "queue"), [("2", 2), ("9", 3), ("-1", 1), ("high", 1)])
def test_a_priority_is_the_number_of_the_queue(client, topic, priority, queue):
    answer = client.put(topic, queue=1, properties={"_SYS_MSG_PRIORITY_": priority})
    assert (answer.code, answer.fields["queueId"]) == (0, str(queue))
    assert stored_as(client, answer)["properties"]["_SYS_MSG_PRIORITY_"] == priority


def test_a_message_of_a_sharding_key_has_no_priority(client, topic):
    answer = client.put(topic, queue=1, properties={"_SYS_MSG_PRIORITY_": "3", "__SHARDINGKEY": "a"})
    assert answer.fields["queueId"] == "1"
    assert "_SYS_MSG_PRIORITY_" not in stored_as(client, answer)["properties"]


def test_a_batch_that_is_none_is_refused_for_a_topic_of_batch_queues(client, server):
    made = client.create_topic("InnerNone", attributes="+queue.type=BatchCQ")
    assert made.code == 0
    answer = client.put("InnerNone", b"no batch", code=320, m=True)
    assert answer.code == 13


@pytest.mark.parametrize(
    "held", [b"INNER_NUM\x01many\x02INNER_BASE\x010\x02", b"INNER_NUM\x013\x02"], ids=["no-number", "number"]
)
def test_a_message_in_a_batch_cannot_keep_later_messages_of_others_from_consumers(client, topic, held):
    message = struct.pack(">iiiii", 23 + len(held), 0, 0, 0, 1) + b"x" + struct.pack(">h", len(held)) + held
    answer = client.put(topic, batch_of(b"one") + message, code=320, m=True)
    assert (answer.code, "message is illegal" in answer.remark) == (13, True)
    assert client.put(topic, b"later").code == 0
    until(lambda: bodies(client.pull(topic)) == [b"later"])
