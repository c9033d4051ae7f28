"""One end of a connection: bytes in, commands to handlers, answers out.

Answers that are ready when a handler returns are sent in one write per read. Everything here must be used in the event
loop of the connection; other threads use `loop.call_soon_threadsafe`. Docs page: docs/protocol.md. Source:
NettyRemotingAbstract (4.9.7, 5.5.0).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from mqtool.errors import LocalProtocolError, MqtoolError, RemoteProtocolError
from mqtool.formats import java
from mqtool.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, ResponseCode
from mqtool.protocol.frames import MAX_FRAME, ForeignProtocolError, Framer, encode
from mqtool.server.net.tls import TlsDetector, TlsPipe


class Limits(Struct, frozen=True):
    """Limits of a listener's connections; RocketMQ's own values where it has them."""

    # maximum size of a frame in bytes; a larger one closes its connection (16 MiB in NettyDecoder)
    max_frame: int = MAX_FRAME
    # seconds without a byte in either direction after which a connection is closed (120 in NettyServerConfig)
    idle_seconds: float = 120.0
    in_flight: int = 65535  # maximum requests in progress of one connection; at the limit, nothing is read from it
    in_flight_bytes: int = 64 << 20  # maximum bytes of the bodies of these requests, with the same effect
    write_high: int = 1 << 20  # bytes waiting to be sent to a peer above which nothing is read from it
    write_max: int = 64 << 20  # bytes waiting to be sent above which the connection is closed
    # maximum bytes of incomplete frames of all connections together; the connection that exceeds it is closed
    unfinished: int = 256 << 20
    connections: int = 20_000  # maximum number of connections; further ones are closed at once


T = TypeVar("T")

Answer = Command | None
Handler = Callable[[Command, "Peer"], Awaitable[Answer] | Answer]
Guard = Callable[[Command, "Peer"], Answer]

MAX_ADVISED = 1000
"""Maximum number of hosts for which it is remembered that a warning was logged; for others it is logged each time."""

HTTP2 = ord("P")
"""First byte of HTTP/2's preface "PRI * HTTP/2.0". A remoting frame is smaller than 16 MiB, so its first byte is 0."""

LAST_WITHOUT_GO_AWAY = 475
"""V5_3_1: clients of later versions reconnect and repeat a request that is answered with GO_AWAY."""

_FLUSH_SIZE = 256 << 10
_WATCHED = 64 << 10
"""Size in bytes from which an incomplete frame counts towards the common limit; smaller ones are not worth counting."""

log = logging.getLogger(__name__)


async def awaited(value: Awaitable[T] | T) -> T:
    """Returns a value, or the result of an awaitable."""
    return await value if isinstance(value, Awaitable) else value


class OtherProtocol(Protocol):
    """A protocol other than remoting on a connection."""

    @property
    def buffered(self) -> int:
        """Number of buffered bytes of incomplete requests."""

    def receive(self, data: bytes) -> None:
        """Handles decrypted bytes; raises RemoteProtocolError if they are invalid."""

    def close(self) -> None:
        """Sends the protocol's last bytes before the connection is closed."""

    def lost(self) -> None:
        """Called when the connection is closed."""


def not_supported(command: Command, _peer: "Peer") -> Command:
    """Answers an unsupported request code, with RocketMQ's remark."""
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported")


def refusal(command: Command) -> Command:
    """Returns the answer of a server that is shutting down."""
    if command.version > LAST_WITHOUT_GO_AWAY:
        return command.reply(ResponseCode.GO_AWAY, "please go away")
    return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "the server is being stopped")


def failure(command: Command, error: BaseException) -> Command:
    """Returns the answer to a request whose handler raised an error; logs unexpected exceptions with a traceback."""
    if not isinstance(error, MqtoolError | TimeoutError | ConnectionError):
        log.error("handler failed code=%s", command.code, exc_info=error)
    return command.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


