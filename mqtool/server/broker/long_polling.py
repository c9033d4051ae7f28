"""Long polling: holds requests for messages that have not arrived yet, until a message arrives or the time is up.

It also limits how often dispatch runs under load. A dispatch round has a fixed cost, and while it runs, it competes
with the event loop for the interpreter lock. In a large round the cost per message is small, so each round is followed
by a pause: a long one while no request waits for a message, a short one as soon as a request does. The first message
after an idle time is dispatched at once. The real broker pauses for a millisecond after each round
(ReputMessageService.run, 5.5.0). Source: PullRequestHoldService, NotifyMessageArrivingListener, PopLongPollingService
(5.5.0).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

from mqtool.formats.topics import is_lmq
from mqtool.server.clock import ServerClock, Timer

LONGEST_REST_S = 0.01
"""Length of a pause in seconds while no request waits."""
SHORT_REST = 2
"""Length of a pause while a request waits, as a multiple of the CPU time of the round."""


class Pace:
    """Controls the pauses of a dispatch thread."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._worked = 0.0
        self._is_over = False

    def wake(self) -> None:
        """Ends the current pause, because a request waits for a message that was put. Any thread may call it."""
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        """Ends the current pause; later calls of `rest` do not pause."""
        self._is_over = True
        self._woken.set()

    def pause(self) -> None:
        """Pauses after a round. Must be called in the dispatch thread."""
        if self._is_over:
            return
        # CPU time of this thread since the last pause; waiting does not count.
        spent = max(0.0, time.thread_time() - self._worked)
        time.sleep(min(LONGEST_REST_S, SHORT_REST * spent))
        self._woken.wait(LONGEST_REST_S)
        self._woken.clear()
        self._worked = time.thread_time()


Key = tuple[str, int]
"""(topic, queue id)."""

_CATCH_UP_S = 0.2


class WaitingRequest:
    """A request that waits until one of its queues has a message at a given queue offset."""

    __slots__ = ("future", "offsets", "timer")

    def __init__(self, offsets: Mapping[Key, int], future: "asyncio.Future[bool]") -> None:
        self.offsets = offsets
        self.future = future
        self.timer: Timer | None = None


class LongPolling:
    """The requests that wait for messages, by queue. Must be used in the event loop's thread, except `dispatched`.

    `count` is the number of waiting requests; none waits longer than `longest_s`, whatever it asks for.
    """

    longest_s = 30.0

    def __init__(self, max_offset: Callable[[str, int], int], clock: ServerClock) -> None:
        """Creates the table; `max_offset` returns the max offset of a topic's queue, `clock` is used for all waits."""
        self.count = 0
        self._max_offset, self._clock = max_offset, clock
        self._waiting_by_queue: dict[Key, list[WaitingRequest]] = {}
        self._undispatched: dict[Key, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._is_due = self._is_over = False
        self._guard = threading.Lock()
        self._pace = Pace()

    def seconds(self, wanted_ms: int) -> float:
        """Returns how long a request that asks for `wanted_ms` waits, in seconds."""
        return min(max(0, wanted_ms) / 1000, self.longest_s)

    def start(self) -> None:
        """Starts to wake waiting requests, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def touch(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Records that a message was put to a queue; consumers can get it after its dispatch."""
        key = (topic, queue_id)
        self._undispatched[key] = queue_offset
        if key in self._waiting_by_queue:
            self._pace.wake()
            self._schedule()  # dispatch may have finished before this call

    def flushed(self) -> None:
        """Records that messages were flushed; with SYNC_FLUSH they may be dispatched only after that."""
        if self._waiting_by_queue:
            self._pace.wake()

    def waiting(self, topic: str, queue_id: int) -> int:
        """Returns the number of requests that wait for a queue."""
        return len(self._waiting_by_queue.get((topic, queue_id), ()))

    def is_expected(self, topic: str, queue_id: int) -> bool:
        """Whether a message was put to a queue and may not have been dispatched yet."""
        offset = self._undispatched.get((topic, queue_id))
        return offset is not None and self._max_offset(topic, queue_id) <= offset

    async def caught_up(self, topic: str, queue_id: int) -> None:
        """Waits until the messages put to a queue so far are dispatched, but at most 0.2 s."""
        if self.is_expected(topic, queue_id):
            await self.wait({(topic, queue_id): self._undispatched[topic, queue_id]}, _CATCH_UP_S)

    def dispatched(self) -> None:
        """Records that units were written.

        Called by the event loop's thread, or by the dispatch thread, which pauses here.
        """
        if self._waiting_by_queue:
            self._schedule()
        if threading.get_ident() != self._thread:
            self._pace.pause()

    def _schedule(self) -> None:
        with self._guard:
            if self._is_due or self._loop is None:
                return
            self._is_due = True
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._guard:
            self._is_due = False
        light = {key: -1 for key in self._waiting_by_queue if is_lmq(key[0])}  # a put names only the parent topic
        for key, offset in list({**light, **self._undispatched}.items()):
            end = self._max_offset(*key)
            if end > offset:
                self._undispatched.pop(key, None)
            for request in [waiting for waiting in self._waiting_by_queue.get(key, ()) if waiting.offsets[key] < end]:
                self._finish(request, arrived=True)

    async def wait(self, offsets: Mapping[Key, int], seconds: float) -> bool:
        """Waits until one of several queues has a message at its offset; returns False if the time is up first."""
        request = WaitingRequest(offsets, asyncio.get_running_loop().create_future())
        request.timer = self._clock.call_later(seconds, lambda: self._finish(request, arrived=False))
        for key in offsets:
            self._waiting_by_queue.setdefault(key, []).append(request)
            if key in self._undispatched:
                self._pace.wake()
        self.count += 1
        has_arrived = any(self._max_offset(*key) > offset for key, offset in offsets.items())  # before the wait began
        if has_arrived or self._is_over:
            self._finish(request, arrived=True)
        try:
            return await request.future
        finally:
            self._finish(request, arrived=False)

    def wake(self, topic: str, queue_id: int) -> None:
        """Wakes all requests that wait for a queue, whether it has a message or not."""
        for request in list(self._waiting_by_queue.get((topic, queue_id), ())):
            self._finish(request, arrived=True)

    def wake_all(self) -> None:
        """Wakes all requests, because the broker is shutting down; later ones do not wait."""
        self._is_over = True
        self._pace.stop()
        for waiting in list(self._waiting_by_queue.values()):
            for request in list(waiting):
                self._finish(request, arrived=True)

    def _finish(self, request: WaitingRequest, *, arrived: bool) -> None:
        if request.timer is None:
            return
        request.timer.cancel()
        request.timer = None
        self.count -= 1
        for key in request.offsets:
            waiting = self._waiting_by_queue[key]
            waiting.remove(request)
            if not waiting:
                del self._waiting_by_queue[key]
        if not request.future.done():
            request.future.set_result(arrived)
