"""Bytes and calls that no honest client sends: bounded memory, one clear status, and everybody else is served."""

import contextlib
import socket
import struct
import time

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.net.http2 import MAX_MESSAGE
from tests.support.grpc_client import SERVICE, code, message_of
from tests.unit.server.broker.conftest import until

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("x-mq-client-id", "raw"),
]


class Raw:
    """A client that decides about every frame."""

    def __init__(self, address, window=65535):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.h2.update_settings({4: window})
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, rpc, *more):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(":path", SERVICE + rpc), *HEADERS, *more])
        self.flush()
        return stream

    def data(self, stream, data, *, end=False):
        self.h2.send_data(stream, data, end_stream=end)
        self.flush()

    def drain(self, first=False):
        """Reads what the server sent, so that its window stays open."""
        self.socket.settimeout(10 if first else 0.05)
        with contextlib.suppress(OSError):
            while data := self.socket.recv(1 << 20):
                self.h2.receive_data(data)
                self.flush()
                self.socket.settimeout(0.05)
        self.socket.settimeout(10)

    def pending(self):
        """The events that are there already."""
        return list(self.events(0.02))

    def events(self, seconds=10):
        self.socket.settimeout(seconds)
        with contextlib.suppress(OSError):
            while data := self.socket.recv(65536):
                yield from self.h2.receive_data(data)
                self.flush()

    def status(self, stream):
        """The status and message in which a call ends."""
        for event in self.events():
            if getattr(event, "stream_id", None) == stream and hasattr(event, "headers"):
                found = {
                    (k.decode() if isinstance(k, bytes) else k): (v.decode() if isinstance(v, bytes) else v)
                    for k, v in event.headers
                }
                if "grpc-status" in found:
                    return int(found["grpc-status"]), found.get("grpc-message", "")
        return None


def framed(message, *, flag=0, size=None):
    return struct.pack(">BI", flag, len(message) if size is None else size) + message


@pytest.mark.parametrize(
    ("expected", "data", "words"),
    [
        (13, framed(b"\xff\xff\xff"), "protobuf"),
        (8, framed(b"", size=MAX_MESSAGE + 1), "maximum size"),
        (13, framed(b"abc", size=10), "inside a message"),
        (12, framed(b"abc", flag=1), "compressed"),
    ],
    ids=["malformed", "over the limit", "cut", "compressed"],
)
def test_a_message_that_cannot_be_read_ends_its_call_only(server, client, topic, expected, data, words):
    with Raw(server.endpoints) as raw:
        stream = raw.begin("SendMessage")
        raw.data(stream, data, end=True)
        status, message = raw.status(stream)
        assert (status, words in message) == (expected, True), message
        stream = raw.begin("Heartbeat")
        raw.data(stream, framed(s.HeartbeatRequest().SerializeToString()), end=True)
        assert raw.status(stream) == (0, "")
    assert code(client.send(topic, b"honest")) == "OK"


def test_a_request_cut_anywhere_is_put_together(server, topic):
    request = s.SendMessageRequest(messages=[message_of(topic, b"cut")]).SerializeToString()
    with Raw(server.endpoints) as raw:
        stream = raw.begin("SendMessage")
        for byte in framed(request):
            raw.data(stream, bytes([byte]))
        raw.data(stream, b"", end=True)
        assert raw.status(stream) == (0, "")


def test_what_is_not_http2_closes_the_connection(server, client, topic):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for junk in (b"POST / HTTP/1.1\r\n\r\n", preface + b"\0" * 64, preface + b"\xff" * (1 << 17)):
        host, _, port = server.endpoints.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as raw:
            raw.sendall(junk)
            with contextlib.suppress(ConnectionResetError):
                while raw.recv(4096):
                    pass
    assert code(client.send(topic, b"honest")) == "OK"