class Endpoint(Struct):
    """The options and state that all connections of a listener or client share."""

    handlers: Mapping[int, Handler]  # handlers by request code; looked up for each request, so they may change
    default: Handler = not_supported  # handler of all other codes
    # called before each request; if it returns an answer, the answer is sent and the handler is not called
    guard: Guard | None = None
    limits: Limits = field(default_factory=Limits)  # limits of each connection
    # creates the TLS end of a connection that begins with TLS; None refuses TLS
    pipe: Callable[[], TlsPipe] | None = None
    plain: bool = True  # whether connections without TLS are accepted
    opened: Callable[["Peer"], None] | None = None  # called with each new connection
    # returns the protocol of a connection that begins with HTTP/2; None if HTTP/2 is not supported
    http2: Callable[["Peer", "Endpoint"], OtherProtocol | None] | None = None
    peers: set["Peer"] = field(default_factory=set)  # the open connections
    unfinished: int = 0  # number of buffered bytes of incomplete frames of all connections
    stopping: bool = False  # whether requests are refused because of a shutdown
    version: int | None = None  # release that all commands state, an ordinal of MQVersion; None: each its own
    _advised: set[str] = field(default_factory=set)

    def log_violation(self, peer: "Peer", error: RemoteProtocolError) -> None:
        """Logs why a connection is closed; as a warning, once per host, if the client uses another protocol."""
        loud = isinstance(error, ForeignProtocolError) and peer.host not in self._advised
        if loud and len(self._advised) < MAX_ADVISED:
            self._advised.add(peer.host)
        log.log(logging.WARNING if loud else logging.INFO, "connection closed peer=%s reason=%s", peer.address, error)


