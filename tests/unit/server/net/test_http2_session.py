"""The session, with the client side of the library h2 at the other end, and with frames that no honest client sends."""

import random
import struct

import hpack
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, PingAckReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.settings import SettingCodes

from mqtool.errors import RemoteProtocolError
from mqtool.server.net import http2_session as h
from mqtool.server.net.header_blocks import constant_block
from mqtool.server.net.http2_session import ErrorCode, Http2Session, frame

REQUEST = [(":method", "POST"), (":path", "/s/M"), (":scheme", "http"), (":authority", "a")]
FIRST, LAST = constant_block([(b":status", b"200")]), constant_block([(b"grpc-status", b"0")])
SETTINGS = frame(h.SETTINGS, 0, 0, b"")


class Owner:
    """Keeps what the session says."""

    def __init__(self):
        self.events = []
        self.bodies = {}

    def requested(self, stream_id, headers):
        self.events.append(("requested", stream_id, headers[b":path"]))
        self.bodies[stream_id] = b""

    def data_received(self, stream_id, data, is_end):
        self.bodies[stream_id] += data
        if is_end:
            self.events.append(("ended", stream_id))

    def reset(self, stream_id):
        self.events.append(("reset", stream_id))

    def widened(self, stream_id):
        self.events.append(("widened", stream_id))

    def terminated(self, code):
        self.events.append(("terminated", code))


class Pair:
    """A client of the library, and the session."""

    def __init__(self):
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.owner = Owner()
        self.session = Http2Session(self.owner)
        self.client.initiate_connection()
        self.exchange()
        self.exchange()

    def begin(self, *, end=False, **priority):
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, REQUEST, end_stream=end, **priority)
        return stream

    def exchange(self, step=1 << 20):
        """Passes bytes in both directions, in pieces; returns the client's events."""
        data = self.client.data_to_send()
        for start in range(0, len(data), step):
            self.session.receive(data[start : start + step])
        return self.client.receive_data(self.session.take_output())


