"""Frames that are read and written without `h2`: the library's own decoder and client judge them."""

import random
import subprocess
import sys

import hpack
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, PingAckReceived, ResponseReceived, StreamEnded, TrailersReceived
from h2.exceptions import ProtocolError
from hpack.exceptions import HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtool.server.net import http2, http2_frames
from mqtool.server.net.http2_frames import (
    DATA,
    HEADERS,
    WINDOW_UPDATE,
    Frame,
    FrameCutter,
    HeaderDecoder,
    constant_block,
    is_supported,
    open_stream,
    take_data,
    take_ping,
    take_window,
    write_answer,
)

REQUEST = [(":method", "POST"), (":path", "/s/M"), (":scheme", "http"), (":authority", "a")]
texts = st.binary(max_size=200)
blocks = st.lists(st.lists(st.tuples(st.binary(min_size=1, max_size=20), texts), max_size=12), max_size=6)


@settings(max_examples=150, deadline=None)
@given(blocks, st.booleans(), st.lists(st.integers(0, 4096), max_size=6))
def test_blocks_are_decoded_as_by_the_library(found, huffman, sizes):
    encoder, ours, theirs = hpack.Encoder(), HeaderDecoder(), hpack.Decoder()
    for place, headers in enumerate(found):
        if place < len(sizes):
            encoder.header_table_size = sizes[place]
        block = encoder.encode(headers, huffman=huffman)
        expected = [tuple(one) for one in theirs.decode(block, raw=True)]
        assert [tuple(one) for one in ours.decode(block)] == expected == headers
        assert ours.header_table.dynamic_entries == theirs.header_table.dynamic_entries


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_end_as_with_the_library(block):
    def outcome(decoder):
        try:
            return [tuple(one) for one in decoder.decode(block, raw=True)]
        except HPACKError:
            return "refused"

    assert outcome(HeaderDecoder()) == outcome(hpack.Decoder())


@pytest.mark.parametrize(
    "block",
    [
        b"\xff\xff\xff\xff\xff\x7f",  # an index of six bytes
        b"\x00\x84\xff\xff\xff\xff\x01v",  # a name of the end of Huffman's table
        b"\x00\x81\x00\x01v",  # a name that ends inside of a letter
        b"\x00\x05ab",  # a name that is cut
    ],
    ids=["index", "end of table", "padding", "cut"],
)
def test_a_block_that_is_none_is_refused_as_by_the_library(block):
    for decoder in (HeaderDecoder(), hpack.Decoder()):
        with pytest.raises(HPACKError):
            decoder.decode(block)


def test_a_list_of_headers_that_is_too_long_is_refused():
    encoder, decoder = hpack.Encoder(), HeaderDecoder()
    decoder.max_header_list_size = 10_000
    decoder.decode(encoder.encode([("k", "v" * 3000)]))
    with pytest.raises(HPACKError):
        decoder.decode(encoder.encode([("k", "v" * 3000)] * 4))


class Pair:
    """A client of the library, and a server's connection that is fed by frames."""

    def __init__(self):
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.server.decoder = HeaderDecoder()
        assert is_supported()
        self.cutter = FrameCutter(self.server)
        self.client.initiate_connection()
        self.server.initiate_connection()
        self.quick, self.slow = [], []
        self.exchange()
        first = self.begin()  # the first call opens the connection, in the library
        self.exchange()
        self.server.send_headers(first, [(":status", "200")], end_stream=True)
        self.exchange()

    def begin(self, *, end=True, **priority):
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, REQUEST, end_stream=end, **priority)
        return stream

    def exchange(self, step=1 << 20):
        """Passes bytes in both directions, in pieces; returns the client's events."""
        data, found = self.client.data_to_send(), []
        for place in range(0, len(data), step):
            for frame in self.cutter.feed(data[place : place + step]):
                self.take(frame)
        found += self.client.receive_data(self.server.data_to_send())
        return found

    def take(self, frame):
        headers = open_stream(self.server, frame, 100) if frame.kind == HEADERS else None
        data = take_data(self.server, frame) if frame.kind == DATA else None
        if headers is not None or data is not None or (frame.kind == WINDOW_UPDATE and take_window(self.server, frame)):
            self.quick.append((frame.kind, frame.stream_id, data))
        else:
            self.slow.append(frame.kind)
            for event in self.server.receive_data(frame.data):
                if isinstance(event, DataReceived):
                    self.server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)


