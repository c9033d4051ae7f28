"""Calls on a connection without a socket: what leaves in which write."""

import asyncio
from urllib.parse import unquote_to_bytes

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, TrailersReceived
from h2.settings import SettingCodes

from mqtool.server.net import http2
from mqtool.server.net.http2 import GrpcError, GrpcStatus, Http2Connection, Methods
from mqtool.server.net.peer import Limits

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
        self.is_closed = False

    def write(self, data):
        self.writes.append(data)

    def close(self):
        self.is_closed = True


def framed(message):
    return b"\0" + len(message).to_bytes(4, "big") + message


class Exchange:
    """A client of the library, and a connection that answers it."""

    def __init__(self, handler, stream=None):
        self.peer = Written()
        self.is_stopping = False
        self.reasons = {}
        methods = Methods({"/s/M": handler, "/s/Poll": handler}, {"/s/S": stream}, frozenset({"/s/Poll"}))
        self.server = Http2Connection(self.peer, methods, Limits(), lambda: self.is_stopping)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.pass_on()

    def call(self, message, timeout="10S", path="/s/M"):
        return self.send(framed(message), **{"grpc-timeout": timeout, ":path": path})

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
    "a handler that is given up": (is_given_up, None, framed(b"x"), {}, b"1", b"the client cancelled the call"),
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


def test_a_server_that_stops_ends_its_calls_and_takes_no_more():
    async def main():
        async def never(_call, _message):
            await asyncio.sleep(3600)

        exchange = Exchange(never)
        exchange.answers()
        waiting = exchange.call(b"one", path="/s/Poll")
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


@pytest.mark.parametrize("path", ["/s/M", "/s/Poll"])
def test_a_call_that_is_reset_in_the_read_of_its_request_gets_no_answer(path):
    """A poll is given up; anything else is carried out to its end."""

    async def main():
        futures = []

        def handler(_call, _message):
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        exchange = Exchange(handler)
        exchange.answers()
        first, second = exchange.call(b"one", path=path), exchange.call(b"two", path=path)
        exchange.client.reset_stream(first)
        exchange.pass_on()
        assert futures[0].cancelled() == (path == "/s/Poll")
        if not futures[0].done():
            futures[0].set_result(b"late")
        futures[1].set_result(b"answered")
        for _ in range(3):
            await asyncio.sleep(0)
        assert exchange.answers() == {second: (b"answered", b"0")}
        assert exchange.peer.in_flight == 0

    asyncio.run(main())


def test_work_after_a_read_runs_soon_if_nothing_is_being_read():
    async def main():
        done = []
        exchange = Exchange(lambda _call, _message: b"")
        exchange.server.after_read(lambda: done.append(True))
        assert not done
        await asyncio.sleep(0)
        assert done

    asyncio.run(main())


class Listening:
    """A stream that keeps its call and what comes in; tests send through the call."""

    def __init__(self, call):
        self.call = call
        self.messages = []
        self.was_closed = 0

    def received(self, message):
        self.messages.append(message)

    def half_closed(self):
        pass

    def closed(self):
        self.was_closed += 1


class Watched(Exchange):
    """An exchange whose streams are kept in `streams`."""

    def __init__(self, handler=answers, kind=Listening):
        self.streams = []

        def begin(call):
            self.streams.append(kind(call))
            return self.streams[-1]

        super().__init__(handler, begin)
        self.answers()

    def open(self, message=b""):
        """Begins a stream with one message and leaves it open."""
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, list({**dict(HEADERS), ":path": "/s/S"}.items()))
        self.client.send_data(stream, framed(message))
        self.pass_on()
        return stream

    def events(self):
        """What arrived at the client since the last time; it opens no window by itself."""
        self.server._flush()
        data = b"".join(map(bytes, self.peer.writes))
        self.peer.writes.clear()
        return self.client.receive_data(data)

    def data(self):
        """Number of bytes of messages that arrived since the last time."""
        return sum(len(one.data) for one in self.events() if isinstance(one, DataReceived))


WINDOW = 65_535
"""What a client takes unasked, of a stream and of a connection."""


