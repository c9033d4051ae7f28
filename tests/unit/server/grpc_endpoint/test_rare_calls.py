"""Calls that no official client makes: streams without a client id, settings of nobody, fields that few programs use."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from mqtool.engine import PutStatus
from mqtool.engine.statuses import RunningFlag
from mqtool.errors import StoreError
from mqtool.protocol import Command, RequestCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.broker.pop.acks import PopAcks
from mqtool.server.broker.topics import default_group
from mqtool.server.grpc import consuming, producing
from mqtool.server.grpc.consuming import _set_result
from mqtool.server.grpc.core import Core, StatusError, duration_ms, time_ms
from mqtool.server.grpc.endpoint import needs_of
from mqtool.server.grpc.producing import Producing
from mqtool.server.testing import MqServer
from tests.support.grpc_client import SERVICE, GrpcClient, code, message_of
from tests.support.remoting import Client
from tests.unit.server.broker.conftest import until
from tests.unit.server.grpc_endpoint.test_endpoint import named, stored_in


def received(client, group, topic):
    """The next message of a topic."""
    found = []
    until(lambda: found.extend(client.receive(group, topic, batch_size=1)) or found)
    return found[0]


def asked(group, topic):
    """The fields of a poll for one message."""
    return {
        "group": named(group),
        "message_queue": d.MessageQueue(topic=named(topic), id=-1),
        "filter_expression": d.FilterExpression(type=d.TAG, expression="*"),
        "batch_size": 1,
        "invisible_duration": {"seconds": 30},
    }


def handlers_of(server):
    """The broker's handlers, as calls use them."""
    return server._server._handlers


def test_a_stream_without_a_client_id_is_refused(server):
    with GrpcClient(server.endpoints) as client:
        client.client_id = ""
        error = client.produce("Any")
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "cannot find client id in header",
    )


def test_settings_of_neither_a_producer_nor_a_consumer_are_refused(client):
    error = client.telemetry(d.Settings(client_type=d.PRODUCER))
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "there is no publishing or subscription data in settings",
    )


def test_bytes_that_are_no_command_end_the_stream(client):
    stub = client.channel.stream_stream(f"{SERVICE}Telemetry", lambda data: data, s.TelemetryCommand.FromString)
    answers = stub(iter([b"\xff"]), metadata=client.metadata, timeout=30)
    with pytest.raises(grpc.RpcError) as refused:
        next(answers)
    assert refused.value.code() is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("name", ["QueryRoute", "GetOffset"])
def test_bytes_that_are_no_request_are_refused(client, name):
    call = client.channel.unary_unary(f"{SERVICE}{name}", lambda data: data, lambda data: data)
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\xff", metadata=client.metadata, timeout=30)
    assert refused.value.code() is grpc.StatusCode.INTERNAL


def test_a_trace_context_comes_with_the_message(client, topic):
    client.consume("GContext", topic)
    assert code(client.send(topic, b"x", trace_context="00-0af7-b7ad-01")) == "OK"
    assert received(client, "GContext", topic).system_properties.trace_context == "00-0af7-b7ad-01"


def test_a_dead_letter_says_what_it_was(server, client, topic):
    client.consume("GWas", topic)
    with Client(server.broker_address) as remoting:
        remoting.put(topic, properties={"DLQ_ORIGIN_TOPIC": "Was", "DLQ_ORIGIN_MESSAGE_ID": "0123"})
    found = received(client, "GWas", topic).system_properties.dead_letter_queue
    assert (found.topic, found.message_id) == ("Was", "0123")


