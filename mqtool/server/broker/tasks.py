"""Runs the background services of a broker until it stops, and work that must not be interrupted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

_LOG = logging.getLogger(__name__)

_SHORTEST_S = 0.05
_AFTER_FAILURE_S = 1.0

T = TypeVar("T")


async def uninterrupted(work: Awaitable[T]) -> T:
    """Returns the result of work; if the current task is cancelled meanwhile, both continue as if it were not.

    Use it for work after which the task has to clean up what it did for a client that may have left.
    """
    future = asyncio.ensure_future(work)
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
    return future.result()


class Tasks:
    """The background tasks of one broker. Must be used in the event loop's thread."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs a coroutine until it ends or the broker stops; a failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a service ended error=%r", task.exception())

    def forever(self, turn: Callable[[], Awaitable[float] | float]) -> None:
        """Runs a service repeatedly until the broker stops; an error is logged, and the next run tries again.

        Args:
            turn: one run of the service; returns the seconds until the next run.
        """
        self.spawn(self._turns(turn))

    @staticmethod
    async def _turns(turn: Callable[[], Awaitable[float] | float]) -> None:
        failure = ""
        while True:
            try:
                pause = turn()
                seconds = pause if isinstance(pause, int | float) else await pause
                failure = ""
            except Exception as error:  # noqa: BLE001 - the service continues whatever happens
                seconds = _AFTER_FAILURE_S
                if repr(error) != failure:  # log a persistent error, such as a full disk, only once
                    failure = repr(error)
                    _LOG.error("a turn failed work=%s error=%s", getattr(turn, "__qualname__", turn), failure)
            await asyncio.sleep(seconds)

    def every(self, seconds: Callable[[], float], work: Callable[[], Awaitable[None] | None]) -> None:
        """Runs work at intervals until the broker stops.

        Args:
            seconds: returns the interval; called before each wait.
            work: the work; an exception is logged, and the next run tries again.
        """
        self.spawn(self._repeat(seconds, work))

    @staticmethod
    async def _repeat(seconds: Callable[[], float], work: Callable[[], Awaitable[None] | None]) -> None:
        while True:
            await asyncio.sleep(max(_SHORTEST_S, seconds()))
            try:
                awaitable = work()
                if awaitable is not None:
                    await awaitable
            except Exception as error:  # noqa: BLE001 - as above
                _LOG.error("a turn failed work=%s error=%r", getattr(work, "__qualname__", work), error)

    async def stop(self) -> None:
        """Cancels all tasks and waits until they have ended."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
