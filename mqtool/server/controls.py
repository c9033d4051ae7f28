"""What a test does to a server besides being its client: the functions of `MqServer` and of the test endpoints.

Parameters and results are values that JSON has. Everything here must be used in the event loop's thread.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from copy import copy
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from mqtool.engine import MessageStore
from mqtool.engine.retention.rules import HOUR_MS, RetentionPolicy, policy_from_config
from mqtool.errors import UsageError
from mqtool.server.broker.service import BrokerService
from mqtool.server.faults import Fault, Faults, Request, code_named
from mqtool.server.net.peer import Peer
from mqtool.store.log.json_rows import row_of
from mqtool.store.log.message import Message
from mqtool.store.store import open_store

_MAX_DAYS = 36_500


class Controls:
    """The controls of one server that was opened with a clock."""

    def __init__(self, faults: Faults, peers: Callable[[], Iterable[Peer]], changing: asyncio.Lock) -> None:
        """`peers` returns the connections of clients to the broker; `changing` is held while its files change."""
        self._faults, self._peers, self._changing = faults, peers, changing
        self._service: BrokerService

    def serve(self, service: BrokerService) -> None:
        """Controls another broker from now on."""
        self._service = service

    def now(self) -> int:
        """Returns the time of the broker, in ms since epoch."""
        return self._service.broker.clock.now()

    async def messages(self, topic: str) -> list[Message]:
        """Returns the messages of a topic, in the order of the log."""
        broker = self._service.broker

        def read() -> list[Message]:
            with open_store(broker.root, broker.settings.store_config()) as store:
                items = store.messages(topics=[topic], inner_batches=True)
                return [item for item in items if isinstance(item, Message)]

        async with self._changing:
            return await asyncio.get_running_loop().run_in_executor(None, read)

    async def rows(self, topic: str) -> list[dict[str, Any]]:
        """Returns the messages of a topic as `mqtool dump` prints them."""
        return [row_of(message, "text") for message in await self.messages(topic)]

    def offsets(self, group: str) -> dict[str, dict[int, int]]:
        """Returns the offsets that a group has committed, by topic and queue id."""
        offsets = self._service.broker.offsets
        return {topic: offsets.of(group, topic) for topic, name in offsets.pairs() if name == group}

    def requests(self) -> list[Request]:
        """Returns the last 10,000 requests of clients since the start or a reset, in the order of arrival."""
        return list(map(copy, self._faults.requests))

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> int:
        """Advances the clock; returns the new time, in ms since epoch, when what became due is done.

        The broker is then like one whose machine was suspended: a service that would have run several times runs once.
        Expired files are deleted if the hour for it has passed (deleteWhen). Raises UsageError if the clock would go
        back.
        """
        ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
        if not 0 <= ms <= _MAX_DAYS * 24 * HOUR_MS:
            raise UsageError(f"expected to advance by 0 seconds to {_MAX_DAYS} days, found {ms / 1000:g} seconds")
        broker, before = self._service.broker, self.now()
        await self._service.settle()  # what was sent before is seen by what is due
        broker.clock.advance(round(ms))
        await self._service.settle()
        if isinstance(broker.messages, MessageStore):
            policy = policy_from_config(broker.settings.store_config())
            await asyncio.get_running_loop().run_in_executor(None, _expire, broker.messages, policy, before, self.now())
        return self.now()

    def fail(
        self, *, send: int = 0, pull: int = 0, ack: int = 0, code: str | int = "SYSTEM_BUSY", topic: str | None = None
    ) -> None:
        """Refuses the next requests: sends; pulls, pops and receives; acknowledgements and commits of offsets.

        They are refused with a response code, given by its name or number, and are not executed. With a topic, only
        requests for it count. Raises UsageError for a count below 0, or a code that is not that of a refusal.
        """
        name = code_named(str(code)).name
        counts = {"send": send, "pull": pull, "ack": ack}
        for kind, left in counts.items():
            if not left >= 0 or left % 1 != 0:
                raise UsageError(f"{kind}: expected a number of requests, found {left}")
        self._faults.planned += [Fault(kind, left, name, topic) for kind, left in counts.items() if left > 0]

    def faults(self) -> list[dict[str, object]]:
        """Returns what `fail` has asked for and has not happened yet."""
        return [asdict(fault) for fault in self._faults.planned]

    def clear_faults(self) -> None:
        """Ends all faults: those of `fail`, `pause` and `delay`."""
        self._faults.clear()

    def pause(self) -> None:
        """Answers no request until `resume`; clients can still connect."""
        self._faults.running.clear()

    def resume(self) -> None:
        """Answers the requests that arrived since `pause`."""
        self._faults.running.set()

    def delay(self, ms: float) -> None:
        """Handles each request so many milliseconds late, by the machine's clock; raises UsageError if negative."""
        if not 0 <= ms < math.inf:
            raise UsageError(f"ms: expected 0 or more, found {ms!r}")
        self._faults.delay_ms = ms

    def drop_connections(self) -> int:
        """Closes all connections to the broker without an answer to open requests; returns how many."""
        dropped = list(self._peers())
        for peer in dropped:
            peer.abort("a test asked for it")
        return len(dropped)


def _expire(store: MessageStore, policy: RetentionPolicy, before: int, now: int) -> None:
    """Deletes what expired by now, if an hour of deletion has begun since `before`, or the disk is full."""
    hours = range(before // HOUR_MS + 1, min(before // HOUR_MS + 24, now // HOUR_MS) + 1)
    if any(datetime.fromtimestamp(hour * HOUR_MS / 1000, policy.zone).hour in policy.delete_hours for hour in hours):
        store.clean_soon()
    while store.clean():
        pass
