"""The gRPC endpoint: what the real proxy 5.5.0 answers, on the broker that remoting clients reach too."""

import asyncio
import base64
import hashlib
import ssl
import threading
import time

import grpc
import pytest
from msgspec.structs import replace

from mqtool.engine import StoreOptions, open_store
from mqtool.errors import UsageError
from mqtool.formats.java import string_hash
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.admin import port
from mqtool.server.broker.topics import typed_topic
from mqtool.server.grpc import receipts
from mqtool.server.grpc.producing import consistent_hash
from mqtool.server.serve import ServeOptions, Server
from mqtool.server.testing import MqServer
from tests.support.grpc_client import SERVICE, GrpcClient, code, message_of
from tests.support.remoting import Client, records
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_pop import pop


def named(name):
    return d.Resource(name=name)


def put_topic(server, name, perm, reads, writes):
    """Creates a topic, or replaces its permissions and numbers of queues."""
    config = replace(typed_topic(name, "NORMAL"), perm=perm, read_queue_nums=reads, write_queue_nums=writes)
    server.call(lambda: server.broker.topics.put(config))


def ends_of(server, topic, queues):
    """Number of messages that each queue of a topic had so far."""
    return server.call(lambda: [server.broker.messages.queue_bounds(topic, one)[1] for one in range(queues)])


def stored_in(server, topic, queues=2):
    """What remoting clients read from a topic: properties and body of each message."""
    found = []
    with Client(server.broker_address) as remoting:
        for queue in range(queues):
            answer = remoting.call(
                11,
                consumerGroup="GRead",
                topic=topic,
                queueId=queue,
                queueOffset=0,
                maxMsgNums=32,
                sysFlag=4,
                commitOffset=0,
                subVersion=0,
                subscription="*",
                suspendTimeoutMillis=0,
            )
            found += records(answer) if answer.code == 0 else []
    return found


def test_a_route_has_every_queue_at_the_endpoints_that_were_asked(server, client):
    server.create_topic("Route", "FIFO", queues=3)
    found = client.call("QueryRoute", topic=named("Route"), endpoints=client.endpoints)
    assert code(found) == "OK"
    assert [one.id for one in found.message_queues] == [0, 1, 2]
    assert {one.broker.endpoints.SerializeToString() for one in found.message_queues} == {
        client.endpoints.SerializeToString()
    }
    assert [list(one.accept_message_types) for one in found.message_queues] == [[d.FIFO]] * 3


@pytest.mark.parametrize(
    ("perm", "reads", "writes", "expected"),
    [
        (6, 2, 3, ["WRITE", "READ_WRITE", "READ_WRITE"]),
        (6, 3, 2, ["READ", "READ_WRITE", "READ_WRITE"]),
        (4, 2, 3, ["READ", "READ"]),
        (2, 3, 2, ["WRITE", "WRITE"]),
        (4, 0, 3, []),
        (0, 2, 3, ["NONE", "NONE", "NONE"]),
        (1, 0, 0, ["NONE"]),
    ],
)
def test_a_route_has_the_queues_that_the_permissions_allow(server, client, perm, reads, writes, expected):
    """As RouteActivity.genMessageQueueFromQueueData of the proxy 5.5.0 does."""
    put_topic(server, "Permissions", perm, reads, writes)
    queues = client.call("QueryRoute", topic=named("Permissions"), endpoints=client.endpoints).message_queues
    assert [(one.id, d.Permission.Name(one.permission)) for one in queues] == list(enumerate(expected))


def answers_of(server, client, topic, perm, reads, writes):
    """Codes of a send to a topic, of an assignment, and of a receive of one message from it."""
    put_topic(server, topic, perm, reads, writes)
    client.consume("G" + topic, topic)
    group, queue = named("G" + topic), d.MessageQueue(topic=named(topic), id=-1)
    sent = client.send(topic, b"b")
    assigned = client.call("QueryAssignment", topic=queue.topic, group=group, endpoints=client.endpoints)
    fields = {"group": group, "message_queue": queue, "batch_size": 1, "invisible_duration": {"seconds": 30}}
    received = client.call("ReceiveMessage", **fields)[0]
    return [code(sent), code(assigned), d.Code.Name(received.status.code)]


def test_nothing_is_stored_in_a_topic_that_is_not_writable(server, client, topic):
    for body in (b"1", b"2"):
        assert code(client.send(topic, body)) == "OK"
    assert answers_of(server, client, topic, 4, 2, 2) == ["FORBIDDEN", "OK", "OK"]
    assert answers_of(server, client, topic, 6, 2, 0) == ["FORBIDDEN", "OK", "OK"]


def test_a_topic_that_is_not_readable_is_neither_assigned_nor_received(server, client, topic):
    assert answers_of(server, client, topic, 2, 2, 2) == ["OK", "FORBIDDEN", "FORBIDDEN"]
    assert answers_of(server, client, topic, 6, 0, 2) == ["OK", "FORBIDDEN", "FORBIDDEN"]


