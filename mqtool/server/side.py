"""What all connections of one listener or client have in common, and the answers that need no handler.

Source: NettyRemotingAbstract (4.9.7, 5.5.0).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqtool.errors import MqtoolError, RemoteProtocolError
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import Command
from mqtool.protocol.frames import ForeignProtocolError
from mqtool.server.limits import Limits
from mqtool.server.tls import TlsPipe

if TYPE_CHECKING:
    from mqtool.server.peer import Peer

Answer = Command | None
Handler = Callable[[Command, "Peer"], Awaitable[Answer] | Answer]
Guard = Callable[[Command, "Peer"], Answer]

MAX_ADVISED = 1000
"""Hosts that are remembered as advised; others are advised each time."""

LAST_WITHOUT_GO_AWAY = 475
"""V5_3_1: clients of later releases connect anew and ask again when they are told to go away."""

log = logging.getLogger(__name__)


def not_supported(command: Command, _peer: "Peer") -> Command:
    """Answers a code that nobody handles, in RocketMQ's words."""
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported")


def refusal(command: Command) -> Command:
    """Returns what a server that is about to stop answers."""
    if command.version > LAST_WITHOUT_GO_AWAY:
        return command.reply(ResponseCode.GO_AWAY, "please go away")
    return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "the server is being stopped")


def failure(command: Command, error: BaseException) -> Command:
    """Returns the answer to a request whose handler raised; what nobody foresaw goes to the log as a whole."""
    if not isinstance(error, MqtoolError | TimeoutError | ConnectionError):
        log.error("handler failed code=%s", command.code, exc_info=error)
    return command.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class Side:
    """One listener or client, as its connections see it.

    Attributes:
        handlers: request code to handler; looked up for every request, so it may change.
        default: handler of every other code.
        guard: asked before every request; what it returns is the answer, and the handler is not called.
        limits: of each connection.
        pipe: makes the TLS end of a connection that begins in TLS, or None.
        plain: whether connections without TLS are taken.
        opened: called with each new connection.
        peers: the open connections.
        unfinished: bytes that they hold of frames that are not whole.
        stopping: requests are refused.
    """

    handlers: Mapping[int, Handler]
    default: Handler = not_supported
    guard: Guard | None = None
    limits: Limits = field(default_factory=Limits)
    pipe: Callable[[], TlsPipe] | None = None
    plain: bool = True
    opened: Callable[["Peer"], None] | None = None
    peers: set["Peer"] = field(default_factory=set)
    unfinished: int = 0
    stopping: bool = False
    _advised: set[str] = field(default_factory=set)

    def log_violation(self, peer: "Peer", error: RemoteProtocolError) -> None:
        """Logs why a connection is closed: loudly, once for each host, if its client speaks another protocol."""
        loud = isinstance(error, ForeignProtocolError) and peer.host not in self._advised
        if loud and len(self._advised) < MAX_ADVISED:
            self._advised.add(peer.host)
        log.log(logging.WARNING if loud else logging.INFO, "connection closed peer=%s reason=%s", peer.address, error)
