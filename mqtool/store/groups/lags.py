"""Lag of consumer groups."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from mqtool.store.queues.consume_queue import Queue

Positions = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Next queue offset by group, topic and queue id."""


class Lag(Struct, frozen=True):
    """Lag of a consumer group in one queue."""

    group: str  # and topic, queue_id: names group and queue
    topic: str
    queue_id: int
    consumer_offset: int  # next queue offset that the group reads
    min_offset: int | None  # and max_offset: of the queue; None if the queue does not exist
    max_offset: int | None
    lag: int | None  # number of unread messages; None if the queue does not exist


def lags_of(positions: Positions, queue_of: Callable[[str, int], Queue | None]) -> list[Lag]:
    """Compares consumer offsets with the queues; returns lags by group, topic and queue id."""
    lags = []
    for group, topics in sorted(positions.items()):
        for topic, offsets in sorted(topics.items()):
            for queue_id, offset in sorted(offsets.items()):
                queue = queue_of(topic, queue_id)
                low, high = (queue.min_offset, queue.max_offset) if queue else (None, None)
                lag = None if high is None else max(0, high - offset)
                lags.append(Lag(group, topic, queue_id, offset, low, high, lag))
    return lags
