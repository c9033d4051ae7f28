"""One connection: bytes in, commands to handlers, answers out; either end of it.

Answers that are ready when a handler returns leave in one write per read. Everything here runs on the loop of the
connection; other threads hand over with `loop.call_soon_threadsafe`. Docs page: docs/protocol.md.
Source: NettyRemotingAbstract (4.9.7, 5.5.0).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mqtool.errors import LocalProtocolError, RemoteProtocolError
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, Command
from mqtool.protocol.frames import Framer, encode
from mqtool.server.side import Answer, Side, failure, refusal
from mqtool.server.tls import Entrance

_FLUSH_SIZE = 256 << 10
_WATCHED = 64 << 10
"""An unfinished frame counts toward the common limit from here on; smaller ones cost less than counting."""

log = logging.getLogger(__name__)


class Peer(asyncio.Protocol):
    """The other end of a connection.

    Attributes:
        address: "host:port" of the peer; host alone in `host`, port in `port`. IPv6 hosts stand without brackets.
        attributes: whatever the handlers keep about the peer.
        last_active: time of the loop when bytes last went in either direction.
        in_flight: requests whose answers are being worked on.
    """

    __slots__ = (
        "__weakref__",
        "_blocked",
        "_closers",
        "_entrance",
        "_flushing",
        "_framer",
        "_in_flight_bytes",
        "_loop",
        "_opaque",
        "_out",
        "_out_bytes",
        "_pending",
        "_side",
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

    def __init__(self, side: Side) -> None:
        self._side = side
        self._loop = asyncio.get_running_loop()
        self._framer = Framer(side.limits.max_frame)
        self._transport: asyncio.Transport | None = None
        self._entrance: Entrance | None = None
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
        """Whether the connection is over, or about to be."""
        return self._transport is None or self._transport.is_closing()

    @property
    def writable(self) -> bool:
        """Whether the peer takes what is sent; if not, what can wait should."""
        return not self._write_paused

    def send(self, command: Command) -> None:
        """Sends a command soon, in the order of calls; to a closed peer, nothing happens."""
        if not self.closed:
            self._put(command)
            self._flush_soon()

    def write(self, frame: bytes) -> None:
        """As `send`, for what is a whole frame already."""
        self._out.append(frame)
        self._out_bytes += len(frame)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing and self._out:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def request(self, command: Command, timeout: float = 10.0) -> Command:
        """Sends a request of ours and returns its answer; `opaque` is chosen here.

        Raises:
            TimeoutError: no answer came in `timeout` seconds.
            ConnectionError: the connection was or went down.
        """
        if self.closed:
            raise ConnectionResetError(f"{self.address}: connection is closed")
        self._opaque = opaque = self._opaque % 0x7FFFFFFF + 1
        command.opaque = opaque
        self._pending[opaque] = future = self._loop.create_future()
        try:
            self.send(command)
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError as error:
            raise TimeoutError(f"{self.address}: no answer to request {command.code} in {timeout:g} s") from error
        finally:
            self._pending.pop(opaque, None)

    def on_close(self, callback: Callable[["Peer"], None]) -> None:
        """Has `callback` called with this peer once the connection is over."""
        self._closers.append(callback)

    def close(self) -> None:
        """Ends the connection once what was sent is out."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Ends the connection at once; what was not sent is lost."""
        if self._transport is not None:
            log.info("connection closed peer=%s reason=%s", self.address, reason)
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's is none of asyncio's classes
        assert self._transport is not None
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.host, self.port = name[0], name[1]
            self.address = f"{self.host}:{self.port}"
        side = self._side
        if len(side.peers) >= side.limits.connections:
            self.abort(f"more than {side.limits.connections} connections")
            return
        side.peers.add(self)
        self._transport.set_write_buffer_limits(high=side.limits.write_high)
        if side.pipe is not None or not side.plain:
            self._entrance = Entrance(side.pipe, side.plain, self._transport.write)
        if side.opened is not None:
            side.opened(self)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self.last_active = self._loop.time()
        self._flushing = True
        try:
            if self._entrance is not None:
                data = self._entrance.receive(data)
                if self._entrance.is_plain:
                    self._entrance = None
            commands = self._framer.feed(data)
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
            self._side.log_violation(self, error)
            self.close()  # the commands before that place have their answers
        self._flush()

    def pause_writing(self) -> None:
        """Called by the loop when the peer reads slower than it is sent to: its requests are not read meanwhile."""
        self._write_paused = True
        self._block()

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._write_paused = False
        self.last_active = self._loop.time()
        self._unblock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._side.peers.discard(self)
        self._watch(0)
        self._transport = None
        self._out.clear()
        self._waiting.clear()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionResetError(f"{self.address}: connection closed: {exc or 'by the peer'}"))
        for callback in self._closers:
            try:
                callback(self)
            except Exception:  # the others are to be called too
                log.exception("callback of a closed connection failed peer=%s", self.address)
        self._closers.clear()

    def _take(self, command: Command) -> None:
        flag, side = command.flag, self._side
        if flag & FLAG_RESPONSE:
            future = self._pending.get(command.opaque)
            if future is not None and not future.done():
                future.set_result(command)
            return
        try:
            answer: Awaitable[Answer] | Answer = side.guard(command, self) if side.guard is not None else None
            if side.stopping:
                answer = refusal(command)
            if answer is None:
                answer = side.handlers.get(command.code, side.default)(command, self)
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
            answer: Answer = command.reply(ResponseCode.SYSTEM_ERROR, "the request was given up")
        elif (error := future.exception()) is not None:
            answer = failure(command, error)
        else:
            answer = future.result()
        if answer is not None and not command.flag & FLAG_ONEWAY:
            self.send(answer)
        if self._blocked:
            self._unblock()

    def _put(self, command: Command) -> None:
        try:
            pieces = encode(command)
        except LocalProtocolError as error:
            log.error("answer cannot be written peer=%s code=%s error=%s", self.address, command.code, error)  # noqa: TRY400
            if not command.is_response:
                raise
            pieces = encode(Command(ResponseCode.SYSTEM_ERROR, FLAG_RESPONSE, command.opaque, str(error)))
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
        if self._entrance is not None:
            out = self._entrance.send(out)
        if len(out) == 1:
            transport.write(out[0])
        elif size < _FLUSH_SIZE:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        if self._write_paused and transport.get_write_buffer_size() > self._side.limits.write_most:
            self.abort(f"{transport.get_write_buffer_size()} bytes wait to be sent")

    def _block(self) -> None:
        if not self._blocked and self._transport is not None:
            self._blocked = True
            self._transport.pause_reading()

    def _full(self) -> bool:
        limits = self._side.limits
        return (
            self._write_paused or self.in_flight >= limits.in_flight or self._in_flight_bytes >= limits.in_flight_bytes
        )

    def _unblock(self) -> None:
        """Works off the commands that were read but not begun; when none is left, reads on."""
        while self._waiting and not self._full():
            self._take(self._waiting.popleft())
        self._flush()
        if self._blocked and not self._waiting and not self._full():
            self._blocked = False
            if not self.closed:
                self._transport.resume_reading()  # type: ignore[union-attr]

    def _watch(self, size: int) -> None:
        """Counts what this connection holds of a frame toward the limit of all.

        Raises:
            RemoteProtocolError: it is the one that passes the limit.
        """
        kept = size if size > _WATCHED else 0
        grown, self._unfinished = kept - self._unfinished, kept
        self._side.unfinished += grown
        if grown > 0 and self._side.unfinished > self._side.limits.unfinished:
            raise RemoteProtocolError(f"{self._side.unfinished} bytes of unfinished frames are kept already")