@pytest.mark.slow
def test_a_client_that_never_reads_is_kept_short(server, client, topic):
    """Answers wait for its window; beyond some megabytes its calls are refused, and nobody else notices."""
    big = message_of(topic, bytes(1 << 20))
    for _ in range(12):
        assert code(client.call("SendMessage", messages=[big])) == "OK"
    pull = s.PullMessageRequest(
        group=d.Resource(name="GDeaf"), message_queue=d.MessageQueue(topic=d.Resource(name=topic)), batch_size=32
    )
    with Raw(server.endpoints, window=0) as raw:
        streams = []
        for _ in range(200):
            stream = raw.begin("PullMessage")
            raw.data(stream, framed(pull.SerializeToString()), end=True)
            streams.append(stream)
        statuses = set()
        for event in raw.events(30):
            headers = {str(k): str(v) for k, v in getattr(event, "headers", [])}
            statuses |= {v for k, v in headers.items() if "grpc-status" in k}
            if any("8" in one for one in statuses):
                break
        assert any("8" in one for one in statuses), statuses
    assert code(client.send(topic, b"honest")) == "OK"


def test_a_cancelled_poll_leaves_nothing_behind(server, client, topic):
    client.consume("GGone", topic)
    request = s.ReceiveMessageRequest(
        group=d.Resource(name="GGone"),
        message_queue=d.MessageQueue(topic=d.Resource(name=topic)),
        invisible_duration={"seconds": 30},
        batch_size=1,
    )
    stub = client.channel.unary_stream(
        SERVICE + "ReceiveMessage", s.ReceiveMessageRequest.SerializeToString, s.ReceiveMessageResponse.FromString
    )
    calls = [stub(request, metadata=client.metadata, timeout=60) for _ in range(50)]
    until(lambda: server.call(lambda: server.broker.long_polling.count) == 50)
    for one in calls:
        one.cancel()
    until(lambda: server.call(lambda: server.broker.long_polling.count) == 0)
    assert code(client.send(topic, b"later")) == "OK"
    assert [one.body for one in client.receive("GGone", topic)] == [b"later"]  # no poll that is gone took it


def test_a_deadline_ends_a_call(server, client, topic):
    client.consume("GDeadline", topic)
    with pytest.raises(grpc.RpcError) as error:
        client.call(
            "PullMessage",
            0.5,
            group=d.Resource(name="GDeadline"),
            message_queue=d.MessageQueue(topic=d.Resource(name=topic)),
            batch_size=1,
            long_polling_timeout={"seconds": 15},
        )
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: server.call(lambda: server.broker.long_polling.count) == 0)


@pytest.mark.parametrize(
    "handle",
    [
        "0 {now} 60000 7 0 broker-a 0 999999 1",  # an offset that is not there
        "0 {now} 60000 99 0 broker-a 0 0 1",  # a revive queue that is not there
        "0 {now} 60000 0 0 broker-a 77 0 1",  # a queue that is not there
        "0 {now} 60000 0 1 broker-a 0 0 1",  # a retry topic that is not there
        "0 {now} 9223372036854775807 0 0 broker-a 0 0 1",
        "-1 -1 -1 -1 -1 x -1 -1 -1",
    ],
)
def test_a_forged_handle_is_refused(client, topic, handle):
    text = handle.format(now=int(time.time() * 1000))
    message = d.Message(system_properties=d.SystemProperties(message_id="m", receipt_handle=text))
    assert code(client.ack("GForged", topic, message)) != "OK"


@pytest.mark.slow
def test_a_thousand_telemetry_streams_are_served_and_forgotten(server, client, topic):
    settings = d.Settings(client_type=d.PRODUCER, publishing=d.Publishing(topics=[d.Resource(name=topic)]))
    command = framed(s.TelemetryCommand(settings=settings).SerializeToString())
    with Raw(server.endpoints, window=1 << 20) as raw:
        raw.drain(True)
        for number in range(1000):
            stream = raw.h2.get_next_available_stream_id()
            headers = [one for one in HEADERS if one[0] != "x-mq-client-id"]
            raw.h2.send_headers(
                stream, [(":path", SERVICE + "Telemetry"), *headers, ("x-mq-client-id", f"many-{number}")]
            )
            raw.h2.send_data(stream, command)
            if number % 100 == 99:
                raw.flush()
                raw.drain()
        until(lambda: server.call(lambda: len(server.broker.clients.producers.get(topic, {}))) == 1000)
        assert code(client.send(topic, b"honest")) == "OK"
    until(lambda: server.call(lambda: server.broker.clients.producers.get(topic)) is None)