def test_permissions_of_a_topic_are_limited_to_those_of_the_broker(server, client, topic):
    put_topic(server, topic, 6, 1, 1)  # else the message may be in a queue that is not read below
    assert code(client.send(topic, b"b")) == "OK"
    server.call(lambda: server.broker.settings.values.update(brokerPermission="4"))
    try:
        assert answers_of(server, client, topic, 6, 1, 1) == ["FORBIDDEN", "OK", "OK"]
        (queue,) = client.call("QueryRoute", topic=named(topic), endpoints=client.endpoints).message_queues
        assert queue.permission == d.READ
    finally:
        server.call(lambda: server.broker.settings.values.update(brokerPermission="6"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("no-such", "TOPIC_NOT_FOUND"), ("a b", "ILLEGAL_TOPIC"), ("", "ILLEGAL_TOPIC"), ("TBW102", "ILLEGAL_TOPIC")],
)
def test_a_route_that_there_is_not(client, name, expected):
    assert code(client.call("QueryRoute", topic=named(name), endpoints=client.endpoints)) == expected


def test_every_call_needs_a_client_id(server):
    with GrpcClient(server.endpoints) as client:
        client.client_id = ""
        assert code(client.call("QueryRoute", topic=named("x"))) == "CLIENT_ID_REQUIRED"


def test_a_message_is_what_both_protocols_make_of_it(server, client, topic):
    sent = client.send(topic, b"body", properties={"p": "v"}, tag="t", keys=["k1", "k2"], born_host="here")
    assert (code(sent), sent.entries[0].transaction_id) == ("OK", sent.entries[0].message_id)
    until(lambda: stored_in(server, topic))
    found, body = stored_in(server, topic)[0]
    properties = found["properties"]
    assert body == b"body"
    assert {name: properties[name] for name in ("TAGS", "KEYS", "UNIQ_KEY", "PGROUP", "p", "__BORNHOST")} == {
        "TAGS": "t",
        "KEYS": "k1 k2",
        "UNIQ_KEY": sent.entries[0].message_id,
        "PGROUP": topic,
        "p": "v",
        "__BORNHOST": "here",
    }
    client.consume("GBoth", topic)
    received = client.receive("GBoth", topic)[0]
    system = received.system_properties
    assert (received.body, dict(received.user_properties)) == (b"body", {"p": "v"})
    assert (system.tag, list(system.keys), system.message_id) == ("t", ["k1", "k2"], sent.entries[0].message_id)
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert (system.delivery_attempt, system.message_type) == (1, d.NORMAL)
    assert code(client.ack("GBoth", topic, received)) == "OK"


def test_a_message_of_a_remoting_client_is_received_and_acknowledged(server, client, topic):
    with Client(server.broker_address) as remoting:
        assert remoting.put(topic, b"from remoting", properties={"UNIQ_KEY": "A" * 32}).code == 0
        client.consume("GCross", topic)
        received = client.receive("GCross", topic)[0]
        assert (received.body, received.system_properties.message_id) == (b"from remoting", "A" * 32)
        assert code(client.ack("GCross", topic, received)) == "OK"
        assert pop(remoting, topic, group="GCross").code == 210


def test_a_tag_with_the_hash_of_another_is_acknowledged_and_not_delivered(server, client):
    """PopMessageResultFilterImpl (5.5.0) compares the tags; "Aa" and "BB" have the same hash."""
    server.create_topic("SameHash", queues=1)
    server.create_group("GSameHash", fifo=True)  # an unacknowledged message would block the queue
    for tag in ("BB", "Aa"):
        assert code(client.send("SameHash", b"body", tag=tag)) == "OK"
    client.consume("GSameHash", "SameHash")
    expression = d.FilterExpression(type=d.TAG, expression="Aa || C")
    received = client.receive("GSameHash", "SameHash", batch_size=1, filter_expression=expression)
    assert [one.system_properties.tag for one in received] == ["Aa"]
    fields = {"group": named("GSameHash"), "message_queue": d.MessageQueue(topic=named("SameHash")), "batch_size": 8}
    status, message, end = client.call("PullMessage", filter_expression=expression, **fields)
    assert (code(status), message.message.system_properties.tag, end.next_offset) == ("OK", "Aa", 2)


def test_a_new_group_starts_at_the_newest_message_of_a_queue_whose_oldest_were_deleted(tmp_path):
    """ReceiveMessageActivity (5.5.0) asks for ConsumeInitMode.MAX; other queues start at their oldest message."""
    with open_store(tmp_path / "store", StoreOptions(commit_log_file_size=65536)) as store:
        for number in range(12):
            store.put("Old", 0, b"%d" % number + bytes(9_000))
    min((tmp_path / "store" / "commitlog").iterdir()).unlink()
    served = MqServer(tmp_path / "store", mappedFileSizeCommitLog="65536")
    with served as server, GrpcClient(server.endpoints) as client:
        server.create_topic("Old", queues=1)
        assert server.call(lambda: server.broker.messages.queue_bounds("Old", 0)) == (7, 12)
        client.consume("GNew", "Old")
        assert [one.body.rstrip(b"\0") for one in client.receive("GNew", "Old")] == [b"11"]