def test_a_half_message_states_after_how_long_it_may_be_checked(server, client):
    server.create_topic("Recovered", "TRANSACTION")
    system = {"message_type": d.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": 600}}
    client.produce("Recovered")
    assert code(client.send("Recovered", b"half-600", **system)) == "OK"
    halves = {body: facts["properties"] for facts, body in stored_in(server, "RMQ_SYS_TRANS_HALF_TOPIC", 1)}
    assert halves[b"half-600"]["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "600"


def test_a_producer_is_asked_about_a_transaction_on_a_topic_that_its_settings_lack(server, client):
    server.create_topic("Unnamed", "TRANSACTION")
    client.produce("Named")
    sent = client.send("Unnamed", b"half", message_type=d.TRANSACTION)
    assert code(sent) == "OK"
    asked = client.arrived.get(timeout=30).recover_orphaned_transaction_command
    assert (asked.message.topic.name, asked.transaction_id) == ("Unnamed", sent.entries[0].transaction_id)


def test_an_end_that_is_refused_can_be_sent_again(server, client):
    server.create_topic("Ended", "TRANSACTION")
    client.produce("Ended")
    entry = client.send("Ended", b"half", message_type=d.TRANSACTION).entries[0]
    fields = {"message_id": entry.message_id, "transaction_id": entry.transaction_id, "resolution": d.COMMIT}
    flags = server.broker.messages._flags
    flags.set(RunningFlag.DISK_FULL)
    try:
        refused = client.call("EndTransaction", topic=named("Ended"), **fields)
    finally:
        flags.clear(RunningFlag.DISK_FULL)
    assert code(refused) != "OK"
    assert code(client.call("EndTransaction", topic=named("Ended"), **fields)) == "OK"
    until(lambda: [body for _, body in stored_in(server, "Ended", 8)] == [b"half"])


def test_a_half_message_that_states_no_time_may_be_checked_at_once(server, client):
    server.create_topic("Immediate", "TRANSACTION")
    system = {"message_type": d.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": 0}}
    client.produce("Immediate")
    assert code(client.send("Immediate", b"half-0", **system)) == "OK"
    halves = {body: facts["properties"] for facts, body in stored_in(server, "RMQ_SYS_TRANS_HALF_TOPIC", 1)}
    assert "CHECK_IMMUNITY_TIME_IN_SECONDS" not in halves[b"half-0"]


@pytest.mark.parametrize(
    ("setting", "usual", "size", "expected"),
    [
        ({"brokerPermission": "4"}, {"brokerPermission": "6"}, 1, "FORBIDDEN"),
        ({"maxMessageSize": "1000"}, {"maxMessageSize": "4194304"}, 1001, "INTERNAL_SERVER_ERROR"),
    ],
    ids=["no right to write", "body"],
)
def test_a_send_that_is_refused_succeeds_once_the_broker_allows_it(
    server, client, topic, setting, usual, size, expected
):
    """A route has no permission that its broker lacks; for a large body, ResponseBuilder (5.5.0) has no code."""
    client.produce(topic)
    settings = server.broker.settings
    server.call(lambda: settings.update(setting))
    try:
        assert code(client.send(topic, b"x" * size)) == expected
        assert stored_in(server, topic, 2) == []
    finally:
        server.call(lambda: settings.update(usual))
    assert code(client.send(topic, b"x" * size)) == "OK"


@pytest.mark.parametrize(
    ("seconds", "fields"),
    [(None, {}), (None, {"long_polling_timeout": {"seconds": 30}}), (6, {"long_polling_timeout": {"seconds": 30}})],
    ids=["no deadline", "no deadline, long", "deadline before the end of the poll"],
)
def test_a_receive_gets_what_is_there_whatever_its_deadline(client, topic, seconds, fields):
    client.consume("GDeadline", topic)
    assert code(client.send(topic, b"here")) == "OK"
    assert [one.body for one in client.receive("GDeadline", topic, seconds=seconds, **fields)] == [b"here"]


def test_a_client_leaves_once_and_its_stream_may_report_something_else_than_settings(client, topic):
    client.consume("GLeaves", topic)
    client._commands.put(s.TelemetryCommand(thread_stack_trace=s.ThreadStackTrace(nonce="n")))
    assert code(client.call("Heartbeat", group=named("GLeaves"), client_type=d.SIMPLE_CONSUMER)) == "OK"
    for expected in ("OK", "UNRECOGNIZED_CLIENT_TYPE"):
        assert code(client.call("NotifyClientTermination", group=named("GLeaves"))) == expected


def members_of(server, group):
    """Ids of the consumers of a group."""
    found = server.call(lambda: server.broker.clients.consumers.get(group))
    return [] if found is None else found.client_ids()


@pytest.mark.slow
def test_a_consumer_without_its_stream_keeps_its_messages_until_its_connection_ends(server, connect, topic):
    worker, other = connect(), connect()
    worker.consume("GStream", topic, d.PUSH_CONSUMER)
    other.consume("GStream", topic)
    worker.send(topic, b"long work")
    (message,) = worker.receive("GStream", topic, auto_renew=True)
    worker._commands.put(None)
    clients = server._server._endpoint.clients
    until(lambda: server.call(lambda: clients.table[worker.client_id].stream is None))
    assert worker.client_id in members_of(server, "GStream")
    poll = {"long_polling_timeout": {"seconds": 5}, "seconds": 30}
    assert other.receive("GStream", topic, **poll) == []
    worker.channel.close()
    until(lambda: worker.client_id not in members_of(server, "GStream"))
    (again,) = other.receive("GStream", topic, **poll)
    assert (again.body, again.system_properties.delivery_attempt) == (b"long work", 2)
    assert message.system_properties.delivery_attempt == 1


def test_a_message_for_a_consumer_that_leaves_while_it_polls_is_for_the_others(server, connect, topic):
    leaving, other = connect(), connect()
    leaving.consume("GGone", topic, d.PUSH_CONSUMER)
    with ThreadPoolExecutor(1) as pool:
        fields = asked("GGone", topic) | {"auto_renew": True, "long_polling_timeout": {"seconds": 15}}
        poll = pool.submit(lambda: leaving.call("ReceiveMessage", **fields))
        time.sleep(0.3)
        assert code(leaving.call("NotifyClientTermination", group=named("GGone"))) == "OK"
        other.send(topic, b"for another")
        answers = poll.result()
    (status,) = [one.status for one in answers if one.WhichOneof("content") == "status"]
    assert (d.Code.Name(status.code), "is disconnected" in status.message) == ("MESSAGE_NOT_FOUND", True)
    assert not [one for one in answers if one.WhichOneof("content") == "message"]
    other.consume("GGone", topic)
    assert received(other, "GGone", topic).body == b"for another"


@pytest.fixture
def cancelled_in_flush(server, client, monkeypatch):
    """Makes a call that waits for a flush, cancels it there, and ends the flush once the server has noticed."""

    def cancel(rpc, **fields):
        begun = []

        def flushed(_result, _properties=b""):
            begun.append(asyncio.get_running_loop().create_future())
            return begun[-1]

        def end():
            for one in begun:
                if not one.done():
                    one.set_result(PutStatus.PUT_OK)

        request = getattr(s, f"{rpc}Request")
        stub = client.channel.unary_stream(SERVICE + rpc, request.SerializeToString)
        connection = server._server._endpoint.clients.table[client.client_id].stream.call.connection
        with monkeypatch.context() as patch:
            patch.setattr(server.broker.writer, "flushed", flushed)
            call = stub(request(**fields), metadata=client.metadata, timeout=60)
            until(lambda: begun)
        call.cancel()
        until(lambda: server.call(lambda: len(connection._calls)) == 1)  # the telemetry stream
        server.call(end)

    return cancel


@pytest.mark.slow
@pytest.mark.parametrize("renewed", [False, True])
def test_messages_whose_poll_ends_while_their_check_point_is_flushed_are_soon_visible_again(
    server, client, topic, cancelled_in_flush, renewed
):
    """They come as delivery 1: they were never delivered (ReceiveMessageResponseStreamWriter, 5.5.0)."""
    client.consume("GFlushed", topic, d.PUSH_CONSUMER)
    assert code(client.send(topic, b"popped")) == "OK"
    fields = asked("GFlushed", topic) | {"invisible_duration": {"seconds": 3600}, "auto_renew": renewed}
    cancelled_in_flush("ReceiveMessage", **fields)
    (again,) = client.receive("GFlushed", topic, long_polling_timeout={"seconds": 15})
    assert (again.body, again.system_properties.delivery_attempt) == (b"popped", 1)


@pytest.mark.slow
def test_a_poll_that_has_ended_does_not_begin_again(server, client, topic, cancelled_in_flush, monkeypatch):
    """What it took is not for its consumer: two tags have one hash."""
    asks, acknowledged = [], []
    ask, acknowledge = Core.ask, consuming.Consuming._acknowledge
    monkeypatch.setattr(Core, "ask", lambda core, kind, *rest: asks.append(kind) or ask(core, kind, *rest))
    monkeypatch.setattr(
        consuming.Consuming,
        "_acknowledge",
        lambda one, *rest: acknowledge(one, *rest) or acknowledged.append(rest),
    )
    client.consume("GEnded", topic, d.PUSH_CONSUMER)
    assert code(client.send(topic, b"popped", tag="BB")) == "OK"
    filtered = {"filter_expression": d.FilterExpression(type=d.TAG, expression="Aa")}
    cancelled_in_flush("ReceiveMessage", **asked("GEnded", topic) | filtered)
    until(lambda: acknowledged)
    server.call(lambda: None)
    assert asks.count(RequestCode.POP_MESSAGE) == 1


def test_a_change_of_the_invisible_time_that_is_cancelled_acknowledges_the_old_check_point(
    server, client, topic, cancelled_in_flush, monkeypatch
):
    """Else the message would be delivered twice: after the new time, and after the old one."""
    client.consume("GChanged", topic)
    assert code(client.send(topic, b"changed")) == "OK"
    handle = received(client, "GChanged", topic).system_properties.receipt_handle
    acknowledged, message_of_ack = [], PopAcks._ack_message
    monkeypatch.setattr(
        PopAcks, "_ack_message", lambda acks, *rest: acknowledged.append(rest) or message_of_ack(acks, *rest)
    )
    fields = {"group": named("GChanged"), "topic": named(topic), "receipt_handle": handle}
    cancelled_in_flush("ChangeInvisibleDuration", **fields, invisible_duration={"seconds": 60})
    until(lambda: acknowledged)


def test_a_transaction_whose_end_is_cancelled_while_it_is_stored_has_ended(server, client, cancelled_in_flush):
    """Without the record of its end, the half message would be checked, and its message stored a second time."""
    server.create_topic("Cancelled", "TRANSACTION")
    client.produce("Cancelled")
    system = {"message_type": d.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": 600}}
    entry = client.send("Cancelled", b"half", **system).entries[0]

    def ended():
        return server.call(lambda: server.broker.messages.queue_bounds("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)[1])

    before = ended()
    fields = {"message_id": entry.message_id, "transaction_id": entry.transaction_id, "resolution": d.COMMIT}
    cancelled_in_flush("EndTransaction", topic=named("Cancelled"), **fields)
    until(lambda: ended() > before)
    assert ended() == before + 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"batch_size": -1}, "INTERNAL_SERVER_ERROR"),
        ({"filter_expression": {"type": d.SQL, "expression": "a >"}}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"filter_expression": {"type": d.SQL, "expression": ""}}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"filter_expression": {"type": d.TAG, "expression": "||||"}}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"group": {"name": "CID_RMQ_SYS_any"}}, "ILLEGAL_CONSUMER_GROUP"),
        ({"invisible_duration": {"seconds": 30, "nanos": -1}}, "INTERNAL_SERVER_ERROR"),
        ({"long_polling_timeout": {"seconds": 5, "nanos": -1}}, "INTERNAL_SERVER_ERROR"),
    ],
    ids=["batch size", "filter", "no filter", "no tag", "system group", "invisible time", "time of the poll"],
)
def test_a_receive_that_cannot_be_meant_is_refused(client, topic, fields, expected):
    client.consume("GMeant", topic)
    answers = client.call("ReceiveMessage", **asked("GMeant", topic) | fields)
    (status,) = [one.status for one in answers if one.WhichOneof("content") == "status"]
    assert d.Code.Name(status.code) == expected


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (-62_135_596_801, 0, None),
        (-62_135_596_800, 0, -62_135_596_800_000),
        (-1, 999_999_999, -1),
        (5, -1, None),
        (5, 999_999_999, 5999),
        (5, 1_000_000_000, None),
        (253_402_300_799, 0, 253_402_300_799_000),
        (253_402_300_800, 0, None),
    ],
)
def test_a_time_of_a_message_is_one_of_the_calendar(seconds, nanos, expected):
    """Answers of Timestamps.toMillis (protobuf-java-util 3.20.1)."""
    assert milliseconds_of(time_ms, Timestamp(seconds=seconds, nanos=nanos)) == expected


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (-315_576_000_001, 0, None),
        (-315_576_000_000, 0, -315_576_000_000_000),
        (-1, -999_999_999, -1999),
        (0, -999_999, 0),
        (0, 1_999_999, 1),
        (5, -1, None),
        (-5, 1, None),
        (5, 1_000_000_000, None),
        (315_576_000_001, 0, None),
    ],
)
def test_seconds_and_nanoseconds_of_a_duration_have_one_sign(seconds, nanos, expected):
    """Answers of Durations.toMillis (protobuf-java-util 3.20.1)."""
    assert milliseconds_of(duration_ms, Duration(seconds=seconds, nanos=nanos)) == expected