class Raw:
    """A client that writes frames by hand, after a preface and, if asked for, a stream that waits for data."""

    def __init__(self, *, opened=False):
        self.owner = Owner()
        self.session = Http2Session(self.owner)
        self.session.receive(h.PREFACE + SETTINGS)
        if opened:
            self.session.receive(request(1))
        self.session.take_output()

    def frames(self):
        """Kind, stream and payload of each frame that the session sent since the last call."""
        found, data = [], self.session.take_output()
        while data:
            size = int.from_bytes(data[:3], "big")
            found.append((data[3], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
            data = data[9 + size :]
        return found

    def is_refused(self, data):
        """The code of the GOAWAY with which the session answers; None if it goes on."""
        try:
            self.session.receive(data)
        except RemoteProtocolError:
            (kind, _, payload) = self.frames()[-1]
            assert kind == h.GOAWAY
            return ErrorCode(int.from_bytes(payload[4:8], "big"))
        return None

    def resets(self, data):
        """(stream, code) of each stream that the session ends."""
        self.session.receive(data)
        return [
            (stream, ErrorCode(int.from_bytes(payload, "big")))
            for kind, stream, payload in self.frames()
            if kind == h.RST_STREAM
        ]


def block_of(headers):
    return hpack.Encoder().encode(headers)


def request(stream, *more, flags=h.END_HEADERS):
    return frame(h.HEADERS, flags, stream, block_of([*REQUEST, *more]))


def number(value):
    return value.to_bytes(4, "big")


@pytest.mark.parametrize("priority", [{}, {"priority_weight": 16, "priority_depends_on": 0}], ids=["", "priority"])
@pytest.mark.parametrize("step", [1 << 20, 7, 1])
def test_a_call_is_taken_and_answered(step, priority):
    pair = Pair()
    stream = pair.begin(**priority)
    pair.client.send_data(stream, b"ask", end_stream=True)
    pair.client.ping(b"12345678")
    (pong,) = pair.exchange(step)
    assert isinstance(pong, PingAckReceived)
    assert pong.ping_data == b"12345678"
    assert pair.owner.events == [("requested", stream, b"/s/M"), ("ended", stream)]
    assert pair.owner.bodies[stream] == b"ask"
    body = bytes(40_000)
    assert pair.session.send_answer(stream, FIRST, body, LAST)
    found = pair.exchange()
    assert [type(one) for one in found if not isinstance(one, DataReceived)] == [
        ResponseReceived,
        TrailersReceived,
        StreamEnded,
    ]
    assert b"".join(one.data for one in found if isinstance(one, DataReceived)) == body
    assert pair.client.open_outbound_streams == 0


def test_an_answer_beyond_the_windows_waits_until_they_are_wide_enough():
    pair = Pair()
    stream = pair.begin(end=True)
    pair.exchange()
    assert not pair.session.send_answer(stream, FIRST, bytes(65_536), LAST)
    assert pair.exchange() == []
    assert pair.session.room(stream) == 16_384
    pair.client.increment_flow_control_window(1 << 20)
    pair.client.increment_flow_control_window(1 << 20, stream_id=stream)
    pair.exchange()
    assert pair.owner.events[-2:] == [("widened", 0), ("widened", stream)]
    assert pair.session.send_answer(stream, FIRST, bytes(65_536), LAST)
    assert len([one for one in pair.exchange() if isinstance(one, StreamEnded)]) == 1


def test_windows_of_both_ends_agree():
    pair, chance, sent = Pair(), random.Random(5), 0
    for _ in range(250):
        stream, size = pair.begin(), 0
        for _ in range(chance.randrange(12)):
            piece = chance.randrange(16_000)
            pair.client.send_data(stream, bytes(piece), pad_length=chance.choice([None, 3]))
            size += piece
            pair.exchange(chance.choice([5000, 1 << 20]))
        pair.client.send_data(stream, b"", end_stream=True)
        pair.exchange()
        assert len(pair.owner.bodies[stream]) == size
        sent += size
        assert pair.session.send_answer(stream, FIRST, b"x", LAST)
        for one in pair.exchange():
            if isinstance(one, DataReceived):
                pair.client.acknowledge_received_data(one.flow_controlled_length, stream)
    assert sent > h.CONNECTION_WINDOW // 2  # the connection's window was returned at least once
    assert pair.client.outbound_flow_control_window > h.CONNECTION_WINDOW // 2


def test_a_stream_longer_than_its_window_goes_on():
    pair = Pair()
    stream, size = pair.begin(), 0
    while size < 3 * h.STREAM_WINDOW:
        pair.client.send_data(stream, bytes(16_384))
        size += 16_384
        pair.exchange()
    assert len(pair.owner.bodies[stream]) == size


def test_settings_of_a_client_change_open_streams_and_later_blocks():
    pair = Pair()
    stream = pair.begin(end=True)
    pair.exchange()
    pair.client.update_settings(
        {SettingCodes.INITIAL_WINDOW_SIZE: 10, SettingCodes.HEADER_TABLE_SIZE: 0, SettingCodes.MAX_FRAME_SIZE: 20_000}
    )
    pair.exchange()
    assert pair.session.room(stream) == 10
    pair.session.send_headers(stream, FIRST)
    pair.session.send_data(stream, b"0123456789")
    assert pair.session.room(stream) == 0
    long = [(b"grpc-status", b"13"), (b"grpc-message", b"why" * 10_000)]
    pair.session.end(stream, constant_block(long))
    found = pair.exchange()
    (trailers,) = [one for one in found if isinstance(one, TrailersReceived)]
    assert [tuple(one) for one in trailers.headers] == long


def test_an_answer_before_the_end_of_its_request_asks_the_client_to_stop():
    pair = Pair()
    stream = pair.begin()
    pair.exchange()
    pair.client.send_data(stream, b"late")
    late = pair.client.data_to_send()
    pair.session.send_headers(stream, FIRST)
    pair.session.end(stream, LAST)
    (reset,) = [one for one in pair.exchange() if isinstance(one, StreamReset)]
    assert reset.error_code == ErrorCode.NO_ERROR
    pair.session.receive(late)
    assert pair.session.take_output() == b""
    assert pair.owner.bodies[stream] == b""


def test_a_client_that_ends_the_connection_is_still_answered():
    client = Raw(opened=True)
    client.session.receive(frame(h.GOAWAY, 0, 0, number(0) + number(7)) + frame(h.PING, 0, 0, b"12345678"))
    assert client.owner.events[-1] == ("terminated", 7)
    assert client.session.send_answer(1, FIRST, b"body", LAST)
    assert [kind for kind, _, _ in client.frames()] == [h.PING, h.HEADERS, h.DATA, h.HEADERS]


def test_what_follows_the_end_of_a_connection_by_the_server_is_ignored():
    ours = Raw(opened=True)
    ours.session.close()
    ours.session.close()
    assert ours.frames() == [(h.GOAWAY, 0, number(1) + number(0))]
    ours.session.receive(b"anything")
    assert ours.frames() == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(h.DATA, 0, 0, b"x"), "PROTOCOL_ERROR"),
        (frame(h.DATA, 0, 3, b"x"), "PROTOCOL_ERROR"),
        (frame(h.DATA, h.PADDED, 1, b"\x05abcd"), "PROTOCOL_ERROR"),
        (request(2), "PROTOCOL_ERROR"),
        (request(0), "PROTOCOL_ERROR"),
        (request(5) + request(3), "PROTOCOL_ERROR"),
        (frame(h.HEADERS, h.END_HEADERS, 3, b"\xff" * 6), "COMPRESSION_ERROR"),
        (frame(h.HEADERS, h.END_HEADERS | h.HAS_PRIORITY, 3, b"abcd"), "FRAME_SIZE_ERROR"),
        (frame(h.HEADERS, h.END_HEADERS | h.HAS_PRIORITY, 3, number(3) + b"\x10"), "PROTOCOL_ERROR"),
        (request(3, flags=0) + frame(h.PING, 0, 0, bytes(8)), "PROTOCOL_ERROR"),
        (request(3, flags=0) + frame(h.CONTINUATION, 0, 5, b""), "PROTOCOL_ERROR"),
        (request(3, flags=0) + frame(h.CONTINUATION, 0, 3, b"") * 70, "ENHANCE_YOUR_CALM"),
        (request(3, flags=0) + frame(h.CONTINUATION, 0, 3, bytes(16_384)) * 4, "ENHANCE_YOUR_CALM"),
        (request(3, ("k", "v" * 4000), flags=0) + frame(h.CONTINUATION, h.END_HEADERS, 3, b""), None),
        (frame(h.CONTINUATION, h.END_HEADERS, 1, b""), "PROTOCOL_ERROR"),
        (frame(h.RST_STREAM, 0, 0, number(8)), "PROTOCOL_ERROR"),
        (frame(h.RST_STREAM, 0, 3, number(8)), "PROTOCOL_ERROR"),
        (frame(h.RST_STREAM, 0, 1, b"abc"), "FRAME_SIZE_ERROR"),
        (frame(h.SETTINGS, 0, 1, b""), "PROTOCOL_ERROR"),
        (frame(h.SETTINGS, 0, 0, b"12345"), "FRAME_SIZE_ERROR"),
        (frame(h.SETTINGS, h.ACK, 0, bytes(6)), "FRAME_SIZE_ERROR"),
        (frame(h.SETTINGS, 0, 0, struct.pack(">HI", 2, 2)), "PROTOCOL_ERROR"),
        (frame(h.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)), "FLOW_CONTROL_ERROR"),
        (frame(h.SETTINGS, 0, 0, struct.pack(">HI", 5, 16_383)), "PROTOCOL_ERROR"),
        (frame(h.SETTINGS, 0, 0, struct.pack(">HI", 99, 1)), None),
        (frame(h.PUSH_PROMISE, 0, 1, bytes(4)), "PROTOCOL_ERROR"),
        (frame(h.PING, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
        (frame(h.PING, 0, 0, bytes(7)), "FRAME_SIZE_ERROR"),
        (frame(h.GOAWAY, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
        (frame(h.WINDOW_UPDATE, 0, 0, number(0)), "PROTOCOL_ERROR"),
        (frame(h.WINDOW_UPDATE, 0, 0, number(2**31 - 1)), "FLOW_CONTROL_ERROR"),
        (frame(h.WINDOW_UPDATE, 0, 3, number(1)), "PROTOCOL_ERROR"),
        (frame(h.WINDOW_UPDATE, 0, 1, b"abc"), "FRAME_SIZE_ERROR"),
        (frame(h.PRIORITY, 0, 0, bytes(5)), "PROTOCOL_ERROR"),
        (b"\x00\x40\x01" + bytes(6), "FRAME_SIZE_ERROR"),
        (frame(77, 255, 1, b"unknown"), None),
    ],
)
def test_an_offence_ends_the_connection_with_its_reason(data, code):
    raw = Raw(opened=True)
    assert raw.is_refused(data) == (None if code is None else ErrorCode[code])


def test_headers_on_a_stream_that_both_sides_ended_end_the_connection():
    raw = Raw()
    raw.session.receive(request(1, flags=h.END_HEADERS | h.END_STREAM))
    assert raw.session.send_answer(1, FIRST, b"", LAST)
    raw.frames()
    assert raw.resets(frame(h.DATA, 0, 1, b"x")) == [(1, ErrorCode.STREAM_CLOSED)]
    other = Raw()
    other.session.receive(request(1) + frame(h.RST_STREAM, 0, 1, number(8)))
    assert other.owner.events[-1] == ("reset", 1)
    assert other.is_refused(request(1)) == ErrorCode.STREAM_CLOSED


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(h.WINDOW_UPDATE, 0, 1, number(0)), "PROTOCOL_ERROR"),
        (frame(h.WINDOW_UPDATE, 0, 1, number(2**31 - 1)), "FLOW_CONTROL_ERROR"),
        (frame(h.PRIORITY, 0, 1, b"abcd"), "FRAME_SIZE_ERROR"),
        (frame(h.PRIORITY, 0, 1, number(1) + b"\x10"), "PROTOCOL_ERROR"),
        (frame(h.HEADERS, h.END_HEADERS, 1, block_of([("k", "v")])), "PROTOCOL_ERROR"),
        (frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, block_of([(":path", "v")])), "PROTOCOL_ERROR"),
        (frame(h.DATA, h.END_STREAM, 1, b"x") + frame(h.DATA, 0, 1, b"x"), "STREAM_CLOSED"),
        (frame(h.DATA, h.END_STREAM, 1, b"x") + request(1), "STREAM_CLOSED"),
        (frame(h.DATA, 0, 1, bytes(16_384)) * 65, None),
    ],
)
def test_an_offence_within_a_stream_ends_that_stream(data, code):
    raw = Raw(opened=True)
    assert raw.resets(data) == ([] if code is None else [(1, ErrorCode[code])])
    assert (("reset", 1) in raw.owner.events) == (code is not None)
    raw.session.receive(request(7, flags=h.END_HEADERS | h.END_STREAM))
    assert raw.session.send_answer(7, FIRST, b"answer", LAST)


