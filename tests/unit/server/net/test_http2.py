"""Calls on a connection without a socket: what leaves in which write."""

import asyncio

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, TrailersReceived

from mqtool.server.net import http2
from mqtool.server.net.http2 import Http2Connection, Methods
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


class Exchange:
    """A client of the library, and a connection that answers it."""

    def __init__(self, handler):
        self.peer = Written()
        self.server = Http2Connection(self.peer, Methods({"/s/M": handler}, {}), Limits(), lambda: False)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.pass_on()

    def call(self, message, timeout="10S"):
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, [*HEADERS, ("grpc-timeout", timeout)])
        self.client.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
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
