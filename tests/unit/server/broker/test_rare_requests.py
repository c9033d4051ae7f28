"""Requests that the tests of single services do not make: lists, checks, addresses inside of records, lost answers."""

import base64
import json
import time
from types import SimpleNamespace

import pytest

from mqtool.engine import PutResult, PutStatus
from mqtool.errors import ConfigFileError, UsageError
from mqtool.formats import config_json
from mqtool.server.clock import ServerClock
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies, records
from tests.unit.server.broker.conftest import assigned, until
from tests.unit.server.broker.test_admin import bare, put
from tests.unit.server.broker.test_pop import REVIVE, ack, fill, pop, words
from tests.unit.server.broker.test_pop import acks as batch_ack


def ask(client, code, document, **fields):
    return client.call(code, json.dumps(document).encode(), **fields)


# -- administration -----------------------------------------------------------------------------------------------


def test_lists_of_topics_and_groups_are_created(client):
    topics = [{"topicName": f"Listed{n}", "readQueueNums": n, "writeQueueNums": n, "perm": 6} for n in (1, 2)]
    assert ask(client, 18, {"topicConfigList": topics}).code == 0
    assert [client.call(351, topic=f"Listed{n}").json["readQueueNums"] for n in (1, 2)] == [1, 2]
    groups = [{"groupName": f"GListed{n}", "retryMaxTimes": n} for n in (1, 2)]
    assert ask(client, 225, {"groupConfigList": groups}).code == 0
    table = client.call(201).json["subscriptionGroupTable"]
    assert [table[f"GListed{n}"]["retryMaxTimes"] for n in (1, 2)] == [1, 2]
    wrong = ask(client, 18, {"topicConfigList": [{"topicName": "Wrong", "readQueueNums": "two"}]})
    assert (wrong.code, "readQueueNums" in wrong.remark) == (29, True)


def test_an_attribute_is_set_and_removed(client):
    for change, expected in (("+message.type=FIFO", {"message.type": "FIFO"}), ("-message.type", {})):
        assert client.create_topic("Attributed", attributes=change).code == 0
        assert client.call(351, topic="Attributed").json.get("attributes", {}) == expected


UNCHANGEABLE = "attempt to update an unchangeable attribute. key: queue.type"


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ("+queue.type=BatchCQ", (1, UNCHANGEABLE)),
        ("-queue.type", (1, "attempt to delete a nonexistent key: queue.type")),
        ("+message.type=NONSENSE", (1, "value is not in set: ")),
        ("+message.type=MIXED", (29, "MIXED message type is not supported.")),
        ("+reserve.time=soon", (1, 'For input string: "soon"')),
        ("+lite.topic.expiration=43201", (1, "value is not in range(-1, 43200)")),
        ("+no.such.key=1", (1, "unsupported key: no.such.key")),
        ("-message.type", (1, "attempt to delete a nonexistent key: message.type")),
        ("+message.type=FIFO,-message.type", (1, "alter duplication key. key: message.type")),
        ("+reserve.time=1,+reserve.time=2", (1, "key duplication: +reserve.time")),
        ("+reserve-time=1", (1, "kv string format wrong.")),
        ("message.type=FIFO", (1, "add/alter attribute format is wrong: message.type")),
        ("message.type", (1, "delete attribute format is wrong: message.type")),
        ("+message.type=", (1, "add/alter attribute format is wrong: +message.type")),
        ("m+essage.type=FIFO", (1, "kv string format wrong.")),
        ("+reserve.time=60,+lite.topic.expiration=43200,", (0, "")),
    ],
)
def test_attributes_of_a_topic_change_by_the_rules_of_the_broker(client, changes, answer):
    """AttributeParser, AttributeUtil and TopicAttributes of 5.5.0."""
    client.create_topic("Altered")
    found = client.create_topic("Altered", attributes=changes)
    assert found.code == answer[0]
    assert (found.remark or "").startswith(answer[1])
    expected = {"reserve.time": "60", "lite.topic.expiration": "43200"} if found.code == 0 else {}
    assert client.call(351, topic="Altered").json.get("attributes", {}) == expected
    assert client.call(215, topic="Altered").code == 0