@pytest.mark.parametrize(
    "headers",
    [
        REQUEST[1:],
        [*REQUEST, (":path", "/again")],
        [("k", "v"), *REQUEST],
        [*REQUEST, (":status", "200")],
        [*REQUEST, ("Upper", "v")],
        [*REQUEST, ("connection", "close")],
        [*REQUEST, ("te", "gzip")],
        [*REQUEST, ("content-length", "-1")],
        [(name, "" if name == ":path" else value) for name, value in REQUEST],
    ],
    ids=["no method", "twice", "late", "of answers", "upper case", "of HTTP/1", "te", "length", "empty path"],
)
def test_a_malformed_request_is_refused_and_no_call(headers):
    raw = Raw()
    block = frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, block_of(headers))
    assert raw.resets(block) == [(1, ErrorCode.PROTOCOL_ERROR)]
    assert raw.owner.events == []


@pytest.mark.parametrize("size", [2, 4])
def test_data_that_is_not_as_long_as_announced_ends_its_stream(size):
    raw = Raw()
    raw.session.receive(request(1, ("content-length", "3")))
    assert raw.resets(frame(h.DATA, h.END_STREAM, 1, bytes(size))) == [(1, ErrorCode.PROTOCOL_ERROR)]


def test_more_streams_than_allowed_are_refused_and_their_headers_still_decoded(monkeypatch):
    monkeypatch.setattr(h, "MAX_STREAMS", 2)
    pair = Pair()
    encoder, session = hpack.Encoder(), pair.session
    for stream in (1, 3, 5):
        session.receive(frame(h.HEADERS, h.END_HEADERS, stream, encoder.encode([*REQUEST, (f"x-{stream}", "v")])))
    assert [name for name, *_ in pair.owner.events] == ["requested", "requested"]
    session.reset_stream(3, ErrorCode.NO_ERROR)
    session.receive(frame(h.HEADERS, h.END_HEADERS, 7, encoder.encode([*REQUEST, ("x-5", "v")])))
    assert pair.owner.events[-1] == ("requested", 7, b"/s/M")


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", h.PREFACE[:-1] + b"x", h.PREFACE + frame(h.PING, 0, 0, bytes(8))]
)
def test_a_connection_must_start_with_preface_and_settings(start):
    session = Http2Session(Owner())
    with pytest.raises(RemoteProtocolError):
        session.receive(start)