def test_a_message_without_a_unique_key_has_its_offset_message_id(server, client, topic):
    """ConsumerProcessor.fillUniqIDIfNeed (5.5.0). A record gets a unique key from every producer and broker."""
    stored = server.call(lambda: server.broker.engine.put(topic, 0, b"body", b""))
    client.consume("GNoKey", topic)
    received = []
    until(lambda: received.extend(client.receive("GNoKey", topic)) or received)
    assert [one.system_properties.message_id for one in received] == [stored.offset_message_id]


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        ("MESSAGE_BODY_EMPTY", {"body": b""}),
        ("MESSAGE_BODY_TOO_LARGE", {"body": bytes(4_194_305)}),
        ("MESSAGE_PROPERTIES_TOO_LARGE", {"properties": {f"p{one}": "v" for one in range(129)}}),
        ("MESSAGE_PROPERTIES_TOO_LARGE", {"properties": {"p": "v" * 16384}}),
        ("ILLEGAL_MESSAGE_PROPERTY_KEY", {"properties": {"TAGS": "v"}}),
        ("ILLEGAL_MESSAGE_PROPERTY_KEY", {"properties": {"a": "\x02"}}),
        ("ILLEGAL_MESSAGE_TAG", {"tag": "a|b"}),
        ("ILLEGAL_MESSAGE_KEY", {"keys": ["a\x01"]}),
        ("ILLEGAL_MESSAGE_ID", {"message_id": " "}),
        ("ILLEGAL_MESSAGE_TAG", {"tag": " \u2003\u3000"}),
        ("ILLEGAL_MESSAGE_KEY", {"keys": ["\u2028"]}),
        ("OK", {"tag": "\u00a0\u2007\u202f", "keys": ["\u00a0", "\u2007", "\u202f"]}),
        ("MESSAGE_PROPERTIES_TOO_LARGE", {"properties": {"p": "v" * 16383}, "tag": "t"}),
        ("MESSAGE_PROPERTIES_TOO_LARGE", {"properties": {"p": "v" * 16383}, "keys": ["", "k"]}),
        ("MESSAGE_PROPERTIES_TOO_LARGE", {"keys": ["k" * 8192, "k" * 8193]}),
        ("OK", {"properties": {"p": "v" * 16381}, "tag": "t", "keys": ["k"]}),
        ("OK", {"properties": {"p": "v" * 16383}}),
        ("ILLEGAL_MESSAGE_KEY", {"keys": ["a", "  "]}),
        ("ILLEGAL_MESSAGE_GROUP", {"message_group": "g" * 64}),
        ("ILLEGAL_MESSAGE_GROUP", {"message_group": "\u7ec4" * 22}),
        ("ILLEGAL_MESSAGE_GROUP", {"message_group": " "}),
        ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", {"message_group": "\u7ec4" * 21}),
        ("OK", {"message_group": "", "lite_topic": ""}),
        ("ILLEGAL_DELIVERY_TIME", {"delivery_timestamp": {"seconds": 1 << 33}}),
        ("INTERNAL_SERVER_ERROR", {"delivery_timestamp": {"seconds": 1 << 40}}),
        ("INTERNAL_SERVER_ERROR", {"delivery_timestamp": {"seconds": 5, "nanos": -1}}),
        ("INTERNAL_SERVER_ERROR", {"delivery_timestamp": {"seconds": 5, "nanos": 1_000_000_000}}),
        (
            "INTERNAL_SERVER_ERROR",
            {"message_type": d.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": 1, "nanos": -1}},
        ),
        ("OK", {"born_timestamp": {"seconds": 5, "nanos": -1}}),
        ("ILLEGAL_LITE_TOPIC", {"lite_topic": "l" * 65}),
        ("INTERNAL_SERVER_ERROR", {"priority": -1}),
        ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", {"message_group": "g"}),
        ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", {"message_type": d.TRANSACTION}),
        ("OK", {"message_type": d.MESSAGE_TYPE_UNSPECIFIED, "tag": "", "keys": ["", "a b"]}),
    ],
)
def test_a_wrong_message_gets_the_code_of_the_real_proxy(server, client, expected, fields):
    server.create_topic("Refusals")
    assert code(client.send("Refusals", **{"body": b"b", **fields})) == expected


def test_messages_of_a_batch_are_stored_apart_and_answered_by_one_entry(server, client, topic):
    pair = [message_of(topic, b"one"), message_of(topic, b"two")]
    sent = client.call("SendMessage", messages=pair)
    assert [one.message_id for one in sent.entries] == [
        ",".join(one.system_properties.message_id for one in pair),
    ]
    until(lambda: len(stored_in(server, topic)) == 2)


def test_a_batch_of_messages_for_later_is_refused(client, topic):
    later = {"seconds": int(time.time()) + 3600}
    batch = [message_of(topic, b"later", message_type=d.DELAY, delivery_timestamp=later) for _ in range(2)]
    answer = client.call("SendMessage", messages=batch)
    found = (code(answer), answer.status.message)
    assert found == ("INTERNAL_SERVER_ERROR", "Delayed messages are not supported for batching")
    assert code(client.call("SendMessage", messages=[message_of(topic, b"now") for _ in range(2)])) == "OK"