def milliseconds_of(convert, value):
    """A time or duration in ms; None if it is refused."""
    try:
        return convert(value)
    except StatusError as error:
        assert (error.code, "is not valid" in error.message) == (d.INTERNAL_SERVER_ERROR, True)
        return None


def test_a_request_that_grpc_clients_do_not_know_fails_at_once(server, client, topic):
    client.consume("GAsked", topic)
    with Client(server.broker_address) as remoting:
        sent = remoting.put(topic, b"now")
        fields = {"consumerGroup": "GAsked", "clientId": client.client_id, "msgId": sent.fields["msgId"]}
        answer = remoting.call(309, **fields)
    assert answer.code == 1
    assert answer.remark.startswith(f"invoke consumer <GAsked> <{client.client_id}> Exception: ")
    assert answer.remark.endswith("a gRPC client cannot receive request 309")


def test_a_send_that_the_store_refuses_has_the_status_of_its_refusal(server, client, topic):
    """Both ways into the store: one plain message, and several."""
    client.produce(topic)
    flags = server.broker.messages._flags
    flags.set(RunningFlag.DISK_FULL)
    try:
        refused = [client.send(topic, b"one"), client.call("SendMessage", messages=[message_of(topic, b"x")] * 2)]
    finally:
        flags.clear(RunningFlag.DISK_FULL)
    assert {code(one) for one in refused} == {"INTERNAL_SERVER_ERROR"}
    assert all("service not available now" in one.status.message for one in refused)
    assert code(client.send(topic, b"one")) == "OK"