def test_a_new_topic_has_the_attributes_that_are_added(client):
    assert client.create_topic("Removed", attributes="-message.type").remark == (
        "only add attribute is supported while creating topic. key: message.type"
    )
    assert client.call(351, topic="Removed").code == 17
    added = {"+message.type": "FIFO", "+queue.type": "SimpleCQ"}
    document = {"topicName": "Added", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "attributes": added}
    assert ask(client, 18, {"topicConfigList": [document]}).code == 0
    expected = {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert client.call(351, topic="Added").json["attributes"] == expected
    wrong = ask(client, 18, {"topicConfigList": [document | {"topicName": "First"}, document]})
    assert (wrong.code, wrong.remark) == (1, UNCHANGEABLE)
    assert client.call(351, topic="First").code == 17
    assert ask(client, 18, {"topicConfigList": [document | {"attributes": None}]}).code == 0
    assert client.call(351, topic="Added").json["attributes"] == expected


def test_a_changed_group_keeps_its_attributes(client):
    """SubscriptionGroupManager.updateSubscriptionGroupConfigWithoutPersist of 5.5.0."""

    def attributes():
        return client.call(352, group="GBound").json["attributes"]

    bound = {"groupName": "GBound", "attributes": {"+lite.bind.topic": "Par", "+lite.sub.model": "Exclusive"}}
    assert ask(client, 200, bound).code == 0
    assert ask(client, 200, {"groupName": "GBound", "retryMaxTimes": 3}).code == 0
    assert attributes() == {"lite.bind.topic": "Par", "lite.sub.model": "Exclusive"}
    assert ask(client, 225, {"groupConfigList": [bound | {"attributes": {"-lite.sub.model": ""}}]}).code == 0
    assert attributes() == {"lite.bind.topic": "Par"}
    wrongs = {
        "+lite.sub.model": "Both",
        "+lite.sub.reset.offset.exclusive": "yes",
        "+lite.sub.client.max.event.cnt": "9",
        "-priority.factor": "",
        "+message.type": "FIFO",
        "lite.bind.topic": "Other",
        "+lite.bind.topic": None,
    }
    for name, value in wrongs.items():
        assert ask(client, 200, bound | {"attributes": {name: value}}).code == 1
    assert attributes() == {"lite.bind.topic": "Par"}
    assert ask(client, 200, bound | {"attributes": {"+lite.sub.reset.offset.exclusive": "TRUE"}}).code == 0


def test_queues_of_topics_that_nothing_knows_are_cleaned(client, server, topic):
    put(client, topic, 1)
    queues = lambda: {name for name, _ in server.broker.messages.queues()}  # noqa: E731
    assert client.call(316).code == 0
    assert topic in server.call(queues)
    server.call(lambda: server.broker.topics.table.pop(topic))
    assert client.call(316).code == 0
    assert topic not in server.call(queues)


def test_light_queues_and_positions_are_kept_when_unknown_topics_are_cleaned(tmp_path):
    """DefaultMessageStore.cleanUnusedTopic of 5.5.0."""
    keys = {"enableLmq": "true", "enableMultiDispatch": "true"}
    with MqServer(tmp_path / "store", **keys) as server, Client(server.broker_address) as client:
        client.put("Par", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%abc"})
        client.put("Unknown", b"x")
        until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
        for topic in ("%LMQ%abc", "Unknown"):
            assert client.call(15, consumerGroup="%LMQ%abc", topic=topic, queueId=0, commitOffset=1).code == 0
        server.call(lambda: server.broker.topics.table.pop("Unknown"))
        assert client.call(316).code == 0
        found = server.call(lambda: {name for name, _ in server.broker.messages.queues()})
        assert {name for name in found if not name.startswith("rmq_sys")} == {"Par", "%LMQ%abc"}
        assert [server.broker.offsets.get("%LMQ%abc", name, 0) for name in ("%LMQ%abc", "Unknown")] == [1, 1]


def test_cleaning_queues_deletes_no_messages(tmp_path):
    """AdminBrokerProcessor.cleanExpiredConsumeQueue of 5.5.0."""
    later = (time.localtime().tm_hour + 12) % 24
    keys = {"fileReservedTime": "0", "deleteWhen": f"{later:02}", "diskMaxUsedSpaceRatio": "95"}
    keys["mappedFileSizeCommitLog"] = "4096"
    with MqServer(tmp_path / "store", **keys) as server, Client(server.broker_address) as client:
        for _ in range(20):
            client.put("T", b"x" * 500)
        assert client.call(306).code == 0
        server.call(server.broker.engine.clean)
        assert client.call(31, topic="T", queueId=0).fields["offset"] == "0"
        assert client.call(329).code == 0
        server.call(server.broker.engine.clean)
        assert client.call(31, topic="T", queueId=0).fields["offset"] != "0"


def test_properties_that_cannot_be_parsed_are_refused(client):
    answer = client.call(25, b"a=\\uZZZZ\n")
    assert (answer.code, answer.remark) == (1, "string2Properties error")


def test_units_are_shown_with_the_subscription_of_a_group(client, topic):
    put(client, topic, 1)
    client.heartbeat("c@1", consumers={"GShown": [topic]}, expression="a || b")
    found = client.call(321, topic=topic, queueId=0, index=0, count=10, consumerGroup="GShown").json
    assert (found["subscriptionData"]["topic"], found["subscriptionData"]["subString"]) == (topic, "a || b")


def test_a_consumer_that_does_not_answer_is_said(client, connect, topic, monkeypatch):
    monkeypatch.setattr("mqtool.server.broker.consumer_admin.RELAY_S", 0.05)
    consumer = connect()
    consumer.heartbeat("late@1", consumers={"GLate": [topic]})
    sent = client.put(topic, b"now")
    answer = client.call(309, consumerGroup="GLate", clientId="late@1", msgId=sent.fields["msgId"])
    assert (answer.code, answer.remark) == (207, "consumer <GLate> <late@1> Timeout")


def test_what_consumers_report_is_passed_on_and_errors_are_left_out(client, connect, topic):
    able, unable = connect(), connect()
    able.heartbeat("able@1", consumers={"GReport": [topic]})
    unable.heartbeat("unable@1", consumers={"GReport": [topic]})
    sent = client.send(307, consumerGroup="GReport", clientId="able@1", jstackEnable="false")
    asked = able.request(307)
    assert "brokerName" not in asked.fields
    able.reply(asked, body=b'{"jstack":""}')
    assert client.answer(sent).body == b'{"jstack":""}'
    sent = client.send(223, topic=topic, group="GReport")
    able.reply(able.request(221), body=b'{"messageQueueTable":{{"queueId":0}:7}}')
    unable.reply(unable.request(221), code=1)
    assert client.answer(sent).body == b'{"consumerTable":{"able@1":{{"queueId":0}:7}},"messageQueueTable":{}}'


def setting(client, name, value):
    assert client.call(25, f"{name}={value}\n".encode()).code == 0


# -- consumers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        ({"expressionType": "TAG", "subString": "a ||"}, 0),
        ({"expressionType": "SQL92", "subString": "a > 1"}, 0),
        ({"expressionType": "SQL92", "subString": "a >"}, 23),
    ],
    ids=["tags", "SQL", "no SQL"],
)
def test_a_subscription_is_checked_before_a_consumer_begins(client, topic, subscription, code):
    assert ask(client, 46, {"subscriptionData": {"topic": topic, **subscription}}).code == code