def test_a_batch_is_spread_over_the_queues_whatever_its_message_group(server, client):
    """SendMessageQueueSelector (5.5.0) uses the message group of a single message only."""
    server.create_topic("FifoBatches", "FIFO", queues=4)
    for _ in range(12):
        batch = [message_of("FifoBatches", b"b", message_group="g") for _ in range(2)]
        assert code(client.call("SendMessage", messages=batch)) == "OK"
    ends = []
    until(lambda: ends.append(ends_of(server, "FifoBatches", 4)) or sum(ends[-1]) == 24)
    assert sorted(ends[-1])[-2] > 0


def test_ordered_messages_keep_their_queue_and_block_it(server, client, connect):
    server.create_topic("Fifo", "FIFO", queues=4)
    server.create_group("GFifo", fifo=True)
    offsets = [client.send("Fifo", b"%d" % one, message_group="g").entries[0].offset for one in range(3)]
    assert offsets == [0, 1, 2]
    answer = client.consume("GFifo", "Fifo")
    assert answer.settings.subscription.fifo
    first = client.receive("GFifo", "Fifo", batch_size=1, attempt_id="a")
    again = client.receive("GFifo", "Fifo", batch_size=1, attempt_id="a")
    assert [one.body for one in first + again] == [b"0", b"0"]
    assert again[0].system_properties.receipt_handle.split(" ")[3] == "999"
    other = connect()
    other.consume("GFifo", "Fifo")
    assert code(client.ack("GFifo", "Fifo", again[0])) == "OK"
    assert [one.body for one in other.receive("GFifo", "Fifo")] == [b"1", b"2"]


def test_a_changed_invisible_time_of_an_ordered_message_outlives_a_restart(tmp_path):
    with MqServer(tmp_path / "store") as server:
        server.create_topic("Again", "FIFO", queues=1)
        server.create_group("GAgain", fifo=True)
        with GrpcClient(server.endpoints) as client:
            client.send("Again", b"1", message_group="g")
            client.consume("GAgain", "Again")
            handle = client.receive("GAgain", "Again")[0].system_properties.receipt_handle
            fields = {"group": named("GAgain"), "topic": named("Again"), "receipt_handle": handle}
            assert code(client.call("ChangeInvisibleDuration", invisible_duration={"seconds": 1}, **fields)) == "OK"
        server.restart()
        with GrpcClient(server.endpoints) as client:
            client.consume("GAgain", "Again")
            assert [one.body for one in client.receive("GAgain", "Again")] == [b"1"]


@pytest.mark.parametrize(
    ("text", "bucket"),
    [("g", 1), ("order-1", 3), ("", 0), ("Körper", 2), ("a-long-message-group", 6), ("polygenelubricants", 2)],
)
def test_the_hash_of_a_message_group_is_that_of_guava(text, bucket):
    """Values of Hashing.consistentHash(text.hashCode(), 8)."""
    assert consistent_hash(string_hash(text), 8) == bucket


def test_a_priority_is_the_number_of_the_queue_and_comes_first(server, client):
    server.create_topic("Urgent", "PRIORITY", queues=4)
    for priority in (0, 2, 9, 1):
        assert code(client.send("Urgent", b"p%d" % priority, priority=priority)) == "OK"
    client.consume("GUrgent", "Urgent")
    received = client.receive("GUrgent", "Urgent")
    places = [(one.body, one.system_properties.priority, one.system_properties.queue_id) for one in received]
    assert places == [(b"p9", 9, 3), (b"p2", 2, 2), (b"p1", 1, 1), (b"p0", 0, 0)]


def test_a_delayed_message_is_recalled_by_its_handle(server, client):
    server.create_topic("Later", "DELAY")
    due = int(time.time()) + 30
    entry = client.send("Later", b"never", delivery_timestamp={"seconds": due}).entries[0]
    words = base64.urlsafe_b64decode(entry.recall_handle).decode().split(" ")
    assert (words[:3], words[4]) == (["v1", "Later", "broker-a"], entry.message_id)
    recalled = client.call("RecallMessage", topic=named("Later"), recall_handle=entry.recall_handle)
    assert (code(recalled), recalled.message_id) == ("OK", entry.message_id)
    assert code(client.call("RecallMessage", topic=named("Later"), recall_handle="zz")) == "INTERNAL_SERVER_ERROR"


def test_a_transaction_is_checked_and_ends_once(server, client, connect):
    server.create_topic("Trans", "TRANSACTION")
    client.produce("Trans")
    entry = client.send("Trans", b"half", properties={"p": "v"}, message_type=d.TRANSACTION).entries[0]
    asked = client.arrived.get(timeout=20).recover_orphaned_transaction_command
    assert (asked.transaction_id, asked.message.body) == (entry.transaction_id, b"half")
    assert asked.message.user_properties["p"] == "v"
    consumer = connect()
    consumer.consume("GTrans", "Trans")
    end = {
        "topic": named("Trans"),
        "message_id": entry.message_id,
        "transaction_id": entry.transaction_id,
        "resolution": d.COMMIT,
    }
    assert code(client.call("EndTransaction", **end)) == "OK"
    assert [one.body for one in consumer.receive("GTrans", "Trans")] == [b"half"]
    assert code(client.call("EndTransaction", **end)) == "INTERNAL_SERVER_ERROR"
    assert code(client.call("EndTransaction", **{**end, "transaction_id": ""})) == "INVALID_TRANSACTION_ID"


