"""Clock: the only source of time of engine and server, so that tests can control it."""

import time
from typing import Protocol


class Clock(Protocol):
    """The interface of a clock."""

    def now(self) -> int:
        """Returns milliseconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Waits; a simulated clock advances instead."""


class SystemClock:
    """The machine's clock."""

    @staticmethod
    def now() -> int:
        """Returns milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def monotonic() -> float:
        """Returns seconds since an arbitrary time in the past; never goes back."""
        return time.monotonic()

    @staticmethod
    def sleep(seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)
