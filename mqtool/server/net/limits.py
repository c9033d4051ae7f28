"""Limits of connections: memory, requests in progress, and idle time.

Only received bytes count: a length that a peer states allocates nothing.
"""

from dataclasses import dataclass

from mqtool.protocol.frames import MAX_FRAME


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a listener's connections; RocketMQ's own where it has them.

    Attributes:
        max_frame: bytes of one frame; a larger one ends its connection (16 MiB in NettyDecoder).
        idle_seconds: a connection without a byte in either direction is closed (120 in NettyServerConfig).
        in_flight: requests in progress of one connection; beyond them its bytes are not read.
        in_flight_bytes: bytes of the bodies of those requests, with the same consequence.
        write_high: bytes waiting to be sent to a peer, beyond which its requests are not read.
        write_max: bytes waiting to be sent, beyond which the connection is closed.
        unfinished: bytes of incomplete frames, of all connections together; the connection that exceeds this is
            closed.
        connections: more are closed as soon as they are made.
    """

    max_frame: int = MAX_FRAME
    idle_seconds: float = 120.0
    in_flight: int = 65535
    in_flight_bytes: int = 64 << 20
    write_high: int = 1 << 20
    write_max: int = 64 << 20
    unfinished: int = 256 << 20
    connections: int = 20_000
