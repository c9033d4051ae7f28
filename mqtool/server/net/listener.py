"""The listener: a port, its connections, and a clean shutdown.

    listener = Listener("127.0.0.1", 0, {RequestCode.HEART_BEAT: heartbeat})
    await listener.start()      # listener.port is the port that was chosen
    await listener.stop()

A handler is called with (command, peer). It returns the answer, an awaitable of it, or None if there is no answer or it
is sent later by `peer.send(command.reply(…))`. Docs page: docs/protocol.md. Source: NettyRemotingServer (4.9.7, 5.5.0).
"""

import asyncio
import contextlib
import errno
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping

from mqtool.choices import TlsMode
from mqtool.errors import PortInUseError, UsageError
from mqtool.server.net.limits import Limits
from mqtool.server.net.peer import Answer, Endpoint, Guard, Handler, OtherProtocol, Peer, not_supported
from mqtool.server.net.tls import TlsPipe

__all__ = [
    "Answer",
    "Endpoint",
    "Guard",
    "Handler",
    "Limits",
    "Listener",
    "OtherProtocol",
    "Peer",
    "listening_on",
    "not_supported",
]

BACKLOG = 1024
_CLOSE_SECONDS = 5.0
"""Maximum time in seconds for sending buffered bytes when the listener stops."""

log = logging.getLogger(__name__)


@contextlib.contextmanager
def listening_on(host: str, port: int, purpose: str = "") -> Iterator[None]:
    """Context manager around an attempt to listen: converts its errors to a UsageError that names the address."""
    address = f"{host}:{port}{purpose}"
    try:
        yield
    except (OSError, OverflowError, UnicodeError) as error:  # there is no such port; no host can have this name
        if getattr(error, "errno", 0) == errno.EADDRINUSE:
            raise PortInUseError(address, port) from error
        raise UsageError(f"cannot listen on {address}: {error}") from error


class Listener:
    """Accepts connections on one address.

    Args:
        host: address or name to listen on; "" for all IPv4 and IPv6 addresses.
        port: port to listen on; 0 selects a free one.
        handlers: handlers by request code; may be changed while the listener runs.
        default: handler of all other codes; by default, it sends RocketMQ's error answer.
        guard: called before each handler, see `Endpoint`; for instance the `check` of an `Acl`.
        limits: limits of each connection.
        tls: TLS context from `tls.server_context`, or a function that creates it for the first TLS connection; None
            refuses TLS.
        tls_mode: with a TLS context, whether connections without TLS are accepted too.
        opened: called with each new connection.
        http2: as for `Endpoint`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handlers: Mapping[int, Handler],
        default: Handler = not_supported,
        *,
        guard: Guard | None = None,
        limits: Limits | None = None,
        tls: "ssl.SSLContext | Callable[[], ssl.SSLContext] | None" = None,
        tls_mode: TlsMode = TlsMode.PERMISSIVE,
        opened: Callable[[Peer], None] | None = None,
        http2: Callable[[Peer, Endpoint], OtherProtocol | None] | None = None,
    ) -> None:
        self.host, self.port = host, port
        usable = tls is not None and tls_mode is not TlsMode.DISABLED
        self._endpoint = Endpoint(
            handlers,
            default,
            guard,
            limits or Limits(),
            _pipe_maker(tls) if usable else None,
            tls_mode is not TlsMode.ENFORCING,
            opened,
            http2,
        )
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The address it listens on, as "host:port"."""
        return f"{self.host}:{self.port}"

    @property
    def peers(self) -> frozenset[Peer]:
        """The open connections."""
        return frozenset(self._endpoint.peers)

    async def start(self) -> None:
        """Starts listening; returns when connections are accepted.

        Raises:
            UsageError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        with listening_on(self.host, self.port):
            self._server = await loop.create_server(
                lambda: Peer(self._endpoint), self.host or None, self.port, backlog=BACKLOG, reuse_address=True
            )
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweep()
        log.info("listening address=%s", self.address)

    async def stop(self, grace: float = 10.0) -> None:
        """Shuts down cleanly: refuses new connections and requests, waits for answers in progress, then closes.

        Args:
            grace: seconds that requests in progress may still take.
        """
        self._endpoint.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        await self._wait(lambda: not any(peer.in_flight for peer in self._endpoint.peers), grace)
        for peer in self.peers:
            peer.close()
        await self._wait(lambda: not self._endpoint.peers, _CLOSE_SECONDS)
        for peer in self.peers:
            peer.abort("the listener is stopped")
        await self._wait(lambda: not self._endpoint.peers, _CLOSE_SECONDS)
        if self._server is not None:
            await self._server.wait_closed()
            log.info("no longer listening address=%s", self.address)
        self._server = None

    async def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not done():
                    await asyncio.sleep(0.005)

    def _sweep(self) -> None:
        """Closes connections that have been idle for too long; runs now and at intervals."""
        loop = asyncio.get_running_loop()
        limit = self._endpoint.limits.idle_seconds
        oldest = loop.time() - limit
        for peer in self.peers:
            if peer.last_active < oldest:
                peer.abort(f"nothing came or went for {limit:g} s")
        self._sweeper = loop.call_later(limit / 8, self._sweep)


def _pipe_maker(context: "ssl.SSLContext | Callable[[], ssl.SSLContext] | None") -> Callable[[], TlsPipe]:
    assert context is not None
    return lambda: TlsPipe(context if isinstance(context, ssl.SSLContext) else context())
