"""What a test does to a server besides being its client: the functions of `MqServer` and of the test endpoints.

Parameters and results are values that JSON has. Everything here must be used in the event loop's thread.
"""

import asyncio
from datetime import datetime

from mqtool.engine import MessageStore
from mqtool.engine.retention.rules import HOUR_MS, RetentionPolicy, policy_from_config
from mqtool.errors import UsageError
from mqtool.server.broker.service import BrokerService

_MAX_DAYS = 36_500


class Controls:
    """The controls of one server that was opened with a clock."""

    def __init__(self) -> None:
        self._service: BrokerService

    def serve(self, service: BrokerService) -> None:
        """Controls another broker from now on."""
        self._service = service

    def now(self) -> int:
        """Returns the time of the broker, in ms since epoch."""
        return self._service.broker.clock.now()

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> int:
        """Advances the clock; returns the new time, in ms since epoch, when what became due is done.

        The broker is then like one whose machine was suspended: a service that would have run several times runs once.
        Expired files are deleted if the hour for it has passed (deleteWhen). Raises UsageError if the clock would go
        back.
        """
        ms = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
        if not 0 <= ms <= _MAX_DAYS * 24 * HOUR_MS:
            raise UsageError(f"expected to advance by 0 seconds to {_MAX_DAYS} days, found {ms / 1000:g} seconds")
        broker, before = self._service.broker, self.now()
        await self._service.settle()  # what was sent before is seen by what is due
        broker.clock.advance(ms)
        await self._service.settle()
        if isinstance(broker.messages, MessageStore):
            policy = policy_from_config(broker.settings.store_config())
            await asyncio.get_running_loop().run_in_executor(None, _expire, broker.messages, policy, before, self.now())
        return self.now()


def _expire(store: MessageStore, policy: RetentionPolicy, before: int, now: int) -> None:
    """Deletes what expired by now, if an hour of deletion has begun since `before`, or the disk is full."""
    hours = range(before // HOUR_MS + 1, min(before // HOUR_MS + 24, now // HOUR_MS) + 1)
    if any(datetime.fromtimestamp(hour * HOUR_MS / 1000, policy.zone).hour in policy.delete_hours for hour in hours):
        store.clean_soon()
    while store.clean():
        pass
