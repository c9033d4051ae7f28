"""Serves gRPC on one connection: HTTP/2 bytes in, calls to handlers, answers out.

`http2_session` implements HTTP/2 without sockets. `peer` detects HTTP/2 by the first byte of a connection; this module
then adds gRPC: messages with a prefix of five bytes, deadlines, and a status in the trailers. It does not depend on
RocketMQ. Decision: docs/decisions/0009-grpc.md.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Protocol
from urllib.parse import quote

from msgspec import Struct

from mqtool.errors import MqtoolError
from mqtool.server.net.header_blocks import constant_block
from mqtool.server.net.http2_session import ErrorCode, Http2Session
from mqtool.server.net.peer import Limits, Peer

_LOG = logging.getLogger(__name__)

MAX_MESSAGE = 136_314_880
"""Maximum size of a request in bytes; a longer one is refused by its prefix (ProxyConfig.grpcMaxInboundMessageSize)."""

_PREFIX = 5
UNREAD_MAX = 32 << 20
"""Number of answer bytes waiting because the client does not read, above which no more are added.

Handlers that take something for their client wait for room first (`Http2Connection.wait_for_room`). Other answers that
become ready later are refused.
"""
UNREAD_LIMIT = 256 << 20
"""Maximum number of waiting answer bytes; above it, every call is refused and open streams end with the next message.