def test_sql_that_is_none_is_kept_in_a_heartbeat_and_refused_when_it_is_used(client, topic):
    put(client, topic, 1)
    client.heartbeat("c@1", consumers={"GNoSql": [topic]}, expression="a >", kind="SQL92")
    assert client.pull(topic, group="GNoSql", sysFlag=0).code == 23


def test_a_group_that_may_not_broadcast_is_refused(client, topic):
    put(client, topic, 1)
    group = {"groupName": "GNoBroadcast", "consumeBroadcastEnable": False}
    assert ask(client, 200, group).code == 0
    subscription = {"topic": topic, "subString": "*", "subVersion": 1}
    data = {"groupName": "GNoBroadcast", "messageModel": "BROADCASTING", "subscriptionDataSet": [subscription]}
    assert ask(client, 34, {"clientID": "c@1", "consumerDataSet": [data]}).code == 0
    answer = client.pull(topic, group="GNoBroadcast", sysFlag=0)
    assert (answer.code, answer.remark) == (16, "the consumer group[GNoBroadcast] can not consume by broadcast way")


def test_with_short_polling_a_pull_is_held_for_that_time_only(client, topic):
    assert client.call(25, b"longPollingEnable=false\nshortPollingTimeMills=10\n").code == 0
    try:
        assert client.pull(topic, hold_ms=600_000).code == 19
    finally:
        client.call(25, b"longPollingEnable=true\n")


def test_queues_are_dealt_out_in_turn_to_all_or_popped_by_all(client, connect, topic):
    other = connect()
    client.heartbeat("a@1", consumers={"GTurns": [topic]})
    other.heartbeat("b@1", consumers={"GTurns": [topic]})
    by_circle = {"strategyName": "AVG_BY_CIRCLE"}
    assert assigned(client, topic, "GTurns", "a@1", **by_circle) == [("PULL", 0), ("PULL", 2)]
    assert assigned(client, topic, "GTurns", "b@1", **by_circle) == [("PULL", 1), ("PULL", 3)]
    everything = assigned(client, topic, "GTurns", "stranger", messageModel="BROADCASTING")
    assert everything == [("PULL", queue) for queue in range(4)]
    mode = {"topic": topic, "consumerGroup": "GTurns", "mode": "POP", "popShareQueueNum": 0}
    assert ask(client, 401, mode).code == 0
    assert assigned(client, topic, "GTurns", "a@1") == [("POP", -1)]
    assert ask(client, 401, mode | {"mode": "PUSH"}).code == 29
    assert ask(client, 401, mode | {"popShareQueueNum": "many"}).code == 1
    assert assigned(client, topic, "GTurns", "b@1") == [("POP", -1)]


def test_the_queue_of_retries_is_pulled_even_where_a_topic_is_popped(client, topic):
    client.heartbeat("a@1", consumers={"GRetryMode": [topic]})
    mode = {"topic": "%RETRY%GRetryMode", "consumerGroup": "GRetryMode", "mode": "POP", "popShareQueueNum": 0}
    assert ask(client, 401, mode).code in (0, 16)
    assert assigned(client, "%RETRY%GRetryMode", "GRetryMode", "a@1") == [("PULL", 0)]


@pytest.mark.parametrize(
    ("members", "shared", "expected"),
    [
        (4, 1, [[0, 1], [1, 2], [2, 3], [0, 3]]),
        (4, 3, [[-1]] * 4),
        (4, -1, [[-1]] * 4),
        (2, 1, [[-1]] * 2),
        (3, 1, [[0, 1, 2], [2, 3], [0, 1, 3]]),
        (6, 1, [[0], [1], [2], [3], [0], [1]]),
    ],
)
def test_members_pop_their_queues_and_those_of_as_many_others_as_is_set(
    client, connect, topic, members, shared, expected
):
    """QueryAssignmentProcessor.allocate4Pop; a real broker gave the first answer."""
    for number in range(members):
        connect().heartbeat(f"c{number}@1", consumers={"GShare": [topic]})
    mode = {"topic": topic, "consumerGroup": "GShare", "mode": "POP", "popShareQueueNum": shared}
    assert ask(client, 401, mode).code == 0
    found = [assigned(client, topic, "GShare", f"c{number}@1") for number in range(members)]
    assert [sorted(queue for _, queue in queues) for queues in found] == expected
    stranger = [("POP", -1)] if expected[0] == [-1] else []
    assert assigned(client, topic, "GShare", "stranger") == stranger


def test_without_an_assignment_the_answer_has_none_and_clients_keep_their_queues(client, topic):
    assert assigned(client, topic, "GNobody", "c@1") is None
    client.heartbeat("c@1", consumers={"GSome": [topic]})
    assert assigned(client, topic, "GSome", "c@1", strategyName="CONSISTENT_HASH") is None
    assert assigned(client, topic, "GSome", "c@1", strategyName=None) is None
    assert assigned(client, topic, "GSome", "c@1", messageModel="LITE_SELECTIVE") is None
    assert assigned(client, topic, "GSome", "") is None
    assert assigned(client, "NoSuchTopic", "GSome", "c@1") is None
    assert assigned(client, topic, "GSome", "c@1") == [("PULL", queue) for queue in range(4)]


