"""Pulling: statuses and offsets as the real broker gives them, filters, held requests."""

import time

import pytest

from tests.support.remoting import bodies
from tests.unit.server.broker.conftest import until


@pytest.fixture
def filled(client, topic) -> str:
    """A topic with five messages in queue 0, tagged a and b in turn."""
    for number in range(5):
        client.put(topic, b"m%d" % number, properties={"TAGS": "ab"[number % 2], "number": str(number)})
    until(lambda: client.pull(topic).fields["maxOffset"] == "5")
    return topic


@pytest.mark.parametrize(
    ("queue", "offset", "tags", "code", "following"),
    [
        (0, 0, "*", 0, 5),
        (0, 5, "*", 19, 5),
        (0, 0, "other", 20, 5),
        (0, 99, "*", 21, 5),
        (1, 0, "*", 19, 0),
        (1, 7, "*", 21, 0),
    ],
    ids=["found", "at the end", "none matches", "beyond", "empty", "beyond empty"],
)
def test_what_a_pull_comes_to(client, filled, queue, offset, tags, code, following):
    answer = client.pull(filled, queue, offset, tags=tags)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (code, str(following))
    assert {"suggestWhichBrokerId", "minOffset", "maxOffset"} <= set(answer.fields)


def test_tags_choose_messages(client, filled):
    assert bodies(client.pull(filled, tags="b")) == [b"m1", b"m3"]
    assert bodies(client.pull(filled, tags="a || b", count=3)) == [b"m0", b"m1", b"m2"]


def test_sql_chooses_by_properties(client, filled):
    answer = client.pull(filled, tags="number > 2 AND TAGS = 'a'", expressionType="SQL92")
    assert bodies(answer) == [b"m4"]


def test_sql_that_is_none_is_refused(client, filled):
    assert client.pull(filled, tags="number >", expressionType="SQL92").code == 23


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"topic": "NoSuchTopic"}, 17), ({"queue": 4}, 29), ({"group": "bad group"}, 26)],
    ids=["no topic", "no queue", "no group"],
)
def test_a_pull_of_what_is_not_there(client, filled, fields, code):
    assert client.pull(**{"topic": filled, **fields}).code == code


def test_a_held_pull_ends_with_the_next_message(client, connect, topic):
    waiting = client.send_pull(topic, hold_ms=30_000)
    began = time.monotonic()
    connect().put(topic, b"at last")
    assert bodies(client.answer(waiting)) == [b"at last"]
    assert time.monotonic() - began < 15


def test_a_held_pull_sleeps_through_messages_that_do_not_pass(client, connect, topic):
    waiting = client.send_pull(topic, hold_ms=30_000, tags="wanted")
    sender = connect()
    sender.put(topic, b"no", properties={"TAGS": "other"})
    sender.put(topic, b"yes", properties={"TAGS": "wanted"})
    answer = client.answer(waiting)
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"yes"], "2")


def test_a_held_pull_ends_without_a_message_when_its_time_is_up(client, topic):
    answer = client.pull(topic, hold_ms=50)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (19, "0")


def test_other_requests_are_answered_while_a_pull_is_held(client, topic):
    waiting = client.send_pull(topic, hold_ms=30_000)
    assert client.call(30, topic=topic, queueId=0).fields["offset"] == "0"
    assert waiting not in client.early
    client.put(topic)
    assert client.answer(waiting).code == 0


def plain_pull(client, group, topic, version):
    """A pull as push consumers send it: the subscription is that of the heartbeat."""
    return client.call(
        11,
        consumerGroup=group,
        topic=topic,
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=0,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=version,
    )


def test_without_a_subscription_of_its_own_a_pull_goes_by_the_heartbeat(client, filled):
    assert plain_pull(client, "GOfHeartbeats", filled, 1).code == 24
    client.heartbeat("c@1", consumers={"GOfHeartbeats": [filled]}, expression="b")
    assert bodies(plain_pull(client, "GOfHeartbeats", filled, 1)) == [b"m1", b"m3"]
    assert plain_pull(client, "GOfHeartbeats", filled, 2).code == 25
    assert plain_pull(client, "GOfHeartbeats", "TBW102", 1).code == 24


def test_a_pull_commits_the_offset_that_it_carries(client, filled):
    client.pull(filled, offset=3, group="GCommitting", sysFlag=5, commitOffset=3)
    assert client.call(14, consumerGroup="GCommitting", topic=filled, queueId=0).fields["offset"] == "3"


def test_messages_are_found_by_key(client, topic):
    sent = client.put(topic, b"keyed", properties={"KEYS": "red blue"})
    asked = {"topic": topic, "maxNum": 10, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    until(lambda: client.call(12, key="blue", **asked).code == 0)
    assert bodies(client.call(12, key="blue", **asked)) == [b"keyed"]
    key = sent.fields["transactionId"]
    assert bodies(client.call(12, key=key, _UNIQUE_KEY_QUERY=True, **asked)) == [b"keyed"]
    assert client.call(12, key="green", **asked).code == 22


def test_offsets_are_found_by_time(client, filled):
    ahead = client.call(29, topic=filled, queueId=0, timestamp=int(time.time() * 1000) + 3_600_000)
    assert ahead.fields["offset"] == "5"
    assert client.call(29, topic=filled, queueId=0, timestamp=0).fields["offset"] == "0"
    assert int(client.call(32, topic=filled, queueId=0).fields["timestamp"]) > 1_700_000_000_000
    assert client.call(31, topic=filled, queueId=0).fields["offset"] == "0"