@pytest.mark.slow
def test_a_send_that_waits_for_the_disk_and_is_refused_has_the_status_of_its_refusal(tmp_path, monkeypatch):
    with MqServer(tmp_path / "store", flushDiskType="SYNC_FLUSH") as server, GrpcClient(server.endpoints) as client:
        server.create_topic("Slow")
        client.produce("Slow")
        writer = server.broker.writer

        def unflushed(result, _properties):
            future = asyncio.get_running_loop().create_future()
            future.set_result(PutStatus.SERVICE_NOT_AVAILABLE)
            return future if result.ok else None

        monkeypatch.setattr(writer, "flushed", unflushed)
        answer = client.call("SendMessage", messages=[message_of("Slow", b"x"), message_of("Slow", b"y")])
        assert code(answer) == "INTERNAL_SERVER_ERROR"


def test_the_oldest_transactions_are_forgotten_when_there_are_too_many(server, client, monkeypatch):
    monkeypatch.setattr(producing, "MAX_TRANSACTIONS", 2)
    server.create_topic("Forgotten", "TRANSACTION")
    client.produce("Forgotten")
    system = {"message_type": d.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": 600}}
    entries = [client.send("Forgotten", b"half", **system).entries[0] for _ in range(3)]

    def end(entry):
        fields = {"message_id": entry.message_id, "transaction_id": entry.transaction_id, "resolution": d.COMMIT}
        return client.call("EndTransaction", topic=named("Forgotten"), **fields)

    first, *others = map(end, entries)
    assert code(first) == "INTERNAL_SERVER_ERROR"
    assert first.status.message.endswith("ProxyException: cannot found transaction data")
    assert [code(one) for one in others] == ["OK", "OK"]


def end_of(client, topic, entry, resolution=d.COMMIT):
    """Ends a transaction; returns the status code."""
    fields = {"message_id": entry.message_id, "transaction_id": entry.transaction_id, "resolution": resolution}
    return code(client.call("EndTransaction", topic=named(topic), **fields))


UNCHECKED = {"message_type": d.TRANSACTION, "orphaned_transaction_recovery_duration": {"seconds": 600}}


def test_each_half_message_of_a_send_that_was_repeated_can_be_ended(server, client):
    """Last sent, first ended (TransactionDataManager, 5.5.0)."""
    server.create_topic("Repeated", "TRANSACTION")
    client.produce("Repeated")
    for body in (b"first", b"second", b"third"):
        entry = client.send("Repeated", body, message_id="0123456789ABCDEF", **UNCHECKED).entries[0]
    assert [end_of(client, "Repeated", entry, one) for one in (d.COMMIT, d.ROLLBACK, d.COMMIT)] == ["OK"] * 3
    assert end_of(client, "Repeated", entry) == "INTERNAL_SERVER_ERROR"
    until(lambda: sorted(body for _, body in stored_in(server, "Repeated", 8)) == [b"first", b"third"])


def test_half_messages_of_one_id_in_two_topics_are_two_transactions(server, client):
    topics = ("OneOfTwo", "OtherOfTwo")
    client.produce(*topics)
    for topic in topics:
        server.create_topic(topic, "TRANSACTION")
        entry = client.send(topic, b"half", message_id="FEDCBA9876543210", **UNCHECKED).entries[0]
    for topic in topics:
        assert end_of(client, topic, entry) == "OK"
        until(lambda topic=topic: [body for _, body in stored_in(server, topic, 8)] == [b"half"])


def test_of_too_many_half_messages_of_one_id_the_oldest_are_forgotten(server, client, monkeypatch):
    monkeypatch.setattr(producing, "MAX_OF_ONE_ID", 2)
    server.create_topic("TooMany", "TRANSACTION")
    client.produce("TooMany")
    for body in (b"1", b"2", b"3"):
        entry = client.send("TooMany", body, message_id="00112233445566", **UNCHECKED).entries[0]
    assert [end_of(client, "TooMany", entry) for _ in range(3)] == ["OK", "OK", "INTERNAL_SERVER_ERROR"]
    until(lambda: sorted(body for _, body in stored_in(server, "TooMany", 8)) == [b"2", b"3"])


def test_half_messages_of_one_id_are_known_by_their_last_checks(server, client):
    """A check stores a half message again: its old place must not be committed."""
    server.create_topic("Asked", "TRANSACTION")
    client.produce("Asked")
    for body in (b"first", b"second"):
        entry = client.send("Asked", body, message_id="AABBCCDDEEFF", message_type=d.TRANSACTION).entries[0]
    asked = []
    while asked.count(b"first") < 2 or asked.count(b"second") < 2:
        asked.append(client.arrived.get(timeout=30).recover_orphaned_transaction_command.message.body)
    assert [end_of(client, "Asked", entry) for _ in range(3)] == ["OK", "OK", "INTERNAL_SERVER_ERROR"]
    until(lambda: sorted(body for _, body in stored_in(server, "Asked", 8)) == [b"first", b"second"])


def test_a_check_of_a_half_message_that_is_deleted_meanwhile_is_dropped(server, client):
    server.create_topic("Vanished", "TRANSACTION")
    client.produce("Vanished")
    client.send("Vanished", b"half", **UNCHECKED)
    half = server.call(lambda: server.broker.messages.get_message("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1).records[0])
    deleted = SimpleNamespace(broker=SimpleNamespace(messages=SimpleNamespace(message_at=lambda _offset: None)))
    sent = []
    check = Command(RequestCode.CHECK_TRANSACTION_STATE, body=bytes(half))
    Producing(deleted).deliver(SimpleNamespace(stream=SimpleNamespace(send=sent.append)), check)
    assert sent == []


def test_a_request_of_the_broker_for_a_client_without_a_stream_is_dropped():
    handler = Producing(SimpleNamespace())
    check = Command(RequestCode.CHECK_TRANSACTION_STATE, body=b"no record")
    handler.deliver(SimpleNamespace(stream=None), check)
    sent = []
    handler.deliver(SimpleNamespace(stream=SimpleNamespace(send=sent.append)), check)
    assert sent == []


def test_an_offset_that_the_broker_does_not_tell_has_the_status_of_its_refusal(server, client, topic, monkeypatch):
    async def refused(command, _peer):
        return command.reply(1, "no offsets today")

    monkeypatch.setitem(handlers_of(server), RequestCode.QUERY_CONSUMER_OFFSET, refused)
    queue = d.MessageQueue(topic=named(topic), id=0)
    answer = client.call("GetOffset", group=named("GAny"), message_queue=queue)
    assert (code(answer), answer.status.message) == ("INTERNAL_SERVER_ERROR", "CODE: 1  DESC: no offsets today")


def test_a_renewal_whose_answer_names_no_new_time_leaves_the_handle_as_it_is(server, client, topic, monkeypatch):
    client.consume("GSame", topic)
    assert code(client.send(topic, b"x")) == "OK"
    handle = received(client, "GSame", topic).system_properties.receipt_handle

    async def unchanged(command, _peer):
        return command.reply(0)

    monkeypatch.setitem(handlers_of(server), RequestCode.CHANGE_MESSAGE_INVISIBLETIME, unchanged)
    fields = {"receipt_handle": handle, "invisible_duration": {"seconds": 60}}
    answer = client.call("ChangeInvisibleDuration", group=named("GSame"), topic=named(topic), **fields)
    assert (code(answer), answer.receipt_handle) == ("OK", handle)


def test_a_message_is_forwarded_once_though_it_cannot_be_acknowledged(server, client, topic, monkeypatch, caplog):
    client.consume("GForward", topic)
    assert code(client.send(topic, b"x")) == "OK"
    handle = received(client, "GForward", topic).system_properties.receipt_handle

    def refused(*_):
        raise StoreError("the disk is full", server.store)

    monkeypatch.setattr("mqtool.server.broker.pop.acks.PopAcks.acknowledge", refused)
    forwarded = client.call(
        "ForwardMessageToDeadLetterQueue", group=named("GForward"), topic=named(topic), receipt_handle=handle
    )
    assert code(forwarded) == "OK"  # or the client would forward it again
    assert "dead letter not acknowledged group=GForward" in caplog.text
    until(lambda: server.call(lambda: server.broker.messages.queue_bounds("%DLQ%GForward", 0)) == (0, 1))


def test_a_dead_letter_that_cannot_be_stored_withholds_no_other_message(server, client, topic, monkeypatch, caplog):
    client.consume("GPoison", topic)
    for number in range(2):
        assert code(client.send(topic, b"%d" % number)) == "OK"
    popped, first = consuming._popped, []

    def poisoned(*arguments, **options):
        for one in popped(*arguments, **options):
            yield one._replace(attempt=99) if not first else one
            first.append(one)

    def refused(*_):
        raise StatusError(d.INTERNAL_SERVER_ERROR, "CODE: 16")

    monkeypatch.setattr(consuming, "_popped", poisoned)
    monkeypatch.setattr("mqtool.server.grpc.consuming.Consuming._dead_letter", refused)
    found = []
    until(lambda: found.extend(client.receive("GPoison", topic)) or found)
    assert len(found) == 1
    assert "dead letter not stored group=GPoison" in caplog.text


def test_a_pop_that_the_broker_refuses_has_the_status_of_its_refusal(server, client, topic, monkeypatch):
    client.consume("GRefused", topic)
    monkeypatch.setitem(server.broker.settings.values, "timerWheelEnable", "false")
    answers = client.call("ReceiveMessage", **asked("GRefused", topic))
    assert code(answers[0]) == "INTERNAL_SERVER_ERROR"
    assert "timerWheelEnable is false" in answers[0].status.message


def test_an_answer_for_a_call_that_was_cancelled_is_dropped():
    async def main():
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        _set_result(future, d.Status(code=d.OK))
        return future.cancelled()

    assert asyncio.run(main())


@pytest.mark.parametrize(("quota", "shown"), [("7", 7), ("many", 2000), (None, 2000)])
def test_a_quota_of_lite_topics_that_is_no_number_is_the_default(server, quota, shown):
    group = f"GQuota-{quota}"
    attributes = {} if quota is None else {"lite.sub.client.quota": quota}
    server.call(lambda: server.broker.groups.put(replace(default_group(group), attributes=attributes)))
    with GrpcClient(server.endpoints) as client:
        answer = client.consume(group, "Any")
    assert answer.settings.subscription.lite_subscription_quota == shown


def test_a_request_that_names_nothing_needs_no_permission():
    assert list(needs_of(object())) == []
