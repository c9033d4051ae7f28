"""Reading no faster than asked for, so that a broker on the same disk is not disturbed."""

import time
from collections.abc import Callable
from typing import Protocol


class Readable(Protocol):
    """What is read: a `store.files.ReadFile`."""

    def read(self, position: int, count: int) -> bytes:
        """Returns the bytes at a position."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fills a buffer; returns how much of it."""

    def data_end(self) -> int:
        """Returns a position after which there are only zeros."""


class Throttle:
    """Lets so many bytes a second through."""

    def __init__(
        self,
        rate: int | None,
        tick: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Starts the clock.

        Args:
            rate: bytes per second; None for no limit.
            tick: told of all bytes.
            clock, sleep: of the system.
        """
        self._rate = rate
        self._tick = tick
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def spend(self, count: int) -> None:
        """Takes note of bytes that were read, and waits until they are paid for."""
        if self._tick is not None:
            self._tick(count)
        if self._rate is None:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._rate
        if self._free_at > now:
            self._sleep(self._free_at - now)


class ThrottledFile:
    """A file whose bytes are read through a throttle."""

    def __init__(self, file: Readable, throttle: Throttle) -> None:
        self._file, self._throttle = file, throttle

    def read(self, position: int, count: int) -> bytes:
        """Reads as `ReadFile.read`, and pays."""
        data = self._file.read(position, count)
        self._throttle.spend(len(data))
        return data

    def read_into(self, position: int, target: memoryview) -> int:
        """Reads as `ReadFile.read_into`, and pays."""
        count = self._file.read_into(position, target)
        self._throttle.spend(count)
        return count

    def data_end(self) -> int:
        """Returns a position after which the file holds only zeros."""
        return self._file.data_end()