@pytest.mark.parametrize("opened", ["stream first", "connection first", "by settings"])
def test_an_answer_larger_than_the_windows_arrives_as_they_are_opened(opened):
    async def main():
        exchange = Watched(lambda _call, _message: bytes(WINDOW * 2))
        stream = exchange.call(b"")
        exchange.pass_on()
        assert exchange.data() == WINDOW
        steps = [
            lambda: exchange.client.increment_flow_control_window(1 << 20, stream),
            lambda: exchange.client.increment_flow_control_window(1 << 20),
        ]
        if opened == "connection first":
            steps.reverse()
        elif opened == "by settings":
            steps = [steps[1], lambda: exchange.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})]
        steps[0]()
        exchange.pass_on()
        assert exchange.data() == 0
        steps[1]()
        exchange.pass_on()
        found = exchange.events()
        assert sum(len(one.data) for one in found if isinstance(one, DataReceived)) == WINDOW + 5
        assert [dict(one.headers)[b"grpc-status"] for one in found if isinstance(one, TrailersReceived)] == [b"0"]

    asyncio.run(main())


def test_a_client_that_leaves_too_much_unread_is_refused_until_it_reads(monkeypatch):
    monkeypatch.setattr(http2, "UNREAD_LIMIT", WINDOW)

    async def main():
        exchange = Watched(lambda _call, message: bytes(WINDOW * 3) if message == b"much" else b"little")
        first = exchange.call(b"much")
        exchange.pass_on()
        refused = exchange.call(b"")
        exchange.pass_on()
        assert exchange.answers()[refused] == (None, b"8")
        assert exchange.reasons[refused] == f"the client has not read {WINDOW * 2 + 5} bytes of answers".encode()
        exchange.client.increment_flow_control_window(1 << 20)
        exchange.client.increment_flow_control_window(1 << 20, first)
        exchange.pass_on()
        again = exchange.call(b"")
        exchange.pass_on()
        assert exchange.answers()[again] == (b"little", b"0")

    asyncio.run(main())


class Taking:
    """Handlers that take something for their client, and notes of what did not reach it."""

    def __init__(self):
        self.lost = []

    async def take(self, call, message):
        call.on_undelivered = lambda: self.lost.append(message)
        return bytes(WINDOW * 3) if message.startswith(b"much") else b"little"

    async def look(self, _call, _message):
        return b"little"

    def handle(self, call, message):
        return self.look(call, message) if message.startswith(b"look") else self.take(call, message)


async def steps():
    for _ in range(4):
        await asyncio.sleep(0)


def test_what_was_taken_for_a_client_is_sent_though_other_answers_are_refused(monkeypatch):
    monkeypatch.setattr(http2, "UNREAD_MAX", WINDOW)
    taking = Taking()

    async def main():
        exchange = Watched(taking.handle)
        streams = []
        for message in (b"much", b"much more", b"look"):
            streams.append(exchange.call(message))
            exchange.pass_on()
            await steps()
        assert exchange.answers()[streams[2]] == (None, b"8")
        for stream in (None, *streams[:2]):
            exchange.client.increment_flow_control_window(1 << 20, stream)
        exchange.pass_on()
        assert [status for _, status in exchange.answers().values()] == [b"0", b"0"]
        exchange.server.lost()
        assert taking.lost == []

    asyncio.run(main())


@pytest.mark.parametrize("end", ["reset", "lost", "deadline", "too much"])
def test_a_handler_is_told_that_its_answer_was_not_sent(end, monkeypatch):
    monkeypatch.setattr(http2, "UNREAD_LIMIT", WINDOW * 3)
    taking = Taking()

    async def main():
        exchange = Watched(taking.handle)
        stream = exchange.call(b"much", "1n" if end == "deadline" else "10S")
        exchange.pass_on()
        await steps()
        if end == "reset":
            exchange.client.reset_stream(stream)
            exchange.pass_on()
        elif end == "too much":
            exchange.call(b"much more")
            exchange.call(b"little")
            exchange.pass_on()
            await steps()
        elif end == "lost":
            exchange.server.lost()
            exchange.server.lost()
        await steps()

    asyncio.run(main())
    assert taking.lost == ([b"little"] if end == "too much" else [b"much"])


def test_a_handler_waits_until_its_client_has_read(monkeypatch):
    monkeypatch.setattr(http2, "UNREAD_MAX", WINDOW)
    began = []

    async def main():
        async def handler(call, message):
            await call.connection.wait_for_room()
            began.append(message)
            return bytes(WINDOW * 3)

        exchange = Watched(handler)
        first = exchange.call(b"first")
        exchange.pass_on()
        await steps()
        exchange.call(b"second")
        reset = exchange.call(b"reset", path="/s/Poll")
        exchange.pass_on()
        await steps()
        exchange.client.reset_stream(reset)
        exchange.pass_on()
        await steps()
        assert began == [b"first"]
        exchange.client.increment_flow_control_window(1 << 20)
        exchange.client.increment_flow_control_window(1 << 20, first)
        exchange.pass_on()
        await steps()
        assert began == [b"first", b"second"]

    asyncio.run(main())


