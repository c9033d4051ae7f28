"""Groups of consumers: members and who is told of them, offsets, locks, send-back, assignment, POP."""

import json

import pytest

from mqtool.formats import config_files
from tests.support.remoting import records
from tests.unit.server.broker.conftest import assigned, until


def members(client, group):
    return client.call(38, consumerGroup=group)


def test_members_are_notified_when_one_joins_and_when_one_leaves(connect, topic):
    first, second = connect(), connect()
    group = "G" + topic
    first.heartbeat("a@1", consumers={group: [topic]})
    assert first.request(40).fields["consumerGroup"] == group
    second.heartbeat("b@1", consumers={group: [topic]})
    assert first.request(40).fields["consumerGroup"] == group
    assert sorted(members(first, group).json["consumerIdList"]) == ["a@1", "b@1"]
    second.close()
    assert first.request(40).fields["consumerGroup"] == group
    assert members(first, group).json["consumerIdList"] == ["a@1"]


def test_a_heartbeat_makes_the_group_and_its_retry_topic(client, topic):
    client.heartbeat("c@1", consumers={"GMadeByHeartbeat": [topic]})
    assert client.call(352, group="GMadeByHeartbeat").json["retryMaxTimes"] == 16
    assert client.call(351, topic="%RETRY%GMadeByHeartbeat").json["readQueueNums"] == 1


def test_ordinals_and_missing_sets_of_the_cpp_client_are_understood(client, topic):
    body = {
        "clientID": "cpp@1",
        "consumerDataSet": [
            {
                "groupName": "GCpp",
                "consumeType": 1,
                "messageModel": 1,
                "consumeFromWhere": 4,
                "unitMode": False,
                "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": "17"}],
            }
        ],
    }
    assert client.call(34, json.dumps(body).encode()).code == 0
    shown = client.call(203, consumerGroup="GCpp").json
    assert (shown["consumeType"], shown["messageModel"], shown["consumeFromWhere"]) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_FIRST_OFFSET",
    )


def test_who_says_goodbye_is_gone(client, topic):
    client.heartbeat("c@1", consumers={"GLeaving": [topic]}, producers=("PLeaving",))
    assert client.call(204, producerGroup="PLeaving").json["connectionSet"][0]["clientId"] == "c@1"
    client.call(35, clientID="c@1", consumerGroup="GLeaving", producerGroup="PLeaving")
    assert members(client, "GLeaving").code == 1
    assert client.call(203, consumerGroup="GLeaving").code == 206
    assert client.call(204, producerGroup="PLeaving").code == 1


def test_a_new_group_begins_at_the_start_of_a_queue_that_is_whole(client, topic):
    where = {"consumerGroup": "GNew", "topic": topic, "queueId": 0}
    assert client.call(14, **where).code == 22
    client.put(topic)
    until(lambda: client.call(14, **where).code == 0)
    assert client.call(14, **where).fields["offset"] == "0"
    assert client.call(14, setZeroIfNotFound=False, **where).code == 22


def test_offsets_go_where_they_are_set_and_minus_one_is_none(client, topic):
    where = {"consumerGroup": "GOffsets", "topic": topic, "queueId": 1}
    client.heartbeat("c@1", consumers={"GOffsets": [topic]})
    for offset in (7, 3):
        assert client.call(15, commitOffset=offset, **where).code == 0
        assert client.call(14, **where).fields["offset"] == str(offset)
    client.call(15, commitOffset=0, **{**where, "queueId": 2})
    for _ in range(2):
        assert client.call(15, commitOffset=-1, **where).code == 0
        assert client.call(14, **where).code == 22
    stored = config_files.parse_consumer_offsets(client.call(43).body).offset_table
    assert stored[f"{topic}@GOffsets"] == {2: 0}


def test_an_offset_of_an_unknown_group_or_topic_is_refused_in_the_broker_s_order(client, topic):
    """ConsumerManageProcessor.updateConsumerOffset looks for the group first."""
    client.heartbeat("c@1", consumers={"GKnown": [topic]})
    where = {"queueId": 0, "commitOffset": 1}
    assert client.call(15, consumerGroup="GUnknown", topic="TUnknown", **where).code == 26
    assert client.call(15, consumerGroup="GKnown", topic="TUnknown", **where).code == 17
    answer = client.call(15, consumerGroup="GKnown", topic=topic, queueId=0)
    assert (answer.code, answer.remark) == (29, f"Offset is null, topic is {topic}")


def lock(client, code, who, queues):
    body = {
        "consumerGroup": "GOrderly",
        "clientId": who,
        "mqSet": [{"brokerName": "broker-a", "queueId": one, "topic": "T"} for one in queues],
    }
    return client.call(code, json.dumps(body).encode())


def test_a_locked_queue_is_one_client_s_until_it_is_unlocked(client):
    assert {one["queueId"] for one in lock(client, 41, "a", [0, 1]).json["lockOKMQSet"]} == {0, 1}
    assert {one["queueId"] for one in lock(client, 41, "b", [1, 2]).json["lockOKMQSet"]} == {2}
    lock(client, 42, "a", [1])
    assert {one["queueId"] for one in lock(client, 41, "b", [0, 1, 2]).json["lockOKMQSet"]} == {1, 2}


@pytest.mark.slow
def test_what_is_sent_back_comes_again_later_and_then_is_given_up(client, topic):
    group = "GRetrying"
    client.heartbeat("c@1", consumers={group: [topic]})
    sent = client.put(topic, b"poison", properties={"KEYS": "k"})
    place = int(sent.fields["msgId"][-16:], 16)
    back = {"group": group, "delayLevel": 1, "maxReconsumeTimes": 1}
    assert client.call(36, offset=place, **back).code == 0
    ((facts, body),) = records(client.pull(f"%RETRY%{group}", hold_ms=20_000))
    assert (body, facts["reconsume_times"]) == (b"poison", 1)
    assert facts["properties"]["RETRY_TOPIC"] == topic
    assert facts["properties"]["ORIGIN_MESSAGE_ID"] == sent.fields["msgId"]
    assert client.call(36, offset=facts["physical_offset"], **back).code == 0
    until(lambda: client.pull(f"%DLQ%{group}").code == 0)
    ((facts, body),) = records(client.pull(f"%DLQ%{group}"))
    assert (body, facts["reconsume_times"], facts["properties"]["KEYS"]) == (b"poison", 2, "k")


def test_what_is_not_there_cannot_be_sent_back(client):
    answer = client.call(36, offset=1 << 40, group="GRetrying", delayLevel=0)
    assert (answer.code, answer.remark) == (1, f"look message by offset failed, {1 << 40}")


def test_queues_are_shared_out_among_the_members(client, connect, topic):
    other = connect()
    client.heartbeat("a@1", consumers={"GAssigned": [topic]})
    other.heartbeat("b@1", consumers={"GAssigned": [topic]})
    assert assigned(client, topic, "GAssigned", "a@1") == [("PULL", 0), ("PULL", 1)]
    assert assigned(client, topic, "GAssigned", "b@1") == [("PULL", 2), ("PULL", 3)]
    assert assigned(client, topic, "GAssigned", "stranger") == []
