"""Rules about types, deliveries and transactions, call by call: each answer is that of the real proxy 5.5.0."""

import asyncio
import json
import ssl
import time

import grpc
import pytest

from mqtool.formats.java import string_hash
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.grpc.messages import type_of
from mqtool.server.grpc.producing import consistent_hash
from mqtool.server.serve import ServeOptions, Server
from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient, code, message_of
from tests.support.remoting import Client, records
from tests.unit.server.broker.conftest import until

KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE")


@pytest.fixture(scope="module")
def server():
    with MqServer(enableLmq="true", enableMultiDispatch="true", recallMessageEnable="true") as found:
        yield found


def named(name):
    return d.Resource(name=name)


def create_topic(server, name, kind="NORMAL", queues=2):
    """Creates a topic as mqadmin does."""
    with Client(server.broker_address) as remoting:
        answer = remoting.create_topic(name, queues, attributes=f"+message.type={kind}")
        assert answer.code == 0, answer.remark


def create_group(server, name, **settings):
    """Creates a group as mqadmin does."""
    group = {"groupName": name, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16, **settings}
    with Client(server.broker_address) as remoting:
        answer = remoting.call(200, body=json.dumps(group).encode())
        assert answer.code == 0, answer.remark


def stored_in(server, topic, queue=0):
    """Facts and body of each message in a queue of a topic."""
    fields = {"consumerGroup": "GRead", "queueId": queue, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4}
    more = {"commitOffset": 0, "subVersion": 0, "subscription": "*", "suspendTimeoutMillis": 0}
    with Client(server.broker_address) as remoting:
        answer = remoting.call(11, topic=topic, **fields, **more)
        return records(answer) if answer.code == 0 else []


def marks(kind):
    """System properties of a message of a type."""
    return {
        "NORMAL": {},
        "FIFO": {"message_group": "g"},
        "DELAY": {"delivery_timestamp": {"seconds": int(time.time()) + 60}},
        "TRANSACTION": {"message_type": d.TRANSACTION},
        "PRIORITY": {"priority": 1},
        "LITE": {"lite_topic": "one"},
    }[kind]


def receive_one(client, group, topic, **more):
    """Polls until a message comes."""
    found = []
    until(lambda: found.extend(client.receive(group, topic, batch_size=1, **more)) or found)
    (message,) = found
    return message


def change(client, group, topic, handle, seconds):
    """Changes how long a message stays invisible; returns the answer."""
    fields = {"group": named(group), "topic": named(topic), "receipt_handle": handle}
    return client.call("ChangeInvisibleDuration", **fields, invisible_duration={"seconds": seconds})


def acknowledge(client, group, topic, handle):
    """Acknowledges a handle; returns the code of its entry."""
    entry = s.AckMessageEntry(message_id="m", receipt_handle=handle)
    answer = client.call("AckMessage", group=named(group), topic=named(topic), entries=[entry])
    return code(answer.entries[0])


def handle_of(message):
    return message.system_properties.receipt_handle


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_takes_messages_of_its_type_only(server, client, kind):
    create_topic(server, f"Only{kind}", kind)
    found = {sent: code(client.send(f"Only{kind}", b"b", **marks(sent))) for sent in KINDS}
    assert found == {sent: "OK" if sent == kind else "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE" for sent in KINDS}