def test_what_follows_the_end_of_a_call_is_neither_sent_nor_kept():
    async def main():
        exchange = Watched()
        stream = exchange.open(b"one")
        (listening,) = exchange.streams
        listening.call.send(bytes(WINDOW))  # the end has to wait for the window
        listening.call.finish()
        listening.call.send(b"late")
        exchange.client.send_data(stream, framed(b"two")[:-1])
        exchange.pass_on()
        assert exchange.server.buffered == 0
        assert exchange.data() == WINDOW
        exchange.client.increment_flow_control_window(1 << 20)
        exchange.client.increment_flow_control_window(1 << 20, stream)
        exchange.pass_on()
        assert exchange.data() == 5
        assert (listening.messages, listening.was_closed) == ([b"one"], 1)
        listening.call.send(b"later")
        assert exchange.events() == []

    asyncio.run(main())


def test_an_answer_of_no_messages_is_a_status_alone():
    async def main():
        exchange = Watched(lambda _call, _message: [])
        stream = exchange.call(b"")
        exchange.pass_on()
        assert exchange.answers() == {stream: (None, b"0")}

    asyncio.run(main())


def test_a_call_that_is_reset_just_after_its_answer_is_known_gets_none():
    async def main():
        future = asyncio.get_running_loop().create_future()
        exchange = Watched(lambda _call, _message: future)
        stream = exchange.call(b"")
        exchange.pass_on()
        future.set_result(b"answer")
        exchange.client.reset_stream(stream)
        exchange.pass_on()
        await asyncio.sleep(0)
        assert exchange.events() == []
        assert exchange.peer.in_flight == 0

    asyncio.run(main())


def test_a_call_whose_connection_is_lost_while_it_is_handled_gets_no_answer():
    async def main():
        def handler(call, _message):
            call.connection.lost()
            return b"answer"

        exchange = Watched(handler)
        exchange.call(b"")
        exchange.pass_on()
        assert not any(isinstance(one, ResponseReceived | DataReceived) for one in exchange.events())

    asyncio.run(main())


def test_the_end_of_a_stream_may_end_another_call_of_a_lost_connection():
    class Pair(Listening):
        other = None

        def closed(self):
            super().closed()
            if self.other is not None:
                self.other.call.finish()

    async def main():
        exchange = Watched(kind=Pair)
        exchange.open()
        exchange.open()
        first, second = exchange.streams
        first.other, second.other = second, first
        exchange.server.lost()
        assert (first.was_closed, second.was_closed) == (1, 1)

    asyncio.run(main())


@pytest.mark.parametrize("code", [0, 11], ids=["cleanly", "with an error"])
def test_calls_go_on_after_a_client_said_goodbye_and_its_error_is_logged(code, caplog):
    caplog.set_level("INFO")

    async def main():
        exchange = Watched()
        stream = exchange.open(b"one")
        exchange.client.send_data(stream, framed(b"two"))
        data = exchange.client.data_to_send()
        exchange.client.close_connection(error_code=code)
        exchange.server.receive(exchange.client.data_to_send() + data)
        assert exchange.streams[0].messages == [b"one", b"two"]
        assert not exchange.peer.is_closed

    asyncio.run(main())
    assert ("client ends the connection peer=nowhere:1" in caplog.text) is bool(code)


def test_a_call_whose_deadline_passes_is_given_up_even_if_its_client_does_not_read():
    async def main():
        later = asyncio.get_running_loop().create_future()

        def handler(call, _message):
            call.send(bytes(WINDOW))  # the status has to wait for the window
            return later

        exchange = Watched(handler)
        stream = exchange.call(b"", "1n", "/s/Poll")
        exchange.pass_on()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert later.cancelled()
        assert exchange.data() == WINDOW
        exchange.client.increment_flow_control_window(1 << 20)
        exchange.client.increment_flow_control_window(1 << 20, stream)
        exchange.pass_on()
        assert exchange.answers()[stream][1] == b"4"

    asyncio.run(main())
