"""Limits of connections: memory, requests in progress, idle time.

Only received bytes use memory: a length that a peer states allocates nothing.
"""

from msgspec import Struct

from mqtool.protocol.frames import MAX_FRAME


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
