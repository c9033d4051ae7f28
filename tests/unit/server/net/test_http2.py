"""Calls on a connection without a socket: what leaves in which write."""

import asyncio
from urllib.parse import unquote_to_bytes

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, TrailersReceived

from mqtool.server.net import http2
from mqtool.server.net.http2 import GrpcError, GrpcStatus, Http2Connection, Methods
from mqtool.server.net.limits import Limits

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/M"),
    (":authority", "a"),
    ("content-type", "application/grpc"),
]


class Written:
    """A peer that keeps what is written to it."""

    def __init__(self):
        self.writes = []
        self.in_flight = 0
        self.address = "nowhere:1"

    def write(self, data):
        self.writes.append(data)


def framed(message):
    return b"\0" + len(message).to_bytes(4, "big") + message


class Exchange:
    """A client of the library, and a connection that answers it."""

    def __init__(self, handler, stream=None):
        self.peer = Written()
        self.is_stopping = False
        self.reasons = {}
        methods = Methods({"/s/M": handler}, {"/s/S": stream})
        self.server = Http2Connection(self.peer, methods, Limits(), lambda: self.is_stopping)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.pass_on()

    def call(self, message, timeout="10S"):
        return self.send(framed(message), **{"grpc-timeout": timeout})

    def send(self, data, **headers):
        """Sends a request of any bytes, with other or more headers."""
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, list({**dict(HEADERS), **headers}.items()))
        self.client.send_data(stream, data, end_stream=True)
        return stream

    def pass_on(self):
        self.server.receive(self.client.data_to_send())

    def answers(self):
        """Message and status of each stream that was answered."""
        found = {}
        data = b"".join(map(bytes, self.peer.writes))
        self.peer.writes.clear()
        for event in self.client.receive_data(data):
            if isinstance(event, DataReceived):
                found[event.stream_id] = event.data[5:]
            elif isinstance(event, ResponseReceived | TrailersReceived) and b"grpc-status" in dict(event.headers):
                found[event.stream_id] = found.get(event.stream_id), dict(event.headers)[b"grpc-status"]
                self.reasons[event.stream_id] = dict(event.headers).get(b"grpc-message", b"")
        return found


@pytest.fixture(params=["quick", "library"])
def form(request, monkeypatch):
    if request.param == "library":
        monkeypatch.setattr(http2, "is_quick", lambda: False)


@pytest.mark.usefixtures("form")
def test_work_left_for_the_end_of_a_read_is_answered_in_the_write_of_that_read():
    async def main():
        loop, waiting, rounds = asyncio.get_running_loop(), [], []

        def store():
            rounds.append(len(waiting))
            for future, message in waiting:
                future.set_result(message + b"!")
            waiting.clear()

        def handler(call, message):
            if not waiting:
                call.connection.after_read(store)
            waiting.append((loop.create_future(), message))
            return waiting[-1][0]

        exchange = Exchange(handler)
        exchange.answers()
        streams = [exchange.call(b"one"), exchange.call(b"two"), exchange.call(b"three")]
        exchange.pass_on()
        assert rounds == [3]
        assert len(exchange.peer.writes) == 1
        assert exchange.answers() == dict(
            zip(streams, [(b"one!", b"0"), (b"two!", b"0"), (b"three!", b"0")], strict=True)
        )
        assert exchange.peer.in_flight == 0

    asyncio.run(main())


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(
    "timeout",
    ["", "S", "10", "10X", "-1S", "+1S", "1_0S", "1 S", "123456789S", "9" * 400 + "H"],
    ids=lambda text: text[:10] or "empty",
)
def test_a_timeout_that_grpc_does_not_know_ends_its_call_and_no_other(timeout):
    async def main():
        exchange = Exchange(lambda _call, message: message + b"!")
        exchange.answers()
        streams = [exchange.call(b"one", timeout), exchange.call(b"two", "99999999H")]
        exchange.pass_on()
        assert exchange.answers() == {streams[0]: (None, b"13"), streams[1]: (b"two!", b"0")}

    asyncio.run(main())


def fails(_call, _message):
    raise ValueError("no")


def refuses(_call, _message):
    raise GrpcError(GrpcStatus.UNAVAILABLE, "later")


async def fails_later(_call, _message):
    raise ValueError("no")


async def is_given_up(_call, _message):
    raise asyncio.CancelledError


def answers(_call, message):
    return message + b"!"