@pytest.mark.slow
def test_streams_that_are_reset_at_once_do_no_harm(server, client, topic):
    request = framed(s.SendMessageRequest(messages=[message_of(topic, b"reset")]).SerializeToString())
    with Raw(server.endpoints) as raw:
        raw.drain(True)
        for number in range(2000):
            stream = raw.h2.get_next_available_stream_id()
            raw.h2.send_headers(stream, [(":path", SERVICE + "SendMessage"), *HEADERS])
            raw.h2.send_data(stream, request, end_stream=True)
            raw.h2.reset_stream(stream)
            if number % 100 == 99:
                raw.flush()
                raw.drain()
        stream = raw.begin("Heartbeat")
        raw.data(stream, framed(b""), end=True)
        assert raw.status(stream) == (0, "")
    assert code(client.send(topic, b"honest")) == "OK"


def producer_of(topic, padding=0):
    """The settings of a producer, with some bytes more."""
    publishing = d.Publishing(topics=[d.Resource(name=topic)])
    return d.Settings(client_type=d.PRODUCER, publishing=publishing, user_agent=d.UA(hostname="x" * padding))


def settings_of(topic, padding=0):
    """A command with the settings of a producer, with some bytes more."""
    return framed(s.TelemetryCommand(settings=producer_of(topic, padding)).SerializeToString())


@pytest.mark.slow
def test_a_telemetry_stream_that_never_reads_is_ended(server, client, topic):
    command = settings_of(topic, 100_000)
    with Raw(server.endpoints, window=0) as raw:
        raw.drain(True)
        stream = raw.begin("Telemetry")
        for _ in range(500):
            place = 0
            while place < len(command):
                raw.drain() if raw.h2.local_flow_control_window(stream) < 16_384 else None
                raw.h2.send_data(stream, command[place : place + 16_384])
                place += 16_384
            raw.flush()
            if reset := [one for one in raw.pending() if type(one).__name__ == "StreamReset"]:
                break
        assert reset
        assert reset[0].error_code == 11
    assert code(client.send(topic, b"honest")) == "OK"


def test_settings_have_a_limit(server, client, topic):
    publishing = d.Publishing(topics=[d.Resource(name="x" * (1 << 20))])
    error = client.telemetry(d.Settings(client_type=d.PRODUCER, publishing=publishing))
    assert (error.code(), "bytes" in error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_the_settings_of_all_clients_have_a_limit(server, connect, topic, monkeypatch):
    monkeypatch.setattr("mqtool.server.grpc.clients.MAX_ALL_SETTINGS", 100_000)
    clients = [connect() for _ in range(4)]
    for one in clients:
        assert code(one.telemetry(producer_of(topic, 40_000))) == "OK"
    answers = [code(one.call("Heartbeat")) for one in clients]
    assert answers == ["UNRECOGNIZED_CLIENT_TYPE"] * 2 + ["OK"] * 2


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        ("0S", {4, 0}),
        ("1n", {4, 0}),
        ("99999999H", {0}),
        ("-5S", {13}),
        ("S", {13}),
        ("5", {13}),
        ("5X", {13}),
        ("٣S", {13}),
    ],
)
def test_any_deadline_ends_in_a_status(server, client, topic, timeout, expected):
    request = framed(s.SendMessageRequest(messages=[message_of(topic, b"in time")]).SerializeToString())
    with Raw(server.endpoints) as raw:
        raw.drain(True)
        stream = raw.begin("SendMessage", ("grpc-timeout", timeout))
        raw.data(stream, request, end=True)
        assert raw.status(stream)[0] in expected
    assert code(client.send(topic, b"honest")) == "OK"


