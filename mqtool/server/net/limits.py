"""What one connection may take, and how long it may be silent.

Every bound is on what is really held: a length that a peer claims allocates nothing.
"""

from dataclasses import dataclass

from mqtool.protocol.frames import MAX_FRAME


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a listener's connections; RocketMQ's own where it has them.

    Attributes:
        max_frame: bytes of one frame; a larger one ends its connection (16 MiB in NettyDecoder).
        idle_seconds: a connection without a byte in either direction is closed (120 in NettyServerConfig).
        in_flight: requests of one connection that are being worked on; beyond them its bytes are not read.
        in_flight_bytes: bytes of the bodies of those requests, with the same consequence.
        write_high: bytes waiting to be sent to a peer, beyond which its requests are not read.
        write_max: bytes waiting to be sent, beyond which the peer counts as gone and is closed.
        unfinished: bytes that all connections together may hold of frames that are not whole; the connection that
            passes this is closed.
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
