"""Clock: the engine's only source of time, so that tests can hold it."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the engine asks of a clock."""

    def now(self) -> int:
        """Returns milliseconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Waits; a held clock moves on instead."""


class SystemClock:
    """The machine's clock."""

    @staticmethod
    def now() -> int:
        """Returns milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def sleep(seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)