def test_a_handle_belongs_to_its_group_and_its_time(connect, topic):
    first, other = connect(), connect()
    first.consume("GOwner", topic)
    other.consume("GThief", topic)
    first.send(topic, b"x")
    (message,) = first.receive("GOwner", topic, invisible=10)
    assert code(other.ack("GThief", topic, message)) in {"OK", "INVALID_RECEIPT_HANDLE"}
    assert [one.body for one in other.receive("GThief", topic)] == [b"x"]  # a handle of another group took nothing
    words = message.system_properties.receipt_handle.split(" ")
    words[1] = str(int(words[1]) - 60_000)
    old = d.Message(system_properties=d.SystemProperties(message_id="m", receipt_handle=" ".join(words)))
    assert code(first.ack("GOwner", topic, old)) == "INVALID_RECEIPT_HANDLE"
    assert code(first.ack("GOwner", topic, message)) == "OK"


@pytest.mark.parametrize(
    "frames",
    [
        b"\x01\x00\x01\x00\x00\x00\x00\x00\x01" + bytes(65_537),  # a frame of data of 65,537 bytes
        b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\xff",  # headers that cannot be decoded
        b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82" + b"\x00\x00\x00\x09\x00\x00\x00\x00\x01" * 5000,  # continuations
        b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff" * 2,  # a window of more than 31 bits
        b"\x00\x00\x00\x00\x01\x00\x00\x00\x07",  # data of a stream that was never opened
        b"\x00\x00\x03\x04\x00\x00\x00\x00\x00abc",  # settings of three bytes
    ],
    ids=["long frame", "headers", "continuations", "window", "no stream", "settings"],
)
def test_frames_that_are_not_allowed_close_the_connection(server, client, topic, frames):
    with Raw(server.endpoints) as raw:
        raw.drain(True)
        with contextlib.suppress(OSError):
            raw.socket.sendall(frames)
        raw.socket.settimeout(10)
        with contextlib.suppress(OSError):
            while raw.socket.recv(65536):
                pass
    assert code(client.send(topic, b"honest")) == "OK"


def test_headers_of_more_than_64_kib_are_refused(server, client, topic):
    with Raw(server.endpoints) as raw:
        raw.drain(True)
        stream = raw.h2.get_next_available_stream_id()
        raw.h2.send_headers(stream, [(":path", SERVICE + "Heartbeat"), *HEADERS, *[("x", "v" * 1000)] * 100])
        raw.flush()
        with contextlib.suppress(OSError):
            while raw.socket.recv(65536):
                pass
    assert code(client.send(topic, b"honest")) == "OK"


def test_messages_of_an_answer_that_is_not_read_are_soon_visible_again(server, client, topic):
    """They come as delivery 1: they were never delivered (ReceiveMessageResponseStreamWriter, 5.5.0)."""
    request = s.ReceiveMessageRequest(
        group=d.Resource(name="GUnread"),
        message_queue=d.MessageQueue(topic=d.Resource(name=topic), id=-1),
        filter_expression=d.FilterExpression(type=d.TAG, expression="*"),
        batch_size=16,
        invisible_duration={"seconds": 3600},
    )
    client.consume("GUnread", topic)
    assert code(client.send(topic, b"unread")) == "OK"
    with Raw(server.endpoints, window=0) as raw:
        raw.drain(True)
        stream = raw.h2.get_next_available_stream_id()
        headers = [one for one in HEADERS if one[0] != "x-mq-client-id"]
        raw.h2.send_headers(
            stream, [(":path", SERVICE + "ReceiveMessage"), *headers, ("x-mq-client-id", client.client_id)]
        )
        raw.data(stream, framed(request.SerializeToString()), end=True)
        offsets = server.broker.offsets
        until(lambda: server.call(lambda: 1 in [offsets.get("GUnread", topic, queue) for queue in (0, 1)]))
    found = []
    until(lambda: found.extend(client.receive("GUnread", topic)) or found)
    assert [(one.body, one.system_properties.delivery_attempt) for one in found] == [(b"unread", 1)]
