"""How far long work is and how fast it may be: the progress callback, and the limit of a rate."""

import time
from collections.abc import Callable
from typing import Protocol

OnProgress = Callable[[int, int], None]
"""`on_progress(done, total)`, called at intervals: how much is done, and of how much; bytes unless stated otherwise.

`done` grows; it may end before `total` where less had to be read than was there.
"""


def ignore(_done: int, _total: int) -> None:
    """The `OnProgress` of callers that want none."""


class Throttle:
    """Limits units, bytes or messages, to a rate per second."""

    def __init__(
        self,
        rate: float | None,
        on_spent: Callable[[int], None] | None = None,
        *,
        makes_up: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Starts the clock; the rate is in units per second, None for no limit.

        `on_spent` is called with each number of units. With `makes_up`, slower times are made up for later, so that the
        rate holds on average.
        """
        self._rate = rate
        self._on_spent = on_spent
        self._makes_up = makes_up
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def spend(self, count: int) -> None:
        """Counts units, and waits until the rate allows more."""
        if self._on_spent is not None:
            self._on_spent(count)
        if self._rate is None:
            return
        now = self._clock()
        begun = self._free_at if self._makes_up else max(self._free_at, now)
        self._free_at = begun + count / self._rate
        if self._free_at > now:
            self._sleep(self._free_at - now)


class Refillable(Protocol):
    """A file that can be read, such as a `store.files.ReadFile`."""

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes at a position."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fills a buffer; returns the number of bytes read."""

    def data_end(self) -> int:
        """Returns a position after which there are only zeros."""


class ThrottledFile:
    """A file that is read through a throttle."""

    def __init__(self, file: Refillable, throttle: Throttle) -> None:
        self._file, self._throttle = file, throttle

    def read(self, position: int, count: int) -> bytes:
        """Reads like `ReadFile.read`, at the limited rate."""
        data = self._file.read(position, count)
        self._throttle.spend(len(data))
        return data

    def read_into(self, position: int, target: memoryview) -> int:
        """Reads like `ReadFile.read_into`, at the limited rate."""
        count = self._file.read_into(position, target)
        self._throttle.spend(count)
        return count

    def data_end(self) -> int:
        """Returns a position after which the file holds only zeros."""
        return self._file.data_end()
