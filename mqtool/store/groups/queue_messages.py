"""Queues as plans for consumer positions need them: bounds, offsets by time, and messages by queue offset.

A store answers from its files; `mqtool.server.offsets` asks a running broker.
"""

from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from mqtool.store.log.message import Message
from mqtool.store.store import Store

_AT_ONCE = 32


class QueueMessage(Struct, frozen=True):
    """Summary of a message in a queue."""

    queue_offset: int  # its place
    store_time: int  # ms since the epoch
    key: str | None  # its first key, otherwise its unique key; None if it has neither
    message_id: str  # offset message id

    @classmethod
    def of(cls, message: Message) -> "QueueMessage":
        """Returns the summary of a message."""
        key = next(iter(message.keys), message.unique_key)
        return cls(message.queue_offset, message.store_timestamp, key, message.offset_message_id)


class QueueMessages(Protocol):
    """Queues and their messages."""

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Returns the queue ids of each topic that has queues."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Returns minimum and maximum offset of a queue; None if it is missing."""

    def at_time(self, topic: str, queue_id: int, time: int) -> int:
        """Returns the queue offset for a store time in ms, as the broker does (getOffsetInQueueByTime)."""

    def messages(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[QueueMessage]:
        """Yields the messages with queue offsets in [start, end) that can be read, in order."""

    def message(self, topic: str, queue_id: int, queue_offset: int) -> QueueMessage | None:
        """Returns one message; None if it cannot be read."""


class StoredQueues:
    """The queues of a store on disk; after a crash as a broker's start completes them."""

    def __init__(self, store: Store) -> None:
        """Takes an open store."""
        self._store = store

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Returns the queue ids of each topic that has queues."""
        queue_ids: dict[str, list[int]] = {}
        for queue in self._store.queues():
            queue_ids.setdefault(queue.topic, []).append(queue.queue_id)
        return {topic: tuple(ids) for topic, ids in queue_ids.items()}

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Returns minimum and maximum offset of a queue; None if it is missing."""
        queue = self._store.queue(topic, queue_id)
        return None if queue is None else (max(0, queue.min_offset), max(0, queue.max_offset))

    def at_time(self, topic: str, queue_id: int, time: int) -> int:
        """Returns the queue offset for a store time in ms, as the broker does (getOffsetInQueueByTime)."""
        return max(0, self._store.offset_in_queue_by_time(topic, queue_id, time))

    def messages(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[QueueMessage]:
        """Yields the messages with queue offsets in [start, end) that can be read, in order."""
        at = start
        while at < end:
            result = self._store.get_message(topic, queue_id, at, min(_AT_ONCE, end - at))
            for message in result.messages:
                if start <= message.queue_offset < end:
                    yield QueueMessage.of(message)
            if result.next_begin_offset <= at:
                return
            at = result.next_begin_offset

    def message(self, topic: str, queue_id: int, queue_offset: int) -> QueueMessage | None:
        """Returns one message; None if it cannot be read."""
        return next(self.messages(topic, queue_id, queue_offset, queue_offset + 1), None)