def test_a_transaction_that_its_producer_cannot_decide_is_asked_about_again(server, client, connect):
    server.create_topic("Undecided", "TRANSACTION")
    client.produce("Undecided")
    entry = client.send("Undecided", b"half", message_type=d.TRANSACTION).entries[0]
    fields = {"topic": named("Undecided"), "message_id": entry.message_id, "transaction_id": entry.transaction_id}
    for _ in range(2):
        asked = client.arrived.get(timeout=60).recover_orphaned_transaction_command
        assert asked.transaction_id == entry.transaction_id
        assert code(client.call("EndTransaction", **fields)) == "OK"
    asked = client.arrived.get(timeout=60).recover_orphaned_transaction_command
    fields |= {"source": d.SOURCE_SERVER_CHECK, "resolution": d.COMMIT}
    assert code(client.call("EndTransaction", **fields)) == "OK"
    consumer = connect()
    consumer.consume("GUndecided", "Undecided")
    assert [one.body for one in consumer.receive("GUndecided", "Undecided")] == [b"half"]


def test_a_producer_may_decide_after_it_could_not_answer_a_check(server, client, connect):
    server.create_topic("Decided", "TRANSACTION")
    client.produce("Decided")
    entry = client.send("Decided", b"half", message_type=d.TRANSACTION).entries[0]
    fields = {"topic": named("Decided"), "message_id": entry.message_id, "transaction_id": entry.transaction_id}
    asked = client.arrived.get(timeout=60).recover_orphaned_transaction_command
    assert asked.transaction_id == entry.transaction_id
    assert code(client.call("EndTransaction", **fields, source=d.SOURCE_SERVER_CHECK)) == "OK"
    assert code(client.call("EndTransaction", **fields, resolution=d.COMMIT)) == "OK"
    consumer = connect()
    consumer.consume("GDecided", "Decided")
    assert [one.body for one in consumer.receive("GDecided", "Decided")] == [b"half"]


def test_settings_come_back_with_the_servers_part(server, client, topic):
    server.create_group("GSettings", max_retries=4)
    settings = client.consume("GSettings", topic, d.PUSH_CONSUMER).settings
    assert settings.backoff_policy.max_attempts == 5
    steps = [one.seconds for one in settings.backoff_policy.customized_backoff.next]
    assert (len(steps), steps[:4], steps[-1]) == (18, [1, 5, 10, 30], 7200)
    assert (settings.subscription.receive_batch_size, settings.subscription.long_polling_timeout.seconds) == (32, 20)
    assert settings.subscription.group.name == "GSettings"


def test_a_group_without_a_name_ends_the_stream(client, topic):
    error = client.consume("", topic)
    assert (error.code(), "blank" in error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True)


@pytest.mark.parametrize(
    ("kind", "expression", "status", "words"),
    [
        (d.PRODUCER, {}, grpc.StatusCode.INTERNAL, "Client type is not consumer, type: PRODUCER"),
        (d.CLIENT_TYPE_UNSPECIFIED, {}, grpc.StatusCode.INTERNAL, "type: CLIENT_TYPE_UNSPECIFIED"),
        (99, {}, grpc.StatusCode.INTERNAL, "type: UNRECOGNIZED"),
        (d.PUSH_CONSUMER, {"expression": "||"}, grpc.StatusCode.INVALID_ARGUMENT, "expression format is not correct"),
        (d.PUSH_CONSUMER, {"type": d.SQL}, grpc.StatusCode.INVALID_ARGUMENT, "expression format is not correct"),
    ],
)
def test_a_subscription_that_cannot_be_meant_ends_the_stream(server, client, topic, kind, expression, status, words):
    entry = d.SubscriptionEntry(topic=named(topic), expression=d.FilterExpression(**expression))
    subscription = d.Subscription(group=named("GNotMeant"), subscriptions=[entry])
    error = client.telemetry(d.Settings(client_type=kind, subscription=subscription))
    assert isinstance(error, grpc.RpcError)
    assert (error.code(), words in error.details()) == (status, True)
    assert server.call(lambda: server.broker.clients.consumers.get("GNotMeant")) is None


def test_a_client_of_an_unknown_language_is_served(client, topic):
    subscription = d.Subscription(group=named("GTongue"))
    settings = d.Settings(client_type=d.PUSH_CONSUMER, subscription=subscription, user_agent=d.UA(language=99))
    assert code(client.telemetry(settings)) == "OK"


def test_a_client_that_is_neither_producer_nor_consumer_has_no_heartbeat(client, topic):
    settings = d.Settings(client_type=d.CLIENT_TYPE_UNSPECIFIED, publishing=d.Publishing(topics=[named(topic)]))
    for rpc in ("Heartbeat", "NotifyClientTermination"):
        assert code(client.telemetry(settings)) == "OK"
        answer = client.call(rpc)
        assert (code(answer), answer.status.message) == ("UNRECOGNIZED_CLIENT_TYPE", "CLIENT_TYPE_UNSPECIFIED")


