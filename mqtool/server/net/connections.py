"""Connections: a listener with a clean shutdown, a client's connection, and addresses.

    listener = Listener("127.0.0.1", 0, {RequestCode.HEART_BEAT: heartbeat})
    await listener.start()      # listener.port is the port that was chosen
    connection = await Connection.open(listener.address)
    answer = await connection.call(Command(RequestCode.HEART_BEAT), timeout=3)
    connection.close()
    await listener.stop()

A handler is called with (command, peer). It returns the answer, an awaitable of it, or None if there is no answer or it
is sent later by `peer.send(command.reply(…))`. Docs page: docs/protocol.md. Source: NettyRemotingServer,
NettyRemotingClient (4.9.7, 5.5.0).
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping

from mqtool.choices import TlsMode
from mqtool.errors import PortInUseError, UsageError
from mqtool.protocol.command import FLAG_ONEWAY, VERSION, Command
from mqtool.server.net.peer import Endpoint, Guard, Handler, Limits, OtherProtocol, Peer, not_supported
from mqtool.server.net.tls import TlsPipe

log = logging.getLogger(__name__)

_PORT_DIGITS = 5
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - only names; nothing is bound here

BACKLOG = 1024
CLOSE_SECONDS = 5.0
"""Maximum time in seconds for sending buffered bytes when the listener stops."""

CONNECT_SECONDS = 3.0


def with_port(host: str, port: int) -> str:
    """Returns "host:port", with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listed(addresses: str) -> list[str]:
    """Splits a list of addresses at semicolons or commas."""
    return [address.strip() for address in addresses.replace(",", ";").split(";") if address.strip()]


def parse_address(address: str) -> tuple[str, int]:
    """Splits "host:port", an IPv6 host maybe in brackets; raises UsageError if the text has another form."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS) or int(port) > 65535:
        raise UsageError(f"address {address[:100]!r}: expected HOST:PORT")
    return require_host(host), int(port)


def parse_advertised(text: str) -> tuple[str, int | None]:
    """Splits "host" or "host:port"; the port is None if there is none. An IPv6 host with a port is in brackets.

    Raises UsageError if the text has another form.
    """
    if text.endswith("]") or (text.count(":") != 1 and not text.startswith("[")):
        return text.removeprefix("[").removesuffix("]"), None
    try:
        host, port = parse_address(text)
    except UsageError:
        host, port = "", 0
    if not port:
        raise UsageError(f"--advertise: expected HOST or HOST:PORT, with a port from 1 to 65535, found {text[:100]!r}")
    return host, port


def require_host(host: str) -> str:
    """Returns a name or address; raises UsageError if no host can have this name: Python's codec would fail."""
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise UsageError(f"expected the name or address of a host, found {host[:100]!r}") from error
    return host


def address_of(host: str) -> str:
    """Returns a host's IP address as in records and message ids; raises UsageError if it cannot be resolved."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.gethostbyname(require_host(host))
    except OSError as error:
        raise UsageError(
            f"{host!r} cannot be resolved, but message ids contain an address; give one with --advertise"
        ) from error


def own_address() -> str:
    """Returns the address of this machine under which other machines can most likely reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; only selects a local address
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


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
    """Accepts connections on one address; "" is all IPv4 and IPv6 addresses, port 0 a free one.

    The handlers may change while it runs; `default` handles all other codes. `tls` is a TLS context, or a function that
    creates it for the first TLS connection; None refuses TLS. Other options are those of `Endpoint`.
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
        version: int = VERSION,
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
            version=version,
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
        """Starts listening; raises UsageError if the address cannot be bound."""
        loop = asyncio.get_running_loop()
        with listening_on(self.host, self.port):
            self._server = await loop.create_server(
                lambda: Peer(self._endpoint), self.host or None, self.port, backlog=BACKLOG, reuse_address=True
            )
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweep()
        log.info("listening address=%s", self.address)

    async def stop(self, grace: float = 10.0) -> None:
        """Shuts down cleanly: refuses new requests, waits `grace` seconds for answers in progress, then closes."""
        self._endpoint.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        await self._wait(lambda: not any(peer.in_flight for peer in self._endpoint.peers), grace)
        for peer in self.peers:
            peer.close()
        await self._wait(lambda: not self._endpoint.peers, CLOSE_SECONDS)
        for peer in self.peers:
            peer.abort("the listener is stopped")
        await self._wait(lambda: not self._endpoint.peers, CLOSE_SECONDS)
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
                peer.abort(f"nothing sent or received for {limit:g} s")
        self._sweeper = loop.call_later(limit / 8, self._sweep)


def _pipe_maker(context: "ssl.SSLContext | Callable[[], ssl.SSLContext] | None") -> Callable[[], TlsPipe]:
    assert context is not None
    return lambda: TlsPipe(context if isinstance(context, ssl.SSLContext) else context())


class Connection:
    """An open connection to a server, created by `open`; requests of `peer` go to the handlers given there."""

    def __init__(self, address: str, peer: Peer, sign: Callable[[Command], Command] | None = None) -> None:
        self.address = address
        self.peer = peer
        self._sign = sign

    @classmethod
    async def open(
        cls,
        address: str,
        handlers: Mapping[int, Handler] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        sign: Callable[[Command], Command] | None = None,
    ) -> "Connection":
        """Connects to the server at "host:port"; `sign` signs each request that expects an answer.

        `handlers` are for requests that the server sends. Raises UsageError if the address is invalid, ConnectionError
        if the server does not answer.
        """
        host, port = parse_address(address)
        endpoint = Endpoint(handlers or {})
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, peer = await asyncio.get_running_loop().create_connection(
                    lambda: Peer(endpoint), host, port, ssl=tls
                )
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
            raise ConnectionError(f"cannot connect to {address}: {reason}") from error
        return cls(address, peer, sign)

    async def call(self, command: Command, timeout: float = 3.0) -> Command:
        """Sends a request, returns the answer; raises TimeoutError, or ConnectionError if the connection was closed."""
        return await self.peer.request(self._sign(command) if self._sign else command, timeout)

    def send_oneway(self, command: Command) -> None:
        """Sends a one-way request."""
        command.flag |= FLAG_ONEWAY
        self.peer.send(command)

    def close(self) -> None:
        """Sends what is buffered, then closes the connection."""
        self.peer.close()