It leaves room for the answers of handlers that waited for room at the same time.
"""
_STREAM_UNREAD_MAX = 1 << 20
"""Maximum number of waiting bytes of an open stream if its connection has more than `UNREAD_MAX`."""

_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"[0-9]{1,8}[HMSmun]")
"""The form of the header grpc-timeout (PROTOCOL-HTTP2.md of gRPC)."""
_FIRST_BLOCK = constant_block(
    [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity")]
)
_OK_BLOCK = constant_block([(b"grpc-status", b"0")])


class GrpcStatus(IntEnum):
    """Status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class GrpcError(MqtoolError):
    """Raised by a handler to end its call with a gRPC status other than OK."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


Result = bytes | Sequence[bytes]
"""The messages of an answer: one, or those of a stream."""
Handler = Callable[["Call", bytes], Awaitable[Result] | Result]


class Stream(Protocol):
    """A bidirectional streaming call."""

    def received(self, message: bytes) -> None:
        """Called with each message of the client."""

    def half_closed(self) -> None:
        """Called when the client will send no more messages."""

    def closed(self) -> None:
        """Called at the end of the call, whatever ended it."""


class Methods(Struct, frozen=True):
    """The RPCs of a service, by path."""

    # calls, streams: handlers of calls with one request, and of bidirectional streams
    calls: Mapping[str, Handler]
    streams: Mapping[str, Callable[["Call"], Stream]]
    # paths of calls whose handlers wait for something that may not happen. They are cancelled when their call ends; all
    # other handlers run to their end, because half of what they do may be worse than nothing.
    polls: frozenset[str] = frozenset()


class Call:
    """One call.

    Attributes:
        connection: the connection of the call.
        headers: headers of the request.
        deadline: event loop time at which the client stops waiting; None if it has no deadline.
        on_undelivered: called once if the call ends before its whole answer was sent; set by a handler that took
            something for its client, after checking `is_open`.
        is_open: whether the call has not ended yet.
        is_poll: whether its handler is cancelled when the call ends.
    """

    __slots__ = (
        "_failed",
        "_in",
        "_is_answered",
        "_out",
        "_received_all",
        "_started",
        "_trailers",
        "connection",
        "deadline",
        "future",
        "handler",
        "headers",
        "is_open",
        "is_poll",
        "on_undelivered",
        "stream",
        "stream_id",
        "timer",
    )

    def __init__(self, connection: "Http2Connection", stream_id: int, headers: dict[bytes, bytes]) -> None:
        self.connection, self.stream_id, self.headers = connection, stream_id, headers
        self.deadline: float | None = None
        self.handler: Handler | None = None
        self.stream: Stream | None = None
        self.future: asyncio.Future[Result] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_open, self.is_poll = True, False
        self.on_undelivered: Callable[[], None] | None = None
        self._in = bytearray()
        self._out: deque[memoryview] = deque()
        self._trailers: bytes | None = None  # their block, with the first one if nothing was sent before
        self._started = self._received_all = self._is_answered = False

    def header(self, name: str) -> str:
        """Returns a header; "" if it was not sent."""
        return self.headers.get(name.encode(), b"").decode("utf-8", "replace")

    @property
    def peer(self) -> Peer:
        """The other end of the connection."""
        return self.connection.peer

    def send(self, message: bytes) -> None:
        """Sends a message; does nothing if the call has ended. Ends the call if its client leaves too much unread."""
        if self.is_open and self._trailers is None:
            self.connection.push(self, message)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, message: str = "") -> None:
        """Ends the call after everything already sent."""
        if self.is_open and self._trailers is None:
            self.connection.finish(self, status, message)


class Http2Connection:
    """The server side of an HTTP/2 connection. Must be used in the event loop of its peer."""

    def __init__(self, peer: Peer, methods: Methods, limits: Limits, is_stopping: Callable[[], bool]) -> None:
        """Creates the protocol of a connection; `is_stopping` returns whether the listener is shutting down."""
        self.peer = peer
        self._methods, self._limits, self._is_stopping = methods, limits, is_stopping
        self._loop = asyncio.get_running_loop()
        self._session = Http2Session(self)
        self._calls: dict[int, Call] = {}
        self._blocked: dict[int, Call] = {}
        self._kept = self._unread = 0
        self._receiving = self._scheduled = False
        self._room: set[asyncio.Future[None]] = set()
        self._begun: list[tuple[Call, asyncio.Future[Result]]] = []
        self._afterwards: list[Callable[[], None]] = []

    @property
    def buffered(self) -> int:
        """Number of buffered bytes of incomplete requests."""
        return self._kept + self._session.kept

    def receive(self, data: bytes) -> None:
        """Handles bytes from the client.

        Raises RemoteProtocolError if the bytes are not valid HTTP/2; the reason has been sent to the client.
        """
        self._receiving = True
        try:
            self._session.receive(data)
        finally:
            self._end_read()
            self._receiving = False
            self._flush()

    def after_read(self, work: Callable[[], None]) -> None:
        """Schedules a function to run after all requests in the current read have been handled."""
        if self._receiving:
            self._afterwards.append(work)
        else:
            self._loop.call_soon(work)

    @property
    def has_room(self) -> bool:
        """Whether at most `UNREAD_MAX` bytes of answers wait for the client to read them."""
        return self._unread <= UNREAD_MAX

    async def wait_for_room(self) -> None:
        """Waits until `has_room` is true."""
        while not self.has_room:
            room: asyncio.Future[None] = self._loop.create_future()
            self._room.add(room)
            try:
                await room
            finally:
                self._room.discard(room)

    def _free(self, size: int) -> None:
        """Subtracts bytes that no longer wait, and continues the handlers that wait for room."""
        self._unread -= size
        if self._room and self.has_room:
            for room in self._room:
                if not room.done():
                    room.set_result(None)

    def _end_read(self) -> None:
        """Runs the functions scheduled by `after_read`, and answers the calls that they complete."""
        while self._afterwards:
            afterwards, self._afterwards = self._afterwards, []
            for work in afterwards:
                work()
        begun, self._begun = self._begun, []
        for call, future in begun:
            if future.done():
                self._finished(call, future)
            else:
                self._wait(call, future)

    def close(self) -> None:
        """Ends all calls and sends GOAWAY; the peer then closes the connection."""
        for call in list(self._calls.values()):
            self._cancel(call)
            call.finish(GrpcStatus.UNAVAILABLE, "the server is being stopped")
        self._session.close()
        self._flush()

    def lost(self) -> None:
        """Ends all calls after the connection was closed."""
        for call in list(self._calls.values()):
            self._over(call)
        self._blocked.clear()

    # -- events of HTTP/2 ----------------------------------------------------------------------------------------

    def requested(self, stream_id: int, headers: dict[bytes, bytes]) -> None:
        """Begins a call."""
        self._begin(Call(self, stream_id, headers))

    def data_received(self, stream_id: int, data: bytes, is_end: bool) -> None:
        """Adds to the request of a call, and answers it at its end."""
        call = self._calls.get(stream_id)
        if call is None:
            return
        size = len(data) - _PREFIX
        is_whole = is_end and not call._in and data[:1] == b"\0" and size == int.from_bytes(data[1:_PREFIX], "big")
        if is_whole and call.handler is not None and call._trailers is None:
            call._received_all = True
            self._answer(call, call.handler, data[_PREFIX:])
            return
        self._add(call, data)
        if is_end:
            self._end_input(call)

    def reset(self, stream_id: int) -> None:
        """Ends a call whose stream is closed."""
        call = self._calls.get(stream_id)
        if call is not None:
            self._over(call)

    def widened(self, stream_id: int) -> None:
        """Sends data that waited for a flow-control window; stream 0 means all streams."""
        for call in [self._blocked.get(stream_id)] if stream_id else list(self._blocked.values()):
            if call is not None:
                self._pump(call)

    def terminated(self, code: int) -> None:
        """Notes why the client ends the connection; calls that it has begun are still answered (RFC 9113, 6.8)."""
        if code:
            _LOG.info("client ends the connection peer=%s code=%s", self.peer.address, code)

    def _begin(self, call: Call) -> None:
        """Selects the handler of a call."""
        self._calls[call.stream_id] = call
        headers = call.headers
        path = headers.get(b":path", b"").decode("latin-1")
        if self._is_stopping():
            call.finish(GrpcStatus.UNAVAILABLE, "the server is being stopped")
        elif self._unread > UNREAD_LIMIT:
            call.finish(GrpcStatus.RESOURCE_EXHAUSTED, f"the client has not read {self._unread} bytes of answers")
        elif not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            call.finish(GrpcStatus.INTERNAL, "expected content-type application/grpc")
        elif path in self._methods.calls:
            call.handler, call.is_poll = self._methods.calls[path], path in self._methods.polls
            self._set_deadline(call)
        elif path in self._methods.streams:
            self._set_deadline(call)
            try:
                call.stream = self._methods.streams[path](call)
            except GrpcError as error:
                call.finish(error.status, error.message)
        else:
            call.finish(GrpcStatus.UNIMPLEMENTED, f"Method not found: {path.removeprefix('/')}")

    def _set_deadline(self, call: Call) -> None:
        timeout = call.headers.get(b"grpc-timeout")
        if timeout is None:
            return
        if _TIMEOUT.fullmatch(timeout) is None:
            call.finish(GrpcStatus.INTERNAL, "grpc-timeout cannot be parsed")
            return
        call.deadline = self._loop.time() + int(timeout[:-1]) * _UNITS[timeout[-1:]]

    def _add(self, call: Call, data: bytes) -> None:
        """Adds received data to a call; for a stream, handles complete messages."""
        if call._trailers is not None:
            return
        call._in += data
        self._kept += len(data)
        if len(call._in) >= _PREFIX and int.from_bytes(call._in[1:_PREFIX], "big") > MAX_MESSAGE:
            size = int.from_bytes(call._in[1:_PREFIX], "big")
            self._drop_input(call)
            message = f"gRPC message exceeds maximum size {MAX_MESSAGE}: {size}"
            call.finish(GrpcStatus.RESOURCE_EXHAUSTED, message)
        elif call.stream is not None:
            while (message_ := self._next_message(call)) is not None and call.is_open:
                self._streamed(call, message_)

    def _next_message(self, call: Call) -> bytes | None:
        """Removes and returns the next complete message from the received data; None if there is none."""
        kept = call._in
        if len(kept) < _PREFIX:
            return None
        end = _PREFIX + int.from_bytes(kept[1:_PREFIX], "big")
        if len(kept) < end:
            return None
        if kept[0]:
            self._drop_input(call)
            call.finish(GrpcStatus.UNIMPLEMENTED, "compressed messages are not supported: expected identity")
            return None
        message = bytes(memoryview(kept)[_PREFIX:end])
        del kept[:end]
        self._kept -= end
        return message

    def _drop_input(self, call: Call) -> None:
        self._kept -= len(call._in)
        call._in = bytearray()

    def _streamed(self, call: Call, message: bytes) -> None:
        assert call.stream is not None
        try:
            call.stream.received(message)
        except GrpcError as error:
            call.finish(error.status, error.message)
        except Exception as error:  # noqa: BLE001 - other calls continue
            _LOG.error("stream failed method=%s", call.headers.get(b":path"), exc_info=error)
            call.finish(GrpcStatus.INTERNAL, repr(error))

    def _end_input(self, call: Call) -> None:
        """Answers a call whose request is complete."""
        call._received_all = True
        if call.stream is not None:
            if call.is_open:
                call.stream.half_closed()
        elif call.handler is not None and call._trailers is None:
            message = self._next_message(call)
            if message is not None:
                self._answer(call, call.handler, message)
            elif call._trailers is None:
                call.finish(GrpcStatus.INTERNAL, "the request ends inside a message")
            self._drop_input(call)

    # -- answers -------------------------------------------------------------------------------------------------

    def _answer(self, call: Call, handler: Handler, message: bytes) -> None:
        try:
            result = handler(call, message)
        except Exception as error:  # noqa: BLE001 - whatever a handler meets, the client gets an answer
            self._failed(call, error)
            return
        if not isinstance(result, Awaitable):
            self._complete(call, result)
            return
        self.peer.in_flight += 1
        call.future = future = asyncio.ensure_future(result)
        self._begun.append((call, future))  # until the end of the current read, which may already complete it

    def _wait(self, call: Call, future: "asyncio.Future[Result]") -> None:
        """Answers a call when a future is done, or when the call's deadline has passed."""
        if call.deadline is not None and call.is_open:
            call.timer = self._loop.call_at(call.deadline, self._expired, call)
        future.add_done_callback(partial(self._finished, call))

    def _finished(self, call: Call, future: "asyncio.Future[Result]") -> None:
        self.peer.in_flight -= 1
        call.future = None
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None
        if future.cancelled():
            call.finish(GrpcStatus.CANCELLED, "the client cancelled the call")
        elif (error := future.exception()) is not None:
            self._failed(call, error)
        elif self._unread > (UNREAD_MAX if call.on_undelivered is None else UNREAD_LIMIT):
            call.finish(GrpcStatus.RESOURCE_EXHAUSTED, f"the client has not read {self._unread} bytes of answers")
        elif call.is_open:
            self._complete(call, future.result())

    def _failed(self, call: Call, error: BaseException) -> None:
        if isinstance(error, GrpcError):
            call.finish(error.status, error.message)
            return
        _LOG.error("handler failed method=%s", call.headers.get(b":path"), exc_info=error)
        call.finish(GrpcStatus.UNKNOWN, f"{type(error).__name__}: {error}")

    def _expired(self, call: Call) -> None:
        call.timer = None
        call.finish(GrpcStatus.DEADLINE_EXCEEDED, "the call's deadline has passed")
        self._cancel(call)  # even if the client's window does not let the status through yet

    def _complete(self, call: Call, result: Result) -> None:
        """Sends all messages of an answer and ends the call."""
        messages = [result] if isinstance(result, bytes) else result
        is_new = call.is_open and call._received_all and not call._started and call._trailers is None
        if is_new and self._session.send_answer(call.stream_id, _FIRST_BLOCK, _framed(messages), _OK_BLOCK):
            call.on_undelivered = None
            self._over(call)
            self._flush_soon()
            return
        call._is_answered = call._trailers is None
        self.send(call, messages)
        self.finish(call)

    def push(self, call: Call, message: bytes) -> None:
        """Sends a message of an open stream; ends the stream if too much data is waiting."""
        own = 0 if self.has_room else sum(map(len, call._out))
        if own <= _STREAM_UNREAD_MAX and self._unread <= UNREAD_LIMIT:
            self.send(call, [message])
            return
        self._session.reset_stream(call.stream_id, ErrorCode.ENHANCE_YOUR_CALM)
        self._over(call)
        self._flush_soon()

    def send(self, call: Call, messages: Sequence[bytes]) -> None:
        """Sends messages of a call as far as the client's flow-control windows allow; the rest later."""
        if not call.is_open:
            return
        framed = _framed(messages)
        if framed:
            call._out.append(memoryview(framed))
            self._unread += len(framed)
        self._pump(call)
        self._flush_soon()

    def finish(self, call: Call, status: GrpcStatus = GrpcStatus.OK, message: str = "") -> None:
        """Ends a call after everything already sent."""
        if not call.is_open:
            return
        trailers = _OK_BLOCK
        if status or message:
            words = quote(message, safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~").encode()
            trailers = constant_block([(b"grpc-status", str(int(status)).encode()), (b"grpc-message", words)])
        call._trailers = trailers if call._started else _FIRST_BLOCK + trailers
        self._pump(call)
        self._flush_soon()

    def _pump(self, call: Call) -> None:
        """Sends waiting data of a call as far as the flow-control windows allow."""
        session, stream_id, out = self._session, call.stream_id, call._out
        if not call._started and call._trailers is None:
            call._started = True
            session.send_headers(stream_id, _FIRST_BLOCK)
        while out:
            room = session.room(stream_id)
            if room <= 0:
                self._blocked[stream_id] = call
                return
            piece = out[0]
            if len(piece) <= room:
                out.popleft()
            else:
                piece, out[0] = piece[:room], piece[room:]
            self._free(len(piece))
            session.send_data(stream_id, bytes(piece))
        self._blocked.pop(stream_id, None)
        if call._trailers is not None:
            session.end(stream_id, call._trailers)
            if call._is_answered:
                call.on_undelivered = None
            self._over(call)

    def _cancel(self, call: Call) -> None:
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None
        if call.future is not None and call.is_poll:
            call.future.cancel()

    def _over(self, call: Call) -> None:
        """Removes a call that has ended."""
        if not call.is_open:
            return
        call.is_open = False
        self._calls.pop(call.stream_id, None)
        self._blocked.pop(call.stream_id, None)
        self._free(sum(map(len, call._out)))
        call._out.clear()
        self._drop_input(call)
        self._cancel(call)
        if call.stream is not None:
            call.stream.closed()
        if call.on_undelivered is not None:
            call.on_undelivered()

    def _flush_soon(self) -> None:
        if not self._receiving and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        data = self._session.take_output()
        if data:
            self.peer.write(data)


def _framed(messages: Sequence[bytes]) -> bytes:
    """Returns messages, each with its gRPC prefix, as one buffer."""
    if len(messages) == 1:
        return b"\0" + len(messages[0]).to_bytes(4, "big") + messages[0]
    return b"".join([piece for message in messages for piece in (b"\0" + len(message).to_bytes(4, "big"), message)])
