"""The fast paths of reads: unfiltered messages of a ConsumeQueue in one segment, and messages by key.

Compiled loops do them. Everything else (a filter, records in two segments, deleted records, keys that are not ASCII, no
compiled loops) is left to `store.get_message` and `Searcher.query`, whose rules apply; tests compare the two.
"""

from collections.abc import Callable
from typing import Any, Protocol

from mqtool.engine.index.index_files import Index
from mqtool.engine.queue.consume_queue import ConsumeQueue
from mqtool.engine.queue.queues import Queues
from mqtool.engine.read.record_views import RecordViews
from mqtool.engine.statuses import GetResult, QueryResult
from mqtool.engine.write.commit_log import CommitLog
from mqtool.kernels import kernels
from mqtool.store.get_message import LONGEST_PULL, SHORTEST_PULL, Found, GetLimits, GetStatus

FastGet = Callable[[str, int, int, int, int], GetResult | None]
"""Takes topic, queue id, queue offset, maximum number of messages and of bytes; returns None for the slow path."""

FastQuery = Callable[[str, str, int, int, int], QueryResult | None]
"""Takes topic, key, maximum number of messages, first and last store timestamp; returns None for the slow path."""

_FILE_NAMES = ["files", "file_from_offset", "size", "wrote", "committed", "pool_buffer", "available", "file", "_pin"]
_INDEX_NAMES = ["header", "slots", "entries", "begin_timestamp", "end_timestamp", "end_physical_offset", "index_count"]


def no_fast_get(_topic: str, _queue_id: int, _queue_offset: int, _most: int, _most_bytes: int) -> None:
    """Leaves every get to the slow path."""


def no_fast_query(_topic: str, _key: str, _most: int, _begin: int, _end: int) -> None:
    """Leaves every query to the slow path."""


class _Limited(Protocol):
    """Its limits may change; each get asks for them."""

    limits: GetLimits


def fast_get_of(queues: Queues, log: CommitLog, limited: _Limited) -> FastGet:
    """Returns the fast path for the queues of a store; `no_fast_get` if compiled loops are not in use."""
    compiled = kernels()
    if compiled is None:
        return no_fast_get
    fast_get: FastGet | None = compiled.plain_get(
        *_files_sink(log),
        queues.by_key,
        ConsumeQueue,
        limited,
        GetStatus.FOUND,
        Found,
        RecordViews,
        range,
        "min_offset",
        "limits",
        SHORTEST_PULL,
        LONGEST_PULL,
    )
    return fast_get or no_fast_get


def fast_query_of(index: Index | None, log: CommitLog) -> FastQuery:
    """Returns the fast path for the index of a store; `no_fast_query` if compiled loops are not in use."""
    compiled = kernels()
    if compiled is None or index is None:
        return no_fast_query
    fast_query: FastQuery | None = compiled.plain_query(*_files_sink(log), index, QueryResult, *_INDEX_NAMES)
    return fast_query or no_fast_query


def _files_sink(log: CommitLog) -> tuple[Any, ...]:
    """Returns the objects of `kernels.engine_files.FILES_SINK`."""
    return (None, False, True, tuple.__new__, log.queue, *_FILE_NAMES)
