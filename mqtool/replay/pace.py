"""Limits the rate of a replay, and decides how often its position is saved."""

import math
import time
from collections.abc import Iterator
from typing import TypeVar

from mqtool.errors import UsageError
from mqtool.ingest.bulk_ingest import HasMessage, take
from mqtool.jobs.progress import Throttle

REMEMBER_SECONDS = 1.0
_SLOWEST = 1e-6
"""Messages a second."""
_CHUNKS_A_SECOND = 4
"""Minimum number of chunks per second under a rate limit; no message is sent more than a quarter of a second early."""

T = TypeVar("T", bound=HasMessage)


def check_rate(rate: float | None) -> None:
    """Checks a rate.

    Raises:
        UsageError: the rate is not above 0, is infinite, or so small that no clock can wait for the next message.
    """
    if rate is not None and not _SLOWEST <= rate < math.inf:
        raise UsageError(f"expected a rate above 0 and from {_SLOWEST:g} on, found {rate:g}")


class Pace:
    """Splits a replay into chunks and delays them to keep the rate."""

    def __init__(self, rate: float | None, max_size: int) -> None:
        """Starts the clock.

        Args:
            rate: maximum messages per second; None for no limit.
            max_size: maximum messages in a chunk.
        """
        self._size = max_size if rate is None else min(max_size, max(1, int(rate / _CHUNKS_A_SECOND)))
        self._throttle = Throttle(rate, makes_up=True, clock=time.monotonic, sleep=time.sleep)
        self._saved = time.monotonic()

    def chunks(self, items: Iterator[T]) -> Iterator[list[T]]:
        """Yields items in chunks; waits after each chunk until the rate allows the next one."""
        while chunk := take(items, self._size):
            yield chunk
            self._throttle.spend(len(chunk))

    def is_save_due(self) -> bool:
        """Whether it is time to save the position: REMEMBER_SECONDS after the start, or after the last True."""
        now = time.monotonic()
        if now - self._saved < REMEMBER_SECONDS:
            return False
        self._saved = now
        return True
