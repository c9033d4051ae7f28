"""Calls to a broker or name server.

    connection = await Connection.open("127.0.0.1:9876")
    answer = await connection.call(Command(RequestCode.GET_BROKER_CLUSTER_INFO), timeout=3)
    connection.close()

Docs page: docs/protocol.md. Source: NettyRemotingClient (4.9.7, 5.5.0).
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping

from mqtool.protocol.command import FLAG_ONEWAY, Command
from mqtool.server.net.addresses import parse_address
from mqtool.server.net.limits import Limits
from mqtool.server.net.peer import Endpoint, Handler, Peer

CONNECT_SECONDS = 3.0


class Connection:
    """An open connection to a server, created by `open`.

    Attributes:
        address: "host:port" of the server.
        peer: the server; its requests are passed to the handlers given to `open`.
    """

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
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = CONNECT_SECONDS,
        sign: Callable[[Command], Command] | None = None,
    ) -> "Connection":
        """Connects to a server.

        Args:
            address: "host:port".
            handlers: handlers of requests that the server sends, by request code.
            limits: limits of the connection.
            tls: TLS context, e.g. from `ssl.create_default_context`; None connects without TLS.
            timeout: seconds after which connecting fails.
            sign: signs each request that expects an answer; None sends them unsigned.

        Raises:
            UsageError: the address is invalid.
            ConnectionError: the server does not answer.
        """
        host, port = parse_address(address)
        endpoint = Endpoint(handlers or {}, limits=limits or Limits())
        try:
            async with asyncio.timeout(timeout):
                _, peer = await asyncio.get_running_loop().create_connection(
                    lambda: Peer(endpoint), host, port, ssl=tls
                )
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer in {timeout:g} s"
            raise ConnectionError(f"cannot connect to {address}: {reason}") from error
        return cls(address, peer, sign)

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self.peer.closed

    async def call(self, command: Command, timeout: float = 3.0) -> Command:
        """Sends a request and returns the answer, whatever its code.

        Raises:
            TimeoutError: there was no answer in time.
            ConnectionError: the connection was closed.
        """
        return await self.peer.request(self._sign(command) if self._sign else command, timeout)

    def send_oneway(self, command: Command) -> None:
        """Sends a one-way request."""
        command.flag |= FLAG_ONEWAY
        self.peer.send(command)

    def close(self) -> None:
        """Sends what is buffered, then closes the connection."""
        self.peer.close()