def test_the_type_follows_from_the_properties_and_not_from_the_field(server, client):
    create_topic(server, "Marked", "FIFO")
    assert code(client.send("Marked", b"b", message_type=d.DELAY, message_group="g")) == "OK"


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [("PRIORITY", ("LITE", "PRIORITY")), ("FIFO", ("LITE", "PRIORITY", "FIFO")), ("DELAY", ("FIFO", "DELAY", "LITE"))],
)
def test_a_message_with_the_marks_of_several_types_has_the_first_in_the_brokers_order(server, client, kind, kinds):
    """TopicMessageType.parseFromMessageProperty (5.5.0)."""
    topic = "And".join(kinds)
    create_topic(server, topic, kind)
    system = {name: value for one in kinds for name, value in marks(one).items()}
    assert code(client.send(topic, b"b", **system)) == "OK"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"DELAY": "0"}, d.DELAY),
        ({"TIMER_DELAY_SEC": "0"}, d.DELAY),
        ({"TIMER_DELAY_MS": "0"}, d.DELAY),
        ({"__LITE_TOPIC": "one", "_SYS_MSG_PRIORITY_": "1"}, d.PRIORITY),
        ({"__SHARDINGKEY": "g", "_SYS_MSG_PRIORITY_": "1"}, d.FIFO),
        ({"__SHARDINGKEY": "g", "TIMER_DELIVER_MS": "1"}, d.DELAY),
        ({"TRAN_MSG": "True", "TIMER_DELIVER_MS": "1"}, d.TRANSACTION),
        ({"TRAN_MSG": "yes", "__LITE_TOPIC": "one"}, d.LITE),
        ({}, d.NORMAL),
    ],
)
def test_the_type_of_a_stored_message_follows_from_its_properties(properties, expected):
    """Answers of TopicMessageType.parseFromMessageProperty (5.5.0)."""
    assert type_of(properties) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("never-created", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ("%RETRY%never-created", "TOPIC_NOT_FOUND"),
        ("%DLQ%never-created", "TOPIC_NOT_FOUND"),
        ("SCHEDULE_TOPIC_XXXX", "ILLEGAL_TOPIC"),
        ("", "ILLEGAL_TOPIC"),
        ("a b", "ILLEGAL_TOPIC"),
        ("t" * 128, "ILLEGAL_TOPIC"),
    ],
)
def test_no_send_creates_a_topic(client, name, expected):
    assert code(client.send(name, b"b")) == expected
    route = client.call("QueryRoute", topic=named(name), endpoints=client.endpoints)
    assert code(route) == ("ILLEGAL_TOPIC" if expected == "ILLEGAL_TOPIC" else "TOPIC_NOT_FOUND")


def test_messages_of_a_lite_topic_share_a_queue(server, client):
    """That of the hash of the lite topic (SendMessageQueueSelector, 5.5.0)."""
    create_topic(server, "LiteQueue", "LITE", queues=8)
    queue = consistent_hash(string_hash("one"), 8)
    for number in range(6):
        answer = client.send("LiteQueue", b"b", lite_topic="one")
        assert (code(answer), answer.entries[0].offset) == ("OK", number)
    assert stored_in(server, "LiteQueue", queue) != []


def test_a_topic_of_dead_letters_takes_every_type(server, client):
    create_topic(server, "%DLQ%GAny")
    kinds = ("NORMAL", "FIFO", "PRIORITY")
    assert [code(client.send("%DLQ%GAny", b"b", **marks(kind))) for kind in kinds] == ["OK"] * 3


def test_two_topics_in_a_request_are_refused(server, client):
    create_topic(server, "First")
    create_topic(server, "Second")
    pair = [message_of("First", b"1"), message_of("Second", b"2")]
    assert code(client.call("SendMessage", messages=pair)) == "MESSAGE_CORRUPTED"
    assert code(client.call("SendMessage", messages=[])) == "MESSAGE_CORRUPTED"


@pytest.mark.slow
def test_a_message_that_is_delivered_too_often_becomes_a_dead_letter(server, client):
    create_topic(server, "Tired", queues=1)
    create_group(server, "GTired", retryMaxTimes=1)
    sent = client.send("Tired", b"tired", properties={"p": "v"}, tag="t", keys=["k"]).entries[0]
    client.consume("GTired", "Tired")
    for attempt in (1, 2):
        message = receive_one(client, "GTired", "Tired")
        assert (message.body, message.system_properties.delivery_attempt) == (b"tired", attempt)
        assert message.system_properties.message_id == sent.message_id
        assert code(change(client, "GTired", "Tired", handle_of(message), 0)) == "OK"
    found = []
    until(
        lambda: (
            client.receive("GTired", "Tired", long_polling_timeout={"seconds": 5})
            or found.extend(stored_in(server, "%DLQ%GTired"))
            or found
        )
    )
    ((facts, body),) = found
    kept = {name: facts["properties"].get(name) for name in ("UNIQ_KEY", "TAGS", "KEYS", "p", "RETRY_TOPIC")}
    assert (body, kept) == (
        b"tired",
        {"UNIQ_KEY": sent.message_id, "TAGS": "t", "KEYS": "k", "p": "v", "RETRY_TOPIC": "%RETRY%GTired_Tired"},
    )
    assert facts["properties"]["ORIGIN_GROUP"] == "GTired"


