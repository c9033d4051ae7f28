"""Long polling: requests for messages that have not arrived yet, answered when one arrives or their time is up.

Source: PullRequestHoldService, NotifyMessageArrivingListener, PopLongPollingService (5.5.0).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

from mqtool.formats.topics import is_lmq
from mqtool.server.broker.consume.pace import Pace

Key = tuple[str, int]
"""Topic and queue id."""

_CATCH_UP_S = 0.2


class Waiting:
    """A request that waits until one of its queues has a message at an offset."""

    __slots__ = ("future", "offsets", "timer")

    def __init__(
        self, offsets: Mapping[Key, int], future: "asyncio.Future[bool]", timer: asyncio.TimerHandle | None
    ) -> None:
        self.offsets = offsets
        self.future = future
        self.timer = timer


class LongPolling:
    """The requests that wait for messages, by queue. For the event loop's thread, except `dispatched`.

    Attributes:
        count: how many wait.
        longest_s: how long one waits at most, whatever it asks for.
    """

    longest_s = 30.0

    def __init__(self, max_offset: Callable[[str, int], int]) -> None:
        """Takes a function that returns the max offset of a topic's queue."""
        self.count = 0
        self._max_offset = max_offset
        self._waiting_by_queue: dict[Key, list[Waiting]] = {}
        self._undispatched: dict[Key, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._is_due = False
        self._guard = threading.Lock()
        self._pace = Pace()

    def seconds(self, wanted_ms: int) -> float:
        """Returns how long a request waits that asks for so many ms."""
        return min(max(0, wanted_ms) / 1000, self.longest_s)

    @staticmethod
    def now() -> float:
        """Returns the time on the clock of all waits, in seconds."""
        return time.monotonic()

    def start(self) -> None:
        """Wakes requests in the running loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def touch(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Notes that a message was put to a queue; consumers get it after its dispatch."""
        key = (topic, queue_id)
        self._undispatched[key] = queue_offset
        if key in self._waiting_by_queue:
            self._pace.hurry()
            self._schedule()  # dispatch may have been quicker than this note

    def flushed(self) -> None:
        """Notes that messages reached the disk: with SYNC_FLUSH they may be dispatched only then."""
        if self._waiting_by_queue:
            self._pace.hurry()

    def waiting(self, topic: str, queue_id: int) -> int:
        """Returns how many requests wait for a queue."""
        return len(self._waiting_by_queue.get((topic, queue_id), ()))

    def is_expected(self, topic: str, queue_id: int) -> bool:
        """Whether a message was put to a queue that may not be dispatched yet."""
        offset = self._undispatched.get((topic, queue_id))
        return offset is not None and self._max_offset(topic, queue_id) <= offset

    async def caught_up(self, topic: str, queue_id: int) -> None:
        """Waits until what was put to a queue so far is dispatched, but at most 0.2 s."""
        if self.is_expected(topic, queue_id):
            await self.wait({(topic, queue_id): self._undispatched[topic, queue_id]}, _CATCH_UP_S)

    def dispatched(self) -> None:
        """Notes that units were written. Called by the dispatching thread, which pauses here, or the event loop's."""
        if self._waiting_by_queue:
            self._schedule()
        if threading.get_ident() != self._thread:
            self._pace.rest()

    def _schedule(self) -> None:
        with self._guard:
            if self._is_due or self._loop is None:
                return
            self._is_due = True
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._guard:
            self._is_due = False
        light = {key: -1 for key in self._waiting_by_queue if is_lmq(key[0])}  # puts name only the topic
        for key, offset in list({**light, **self._undispatched}.items()):
            end = self._max_offset(*key)
            if end > offset:
                self._undispatched.pop(key, None)
            for one in [waiting for waiting in self._waiting_by_queue.get(key, ()) if waiting.offsets[key] < end]:
                self._finish(one, arrived=True)

    async def wait(self, offsets: Mapping[Key, int], seconds: float) -> bool:
        """Waits until one of some queues has a message at an offset; returns False if the time was up first.

        Args:
            offsets: of the message to wait for, by queue.
            seconds: how long.
        """
        loop = asyncio.get_running_loop()
        one = Waiting(offsets, loop.create_future(), None)
        one.timer = loop.call_later(seconds, lambda: self._finish(one, arrived=False))
        for key in offsets:
            self._waiting_by_queue.setdefault(key, []).append(one)
            if key in self._undispatched:
                self._pace.hurry()
        self.count += 1
        if any(self._max_offset(*key) > offset for key, offset in offsets.items()):  # between the look and the wait
            self._finish(one, arrived=True)
        try:
            return await one.future
        finally:
            self._finish(one, arrived=False)

    def wake(self, topic: str, queue_id: int) -> None:
        """Wakes every request that waits for a queue, whether there is a message or not."""
        for one in list(self._waiting_by_queue.get((topic, queue_id), ())):
            self._finish(one, arrived=True)

    def wake_all(self) -> None:
        """Wakes every request, because the broker stops."""
        self._pace.end()
        for waiting in list(self._waiting_by_queue.values()):
            for one in list(waiting):
                self._finish(one, arrived=True)

    def _finish(self, one: Waiting, *, arrived: bool) -> None:
        if one.timer is None:
            return
        one.timer.cancel()
        one.timer = None
        self.count -= 1
        for key in one.offsets:
            waiting = self._waiting_by_queue[key]
            waiting.remove(one)
            if not waiting:
                del self._waiting_by_queue[key]
        if not one.future.done():
            one.future.set_result(arrived)
