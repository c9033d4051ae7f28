"""An event loop whose time is part of the simulation: waiting costs nothing, and no thread is ever started."""

import asyncio
import contextlib
import random
import selectors
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

START = 1_700_000_000.0
"""Wall clock at the loop's time 0, seconds since the epoch."""


class _Selector(selectors.DefaultSelector):
    """Returns at once; what would have been waited for is added to the loop's time."""

    loop: "SimulatedLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise AssertionError("nothing is left that could ever happen")
            self.loop.now += max(0.0, timeout)
        return found


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Time moves when nothing else can happen.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self, chance: random.Random, now: float) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self.now = now
        self._chance = chance

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Does at once what a thread would do; the loop is told of it some time later."""
        future = self.create_future()
        try:
            result, error = func(*args), None
        except Exception as raised:  # noqa: BLE001 - it belongs to whoever waits
            result, error = None, raised

        def settle() -> None:
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)

        self.call_later(self._chance.random() * 0.01, settle)
        return future

    def wall_ns(self) -> int:
        """Returns the same in nanoseconds."""
        return int(self.wall() * 1e9)

    def wall(self) -> float:
        """Returns seconds since the epoch."""
        return START + self.now


@contextlib.contextmanager
def simulated_time(loop: SimulatedLoop) -> Iterator[None]:
    """Makes the loop's time everybody's time."""
    with (
        mock.patch.object(time, "time", loop.wall),
        mock.patch.object(time, "time_ns", loop.wall_ns),
        mock.patch.object(time, "monotonic", loop.time),
    ):
        yield


class LoopClock:
    """The engine's clock, on the loop's time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now(self) -> int:
        return int(self._loop.wall() * 1000)

    def sleep(self, seconds: float) -> None:
        self._loop.now += seconds