def test_an_old_handle_is_good_for_its_time_and_a_message_that_is_freed_comes_again(server, client):
    create_topic(server, "Handles", queues=1)
    client.consume("GHandles", "Handles")
    for body in (b"kept", b"freed"):
        assert code(client.send("Handles", body)) == "OK"
    kept, freed = receive_one(client, "GHandles", "Handles"), receive_one(client, "GHandles", "Handles")
    changed = change(client, "GHandles", "Handles", handle_of(kept), 60)
    assert changed.receipt_handle != handle_of(kept)
    assert acknowledge(client, "GHandles", "Handles", handle_of(kept)) == "OK"
    assert acknowledge(client, "GHandles", "Handles", changed.receipt_handle) == "OK"
    expired = change(client, "GHandles", "Handles", handle_of(freed), 0).receipt_handle
    assert acknowledge(client, "GHandles", "Handles", expired) == "INVALID_RECEIPT_HANDLE"
    again = receive_one(client, "GHandles", "Handles")
    assert (again.body, again.system_properties.delivery_attempt) == (b"freed", 2)
    assert acknowledge(client, "GHandles", "Handles", handle_of(again)) == "OK"


@pytest.mark.parametrize("mark", ["3", "01", "x", "-1", "9999999999999999999"])
def test_a_handle_with_another_retry_mark_is_one_of_the_topic_itself(server, client, mark):
    """ReceiptHandle.getRealTopic; a changed handle has the mark of that topic."""
    create_topic(server, "Marks", queues=1)
    client.consume("GMarks", "Marks")
    assert code(client.send("Marks", b"m")) == "OK"
    words = handle_of(receive_one(client, "GMarks", "Marks")).split(" ")
    changed = change(client, "GMarks", "Marks", " ".join([*words[:4], mark, *words[5:]]), 60)
    assert (code(changed), changed.receipt_handle.split(" ")[4]) == ("OK", "0")
    words = changed.receipt_handle.split(" ")
    assert acknowledge(client, "GMarks", "Marks", " ".join([*words[:4], mark, *words[5:]])) == "OK"


def test_a_handle_may_lack_its_physical_offset_and_have_more_words(server, client):
    """ReceiptHandle.decode; a dead letter needs the physical offset (ProducerProcessor, 5.5.0)."""
    create_topic(server, "Words", queues=1)
    client.consume("GWords", "Words")
    for body in (b"short", b"long", b"forwarded"):
        assert code(client.send("Words", body)) == "OK"
    short, long, forwarded = (handle_of(receive_one(client, "GWords", "Words")) for _ in range(3))
    changed = change(client, "GWords", "Words", short.rpartition(" ")[0], 60)
    assert (code(changed), changed.receipt_handle.split(" ")[-1]) == ("OK", "-1")
    assert acknowledge(client, "GWords", "Words", changed.receipt_handle.rpartition(" ")[0]) == "OK"
    assert code(change(client, "GWords", "Words", f"{long} any  ", 60)) == "OK"
    assert acknowledge(client, "GWords", "Words", f"{long} 1 2") == "OK"
    fields = {"group": named("GWords"), "topic": named("Words")}
    without = forwarded.rpartition(" ")[0]
    for handle in (without, f"{without} -1", f"{without}  "):
        refused = client.call("ForwardMessageToDeadLetterQueue", **fields, receipt_handle=handle)
        assert (code(refused), "commit log offset is empty" in refused.status.message) == (
            "INVALID_RECEIPT_HANDLE",
            True,
        )
    assert code(client.call("ForwardMessageToDeadLetterQueue", **fields, receipt_handle=f"{forwarded} 1")) == "OK"
    until(lambda: [body for _, body in stored_in(server, "%DLQ%GWords")] == [b"forwarded"])
    assert acknowledge(client, "GWords", "Words", short.rsplit(" ", 2)[0]) == "INTERNAL_SERVER_ERROR"