def test_modes_of_unknown_topics_and_groups_are_refused(client, topic):
    mode = {"topic": topic, "consumerGroup": "GMode", "mode": "POP", "popShareQueueNum": 1}
    assert ask(client, 401, mode | {"topic": "NoSuchTopic"}).code == 17
    assert ask(client, 401, mode | {"consumerGroup": "no group"}).code == 26
    modes = client.call(402).json["messageRequestModeMap"]
    assert "NoSuchTopic" not in modes
    assert "no group" not in modes.get(topic, {})


def test_settings_decide_about_groups_whose_mode_was_not_set():
    keys = {"defaultMessageRequestMode": "POP", "defaultPopShareQueueNum": "1"}
    with MqServer(**keys) as server, Client(server.broker_address) as client:
        client.create_topic("T", 4)
        consumers = [Client(server.broker_address) for _ in range(4)]
        for number, one in enumerate(consumers):
            one.heartbeat(f"c{number}@1", consumers={"G": ["T"]})
        assert assigned(client, "T", "G", "c1@1") == [("POP", 1), ("POP", 2)]
        assert assigned(client, "%RETRY%G", "G", "c0@1") == [("PULL", 0)]
        setting(client, "serverLoadBalancerEnable", "false")
        assert assigned(client, "T", "G", "c1@1") == [("POP", queue) for queue in range(4)]
        for one in consumers:
            one.close()


def test_a_reset_of_a_group_that_does_not_exist_is_refused_and_creates_none(client, topic):
    answer = client.call(222, topic=topic, group="GTypo", timestamp=0, isForce=True)
    assert (answer.code, answer.remark) == (26, "Group GTypo does not exist")
    assert "GTypo" not in client.call(201).json["subscriptionGroupTable"]


def test_a_pull_with_a_negative_offset_to_commit_commits_nothing(client, topic):
    put(client, topic, 1)
    asked = {"consumerGroup": "GCommit", "topic": topic, "queueId": 0}
    client.heartbeat("c@1", consumers={"GCommit": [topic]})
    assert client.pull(topic, group="GCommit", sysFlag=5, commitOffset=-1).code == 0
    assert client.call(14, **asked, setZeroIfNotFound="false").code == 22
    assert client.pull(topic, group="GCommit", sysFlag=5, commitOffset=1).code == 0
    assert client.call(14, **asked).fields["offset"] == "1"


def test_a_consumer_of_a_group_that_is_not_created_is_not_registered(client, topic):
    setting(client, "autoCreateSubscriptionGroup", "false")
    try:
        assert client.heartbeat("c@1", consumers={"GUnknown": [topic]}).code == 0
        assert client.call(38, consumerGroup="GUnknown").code == 1
    finally:
        setting(client, "autoCreateSubscriptionGroup", "true")
    assert client.heartbeat("c@1", consumers={"GUnknown": [topic], "TOOLS_CONSUMER": [topic]}).code == 0
    assert client.call(38, consumerGroup="GUnknown").json["consumerIdList"] == ["c@1"]
    assert [client.call(351, topic=f"%RETRY%{one}").code for one in ("GUnknown", "TOOLS_CONSUMER")] == [0, 17]