def test_a_producer_of_a_type_that_the_protocol_lacks_ends_the_stream(client, topic):
    """The proxy copies its settings, which protobuf refuses (GrpcClientSettingsManager.mergeProducerData, 5.5.0)."""
    error = client.telemetry(d.Settings(client_type=99, publishing=d.Publishing(topics=[named(topic)])))
    assert isinstance(error, grpc.RpcError)
    message = "process client telemetryCommand failed. Can't get the number of an unknown enum value."
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, message)
    assert code(client.call("Heartbeat")) == "UNRECOGNIZED_CLIENT_TYPE"


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (" ", "the specified group is blank"),
        ("a b", "the specified group[a b] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("g" * 121, f"the specified group[{'g' * 121}] is longer than group max length: 120."),
        ("TOOLS_CONSUMER", "cannot use system consumer group"),
    ],
)
def test_an_invalid_group_is_refused_in_the_words_of_the_proxy(client, topic, group, message):
    error = client.consume(group, topic)
    assert error.details() == f"process client telemetryCommand failed. {message}"
    answer = client.call("AckMessage", group=named(group), topic=named(topic))
    assert (code(answer), answer.status.message) == ("ILLEGAL_CONSUMER_GROUP", message)


@pytest.mark.parametrize("name", ["a b", "SCHEDULE_TOPIC_XXXX", ""])
def test_an_invalid_topic_of_a_producer_ends_the_stream(server, client, topic, name):
    error = client.produce(topic, name)
    assert isinstance(error, grpc.RpcError)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "opic" in (error.details() or "")
    assert topic not in server.call(lambda: set(server.broker.clients.producers))


def test_a_receive_waits_for_settings_that_are_on_their_way_and_not_for_ever(connect, topic):
    client, silent = connect(), connect()
    assert code(client.send(topic, b"early").entries[0]) == "OK"
    timer = threading.Timer(0.3, client.consume, ("GEarly", topic))
    timer.start()
    (message,) = client.receive("GEarly", topic)
    timer.join()
    assert message.body == b"early"
    answers = silent.call("ReceiveMessage", message_queue=d.MessageQueue(topic=named(topic)), group=named("GEarly"))
    assert [code(one) for one in answers if one.WhichOneof("content") == "status"] == ["INTERNAL_SERVER_ERROR"]


def test_a_heartbeat_needs_settings_and_shows_the_client_to_tools(server, client, topic):
    assert code(client.call("Heartbeat", client_type=d.SIMPLE_CONSUMER)) == "UNRECOGNIZED_CLIENT_TYPE"
    assert code(client.call("NotifyClientTermination")) == "UNRECOGNIZED_CLIENT_TYPE"
    client.consume("GBeat", topic)
    assert code(client.call("Heartbeat", client_type=d.SIMPLE_CONSUMER)) == "ILLEGAL_CONSUMER_GROUP"
    assert code(client.call("Heartbeat", client_type=d.SIMPLE_CONSUMER, group=named("GBeat"))) == "OK"

    def members():
        group = server.broker.clients.consumers.get("GBeat")
        return group.client_ids() if group is not None else []

    assert server.call(members) == [client.client_id]
    assert code(client.call("NotifyClientTermination", group=named("GBeat"))) == "OK"
    assert server.call(members) == []


@pytest.mark.parametrize(
    ("expected", "topic_name", "group", "invisible"),
    [
        ("ILLEGAL_INVISIBLE_TIME", "Errors", "G", 9),
        ("ILLEGAL_INVISIBLE_TIME", "Errors", "G", 43201),
        ("TOPIC_NOT_FOUND", "no-such", "G", 30),
        ("ILLEGAL_TOPIC", "a b", "G", 30),
        ("ILLEGAL_CONSUMER_GROUP", "Errors", "", 30),
    ],
)
def test_a_wrong_poll_gets_the_code_of_the_real_proxy(server, client, expected, topic_name, group, invisible):
    server.create_topic("Errors")
    client.consume("G", "Errors")
    answers = client.call(
        "ReceiveMessage",
        group=named(group),
        message_queue=d.MessageQueue(topic=named(topic_name)),
        invisible_duration={"seconds": invisible},
        batch_size=1,
    )
    assert code(answers[0]) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, "BAD_REQUEST"),
        ("5.0.2", "BAD_REQUEST"),
        ("5.0.3", "ILLEGAL_POLLING_TIME"),
        ("5.2.0", "ILLEGAL_POLLING_TIME"),
    ],
)
def test_a_poll_without_time_is_refused(client, topic, version, expected):
    client.headers = [] if version is None else [("x-mq-client-version", version)]
    client.consume("GShort", topic)
    answers = client.call(
        "ReceiveMessage",
        3,
        group=named("GShort"),
        message_queue=d.MessageQueue(topic=named(topic)),
        invisible_duration={"seconds": 30},
        batch_size=1,
        long_polling_timeout={"seconds": 15},
    )
    assert code(answers[0]) == expected


def test_a_message_wakes_the_poll_that_waits_for_it(client, connect, topic):
    consumer = connect()
    consumer.consume("GWake", topic)
    times = []
    for number in range(20):
        stub = consumer.channel.unary_stream(
            SERVICE + "ReceiveMessage",
            s.ReceiveMessageRequest.SerializeToString,
            s.ReceiveMessageResponse.FromString,
        )
        request = s.ReceiveMessageRequest(
            group=named("GWake"),
            message_queue=d.MessageQueue(topic=named(topic)),
            invisible_duration={"seconds": 30},
            batch_size=1,
        )
        answers = stub(request, metadata=consumer.metadata, timeout=30)
        time.sleep(number % 4 * 0.002)  # also while the poll is being set up
        began = time.monotonic()
        client.send(topic, b"%d" % number)
        found = [one.message.body for one in answers if one.WhichOneof("content") == "message"]
        times.append(time.monotonic() - began)
        assert found == [b"%d" % number]
    assert sorted(times)[10] < 0.5
    assert max(times) < 4