class RefusedStream:
    """A stream that fails with its first message."""

    def __init__(self, _call):
        self.is_closed = False

    def received(self, message):
        raise (GrpcError(GrpcStatus.UNAVAILABLE, "later") if message == b"refuse" else ValueError(message))

    def half_closed(self):
        pass

    def closed(self):
        self.is_closed = True


def refused_at_once(_call):
    raise GrpcError(GrpcStatus.UNAVAILABLE, "later")


ENDINGS = {
    "a handler that fails": (fails, None, framed(b"x"), {}, b"2", b"ValueError: no"),
    "a handler that fails later": (fails_later, None, framed(b"x"), {}, b"2", b"ValueError: no"),
    "a handler that refuses": (refuses, None, framed(b"x"), {}, b"14", b"later"),
    "a handler that is given up": (is_given_up, None, framed(b"x"), {}, b"1", b"the call was given up"),
    "another method": (answers, None, framed(b"x"), {":path": "/s/N"}, b"12", b"Method not found: s/N"),
    "another content": (answers, None, framed(b"x"), {"content-type": "text/plain"}, b"13", b"application/grpc"),
    "a compressed message": (answers, None, b"\1" + framed(b"x")[1:], {}, b"12", b"expected identity"),
    "a cut message": (answers, None, framed(b"xy")[:-1], {}, b"13", b"the request ends inside a message"),
    "no message": (answers, None, b"", {}, b"13", b"the request ends inside a message"),
    "a long message": (answers, None, b"\0\xff\xff\xff\xffx", {}, b"8", b"exceeds maximum size 136314880: 4294967295"),
    "a stream that is refused": (answers, refused_at_once, framed(b"x"), {":path": "/s/S"}, b"14", b"later"),
    "a stream that refuses": (answers, RefusedStream, framed(b"refuse"), {":path": "/s/S"}, b"14", b"later"),
    "a stream that fails": (answers, RefusedStream, framed(b"x"), {":path": "/s/S"}, b"13", b"ValueError(b'x')"),
}


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_call_that_fails_has_the_status_of_grpc_and_ends_no_other_call(ending):
    handler, stream, data, headers, status, words = ENDINGS[ending]

    async def main():
        exchange = Exchange(handler, stream)
        exchange.answers()
        failed = exchange.send(data, **headers)
        exchange.pass_on()
        await asyncio.sleep(0.01)
        assert exchange.answers() == {failed: (None, status)}
        assert words in unquote_to_bytes(exchange.reasons[failed])
        assert exchange.peer.in_flight == exchange.server.buffered == 0
        if handler is answers:
            next_one = exchange.call(b"two")
            exchange.pass_on()
            assert exchange.answers() == {next_one: (b"two!", b"0")}

    asyncio.run(main())


@pytest.mark.usefixtures("form")
def test_a_server_that_stops_ends_its_calls_and_takes_no_more():
    async def main():
        async def never(_call, _message):
            await asyncio.sleep(3600)

        exchange = Exchange(never)
        exchange.answers()
        waiting = exchange.call(b"one")
        exchange.pass_on()
        exchange.is_stopping = True
        late = exchange.call(b"two")
        exchange.pass_on()
        assert exchange.answers() == {late: (None, b"14")}
        exchange.server.close()
        assert exchange.answers() == {waiting: (None, b"14")}
        await asyncio.sleep(0.01)
        assert exchange.peer.in_flight == 0

    asyncio.run(main())


@pytest.mark.usefixtures("form")
def test_a_call_that_is_reset_in_the_read_of_its_request_gets_no_answer():
    async def main():
        futures = []

        def handler(_call, _message):
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        exchange = Exchange(handler)
        exchange.answers()
        first, second = exchange.call(b"one"), exchange.call(b"two")
        exchange.client.reset_stream(first)
        exchange.pass_on()
        assert futures[0].cancelled()
        futures[1].set_result(b"answered")
        for _ in range(3):
            await asyncio.sleep(0)
        assert exchange.answers() == {second: (b"answered", b"0")}
        assert exchange.peer.in_flight == 0

    asyncio.run(main())


@pytest.mark.usefixtures("form")
def test_work_after_a_read_runs_soon_if_nothing_is_being_read():
    async def main():
        done = []
        exchange = Exchange(lambda _call, _message: b"")
        exchange.server.after_read(lambda: done.append(True))
        assert not done
        await asyncio.sleep(0)
        assert done

    asyncio.run(main())