@pytest.mark.parametrize("priority", [{}, {"priority_weight": 16, "priority_depends_on": 0}], ids=["", "priority"])
@pytest.mark.parametrize("step", [1 << 20, 7, 1])
def test_a_call_is_taken_and_answered(step, priority):
    pair = Pair()
    stream = pair.begin(end=False, **priority)
    pair.client.send_data(stream, b"ask", end_stream=True)
    pair.quick.clear()
    pair.exchange(step)
    assert pair.quick == [(HEADERS, stream, None), (DATA, stream, b"ask")]
    first, last = constant_block([(b":status", b"200")]), constant_block([(b"grpc-status", b"0")])
    body = bytes(40_000)
    assert write_answer(pair.server, stream, first, body, last)
    found = pair.exchange()
    assert [type(one) for one in found if not isinstance(one, DataReceived)] == [
        ResponseReceived,
        TrailersReceived,
        StreamEnded,
    ]
    assert b"".join(one.data for one in found if isinstance(one, DataReceived)) == body
    assert pair.server.streams.get(stream) is None
    assert pair.server.outbound_flow_control_window == pair.client.inbound_flow_control_window


def test_what_breaks_the_rules_closes_the_connection():
    pair = Pair()
    stream = pair.begin(end=False)
    pair.exchange()
    head = bytes(9)
    more = Frame(kind=DATA, flags=0, stream_id=stream, data=head + bytes(1 << 20))
    with pytest.raises(ProtocolError):
        take_data(pair.server, more)
    pair = Pair()
    with pytest.raises(ProtocolError):
        open_stream(pair.server, Frame(kind=HEADERS, flags=4, stream_id=99, data=head + b"\xff" * 6), 100)
    pair = Pair()
    update = (0x7FFF_FFFF).to_bytes(4, "big")
    assert not take_window(pair.server, Frame(kind=WINDOW_UPDATE, flags=0, stream_id=0, data=head + update))


def test_a_ping_is_answered_with_its_bytes():
    pair = Pair()
    pair.client.ping(b"12345678")
    (frame,) = pair.cutter.feed(pair.client.data_to_send())
    for other in (frame._replace(flags=1), frame._replace(stream_id=1), frame._replace(data=frame.data[:-1])):
        assert not take_ping(pair.server, other)
    assert pair.server.data_to_send() == b""
    assert take_ping(pair.server, frame)
    (answer,) = pair.client.receive_data(pair.server.data_to_send())
    assert isinstance(answer, PingAckReceived)
    assert answer.ping_data == b"12345678"


def test_an_answer_beyond_a_window_is_left_to_the_library():
    pair = Pair()
    stream = pair.begin(end=False)
    pair.client.send_data(stream, b"", end_stream=True)
    pair.exchange()
    assert not write_answer(pair.server, stream, b"", bytes(65_536), b"")
    pair.client.increment_flow_control_window(1 << 20)
    pair.client.increment_flow_control_window(1 << 20, stream_id=stream)
    pair.exchange()
    assert write_answer(pair.server, stream, constant_block([(b":status", b"200")]), bytes(65_536), b"")