@pytest.mark.slow
def test_an_ordered_message_is_tried_again_before_the_next_and_forwarded_in_the_end(server, client):
    create_topic(server, "Turns", "FIFO", queues=1)
    create_group(server, "GTurns", consumeMessageOrderly=True)
    for number in range(3):
        assert code(client.send("Turns", b"%d" % number, message_group="g")) == "OK"
    assert client.consume("GTurns", "Turns", d.PUSH_CONSUMER).settings.subscription.fifo
    message = receive_one(client, "GTurns", "Turns", attempt_id="a")
    assert code(change(client, "GTurns", "Turns", handle_of(message), 1)) == "OK"
    again = receive_one(client, "GTurns", "Turns", attempt_id="b")
    found = [(one.body, one.system_properties.delivery_attempt) for one in (message, again)]
    assert found == [(b"0", 1), (b"0", 2)]
    assert client.receive("GTurns", "Turns", attempt_id="c", long_polling_timeout={"seconds": 5}) == []
    fields = {"group": named("GTurns"), "topic": named("Turns"), "receipt_handle": handle_of(again)}
    assert code(client.call("ForwardMessageToDeadLetterQueue", **fields, message_id="m")) == "OK"
    following = receive_one(client, "GTurns", "Turns", attempt_id="d")
    assert (following.body, following.system_properties.delivery_attempt) == (b"1", 1)
    until(lambda: [body for _, body in stored_in(server, "%DLQ%GTurns")] == [b"0"])


@pytest.mark.slow
def test_a_half_message_is_seen_when_it_is_committed_and_never_after_a_rollback(server, client):
    create_topic(server, "Halves", "TRANSACTION", queues=1)
    client.produce("Halves")

    def half(body, **more):
        return client.send("Halves", body, message_type=d.TRANSACTION, **more)

    def end(entry, resolution, **more):
        fields = {"topic": named("Halves"), "message_id": entry.message_id, "transaction_id": entry.transaction_id}
        return code(client.call("EndTransaction", **{**fields, "resolution": resolution, **more}))

    kept, dropped = half(b"kept").entries[0], half(b"dropped").entries[0]
    with GrpcClient(server.endpoints) as consumer:
        consumer.consume("GHalves", "Halves")
        assert consumer.receive("GHalves", "Halves", long_polling_timeout={"seconds": 5}) == []
        assert end(kept, d.COMMIT, transaction_id="unknown") == "INTERNAL_SERVER_ERROR"
        assert end(dropped, d.ROLLBACK) == "OK"
        assert end(dropped, d.COMMIT) == "INTERNAL_SERVER_ERROR"
        assert end(kept, d.COMMIT) == "OK"
        message = receive_one(consumer, "GHalves", "Halves")
        assert (message.body, message.system_properties.message_id) == (b"kept", kept.message_id)
        assert consumer.receive("GHalves", "Halves", long_polling_timeout={"seconds": 5}) == []
    undecided = half(b"undecided").entries[0]
    assert end(undecided, d.TRANSACTION_RESOLUTION_UNSPECIFIED) == "OK"
    assert end(undecided, d.COMMIT) == "INTERNAL_SERVER_ERROR"
    assert code(half(b"late", orphaned_transaction_recovery_duration={"seconds": 3601})) == "BAD_REQUEST"


EXPONENTIAL = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 2000, "max": 30000, "multiplier": 3}}
CUSTOMIZED = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1500, 4000]}}


def test_the_retry_policy_of_a_group_is_in_the_settings_of_its_clients(server, client):
    create_topic(server, "Policies")
    create_group(server, "GExponential", groupRetryPolicy=EXPONENTIAL, retryMaxTimes=4)
    create_group(server, "GCustomized", groupRetryPolicy=CUSTOMIZED)
    policy = client.consume("GExponential", "Policies", d.PUSH_CONSUMER).settings.backoff_policy
    backoff = policy.exponential_backoff
    found = policy.max_attempts, backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds(), backoff.multiplier
    assert found == (5, 2000, 30_000, 3)
    with GrpcClient(server.endpoints) as other:
        policy = other.consume("GCustomized", "Policies", d.PUSH_CONSUMER).settings.backoff_policy
        assert [one.ToMilliseconds() for one in policy.customized_backoff.next] == [1500, 4000]


def test_an_exponential_retry_policy_without_numbers_has_the_brokers_defaults(server, client):
    """ExponentialRetryPolicy (5.5.0)."""
    create_topic(server, "Defaults")
    create_group(server, "GDefaults", groupRetryPolicy={"type": "EXPONENTIAL"})
    policy = client.consume("GDefaults", "Defaults", d.PUSH_CONSUMER).settings.backoff_policy
    backoff = policy.exponential_backoff
    found = backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds(), backoff.multiplier
    assert found == (5000, 7_200_000, 2)


def test_a_producer_gets_its_limits_and_its_backoff(server, client):
    create_topic(server, "Limits")
    settings = client.produce("Limits").settings
    backoff = settings.backoff_policy.exponential_backoff
    times = backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds(), backoff.multiplier
    assert (settings.backoff_policy.max_attempts, times) == (3, (10, 1000, 2))
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4_194_304, True)
    assert not settings.metric.on