class Peer(asyncio.Protocol):
    """The other end of a connection.

    `address` is "host:port"; IPv6 hosts have no brackets. Handlers store values in `attributes`. `last_active` is the
    event loop's time of the last byte in either direction.
    """

    __slots__ = (
        "__weakref__",
        "_blocked",
        "_closers",
        "_endpoint",
        "_flushing",
        "_framer",
        "_in_flight_bytes",
        "_is_new",
        "_loop",
        "_opaque",
        "_other",
        "_out",
        "_out_bytes",
        "_pending",
        "_tls_detector",
        "_transport",
        "_unfinished",
        "_waiting",
        "_write_paused",
        "address",
        "attributes",
        "host",
        "in_flight",
        "last_active",
        "port",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._framer = Framer(endpoint.limits.max_frame)
        self._transport: asyncio.Transport | None = None
        self._tls_detector: TlsDetector | None = None
        self._other: OtherProtocol | None = None
        self._is_new = True
        self._out: list[bytes | memoryview] = []
        self._out_bytes = self._unfinished = self._in_flight_bytes = self.in_flight = self._opaque = 0
        self._flushing = self._blocked = self._write_paused = False
        self._waiting: deque[Command] = deque()
        self._pending: dict[int, asyncio.Future[Command]] = {}
        self._closers: list[Callable[[Peer], None]] = []
        self.address, self.host, self.port = "", "", 0
        self.attributes: dict[str, Any] = {}
        self.last_active = self._loop.time()

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or is being closed."""
        return self._transport is None or self._transport.is_closing()

    @property
    def local_port(self) -> int:
        """Port of this end of the connection."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return int(name[1]) if isinstance(name, tuple) else 0

    def send(self, command: Command) -> None:
        """Queues a command for sending, in the order of calls; does nothing if the connection is closed."""
        if not self.closed:
            self._put(command)
            self._flush_soon()

    def write(self, frame: bytes) -> None:
        """Queues an encoded frame for sending, like `send`."""
        self._out.append(frame)
        self._out_bytes += len(frame)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing and self._out:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def request(self, command: Command, timeout: float = 10.0) -> Command:
        """Sends a request and returns its answer; sets `opaque`.

        Raises TimeoutError, or ConnectionError if the connection is closed, or was closed before the answer arrived.
        """
        if self.closed:
            raise ConnectionResetError(f"{self.address}: connection is closed")
        self._opaque = opaque = self._opaque % java.INT_MAX + 1
        command.opaque = opaque
        self._pending[opaque] = future = self._loop.create_future()
        try:
            self.send(command)
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError as error:
            raise TimeoutError(f"{self.address}: no answer to request {command.code} within {timeout:g} s") from error
        finally:
            self._pending.pop(opaque, None)

    def on_close(self, callback: Callable[["Peer"], None]) -> None:
        """Registers a callback for the end of the connection; it is called with this peer."""
        self._closers.append(callback)

    def close(self) -> None:
        """Sends what is buffered, then closes the connection."""
        if self._transport is not None:
            if self._other is not None:
                self._other.close()
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Closes the connection immediately; unsent bytes are lost."""
        if self._transport is not None:
            log.info("connection closed peer=%s reason=%s", self.address, reason)
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's is not a subclass of asyncio's
        assert self._transport is not None
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.host, self.port = name[0], name[1]
            self.address = f"{self.host}:{self.port}"
        endpoint = self._endpoint
        if len(endpoint.peers) >= endpoint.limits.connections:
            self.abort(f"more than {endpoint.limits.connections} connections")
            return
        endpoint.peers.add(self)
        self._transport.set_write_buffer_limits(high=endpoint.limits.write_high)
        if endpoint.pipe is not None or not endpoint.plain:
            self._tls_detector = TlsDetector(endpoint.pipe, endpoint.plain, self._transport.write)
        if endpoint.opened is not None:
            endpoint.opened(self)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self.last_active = self._loop.time()
        self._flushing = True
        try:
            if self._tls_detector is not None:
                data = self._tls_detector.receive(data)
                if self._tls_detector.is_plain:
                    self._tls_detector = None
            if self._is_new and data:
                self._begin(data[0])
            if self._other is not None:
                self._other.receive(data)
                if self._unfinished or self._other.buffered > _WATCHED:
                    self._watch(self._other.buffered)
                data = b""
            commands = self._framer.feed(data) if data else []
            for position, command in enumerate(commands):
                if self._blocked:
                    self._waiting.extend(commands[position:])
                    break
                self._take(command)
            if self._framer.error is not None:
                raise self._framer.error
            if self._unfinished or self._framer.buffered > _WATCHED:
                self._watch(self._framer.buffered)
        except RemoteProtocolError as error:
            self._endpoint.log_violation(self, error)
            self.close()  # all commands before the error have been answered
        self._flush()

    def _begin(self, first: int) -> None:
        """Detects the protocol of a connection by its first byte."""
        self._is_new = False
        if first == HTTP2 and self._endpoint.http2 is not None:
            self._other = self._endpoint.http2(self, self._endpoint)

    def pause_writing(self) -> None:
        """Called by the loop when the peer reads too slowly; its requests are not read until it catches up."""
        self._write_paused = True
        self._block()

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._write_paused = False
        self.last_active = self._loop.time()
        self._unblock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._endpoint.peers.discard(self)
        self._watch(0)
        self._transport = None
        if self._other is not None:
            self._other.lost()
        self._out.clear()
        self._waiting.clear()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionResetError(f"{self.address}: connection closed: {exc or 'by the peer'}"))
        for callback in self._closers:
            try:
                callback(self)
            except Exception:  # call the remaining callbacks too
                log.exception("callback of a closed connection failed peer=%s", self.address)
        self._closers.clear()

    def _take(self, command: Command) -> None:
        flag, endpoint = command.flag, self._endpoint
        if flag & FLAG_RESPONSE:
            future = self._pending.get(command.opaque)
            if future is not None and not future.done():
                future.set_result(command)
            return
        try:
            answer: Awaitable[Answer] | Answer = endpoint.guard(command, self) if endpoint.guard is not None else None
            if endpoint.stopping:
                answer = refusal(command)
            if answer is None:
                answer = endpoint.handlers.get(command.code, endpoint.default)(command, self)
            if answer is not None and not isinstance(answer, Command):
                self._await(command, answer)
                return
        except Exception as error:  # noqa: BLE001 - whatever a handler meets, the peer gets an answer
            answer = failure(command, error)
        if answer is not None and not flag & FLAG_ONEWAY:
            self._put(answer)

    def _await(self, command: Command, answer: Awaitable[Answer]) -> None:
        future = asyncio.ensure_future(answer)
        self.in_flight += 1
        self._in_flight_bytes += len(command.body)
        if self._full():
            self._block()
        future.add_done_callback(partial(self._finished, command))

    def _finished(self, command: Command, future: "asyncio.Future[Answer]") -> None:
        self.in_flight -= 1
        self._in_flight_bytes -= len(command.body)
        if future.cancelled():
            answer: Answer = command.reply(ResponseCode.SYSTEM_ERROR, "the request was abandoned")
        elif (error := future.exception()) is not None:
            answer = failure(command, error)
        else:
            answer = future.result()
        if answer is not None and not command.flag & FLAG_ONEWAY:
            self.send(answer)
        if self._blocked:
            self._unblock()

    def _put(self, command: Command) -> None:
        if self._endpoint.version is not None:
            command.version = self._endpoint.version
        try:
            pieces = encode(command)
        except LocalProtocolError as error:
            log.error("answer cannot be written peer=%s code=%s error=%s", self.address, command.code, error)  # noqa: TRY400
            if not command.is_response:
                raise
            version = command.version
            pieces = encode(
                Command(ResponseCode.SYSTEM_ERROR, FLAG_RESPONSE, command.opaque, str(error), version=version)
            )
        for piece in pieces:
            self._out.append(piece)
            self._out_bytes += len(piece)
        if self._out_bytes > _FLUSH_SIZE:
            self._flush()

    def _flush(self) -> None:
        self._flushing = False
        transport, out = self._transport, self._out
        if not out or transport is None:
            return
        self._out, size, self._out_bytes = [], self._out_bytes, 0
        if transport.is_closing():
            return
        if not self._write_paused:
            self.last_active = self._loop.time()
        if self._tls_detector is not None:
            out = self._tls_detector.send(out)
        if len(out) == 1:
            transport.write(out[0])
        elif size < _FLUSH_SIZE:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        if self._write_paused and transport.get_write_buffer_size() > self._endpoint.limits.write_max:
            self.abort(f"{transport.get_write_buffer_size()} bytes wait to be sent")

    def _block(self) -> None:
        if not self._blocked and self._transport is not None:
            self._blocked = True
            self._transport.pause_reading()

    def _full(self) -> bool:
        limits = self._endpoint.limits
        return (
            self._write_paused or self.in_flight >= limits.in_flight or self._in_flight_bytes >= limits.in_flight_bytes
        )

    def _unblock(self) -> None:
        """Handles commands that were parsed but not started; resumes reading when none are left."""
        while self._waiting and not self._full():
            self._take(self._waiting.popleft())
        self._flush()
        if self._blocked and not self._waiting and not self._full():
            self._blocked = False
            if not self.closed:
                self._transport.resume_reading()  # type: ignore[union-attr]

    def _watch(self, size: int) -> None:
        """Adds the size of this connection's incomplete frame to the total of all connections.

        Raises RemoteProtocolError if this connection exceeds the limit.
        """
        kept = size if size > _WATCHED else 0
        grown, self._unfinished = kept - self._unfinished, kept
        self._endpoint.unfinished += grown
        if grown > 0 and self._endpoint.unfinished > self._endpoint.limits.unfinished:
            raise RemoteProtocolError(f"{self._endpoint.unfinished} bytes of unfinished frames are kept already")
