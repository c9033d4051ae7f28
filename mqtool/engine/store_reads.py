"""The reading half of `MessageStore`: everything that any thread may ask while others put."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mqtool.engine.batch_queue import BatchQueue
from mqtool.engine.filters import MessageFilter
from mqtool.engine.parts import Parts
from mqtool.engine.read import LONGEST_PULL
from mqtool.engine.statuses import GetResult, QueryResult
from mqtool.errors import StoreClosedError
from mqtool.formats import java
from mqtool.store.by_time import Boundary


class StoreReads:
    """Gets, queries, bounds. A closed store raises StoreClosedError."""

    _parts: Parts
    _closed: bool

    @property
    def _open(self) -> Parts:
        if self._closed:
            raise StoreClosedError("used after close", self._parts.root)
        return self._parts

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int = 32,
        message_filter: MessageFilter | None = None,
        max_bytes: int = LONGEST_PULL,
    ) -> GetResult:
        """Returns messages of a queue from an offset on, as many as the real store would return at once.

        Args:
            topic, queue_id: which queue.
            queue_offset: of the first message wanted.
            max_msg_nums: how many at most.
            message_filter: which of them; None for all.
            max_bytes: sum of their records' sizes, at most.
        """
        return self._open.reader.get_message(topic, queue_id, queue_offset, max_msg_nums, message_filter, max_bytes)

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the record at a physical offset, None if none begins there."""
        return self._open.searcher.record_at(physical_offset)

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = java.LONG_MAX, *, tag: bool = False
    ) -> QueryResult:
        """Returns messages by key, oldest first; a colliding hash lets others through, so compare the key.

        Args:
            topic: of the messages.
            key: one word of KEYS, or a unique key.
            max_num: how many at most; never more than the option `max_query`.
            begin, end: store timestamps, ms, both inclusive.
            tag: the key is a tag, which 5.5 indexes too.
        """
        return self._open.searcher.query(topic, key, max_num, begin, end, tag=tag)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Returns the queue offset of the first message at or after a time, or of the last at or before it.

        Args:
            topic, queue_id: which queue; one that is not there has 0.
            timestamp: ms since epoch.
            boundary: which of the two.
        """
        return self._open.searcher.offset_by_time(topic, queue_id, timestamp, boundary)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Returns (physical offset, size, tags code) of units from a queue offset on; of batch queues none."""
        queue = self._open.queues.get(topic, queue_id)
        if queue is None or isinstance(queue, BatchQueue):
            return []
        found = (queue.unit(number) for number in range(max(queue_offset, queue.min_offset), queue_offset + count))
        return [unit for unit in found if unit is not None]

    def earliest_store_time(self) -> int:
        """Returns the store timestamp of the first record in the log, -1 if there is none."""
        return self._open.searcher.earliest_store_time()

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns the store timestamp of a message, -1 if it is not there."""
        return self._open.searcher.store_time_of(topic, queue_id, queue_offset)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns (min offset, max offset) of a queue; (0, 0) if it is not there."""
        queue = self._open.queues.get(topic, queue_id)
        return (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def queues(self) -> list[tuple[str, int]]:
        """Returns topic and queue id of every queue."""
        return sorted(self._open.queues.by_key)

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte of the log that is there; -1 in an empty store."""
        return self._open.log.queue.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Physical offset after the last byte that can be read."""
        return self._open.log.queue.max_offset

    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is durable."""
        return self._open.log.queue.flushed_offset

    @property
    def dispatch_behind(self) -> int:
        """Bytes of the log that have not reached queues and index yet."""
        return self._open.loop.behind

    @property
    def is_page_cache_busy(self) -> bool:
        """Whether a put is stuck in the append lock: new ones are to be refused (OS_PAGE_CACHE_BUSY)."""
        return self._open.log.is_busy()

    def wait_for(self, topic: str, queue_id: int, queue_offset: int, timeout: float | None = None) -> bool:
        """Waits until a queue holds a message at an offset; returns whether it does."""
        queues = self._open.queues

        def arrived() -> bool:
            queue = queues.get(topic, queue_id)
            return queue is not None and queue.max_offset > queue_offset

        return self._parts.loop.wait_until(arrived, timeout)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Has a function called after each round of dispatch, in the dispatcher's thread; it must be quick."""
        self._open.loop.listeners.append(listener)

    @contextmanager
    def hold(self, physical_offset: int) -> Iterator[bool]:
        """Keeps the log file of an offset from being removed for as long as the block runs, within limits.

        Retention waits for holders `destroy_forcibly_ms`; views of records stay valid even after that.

        Yields:
            False if the file is not there or is going already.
        """
        file = self._open.log.queue.find(physical_offset)
        held = file is not None and file.hold()
        try:
            yield held
        finally:
            if file is not None and held:
                file.release()
