"""Connections without sockets: bytes are delayed, cut into pieces, reordered between connections, and lost with them."""

import asyncio
import random
from typing import Any

from tests.simulation.loop import SimulatedLoop


class Network:
    """Makes connections.

    Attributes:
        cut_rate: share of the writes at which the connection breaks.
    """

    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self.loop, self.chance = loop, chance
        self.cut_rate = 0.0
        self._ports = 40_000

    def connect(self, client: asyncio.Protocol, server: asyncio.Protocol) -> None:
        """Joins two ends."""
        self._ports += 1
        near, far = _Transport(self, client, self._ports), _Transport(self, server, self._ports)
        near.other, far.other = far, near
        server.connection_made(far)
        client.connection_made(near)


class _Transport(asyncio.Transport):
    """One end."""

    other: "_Transport"

    def __init__(self, network: Network, protocol: asyncio.Protocol, port: int) -> None:
        super().__init__({"peername": ("127.0.0.1", port)})
        self._network, self._protocol = network, protocol
        self._due = 0.0
        self._closing = self._lost = False
        self._paused: list[bytes] | None = None

    def write(self, data: Any) -> None:
        network, data = self._network, bytes(data)
        if self._closing or self._lost:
            return
        if network.chance.random() < network.cut_rate:
            self._break()
            return
        while data:
            size = network.chance.choice([len(data), len(data), network.chance.randrange(1, len(data) + 1)])
            delay = network.chance.choice([0.0, 0.0005, 0.02])
            self._due = max(self._due + 1e-6, network.loop.time() + delay)  # handles of one time have no order
            network.loop.call_at(self._due, self.other._arrive, data[:size])
            data = data[size:]

    def _arrive(self, data: bytes) -> None:
        if self._lost:
            return
        if self._paused is not None:
            self._paused.append(data)
        else:
            self._protocol.data_received(data)

    def _break(self) -> None:
        for end in (self, self.other):
            self._network.loop.call_soon(end._lose, ConnectionResetError("cut"))

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._closing = self._lost = True
            self._protocol.connection_lost(error)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            due = max(self._due + 1e-6, self._network.loop.time())
            self._network.loop.call_at(due, self._lose, None)
            self._network.loop.call_at(due, self.other._lose, None)

    def abort(self) -> None:
        self._break()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = self._paused or []

    def resume_reading(self) -> None:
        waiting, self._paused = self._paused or [], None
        if waiting:
            self._network.loop.call_soon(self._arrive, b"".join(waiting))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is always space."""

    def get_write_buffer_size(self) -> int:
        return 0