def test_acknowledgements_and_changes_of_handles(client, topic):
    client.consume("GAck", topic)
    for number in range(2):
        client.send(topic, b"%d" % number)
    received = []
    until(lambda: len(received.extend(client.receive("GAck", topic)) or received) == 2)
    entries = [
        s.AckMessageEntry(message_id="m", receipt_handle=handle)
        for handle in (
            "no handle",
            received[0].system_properties.receipt_handle,
            "0 1 15000 0 0 broker-a 0 0 0",
            received[1].system_properties.receipt_handle.replace("broker-a", "broker-b"),
        )
    ]
    answer = client.call("AckMessage", group=named("GAck"), topic=named(topic), entries=entries)
    assert (code(answer), [code(one) for one in answer.entries]) == (
        "MULTIPLE_RESULTS",
        ["INTERNAL_SERVER_ERROR", "OK", "INVALID_RECEIPT_HANDLE", "INVALID_RECEIPT_HANDLE"],
    )
    assert answer.entries[3].status.message.endswith("ProxyException: cannot find broker broker-b")
    change = {"group": named("GAck"), "topic": named(topic)}
    handle = received[1].system_properties.receipt_handle
    changed = client.call("ChangeInvisibleDuration", **change, receipt_handle=handle, invisible_duration={"seconds": 1})
    assert (code(changed), changed.receipt_handle != handle) == ("OK", True)
    for illegal in ({"seconds": -1}, {"seconds": 43201}):
        answer = client.call("ChangeInvisibleDuration", **change, receipt_handle=handle, invisible_duration=illegal)
        assert code(answer) == "ILLEGAL_INVISIBLE_TIME"
    nonsense = client.call("ChangeInvisibleDuration", **change, receipt_handle="x", invisible_duration={"seconds": 20})
    assert code(nonsense) == "INTERNAL_SERVER_ERROR"
    again = client.receive("GAck", topic)[0]
    assert (again.body, again.system_properties.delivery_attempt) == (received[1].body, 2)


def test_a_mixed_topic_takes_messages_of_every_type():
    with MqServer(enableMixedMessageType="true") as server, GrpcClient(server.endpoints) as client:
        config = typed_topic("Mixed", "NORMAL", 1)
        mixed = replace(config, attributes={**config.attributes, "message.type": "MIXED"})
        server.call(lambda: server.broker.topics.put(mixed))
        route = client.call("QueryRoute", topic=named("Mixed"), endpoints=client.endpoints)
        assert list(route.message_queues[0].accept_message_types) == [d.NORMAL, d.FIFO, d.DELAY, d.TRANSACTION]
        later = {"seconds": int(time.time()) + 60}
        for more in (
            {},
            {"message_type": d.FIFO, "message_group": "g"},
            {"message_type": d.DELAY, "delivery_timestamp": later},
        ):
            assert code(client.send("Mixed", b"any", **more)) == "OK"


def test_a_forwarded_message_is_a_dead_letter(server, client, topic):
    client.consume("GDead", topic, d.PUSH_CONSUMER)
    client.send(topic, b"dead")
    received = client.receive("GDead", topic, auto_renew=True)[0]
    fields = {"group": named("GDead"), "topic": named(topic), "message_id": received.system_properties.message_id}
    handle = received.system_properties.receipt_handle
    assert code(client.call("ForwardMessageToDeadLetterQueue", **fields, receipt_handle=handle)) == "OK"
    until(lambda: [body for _, body in stored_in(server, "%DLQ%GDead", 1)] == [b"dead"])
    assert code(client.call("ForwardMessageToDeadLetterQueue", **fields, receipt_handle="x")) == "INTERNAL_SERVER_ERROR"


def test_a_pull_consumer_reads_and_commits(client, topic):
    for number in range(4):
        client.send(topic, b"%d" % number)
    bodies = []
    for queue_id in range(2):
        queue = d.MessageQueue(topic=named(topic), id=queue_id)
        end = client.call("QueryOffset", message_queue=queue, query_offset_policy=d.END).offset
        answers = client.call(
            "PullMessage",
            group=named("GPull"),
            message_queue=queue,
            offset=0,
            batch_size=32,
            long_polling_timeout={"seconds": 0},
        )
        assert answers[-1].next_offset == end
        bodies += [one.message.body for one in answers if one.WhichOneof("content") == "message"]
        assert code(client.call("GetOffset", group=named("GPull"), message_queue=queue)) == "OFFSET_NOT_FOUND"
        assert code(client.call("UpdateOffset", group=named("GPull"), message_queue=queue, offset=end)) == "OK"
        assert client.call("GetOffset", group=named("GPull"), message_queue=queue).offset == end
    assert sorted(bodies) == [b"0", b"1", b"2", b"3"]