def test_a_window_of_a_stream_that_was_answered_is_ignored_and_one_of_an_unknown_stream_left_to_the_library():
    pair = Pair()
    answered, failed = pair.begin(), pair.begin()
    pair.exchange()
    pair.server.send_headers(answered, [(":status", "200")], end_stream=True)
    pair.server.reset_stream(failed)
    pair.exchange()
    assert not pair.server.open_inbound_streams  # h2 forgets closed streams when it counts the open ones
    update = bytes(9) + (1000).to_bytes(4, "big")
    taken = [
        take_window(pair.server, Frame(kind=WINDOW_UPDATE, flags=0, stream_id=stream, data=update))
        for stream in (answered, failed, failed + 2)
    ]
    assert taken == [True, False, False]


def test_windows_of_both_ends_agree_whatever_takes_the_frames():
    pair, chance = Pair(), random.Random(5)
    for _ in range(40):
        stream = pair.begin(end=False)
        for _ in range(chance.randrange(4)):
            pair.client.send_data(stream, bytes(chance.randrange(9000)), pad_length=chance.choice([None, 3]))
        pair.client.send_data(stream, b"", end_stream=True)
        pair.exchange(chance.choice([50, 1 << 20]))
        assert pair.client.outbound_flow_control_window == pair.server.inbound_flow_control_window
        first, last = constant_block([(b":status", b"200")]), constant_block([(b"grpc-status", b"0")])
        assert write_answer(pair.server, stream, first, b"x", last)
        pair.exchange()
    assert DATA in pair.slow
    assert DATA in {kind for kind, *_ in pair.quick}


@pytest.mark.parametrize(
    "what",
    ["old stream", "even stream", "too many", "data of nobody", "window of nothing", "own priority", "cut priority"],
)
def test_what_is_not_plain_is_left_to_the_library(what):
    pair = Pair()
    stream = pair.begin(end=False)
    frame = pair.cutter.feed(pair.client.data_to_send())[0]
    if what == "old stream":
        frame = frame._replace(stream_id=1)
    elif what == "even stream":
        frame = frame._replace(stream_id=2)
    elif what == "own priority":  # a stream that depends on itself
        frame = frame._replace(flags=0x24, data=frame.data[:9] + stream.to_bytes(4, "big") + b"\x10" + frame.data[9:])
    elif what == "cut priority":
        frame = frame._replace(flags=0x24, data=frame.data[:13])
    elif what == "data of nobody":
        assert take_data(pair.server, frame._replace(kind=DATA, stream_id=stream)) is None
        return
    elif what == "window of nothing":
        assert not take_window(pair.server, frame._replace(kind=WINDOW_UPDATE, data=bytes(13)))
        return
    assert open_stream(pair.server, frame, 0 if what == "too many" else 100) is None


@pytest.mark.parametrize(
    "name", ["open_stream", "take_data", "take_ping", "take_window", "write_answer", "FrameCutter", "HeaderDecoder"]
)
def test_a_library_with_other_objects_is_not_supported(name, monkeypatch, caplog):
    def other(*_, **__):
        raise AttributeError("no such attribute")

    monkeypatch.setattr(http2_frames, name, other)
    is_supported.cache_clear()
    try:
        assert not is_supported()
        assert not http2.is_quick()
    finally:
        is_supported.cache_clear()
    assert "this release of h2 is not known" in caplog.text


def test_objects_that_mean_something_else_are_not_supported(monkeypatch):
    monkeypatch.setattr(http2_frames, "take_data", lambda *_: b"else")
    is_supported.cache_clear()
    try:
        assert not is_supported()
    finally:
        is_supported.cache_clear()


WITHOUT = """
import sys

sys.modules["mqtool.server.net.http2_frames"] = None  # importing it fails

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server.net import http2
from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient

assert not http2.is_quick()
with MqServer() as server, GrpcClient(server.endpoints) as client:
    server.create_topic("Orders")
    answer = client.call("QueryRoute", topic=d.Resource(name="Orders"), endpoints=client.endpoints)
    assert answer.status.code == d.OK, answer
    print(len(answer.message_queues))
"""


@pytest.mark.slow
def test_calls_are_served_if_the_module_cannot_be_imported():
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("8", 0), ran.stderr[-2000:]
