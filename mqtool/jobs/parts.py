"""Cuts a range of bytes, such as a segment of a log, into parts that several processes read in parallel."""

from collections.abc import Callable, Iterator

PART_BYTES = 32 << 20
"""Bytes of a part whose result is in memory until it is put together with others, about."""


def cut(low: int, high: int, size: int, find: Callable[[int, int], int | None]) -> Iterator[int]:
    """Yields positions that cut a range into parts of about equal size.

    Args:
        low, high: bounds, half-open; neither is yielded.
        size: target size of a part, bytes.
        find: returns the first position in `[wanted, limit)` at which the range may be cut, such as the start of a
            record; None if there is none, and the two parts stay one.
    """
    count = max(1, round((high - low) / size))
    step = max(1, -(-(high - low) // count))
    before = low
    for target in range(low + step, high, step):
        place = find(max(target, before + 1), high)
        if place is not None:
            yield place
            before = place