def test_offsets_are_found_by_their_time(client, topic):
    queue = d.MessageQueue(topic=named(topic), id=0)
    for number in range(6):
        client.send(topic, b"%d" % number)

    def at(seconds):
        return client.call(
            "QueryOffset", message_queue=queue, query_offset_policy=d.TIMESTAMP, timestamp={"seconds": seconds}
        ).offset

    begin, end = (
        client.call("QueryOffset", message_queue=queue, query_offset_policy=one).offset for one in (d.BEGINNING, d.END)
    )
    assert (begin, at(0), at(int(time.time()) + 60)) == (0, 0, end)


@pytest.mark.parametrize(
    ("rpc", "fields", "status"),
    [
        ("PullMessage", {"offset": -1}, "ILLEGAL_OFFSET"),
        ("PullMessage", {"offset": 5}, "ILLEGAL_OFFSET"),
        ("PullMessage", {"offset": 1}, "MESSAGE_NOT_FOUND"),
        ("PullMessage", {"filter_expression": {"expression": "a >", "type": d.SQL}}, "ILLEGAL_FILTER_EXPRESSION"),
        ("PullMessage", {"queue": 2}, "INTERNAL_SERVER_ERROR"),
        ("UpdateOffset", {"offset": -1}, "ILLEGAL_OFFSET"),
        ("UpdateOffset", {"queue": 2}, "BAD_REQUEST"),
        ("GetOffset", {"queue": -1}, "BAD_REQUEST"),
    ],
)
def test_what_a_pull_consumer_asks_for_that_is_not_there_is_said(client, topic, rpc, fields, status):
    while (
        client.call("QueryOffset", message_queue={"topic": named(topic), "id": 0}, query_offset_policy=d.END).offset < 1
    ):
        client.send(topic, b"x")
    given = {"group": named("GPullNone"), "message_queue": {"topic": named(topic), "id": fields.get("queue", 0)}}
    answer = client.call(rpc, **given, **{name: value for name, value in fields.items() if name != "queue"})
    assert code(answer[0] if rpc == "PullMessage" else answer) == status


def test_what_a_client_works_on_is_made_invisible_again_until_it_is_acknowledged(client, topic, monkeypatch):
    changes, change = [], receipts.change

    async def counted(*arguments, **more):
        changes.append(arguments)
        return await change(*arguments, **more)

    monkeypatch.setattr(receipts, "change", counted)
    monkeypatch.setattr(receipts, "PERIOD_S", 0.05)
    monkeypatch.setattr(receipts, "AHEAD_MS", 1 << 40)  # always due
    client.consume("GRenewed", topic, d.PUSH_CONSUMER)
    client.send(topic, b"long work")
    received = client.receive("GRenewed", topic, auto_renew=True)[0]
    until(lambda: len(changes) >= 3)
    assert code(client.ack("GRenewed", topic, received)) == "OK"
    seen = len(changes)
    time.sleep(0.2)
    assert len(changes) <= seen + 1


def test_an_ordered_group_is_assigned_queues_and_others_the_broker(server, client, topic):
    server.create_group("GOrdered", fifo=True)
    fields = {"topic": named(topic), "endpoints": client.endpoints}
    for group, expected in (("GAny", [-1]), ("GOrdered", [0, 1])):
        found = client.call("QueryAssignment", group=named(group), **fields)
        assert [one.message_queue.id for one in found.assignments] == expected


def test_tls_is_taken_on_the_same_port(server, topic):
    pytest.importorskip("cryptography")
    host, _, port = server.endpoints.rpartition(":")
    pem = ssl.get_server_certificate((host, int(port))).encode()
    with GrpcClient(server.endpoints) as client:
        client.channel.close()
        client.channel = grpc.secure_channel(server.endpoints, grpc.ssl_channel_credentials(pem))
        assert code(client.call("QueryRoute", topic=named(topic))) == "OK"


def test_what_is_not_there_is_unimplemented(client):
    stub = client.channel.unary_unary(SERVICE + "Nothing")
    with pytest.raises(grpc.RpcError) as error:
        stub(b"", metadata=client.metadata, timeout=10)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_metrics_count_grpc_clients_and_their_messages(server, client, topic):
    client.consume("GMetrics", topic, d.PUSH_CONSUMER)
    assert code(client.send(topic, b"counted")) == "OK"
    lines = server.call(lambda: port.metrics_of(server.broker)).splitlines()
    sent = [one for one in lines if one.startswith("rocketmq_messages_in_total") and f'topic="{topic}"' in one]
    members = [one for one in lines if one.startswith("rocketmq_consumer_connections") and '"GMetrics"' in one]
    assert [one.rpartition(" ")[2] for one in sent + members] == ["1", "1"]


def test_topics_of_the_options_are_created_once(tmp_path):
    options = ServeOptions(tmp_path / "store", topics={"Made": "FIFO"})

    async def kinds():
        async with Server(options) as server:
            return server.broker.topics.table["Made"].message_type

    assert [asyncio.run(kinds()), asyncio.run(kinds())] == ["FIFO", "FIFO"]
    with pytest.raises(UsageError, match="expected one of NORMAL"):
        typed_topic("Made", "OTHER")
