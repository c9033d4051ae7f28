"""Lite topics: subscriptions of both protocols, who loses them, what mqadmin is told, and what expires."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest
from msgspec.structs import replace

from mqtool.protocol.command import RequestCode as Code
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.broker.topics import default_group
from mqtool.server.grpc.core import Core
from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient, code
from tests.support.remoting import Client, records
from tests.unit.server.broker.conftest import until


def named(name):
    return d.Resource(name=name)


def create(server, topic, group, **attributes):
    """Makes a topic of type LITE and a group that is bound to it."""
    server.create_topic(topic, "LITE", queues=1)
    config = replace(default_group(group), attributes={"lite.bind.topic": topic, **attributes})
    server.call(lambda: server.broker.groups.put(config))


def sync(client, group, topic, action, *names, **more):
    fields = {"topic": named(topic), "group": named(group), "lite_topic_set": names, **more}
    return code(client.call("SyncLiteSubscription", action=action, **fields))


def take(client, group, topic, seconds=8):
    """Returns the bodies of one poll, and acknowledges them."""
    found = client.receive(group, topic, auto_renew=True, seconds=seconds, long_polling_timeout={"seconds": 5})
    for one in found:
        system = one.system_properties
        entry = s.AckMessageEntry(receipt_handle=system.receipt_handle, lite_topic=system.lite_topic)
        assert code(client.call("AckMessage", group=named(group), topic=named(topic), entries=[entry])) == "OK"
    return [one.body for one in found]


@pytest.fixture(scope="module")
def lite_server():
    with MqServer(enableLmq="true", enableMultiDispatch="true") as found:
        create(found, "Chat", "GLite")
        found.create_group("GNot")
        yield found


def test_lite_topics_arrive_where_they_are_subscribed(lite_server):
    with GrpcClient(lite_server.endpoints) as client, GrpcClient(lite_server.endpoints) as other:
        client.consume("GLite", "Chat", d.LITE_PUSH_CONSUMER)
        assert sync(client, "GLite", "Chat", d.PARTIAL_ADD, "a", "b") == "OK"
        assert sync(client, "GOther", "Chat", d.PARTIAL_ADD, "a") == "ILLEGAL_TOPIC"
        assert sync(client, "GLite", "Chat", d.PARTIAL_ADD, "l" * 65) == "ILLEGAL_LITE_TOPIC"
        assert sync(client, "GLite", "Chat", d.PARTIAL_ADD, "a b") == "ILLEGAL_LITE_TOPIC"
        for name, body in (("a", b"a1"), ("c", b"c1"), ("b", b"b1"), ("a", b"a2")):
            assert code(other.send("Chat", body, lite_topic=name)) == "OK"
        found = []
        while len(found) < 3:  # what is not acknowledged keeps back the rest of its lite topic
            for one in client.receive("GLite", "Chat", auto_renew=True):
                system = one.system_properties
                found.append((system.lite_topic, one.body))
                entry = s.AckMessageEntry(receipt_handle=system.receipt_handle, lite_topic=system.lite_topic)
                answer = client.call("AckMessage", group=named("GLite"), topic=named("Chat"), entries=[entry])
                assert code(answer) == "OK"
        assert sorted(found) == [("a", b"a1"), ("a", b"a2"), ("b", b"b1")]
        assert found.index(("a", b"a1")) < found.index(("a", b"a2"))
        assert sync(client, "GLite", "Chat", d.PARTIAL_REMOVE, "a") == "OK"
        other.send("Chat", b"a3", lite_topic="a")
        other.send("Chat", b"b2", lite_topic="b")
        assert [one.body for one in client.receive("GLite", "Chat", auto_renew=True)] == [b"b2"]


def test_a_client_that_leaves_has_no_lite_topic_any_more(lite_server):
    create(lite_server, "Left", "GLeft")
    with GrpcClient(lite_server.endpoints) as client:
        client.consume("GLeft", "Left", d.LITE_PUSH_CONSUMER)
        assert sync(client, "GLeft", "Left", d.PARTIAL_ADD, "a") == "OK"
        assert code(client.send("Left", b"x", lite_topic=" ")) == "ILLEGAL_LITE_TOPIC"
        subscribed = lambda: client.client_id in lite_server._server.service._lite.subscriptions.clients  # noqa: E731
        assert lite_server.call(subscribed)
        assert code(client.call("NotifyClientTermination", group=named("GLeft"))) == "OK"
        assert not lite_server.call(subscribed)


def test_a_subscription_or_a_message_wakes_the_poll_of_lite_topics(lite_server):
    with GrpcClient(lite_server.endpoints) as client, ThreadPoolExecutor(1) as pool:
        client.consume("GLite", "Chat", d.LITE_PUSH_CONSUMER)
        waits = pool.submit(client.receive, "GLite", "Chat", auto_renew=True)
        time.sleep(0.2)
        began = time.monotonic()
        assert sync(client, "GLite", "Chat", d.COMPLETE_ADD, "wake") == "OK"
        time.sleep(0.2)
        client.send("Chat", b"woken", lite_topic="wake")
        assert [one.body for one in waits.result(30)] == [b"woken"]
        assert time.monotonic() - began < 4


def test_an_ordinary_group_has_no_lite_consumers(lite_server):
    with GrpcClient(lite_server.endpoints) as client:
        error = client.consume("GPlain", "Chat", d.LITE_PUSH_CONSUMER)
        assert (error.code(), "LITE mode" in error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True)


ANY = object()
"""A value that differs in each run."""


def matches(expected, found):
    return expected.keys() == found.keys() and all(
        value is ANY or value == found[name] for name, value in expected.items()
    )


def test_mqadmin_is_informed_about_lite_topics(lite_server):
    create(lite_server, "Told", "GTold")
    with GrpcClient(lite_server.endpoints, client_id="told@1") as client, Client(lite_server.broker_address) as admin:
        before = admin.call(Code.GET_BROKER_LITE_INFO).json
        client.consume("GTold", "Told", d.LITE_PUSH_CONSUMER)
        assert sync(client, "GTold", "Told", d.PARTIAL_ADD, "a", "b") == "OK"
        for body in (b"1", b"2", b"3"):
            client.send("Told", body, lite_topic="a")
        queue = "%LMQ%$Told$a"
        until(lambda: lite_server.call(lambda: lite_server.broker.messages.queue_bounds(queue, 0)) == (0, 3))
        answer = admin.call(Code.GET_LITE_TOPIC_INFO, parentTopic="Told", liteTopic="a").json
        assert answer.pop("topicOffset")["maxOffset"] == 3
        assert answer == {
            "parentTopic": "Told",
            "liteTopic": "a",
            "subscriber": [{"clientId": "told@1", "group": "GTold"}],
            "shardingToBroker": True,
        }
        empty = admin.call(Code.GET_LITE_TOPIC_INFO, parentTopic="Told", liteTopic="z").json
        assert empty["topicOffset"] == {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0}
        topic = admin.call(Code.GET_PARENT_TOPIC_INFO, topic="Told").json
        assert matches({"topic": "Told", "ttl": -1, "lmqNum": ANY, "liteTopicCount": 1, "groups": ["GTold"]}, topic)
        fields = {"parentTopic": "Told", "group": "GTold", "clientId": "told@1"}
        known = admin.call(Code.GET_LITE_CLIENT_INFO, **fields).json
        assert known["liteTopicSet"] == ["%LMQ%$Told$a", "%LMQ%$Told$b"]
        assert (known["liteTopicCount"], known["lastAccessTime"]) == (2, -1)
        short = admin.call(Code.GET_LITE_CLIENT_INFO, maxCount=1, **fields).json
        assert (short["liteTopicCount"], short["liteTopicSet"]) == (2, ["%LMQ%$Told$a"])
        nobody = admin.call(Code.GET_LITE_CLIENT_INFO, **{**fields, "clientId": "nobody"}).json
        assert ("liteTopicSet" in nobody, nobody["liteTopicCount"]) == (False, -1)
        first = client.receive("GTold", "Told", auto_renew=True, batch_size=1)
        assert len(first) == 1
        behind = admin.call(Code.GET_LITE_GROUP_INFO, group="GTold", topK=5).json
        assert [row["liteTopic"] for row in behind["lagCountTopK"]] == ["a"]
        assert behind["totalLagCount"] == behind["lagCountTopK"][0]["lagCount"]
        assert (behind["lagTimestampTopK"], behind["earliestUnconsumedTimestamp"]) == ([], -1)
        one = admin.call(Code.GET_LITE_GROUP_INFO, group="GTold", liteTopic="a").json
        assert one["liteTopicOffsetWrapper"]["brokerOffset"] == 3
        assert one["totalLagCount"] == 3 - one["liteTopicOffsetWrapper"]["consumerOffset"]
        none = admin.call(Code.GET_LITE_GROUP_INFO, group="GTold", liteTopic="z").json
        assert (none["totalLagCount"], none["earliestUnconsumedTimestamp"]) == (-1, -1)
        info = admin.call(Code.GET_BROKER_LITE_INFO).json
        assert info["liteSubscriptionCount"] - before["liteSubscriptionCount"] == 2
        assert (info["currentLmqNum"] - before["currentLmqNum"], info["maxLmqNum"]) == (1, 20_000)
        assert (info["topicMeta"]["Told"], info["groupMeta"]["Told"]) == (-1, ["GTold"])
        assert admin.call(Code.GET_LITE_CLIENT_INFO, **fields).json["lastAccessTime"] > 0


@pytest.mark.parametrize(
    ("request_code", "fields", "expected", "words"),
    [
        (Code.GET_PARENT_TOPIC_INFO, {"topic": "Nowhere"}, 17, "Topic [Nowhere] not exist."),
        (Code.GET_PARENT_TOPIC_INFO, {"topic": "TBW102"}, 29, "Topic [TBW102] type not match."),
        (Code.GET_LITE_TOPIC_INFO, {"parentTopic": "Nowhere", "liteTopic": "a"}, 17, "Topic [Nowhere] not exist."),
        (
            Code.GET_LITE_CLIENT_INFO,
            {"parentTopic": "Chat", "group": "GNot"},
            29,
            "Subscription [GNot]-[Chat] not match.",
        ),
        (Code.GET_LITE_GROUP_INFO, {"group": "GNot"}, 29, "Group [GNot] is not a LITE group."),
        (Code.TRIGGER_LITE_DISPATCH, {"group": "GNot"}, 29, "Group [GNot] is not a LITE group."),
        (Code.TRIGGER_LITE_DISPATCH, {"group": "GLite"}, 0, None),
        (Code.ACK_LITE_MESSAGE, {}, 3, " request type 200072 not supported"),
    ],
)
def test_requests_about_lite_topics_are_refused_as_by_the_real_broker(
    lite_server, request_code, fields, expected, words
):
    with Client(lite_server.broker_address) as admin:
        answer = admin.call(request_code, **fields)
    assert (answer.code, answer.remark) == (expected, words)


def pop(client, **changes):
    fields = {"consumerGroup": "GLite", "topic": "Chat", "clientId": "r@1", "maxMsgNum": 1, "pollTime": 0} | changes
    return client.call(Code.POP_LITE_MESSAGE, invisibleTime=30_000, **fields)


def subscribe(client, action, *names, **changes):
    one = {"action": action, "clientId": "r@1", "group": "GLite", "topic": "Chat", "liteTopicSet": names} | changes
    return client.call(Code.LITE_SUBSCRIPTION_CTL, json.dumps({"subscriptionSet": [None, one]}).encode())


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({}, 210, "NO_MESSAGE_IN_QUEUE"),
        ({"maxMsgNum": 33}, 29, "] pop message's num is greater than 32"),
        ({"topic": "Nowhere"}, 17, "topic [Nowhere] not exist, apply first please!"),
        ({"topic": "WriteOnly"}, 16, "the topic [WriteOnly] peeking message is forbidden"),
        ({"topic": "TBW102"}, 29, "the topic [TBW102] message type not match"),
        ({"consumerGroup": "GNot"}, 29, "subscription bind topic not match, GNot"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_pop_of_lite_topics_is_refused_for_the_first_reason(lite_server, changes, expected, words):
    with Client(lite_server.broker_address) as client:
        assert client.create_topic("WriteOnly", perm=2).code == 0
        answer = pop(client, **changes)
    assert answer.code == expected
    assert words in answer.remark


def test_subscriptions_of_a_remoting_client_are_replaced_moved_and_removed(lite_server):
    create(lite_server, "Set", "GSet")
    create(lite_server, "Other", "GOther2")
    own = {"group": "GSet", "topic": "Set", "clientId": "set@1"}
    with Client(lite_server.broker_address) as client:

        def held():
            fields = {"parentTopic": "Set", "group": "GSet", "clientId": "set@1"}
            return client.call(Code.GET_LITE_CLIENT_INFO, **fields).json.get("liteTopicSet", [])

        assert subscribe(client, "PARTIAL_REMOVE", "a", **own).code == 0
        assert subscribe(client, "PARTIAL_ADD", "a", "b", **own).code == 0
        assert held() == ["%LMQ%$Set$a", "%LMQ%$Set$b"]
        assert subscribe(client, "COMPLETE_ADD", "b", "c", **own).code == 0
        assert held() == ["%LMQ%$Set$b", "%LMQ%$Set$c"]
        assert subscribe(client, "PARTIAL_REMOVE", "a", **own).code == 0
        assert subscribe(client, "SHUFFLE", "z", **own).code == 0
        assert subscribe(client, "COMPLETE_ADD", "z", **own | {"clientId": " "}).code == 0
        assert held() == ["%LMQ%$Set$b", "%LMQ%$Set$c"]
        assert subscribe(client, "PARTIAL_ADD", "d", **own | {"group": "GOther2", "topic": "Other"}).code == 0
        assert held() == ["%LMQ%$Other$d"]
        assert subscribe(client, "COMPLETE_REMOVE", **own).code == 0
        assert held() == []


def test_a_group_that_must_not_consume_subscribes_to_nothing(lite_server):
    create(lite_server, "Shut", "GShut")
    config = replace(default_group("GShut"), consume_enable=False, attributes={"lite.bind.topic": "Shut"})
    lite_server.call(lambda: lite_server.broker.groups.put(config))
    with Client(lite_server.broker_address) as client:
        answer = subscribe(client, "PARTIAL_ADD", "a", group="GShut", topic="Shut")
    words = "java.lang.IllegalStateException: Consumer group is not allowed to consume."
    assert (answer.code, answer.remark) == (604, words)


def filled(server, client, topic, number):
    """Puts messages into the lite topic a; returns its light queue."""
    for body in range(number):
        client.send(topic, b"%d" % body, lite_topic="a")
    queue = f"%LMQ%${topic}$a"
    until(lambda: server.call(lambda: server.broker.messages.queue_bounds(queue, 0)) == (0, number))
    return queue


def test_consumer_offsets_of_lite_topics_go_back_where_the_group_asks_for_it(lite_server):
    """From the end by a number of messages; to the start when a subscription ends, or another client takes it."""
    offset = lambda group, queue: lite_server.call(lambda: lite_server.broker.offsets.get(group, queue, 0))  # noqa: E731
    create(lite_server, "Back", "GBack", **{"lite.sub.reset.offset.unsubscribe": "true"})
    create(lite_server, "Taken", "GTaken", **{"lite.sub.model": "Exclusive", "lite.sub.reset.offset.exclusive": "true"})
    with GrpcClient(lite_server.endpoints) as sender, Client(lite_server.broker_address) as client:
        back, taken = filled(lite_server, sender, "Back", 4), filled(lite_server, sender, "Taken", 2)
        own = {"group": "GBack", "topic": "Back", "clientId": "back@1"}
        at_three = {"type": "OFFSET", "value": 3}
        assert subscribe(client, "PARTIAL_ADD", "a", offsetOption=at_three, **own).code == 0
        assert subscribe(client, "PARTIAL_ADD", "a", offsetOption={"type": "TAIL_N", "value": 2}, **own).code == 0
        assert offset("GBack", back) == 1
        found = pop(client, consumerGroup="GBack", topic="Back", clientId="back@1")
        assert [body for _, body in records(found)] == [b"1"]
        assert subscribe(client, "PARTIAL_REMOVE", "a", **own).code == 0
        assert offset("GBack", back) == 0
        for name in ("taken@1", "taken@2"):
            own = {"group": "GTaken", "topic": "Taken", "clientId": name}
            option = {"type": "OFFSET", "value": 2} if name == "taken@1" else None
            assert subscribe(client, "PARTIAL_ADD", "a", offsetOption=option, **own).code == 0
        assert client.request(Code.NOTIFY_UNSUBSCRIBE_LITE).fields["clientId"] == "taken@1"
        assert offset("GTaken", taken) == 0


def test_the_last_subscriber_of_an_exclusive_group_has_a_lite_topic_alone(lite_server):
    create(lite_server, "Sole", "GSole", **{"lite.sub.model": "Exclusive"})
    with GrpcClient(lite_server.endpoints) as first, GrpcClient(lite_server.endpoints) as second:
        for client in (first, second):
            client.consume("GSole", "Sole", d.LITE_PUSH_CONSUMER)
            assert sync(client, "GSole", "Sole", d.PARTIAL_ADD, "room") == "OK"
        told = first.arrived.get(timeout=10)
        assert told.notify_unsubscribe_lite_command.lite_topic == "room"
        first.send("Sole", b"x", lite_topic="room")
        assert take(second, "GSole", "Sole") == [b"x"]


def test_an_exclusive_subscriber_takes_a_lite_topic_from_its_own_group_only(lite_server):
    create(lite_server, "Owned", "GOwned", **{"lite.sub.model": "Exclusive"})
    create(lite_server, "Owned", "GBeside")
    with Client(lite_server.broker_address) as client:

        def add(name, group):
            own = {"group": group, "topic": "Owned", "clientId": name}
            assert subscribe(client, "PARTIAL_ADD", "room", **own).code == 0

        def subscribers():
            found = client.call(Code.GET_LITE_TOPIC_INFO, parentTopic="Owned", liteTopic="room").json["subscriber"]
            return sorted(one["clientId"] for one in found)

        add("beside@1", "GBeside")
        add("owned@1", "GOwned")
        add("owned@1", "GOwned")
        assert subscribers() == ["beside@1", "owned@1"]
        add("owned@2", "GOwned")
        assert client.request(Code.NOTIFY_UNSUBSCRIBE_LITE).fields["clientId"] == "owned@1"
        assert (subscribers(), client.asked) == (["beside@1", "owned@2"], [])


def test_a_subscription_at_the_offset_where_its_group_is_changes_nothing(lite_server):
    create(lite_server, "Same", "GSame")
    queue, offsets = "%LMQ%$Same$a", lite_server.broker.offsets
    lite_server.call(lambda: offsets.commit("GSame", queue, 0, 2))
    with Client(lite_server.broker_address) as client:
        own = {"group": "GSame", "topic": "Same", "clientId": "same@1"}
        for value, is_reset in ((2, False), (1, True)):
            option = {"type": "OFFSET", "value": value}
            assert subscribe(client, "PARTIAL_ADD", "a", offsetOption=option, **own).code == 0
            assert lite_server.call(lambda: offsets.has_reset("GSame", queue, 0)) is is_reset


def test_a_group_that_has_consumed_nothing_of_a_lite_topic_or_all_of_it_has_no_lag(lite_server):
    create(lite_server, "Idle", "GIdle")
    queue = "%LMQ%$Idle$a"
    with GrpcClient(lite_server.endpoints) as client, Client(lite_server.broker_address) as admin:
        client.produce("Idle")
        client.send("Idle", b"1", lite_topic="a")
        until(lambda: lite_server.call(lambda: lite_server.broker.messages.queue_bounds(queue, 0)) == (0, 1))
        fresh = admin.call(Code.GET_LITE_GROUP_INFO, group="GIdle", liteTopic="a").json
        assert (fresh["totalLagCount"], fresh["earliestUnconsumedTimestamp"]) == (0, -1)
        lite_server.call(lambda: lite_server.broker.offsets.commit("GIdle", queue, 0, 1))
        assert admin.call(Code.GET_LITE_GROUP_INFO, group="GIdle", topK=5).json["lagCountTopK"] == []


def test_lite_topics_expire_only_once_the_broker_has_run_as_long_as_they_last_unused(lite_server, monkeypatch):
    lite, looked = lite_server._server.service._lite, []
    monkeypatch.setattr(lite, "delete_expired", lambda now, unused_ms: looked.append(unused_ms))
    lite_server.call(lite.clean)
    assert looked == []
    monkeypatch.setitem(lite_server.broker.settings.values, "minLiteTTl", "0")
    lite_server.call(lite.clean)
    assert looked == [0]


def test_the_type_of_a_light_queue_is_not_kept(lite_server):
    core = SimpleNamespace(broker=lite_server.broker, _accept={})
    kinds = lite_server.call(lambda: Core.message_types(core, "%LMQ%any"))
    assert kinds in ((d.NORMAL,), (d.MESSAGE_TYPE_UNSPECIFIED,))
    assert lite_server.call(lambda: Core.message_types(core, "Chat")) == (d.LITE,)
    assert list(core._accept) == ["Chat"]


def test_a_remoting_client_is_notified_as_well(lite_server):
    create(lite_server, "Both", "GBoth", **{"lite.sub.model": "Exclusive"})
    with Client(lite_server.broker_address) as remoting, GrpcClient(lite_server.endpoints) as client:
        one = b'{"action":"PARTIAL_ADD","clientId":"r@1","group":"GBoth","topic":"Both","liteTopicSet":["room"]}'
        assert remoting.call(Code.LITE_SUBSCRIPTION_CTL, b'{"subscriptionSet":[%s]}' % one).code == 0
        client.consume("GBoth", "Both", d.LITE_PUSH_CONSUMER)
        assert sync(client, "GBoth", "Both", d.PARTIAL_ADD, "room") == "OK"
        told = remoting.request(Code.NOTIFY_UNSUBSCRIBE_LITE)
        assert told.fields == {"clientId": "r@1", "consumerGroup": "GBoth", "liteTopic": "room"}


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"policy": d.OffsetOption.MIN}, [b"0", b"1", b"2", b"3"]),
        ({"policy": d.OffsetOption.MAX}, [b"4"]),
        ({"offset": 2}, [b"2", b"3"]),
        ({"policy": d.OffsetOption.LAST}, [b"0", b"1", b"2", b"3"]),
    ],
    ids=["first", "end", "offset", "own"],
)
def test_a_subscription_says_where_to_begin(lite_server, option, expected, request):
    topic = f"From-{request.node.callspec.id}"
    create(lite_server, topic, f"G{topic}")
    with GrpcClient(lite_server.endpoints) as client:
        for body in (b"0", b"1", b"2", b"3"):
            client.send(topic, body, lite_topic="a")
        queue = f"%LMQ%${topic}$a"
        until(lambda: lite_server.call(lambda: lite_server.broker.messages.queue_bounds(queue, 0)) == (0, 4))
        client.consume(f"G{topic}", topic, d.LITE_PUSH_CONSUMER)
        assert sync(client, f"G{topic}", topic, d.PARTIAL_ADD, "a", offset_option=option) == "OK"
        if expected == [b"4"]:
            client.send(topic, b"4", lite_topic="a")
        assert take(client, f"G{topic}", topic) == expected


def test_a_wildcard_group_gets_every_lite_topic(lite_server):
    create(lite_server, "All", "GAll", **{"lite.sub.wildcard": "true"})
    with GrpcClient(lite_server.endpoints) as client, ThreadPoolExecutor(1) as pool:
        client.consume("GAll", "All", d.LITE_PUSH_CONSUMER)
        assert sync(client, "GAll", "All", d.PARTIAL_ADD, "a") == "INTERNAL_SERVER_ERROR"
        assert sync(client, "GAll", "All", d.COMPLETE_ADD) == "OK"
        waits = pool.submit(take, client, "GAll", "All")
        time.sleep(0.2)
        client.send("All", b"new", lite_topic="new")
        assert waits.result(30) == [b"new"]
        with Client(lite_server.broker_address) as admin:
            told = admin.call(Code.GET_LITE_TOPIC_INFO, parentTopic="All", liteTopic="new").json
        assert told["subscriber"] == [{"clientId": "*", "group": "GAll"}]


def test_subscriptions_have_a_limit(lite_server):
    create(lite_server, "Many", "GMany")
    with GrpcClient(lite_server.endpoints) as client:
        client.consume("GMany", "Many", d.LITE_PUSH_CONSUMER)
        settings = lite_server.broker.settings
        lite_server.call(lambda: settings.update({"maxLiteSubscriptionCount": "50"}))
        try:
            names = [f"n{one}" for one in range(51)]
            assert sync(client, "GMany", "Many", d.PARTIAL_ADD, *names) == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"
        finally:
            lite_server.call(lambda: settings.update({"maxLiteSubscriptionCount": "100000"}))
        assert sync(client, "GMany", "Many", d.PARTIAL_ADD, *names) == "OK"


def test_silent_clients_and_old_lite_topics_are_forgotten():
    with MqServer(
        enableLmq="true",
        enableMultiDispatch="true",
        liteSubscriptionCheckInterval="100",
        liteSubscriptionCheckTimeoutMills="600",
        minLiteTTl="1",
    ) as server:
        create(server, "Old", "GOld")
        server.create_topic("Kept", "LITE", queues=1)
        config = server.broker.topics.table["Old"]
        attributes = {**(config.attributes or {}), "lite.topic.expiration": "1"}
        server.call(lambda: server.broker.topics.put(replace(config, attributes=attributes)))
        with GrpcClient(server.endpoints, client_id="old@1") as client, Client(server.broker_address) as admin:
            client.consume("GOld", "Old", d.LITE_PUSH_CONSUMER)
            assert sync(client, "GOld", "Old", d.PARTIAL_ADD, "a") == "OK"
            client.send("Old", b"x", lite_topic="a")
            client.send("Kept", b"x", lite_topic="a")
            assert take(client, "GOld", "Old") == [b"x"]
            count = lambda: admin.call(Code.GET_BROKER_LITE_INFO).json["liteSubscriptionCount"]  # noqa: E731
            until(lambda: count() == 0)
            lite = server._server.service._lite
            queues = lambda: {name for name, _ in server.broker.messages.queues() if name.startswith("%LMQ%")}  # noqa: E731
            now = time.time_ns() // 1_000_000
            server.call(lambda: lite.delete_expired(now, 1))
            assert server.call(queues) == {"%LMQ%$Old$a", "%LMQ%$Kept$a"}
            server.call(lambda: lite.delete_expired(now + 61_000, 1))
            assert server.call(queues) == {"%LMQ%$Kept$a"}
            assert admin.call(Code.GET_LITE_GROUP_INFO, group="GOld", liteTopic="a").json["totalLagCount"] == -1
            client.send("Old", b"y", lite_topic="a")
            assert sync(client, "GOld", "Old", d.PARTIAL_ADD, "a") == "OK"
            assert take(client, "GOld", "Old") == [b"y"]
            server.call(lambda: lite.delete("%LMQ%$Old$a"))
            assert (count(), server.call(queues)) == (0, {"%LMQ%$Kept$a"})
            assert admin.call(Code.DELETE_TOPIC_IN_BROKER, topic="Kept").code == 0
            assert server.call(queues) == set()


@pytest.mark.parametrize(("minutes", "ttl"), [("60", 60), ("soon", -1), ("", -1)])
def test_lite_topics_never_expire_by_an_attribute_that_is_not_a_number(lite_server, minutes, ttl):
    create(lite_server, "Timed", "GTimed")
    config = lite_server.broker.topics.table["Timed"]
    attributes = {**(config.attributes or {}), "lite.topic.expiration": minutes}
    lite_server.call(lambda: lite_server.broker.topics.put(replace(config, attributes=attributes)))
    with Client(lite_server.broker_address) as admin:
        assert admin.call(Code.GET_PARENT_TOPIC_INFO, topic="Timed").json["ttl"] == ttl
