"""How fast messages are sent again, and how often it is written down how far they are."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from mqtool.errors import UsageError
from mqtool.jobs.throttle import Throttle

REMEMBER_SECONDS = 1.0
_CHUNKS_A_SECOND = 4
"""Minimum number of chunks a second under a rate: limits how early the last message of a chunk is sent."""

T = TypeVar("T")


def check_rate(rate: float | None) -> None:
    """Refuses an invalid rate.

    Raises:
        UsageError: it is not above 0.
    """
    if rate is not None and not rate > 0:
        raise UsageError(f"expected a rate above 0, found {rate}")


class Pace:
    """Chunks of a replay."""

    def __init__(self, rate: float | None, most: int) -> None:
        """Starts the clock.

        Args:
            rate: maximum messages a second, None for no limit.
            most: maximum messages in a chunk.
        """
        self._size = most if rate is None else min(most, max(1, int(rate / _CHUNKS_A_SECOND)))
        self._throttle = Throttle(rate, makes_up=True, clock=time.monotonic, sleep=time.sleep)
        self._remembered = time.monotonic()

    def chunks(self, items: Iterator[T]) -> Iterator[list[T]]:
        """Yields items in chunks; the next one comes when the rate allows for it."""
        while chunk := list(islice(items, self._size)):
            yield chunk
            self._throttle.spend(len(chunk))

    def is_time_to_remember(self) -> bool:
        """Whether enough time has passed since the last True, or since the start."""
        now = time.monotonic()
        if now - self._remembered < REMEMBER_SECONDS:
            return False
        self._remembered = now
        return True