def test_a_heartbeat_without_subscriptions_keeps_those_before_it(client, topic):
    client.heartbeat("c@1", consumers={"GKept": [topic]}, expression="a")
    group = {"groupName": "GKept", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    body = {"clientID": "c@1", "withoutSub": True, "consumerDataSet": [group], "producerDataSet": []}
    assert ask(client, 34, body).code == 0
    (kept,) = [
        one for name, one in client.call(203, consumerGroup="GKept").json["subscriptionTable"].items() if name == topic
    ]
    assert kept["subString"] == "a"


@pytest.mark.parametrize("queues", [["T"], [{"brokerName": "b", "queueId": "x", "topic": "T"}], [{"topic": "T"}], 1])
def test_what_is_no_list_of_queues_cannot_be_locked(client, queues):
    answer = ask(client, 41, {"consumerGroup": "G", "clientId": "c", "mqSet": queues})
    assert (answer.code, "body lists something else than queues" in answer.remark) == (1, True)


# -- addresses ----------------------------------------------------------------------------------------------------


@pytest.fixture
def inside(client, topic):
    """The physical offset of bytes in a body that look like the beginning of a record and are none."""
    magic = (-626843481).to_bytes(4, "big", signed=True)
    sent = client.put(topic, (100).to_bytes(4, "big") + magic + b"\xff" * 92)
    return int(sent.fields["msgId"][-16:], 16) + 88


def test_bytes_inside_of_a_message_are_no_message(client, inside):
    back = client.call(36, group="GInside", offset=inside, delayLevel=0)
    assert (back.code, back.remark) == (1, f"look message by offset failed, {inside}")
    end = client.call(37, producerGroup="P", commitLogOffset=inside, tranStateTableOffset=0, commitOrRollback=8)
    assert (end.code, end.remark) == (1, "Find prepared transaction message failed")


def test_nothing_is_sent_back_of_a_group_without_retries_or_with_a_bad_name(client, topic):
    assert ask(client, 200, {"groupName": "GNoRetry", "retryQueueNums": 0}).code == 0
    assert client.call(36, group="GNoRetry", offset=0, delayLevel=0).code == 0
    assert client.call(351, topic="%RETRY%GNoRetry").code == 17
    answer = client.call(36, group="no name", offset=0, delayLevel=0)
    assert (answer.code, answer.remark) == (26, "subscription group not exist, no name")


def test_a_client_before_3_4_9_states_no_limit_of_retries(connect, topic, client):
    sent = client.put(topic, b"again")
    offset = int(sent.fields["msgId"][-16:], 16)
    back = {"group": "GOldClient", "offset": offset, "delayLevel": 1, "maxReconsumeTimes": 0, "originTopic": topic}
    assert connect(120).call(36, **back).code == 0
    assert client.call(351, topic="%DLQ%GOldClient").code == 17
    assert connect(121).call(36, **back).code == 0
    assert bodies(client.pull("%DLQ%GOldClient")) == [b"again"]


def test_a_retry_is_sent_where_topics_are_not_created(client):
    setting(client, "autoCreateTopicEnable", "false")
    try:
        assert client.put("NotCreated").code == 17
        assert client.put("%RETRY%GNotCreated", b"m", j=1).code == 0
        found = client.call(351, topic="%RETRY%GNotCreated").json
        assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (1, 1, 6)
    finally:
        setting(client, "autoCreateTopicEnable", "true")


@pytest.mark.parametrize("fast_sends", [True, False])
def test_a_property_whose_name_only_ends_like_that_of_lite_topics_is_ordinary(fast_sends):
    with MqServer(fast_sends=fast_sends) as server, Client(server.broker_address) as client:
        client.create_topic("T")
        assert client.put("T", b"m", properties={"MY__LITE_TOPIC": "a"}).code == 0
        until(lambda: client.pull("T").code == 0)
        ((facts, _),) = records(client.pull("T"))
    assert facts["properties"]["MY__LITE_TOPIC"] == "a"
    assert "INNER_MULTI_DISPATCH" not in facts["properties"]


@pytest.mark.parametrize("words", ["v2 T broker-a 1 id", "v1 T broker-a 1", "v1 T broker-a soon id"])
def test_a_recall_handle_that_no_broker_gave_is_refused(client, topic, words):
    handle = base64.urlsafe_b64encode(words.encode()).decode()
    answer = client.call(370, topic=topic, recallHandle=handle)
    assert (answer.code, answer.remark) == (604, "recall handle is invalid")


def test_messages_of_another_topic_with_the_same_hash_are_not_found(client):
    """`Aa#k` and `BB#k` have one hash, so the index leads from one to the other."""
    for topic in ("Aa", "BB"):
        assert client.create_topic(topic).code == 0
    assert client.put("Aa", b"m", properties={"KEYS": "k"}).code == 0
    asked = {"key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    until(lambda: client.call(12, topic="Aa", **asked).code == 0)
    assert bodies(client.call(12, topic="Aa", **asked)) == [b"m"]
    assert client.call(12, topic="BB", **asked).code == 22


def test_a_message_is_found_by_its_tag(client, topic):
    for tag in ("Aa", "BB", "c"):  # the first two have one hash
        assert client.put(topic, tag.encode(), properties={"TAGS": tag}).code == 0
    asked = {"topic": topic, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62, "indexType": "T"}
    until(lambda: client.call(12, key="c", **asked).code == 0)
    assert bodies(client.call(12, key="Aa", **asked)) == [b"Aa"]
    assert client.call(12, key="d", **asked).code == 22


# -- replies ------------------------------------------------------------------------------------------------------


def send_reply(client, topic, to, queue=0):
    fields = {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1, "h": 0, "j": 0}
    return client.send(325, b"the reply", i=f"REPLY_TO_CLIENT\x01{to}\x02", **fields)


def test_a_reply_that_its_client_refuses_or_does_not_answer_is_an_error(client, connect, topic, monkeypatch):
    asker = connect()
    asker.heartbeat("asker@2", producers=("Q2",))
    sent = send_reply(client, topic, "asker@2")
    asker.reply(asker.request(326), code=1)
    answer = client.answer(sent)
    assert (answer.code, answer.remark) == (1, "push reply message to asker@2fail.")
    monkeypatch.setattr("mqtool.server.broker.send.consumer_sends.PUSH_S", 0.05)
    answer = client.answer(send_reply(client, topic, "asker@2"))
    assert (answer.code, answer.remark) == (1, "push reply message to asker@2fail.")
    assert client.answer(send_reply(client, "bad topic", "asker@2")).code == 29


def test_a_reply_that_reached_its_client_is_a_success_even_if_it_is_not_stored(
    client, connect, server, topic, monkeypatch, caplog
):
    async def refused(_message):
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)

    asker = connect()
    asker.heartbeat("asker@5", producers=("Q5",))
    monkeypatch.setattr(server.broker.writer, "store", refused)
    sent = send_reply(client, topic, "asker@5")
    asker.reply(asker.request(326))
    answer = client.answer(sent)
    assert (answer.code, answer.remark, answer.fields["msgId"]) == (0, None, "0")
    assert f"reply not stored topic={topic} status=SERVICE_NOT_AVAILABLE" in caplog.text


def test_a_reply_is_checked_as_a_send_is(client, topic):
    """A reply to the op topic settled the half message of another producer."""
    before = client.call(30, topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", queueId=0).fields
    assert client.answer(send_reply(client, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "asker@4")).code == 16
    assert client.call(30, topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", queueId=0).fields == before
    assert client.answer(send_reply(client, topic, "asker@4", queue=4)).code == 29
    assert client.call(30, topic=topic, queueId=4).fields["offset"] == "0"


def test_a_reply_need_not_be_stored(client, connect, topic):
    asker = connect()
    asker.heartbeat("asker@3", producers=("Q3",))
    setting(client, "storeReplyMessageEnable", "false")
    try:
        sent = send_reply(client, topic, "asker@3")
        asker.reply(asker.request(326))
        answer = client.answer(sent)
        assert (answer.code, answer.fields["msgId"], answer.fields["queueOffset"]) == (0, "0", "0")
        assert client.call(30, topic=topic, queueId=0).fields["offset"] == "0"
    finally:
        setting(client, "storeReplyMessageEnable", "true")


# -- POP ----------------------------------------------------------------------------------------------------------


def test_in_order_only_messages_of_the_last_pop_are_acknowledged(client, topic):
    fill(client, topic)
    answer = pop(client, topic, group="GLast", order=True, queue=0, count=2)
    said = ack(client, topic, answer, 2, group="GLast")
    key = f"{topic}@GLast@0"
    assert (said.code, said.remark.rpartition(", /")[0]) == (
        13,
        f"offset is illegal, key:{key}, old:0, commit:2, next:-1",
    )
    assert [ack(client, topic, answer, one, group="GLast").code for one in (0, 1)] == [0, 0]
    fields = {"consumerGroup": "GLast", "topic": topic, "queueId": 0, "invisibleTime": 1000}
    late = client.call(200053, offset=0, extraInfo=words(answer, 0), **fields)
    assert (late.code, late.fields) == (0, {})


@pytest.mark.parametrize(
    ("retry", "name"), [("1", "%RETRY%GBatch_Popped"), ("2", "%RETRY%GBatch+Popped")], ids=["first", "second"]
)
def test_retries_are_acknowledged_in_batches_by_the_name_of_either_version(client, retry, name):
    entry = {"b": "AQ==", "c": "GBatch", "t": "Popped", "r": retry, "so": 0, "q": 0, "it": 60_000, "rq": 0, "pt": 1}
    assert batch_ack(client, entry).code == 0

    def acknowledged():
        found = [json.loads(body) for _, body in records(client.pull(REVIVE, 0))]
        return [one for one in found if one["t"] == name and one["c"] == "GBatch"]

    until(acknowledged)


def test_pulls_are_refused_without_the_right_to_read(client, topic):
    setting(client, "brokerPermission", "2")
    try:
        answer = client.pull(topic)
        assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] pulling message is forbidden")
    finally:
        setting(client, "brokerPermission", "6")


def test_pops_and_notices_end_with_a_broker_that_stops(client, server, topic, monkeypatch):
    monkeypatch.setattr(server.broker, "is_stopping", True)
    answer = pop(client, topic)
    assert (answer.code, answer.remark) == (14, "the broker is shutting down")
    sent = []
    server.broker.notify(SimpleNamespace(send=sent.append), 40, {})
    assert sent == []


@pytest.mark.parametrize(
    ("key", "value", "code", "words"),
    [
        ("brokerPermission", "2", 16, "the broker[127.0.0.1] pop message is forbidden"),
        (
            "timerWheelEnable",
            "false",
            1,
            "the broker[127.0.0.1] pop message is forbidden because timerWheelEnable is false",
        ),
    ],
    ids=["right", "timer"],
)
def test_pops_are_refused_without_the_right_to_read_or_a_timer(
    client, server, topic, monkeypatch, key, value, code, words
):
    monkeypatch.setitem(server.broker.settings.values, key, value)
    answer = pop(client, topic)
    assert (answer.code, answer.remark) == (code, words)


@pytest.mark.parametrize("change", ["timerWheelEnable=false", "mapedFileSizeCommitLog=1"])
def test_keys_that_are_read_only_at_the_start_cannot_be_changed(client, change):
    key = change.split("=")[0]
    answer = client.call(25, f"{change}\n".encode())
    words = f"{key}: cannot be changed while the broker is running; change it in broker.conf and restart"
    assert (answer.code, answer.remark) == (29, words)


def committed(client, topic, group):
    return client.call(14, consumerGroup=group, topic=topic, queueId=0, setZeroIfNotFound="false").fields.get("offset")


def test_a_group_whose_offset_is_after_the_end_gets_what_comes_next(client, topic):
    fill(client, topic)
    client.heartbeat("c@1", consumers={"GBeyond": [topic]})
    peek = {"consumerGroup": "GBeyond", "topic": topic, "queueId": 0, "maxMsgNums": 8}
    assert client.call(15, consumerGroup="GBeyond", topic=topic, queueId=0, commitOffset=1000).code == 0
    assert client.call(200052, **peek).code == 19
    assert pop(client, topic, group="GBeyond", queue=0).code == 210
    assert committed(client, topic, "GBeyond") == "3"
    assert client.call(15, consumerGroup="GBeyond", topic=topic, queueId=0, commitOffset=1000).code == 0
    client.put(topic, b"next")
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == "4")
    assert bodies(pop(client, topic, group="GBeyond", queue=0)) == []
    client.put(topic, b"after")
    until(lambda: bodies(client.call(200052, **peek)) == [b"after"])
    assert bodies(pop(client, topic, group="GBeyond", queue=0)) == [b"after"]


def test_in_order_an_acknowledgement_of_a_group_that_has_popped_nothing_moves_its_offset(client, topic):
    fill(client, topic)
    fields = {"consumerGroup": "GNone", "topic": topic, "queueId": 0, "offset": 1}
    assert client.call(200051, extraInfo="0 1 60000 999 0 broker-a 0 1", **fields).code == 0
    assert committed(client, topic, "GNone") == "2"


def test_in_order_the_time_of_an_earlier_pop_is_not_changed(client, topic):
    fill(client, topic, 1)
    answer = pop(client, topic, group="GEarlier", order=True, queue=0)
    fields = {"consumerGroup": "GEarlier", "topic": topic, "queueId": 0, "offset": 0, "invisibleTime": 0}
    given = words(answer, 0)
    earlier = given.replace(answer.fields["popTime"], str(int(answer.fields["popTime"]) - 1))
    assert client.call(200053, extraInfo=earlier, **fields).code == 0
    assert pop(client, topic, group="GEarlier", order=True, queue=0).code == 210
    assert client.call(200053, extraInfo=given, **fields).code == 0
    until(lambda: bodies(pop(client, topic, group="GEarlier", order=True, queue=0)) == [b"p0"])


def test_an_acknowledgement_outside_of_the_queue_is_not_stored_with_others(client, topic):
    entry = {"b": "AQ==", "c": "GOutside", "t": topic, "r": "0", "q": 0, "it": 60_000, "rq": 0, "pt": 1}
    fill(client, topic)
    assert batch_ack(client, {**entry, "so": 100}, {**entry, "so": 1}).code == 0

    def acknowledged():
        found = [json.loads(body) for _, body in records(client.pull(REVIVE, 0))]
        return [one["so"] for one in found if one["c"] == "GOutside"]

    until(lambda: acknowledged() == [1])


# -- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prefix", "longest"), [("", 127), ("%RETRY%", 255), ("%DLQ%", 255)])
def test_a_topic_is_as_long_as_the_broker_allows(client, prefix, longest):
    name = prefix.ljust(longest, "x")
    assert client.create_topic(name).code == 0
    answer = client.create_topic(name + "x")
    assert (answer.code, f"longer than topic max length: {longest}" in answer.remark) == (29, True)


def test_a_topic_is_created_by_a_send_only_like_one_that_may_be_inherited(client, topic):
    """The default topic of a send must exist and have the permission INHERIT (1)."""
    assert client.create_topic("Pattern", 2, perm=7).code == 0
    for default in (topic, "Missing"):
        assert client.put("LikeOther", c=default).code == 17
    assert client.put("LikePattern", c="Pattern").code == 0
    found = client.call(351, topic="LikePattern").json
    assert (found["writeQueueNums"], found["perm"]) == (2, 6)


def test_a_program_cannot_create_a_topic_with_a_bad_name_or_type(server):
    for name, kind, said in (("no name", "NORMAL", "illegal characters"), ("Typed", "ODD", "found 'ODD'")):
        with pytest.raises(UsageError, match=said):
            server.create_topic(name, kind)


def test_the_topic_for_traces_is_created_if_it_is_enabled(client):
    assert client.call(351, topic="RMQ_SYS_TRACE_TOPIC").code == 17
    with MqServer(traceTopicEnable="true") as server, Client(server.broker_address) as other:
        found = other.call(351, topic="RMQ_SYS_TRACE_TOPIC").json
        assert (found["readQueueNums"], found["writeQueueNums"]) == (1, 1)


def test_topics_named_after_cluster_and_broker_that_are_switched_off_can_only_be_inherited():
    """TopicConfigManager.init: perm 1; with clusterTopicEnable and brokerTopicEnable 7."""
    keys = {"clusterTopicEnable": "false", "brokerTopicEnable": "false"}
    with MqServer(**keys) as server, Client(server.broker_address) as other:
        assert [other.call(351, topic=name).json["perm"] for name in ("DefaultCluster", "broker-a")] == [1, 1]


def test_a_topic_that_a_send_creates_is_not_ordered(client):
    """TopicConfigManager.createTopicInSendMessageMethod copies permission and filter type only."""
    assert client.create_topic("TOrdered", 2, perm=7, order=True).code == 0
    assert client.put("TFromOrdered", c="TOrdered").code == 0
    found = client.call(351, topic="TFromOrdered").json
    assert (found["order"], found["perm"]) == (False, 6)


def test_a_changed_setting_is_read_as_one_of_the_configuration_file(client, server):
    """Boolean.parseBoolean takes a blank at the end for false, Integer.parseInt refuses one."""
    setting(client, "autoCreateTopicEnable", "true ")
    try:
        assert client.put("NotCreatedWithBlank").code == 17
    finally:
        setting(client, "autoCreateTopicEnable", "true")
    before = server.broker.settings.text("maxTransferCountOnMessageInDisk")
    answer = client.call(25, b"maxTransferCountOnMessageInDisk=9 \n")
    assert (answer.code, server.broker.settings.text("maxTransferCountOnMessageInDisk")) == (29, before)


def forbidden(client, group, topic, **fields):
    return client.call(353, group=group, topic=topic, **fields).json


def test_a_group_may_not_pull_a_topic_that_is_forbidden_for_it(client, topic):
    client.heartbeat("c@1", consumers={"GForbidden": [topic, "Other"]})
    asked = {"group": "GForbidden", "sysFlag": 0}
    readable = {"group": "GForbidden", "topic": topic, "readable": True}
    assert forbidden(client, "GForbidden", topic) == readable
    assert forbidden(client, "GForbidden", topic, readable=False) == readable | {"readable": False}
    answer = client.pull(topic, **asked)
    assert (answer.code, answer.remark) == (16, f"the consumer group[GForbidden] is forbidden for topic[{topic}]")
    assert client.pull(topic, group="GForbidden").code == 19  # with a subscription of its own, as in the broker
    assert forbidden(client, "GForbidden", "Other", readable=False)["readable"] is False
    assert forbidden(client, "GForbidden", topic, readable=True) == readable
    assert client.pull(topic, **asked).code == 19
    assert client.call(201).json["forbiddenTable"] == {"GForbidden": {"Other": 4}}
    assert client.call(201, groupSeq=0, maxGroupNum=1).json["forbiddenTable"] == {}
    assert client.call(207, groupName="GForbidden").code == 0
    assert client.call(201).json["forbiddenTable"] == {}


def test_forbidden_topics_of_a_store_are_kept(tmp_path):
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        client.create_topic("T", 1)
        forbidden(client, "G", "T", readable=False)
        forbidden(client, "G", "U", readable=False)
        server.restart()
    path = tmp_path / "store" / "config" / "subscriptionGroup.json"
    table = config_json.parse(path.read_bytes())
    assert table["forbiddenTable"] == {"G": {"T": 4, "U": 4}}
    table["forbiddenTable"]["G"] = {"T": -1, "U": 2}
    path.write_bytes(config_json.build(table, config_json.JsonStyle.PRETTY_2))
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        assert forbidden(client, "G", "T")["readable"] is forbidden(client, "G", "U")["readable"] is True
        assert forbidden(client, "G", "U", readable=False)["readable"] is False
        assert client.call(201).json["forbiddenTable"] == {"G": {"T": -1, "U": 6}}


@pytest.mark.parametrize("value", [5, {"G": 5}, {"G": {"T": "many"}}])
def test_a_table_of_forbidden_topics_that_cannot_be_read_is_an_error(tmp_path, value):
    groups = tmp_path / "store" / "config" / "subscriptionGroup.json"
    groups.parent.mkdir(parents=True)
    groups.write_text(json.dumps({"subscriptionGroupTable": {}, "forbiddenTable": value}), "utf-8")
    with pytest.raises(ConfigFileError, match=r"subscriptionGroup\.json: "), MqServer(tmp_path / "store"):
        pass


def topics_in(answer):
    return {json.loads(key)["topic"] for key in bare(answer.body)["offsetTable"]}


def test_progress_is_that_of_the_topics_in_question(client, topic):
    client.create_topic("Other", 1)
    client.create_topic("NotConsumed", 1)
    client.heartbeat("c@1", consumers={"GStats": [topic, "NotConsumed"]})
    for name in (topic, "Other", "%RETRY%GStats"):
        assert client.call(15, consumerGroup="GStats", topic=name, queueId=0, commitOffset=0).code == 0

    def asked(**fields):
        return topics_in(client.call(208, consumerGroup="GStats", **fields))

    assert asked() == {topic, "%RETRY%GStats"}  # not those to which the group does not subscribe
    assert asked(topic=topic) == {topic}
    assert asked(topic="Other") == set()
    assert asked(topicList="Other;NotConsumed;") == {"Other", "NotConsumed"}
    client.call(35, clientID="c@1", consumerGroup="GStats")
    assert asked() == {topic, "Other", "%RETRY%GStats"}


def test_a_delay_is_that_of_the_next_message(client, topic, monkeypatch):
    put(client, topic, 2)
    client.heartbeat("c@1", consumers={"GSpan": [topic]})
    client.call(15, consumerGroup="GSpan", topic=topic, queueId=0, commitOffset=1)
    stored = [facts["stored"] for facts, _ in records(client.pull(topic))]
    monkeypatch.setattr(ServerClock, "now", lambda _self: stored[1] + 2024)
    spans = client.call(303, topic=topic, group="GSpan").json["consumeTimeSpanSet"]
    first, empty = spans[0], spans[1]
    assert {**first, "messageQueue": first["messageQueue"]["queueId"]} == {
        "messageQueue": 0,
        "minTimeStamp": stored[0],
        "maxTimeStamp": stored[1],
        "consumeTimeStamp": stored[0],
        "delayTime": 2024,
    }
    assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (-1, -1, 0)
    client.call(15, consumerGroup="GSpan", topic=topic, queueId=0, commitOffset=2)
    assert client.call(303, topic=topic, group="GSpan").json["consumeTimeSpanSet"][0]["delayTime"] == 0


def test_messages_and_offsets_of_a_lite_topic_are_its_own():
    with (
        MqServer(enableLmq="true", enableMultiDispatch="true") as server,
        Client(server.broker_address) as client,
        Client(server.broker_address) as sender,
    ):
        server.create_topic("L1", "LITE", 1)
        for lite in ("a", "b", "b"):
            assert client.put("L1", b"for-" + lite.encode(), properties={"__LITE_TOPIC": lite}).code == 0
        until(lambda: client.pull("L1", liteTopic="b").fields["maxOffset"] == "2")
        assert bodies(client.pull("L1", liteTopic="b")) == [b"for-b", b"for-b"]
        assert bodies(client.pull("L1", liteTopic=" ")) == [b"for-a", b"for-b", b"for-b"]
        asked = {"topic": "L1", "timestamp": 1 << 50}
        assert client.call(29, **asked, queueId=0, liteTopic="b").fields["offset"] == "2"
        assert client.call(29, **asked, queueId=1, liteTopic="b").fields["offset"] == "0"
        assert client.call(29, **asked, queueId=0, liteTopic="none").fields["offset"] == "0"
        waiting = client.send_pull("L1", offset=2, hold_ms=30_000, liteTopic="b")
        sender.put("L1", b"other", properties={"__LITE_TOPIC": "a"})
        sender.put("L1", b"comes", properties={"__LITE_TOPIC": "b"})
        assert bodies(client.answer(waiting)) == [b"comes"]


@pytest.mark.parametrize("fast_sends", [True, False])
def test_a_message_of_a_compacted_topic_needs_a_key(fast_sends):
    with MqServer(fast_sends=fast_sends) as server, Client(server.broker_address) as client:
        made = client.call(
            17,
            topic="Compacted",
            defaultTopic="TBW102",
            readQueueNums=1,
            writeQueueNums=1,
            perm=6,
            order=False,
            attributes="+cleanup.policy=COMPACTION",
        )
        assert made.code == 0
        for keys in ({}, {"KEYS": " "}):
            answer = client.put("Compacted", b"x", properties=keys)
            assert (answer.code, answer.remark) == (13, "Required message key is missing")
        assert client.put("Compacted", b"x", properties={"KEYS": "k"}).code == 0
