"""The fast path for the most common get: unfiltered messages of a ConsumeQueue, all of them in one segment.

A compiled loop does it. Everything else (a filter, records in two segments, deleted records, no compiled loops) is
left to `store.get_message`, whose rules apply; a test compares the two.
"""

from collections.abc import Callable
from typing import Protocol

from mqtool.engine.queue.consume_queue import ConsumeQueue
from mqtool.engine.queue.queues import Queues
from mqtool.engine.read.record_views import RecordViews
from mqtool.engine.statuses import GetResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.kernels import kernels
from mqtool.store.get_message import LONGEST_PULL, SHORTEST_PULL, Found, GetLimits, GetStatus

FastGet = Callable[[str, int, int, int, int], GetResult | None]
"""Takes topic, queue id, queue offset, maximum number of messages and of bytes; returns None for the slow path."""


def no_fast_get(_topic: str, _queue_id: int, _queue_offset: int, _most: int, _most_bytes: int) -> None:
    """Leaves every get to the slow path."""


class _Limited(Protocol):
    """Its limits may change; each get asks for them."""

    limits: GetLimits


def fast_get_of(queues: Queues, log: CommitLog, limited: _Limited) -> FastGet:
    """Returns the fast path for the queues of a store; `no_fast_get` if compiled loops are not in use."""
    compiled = kernels()
    if compiled is None:
        return no_fast_get
    found: FastGet | None = compiled.plain_get(
        None,
        False,
        True,
        queues.by_key,
        ConsumeQueue,
        log.queue,
        limited,
        GetStatus.FOUND,
        Found,
        tuple.__new__,
        RecordViews,
        range,
        "files",
        "min_offset",
        "file_from_offset",
        "size",
        "wrote",
        "committed",
        "pool_buffer",
        "available",
        "file",
        "_pin",
        "limits",
        SHORTEST_PULL,
        LONGEST_PULL,
    )
    return found or no_fast_get