@pytest.mark.slow
def test_a_recalled_message_never_arrives(server, client):
    create_topic(server, "Recalled", "DELAY", queues=1)
    create_topic(server, "NotDelayed", queues=1)
    due = int(time.time()) + 3
    dropped, kept = (
        client.send("Recalled", body, delivery_timestamp={"seconds": due}).entries[0] for body in (b"dropped", b"kept")
    )
    for _ in range(2):
        answer = client.call("RecallMessage", topic=named("Recalled"), recall_handle=dropped.recall_handle)
        assert (code(answer), answer.message_id) == ("OK", dropped.message_id)
    answer = client.call("RecallMessage", topic=named("NotDelayed"), recall_handle=dropped.recall_handle)
    assert code(answer) == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    client.consume("GRecalled", "Recalled")
    message = receive_one(client, "GRecalled", "Recalled")
    assert (message.body, message.system_properties.message_id) == (b"kept", kept.message_id)
    assert time.time() >= due
    assert acknowledge(client, "GRecalled", "Recalled", handle_of(message)) == "OK"
    assert client.receive("GRecalled", "Recalled", long_polling_timeout={"seconds": 5}) == []


def test_one_port_takes_plain_grpc_grpc_over_tls_and_remoting(server):
    pytest.importorskip("cryptography")
    create_topic(server, "OnePort")
    host, _, port = server.endpoints.rpartition(":")
    pem = ssl.get_server_certificate((host, int(port))).encode()
    with GrpcClient(server.endpoints) as plain, GrpcClient(server.endpoints) as secure, Client(server.endpoints) as old:
        secure.channel.close()
        secure.channel = grpc.secure_channel(server.endpoints, grpc.ssl_channel_credentials(pem))
        for round_ in range(3):
            assert code(plain.send("OnePort", b"plain %d" % round_)) == "OK"
            assert code(secure.send("OnePort", b"tls %d" % round_)) == "OK"
            assert old.put("OnePort", b"remoting %d" % round_).code == 0
        plain.consume("GOnePort", "OnePort")
        found = []
        until(lambda: found.extend(plain.receive("GOnePort", "OnePort")) or len(found) == 9)
    kinds = sorted(one.body.split()[0] for one in found)
    assert kinds == [b"plain"] * 3 + [b"remoting"] * 3 + [b"tls"] * 3


@pytest.mark.slow
def test_acknowledgements_wait_for_the_disk_where_messages_do(tmp_path):
    """With SYNC_FLUSH; a restart shows that each of them was stored."""
    with MqServer(tmp_path / "store", flushDiskType="SYNC_FLUSH", flushConsumerOffsetInterval="100") as server:
        server.create_topic("Durable", queues=1)
        with GrpcClient(server.endpoints) as client:
            for number in range(6):
                assert code(client.send("Durable", b"%d" % number)) == "OK"
            client.consume("GDurable", "Durable")
            received = []
            until(lambda: received.extend(client.receive("GDurable", "Durable", invisible=10)) or len(received) == 6)
            entries = [s.AckMessageEntry(message_id="m", receipt_handle=handle_of(one)) for one in received]
            fields = {"group": named("GDurable"), "topic": named("Durable")}
            answers = [client.call("AckMessage", **fields, entries=part) for part in (entries[:1], entries[1:5])]
            assert [code(one) for answer in answers for one in answer.entries] == ["OK"] * 5
        server.restart()
        with GrpcClient(server.endpoints) as client:
            client.consume("GDurable", "Durable")
            again = []
            until(lambda: again.extend(client.receive("GDurable", "Durable")) or again)
            assert [(one.body, one.system_properties.delivery_attempt) for one in again] == [(received[5].body, 2)]


def test_another_port_takes_grpc_clients_too(tmp_path):
    async def main():
        options = ServeOptions(tmp_path / "store", grpc_port=0, topics={"Elsewhere": "NORMAL"})
        async with Server(options) as served:
            assert served.addresses["grpc"] != served.addresses["broker"]

            def use():
                with GrpcClient(served.addresses["grpc"]) as client:
                    return code(client.send("Elsewhere", b"b"))

            return await asyncio.to_thread(use)

    assert asyncio.run(main()) == "OK"
