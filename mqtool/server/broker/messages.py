"""The messages of a broker: parsed, read from a store that is served read-only, put into one that is open for writing.

`ReadOnlyMessages` has the reading methods of an open engine. It skips damaged messages: the next offset of an answer is
after them. Rules of a get: `store.queues.get_message`. `Writer` appends from one thread, that of the event loop; an
append is a copy into the page cache. With SYNC_FLUSH, the answer to a producer waits for a flush that its message
shares with others (`engine.flusher`). Source of the rewriting: HookUtils.handleScheduleMessage (5.5.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import structs

from mqtool.engine import (
    AppendStatus,
    GetResult,
    GetStatus,
    MessageStore,
    PutResult,
    PutStatus,
    QueryResult,
    StoreOptions,
)
from mqtool.engine.write.messages import Hook, OutgoingMessage, delay_message
from mqtool.errors import MessageRejectedError, StoreError
from mqtool.formats import commit_log, java, properties
from mqtool.formats.commit_log import Record
from mqtool.formats.index_file import TAG_MARK
from mqtool.store.queues.by_time import Boundary
from mqtool.store.queues.get_message import LONGEST_PULL, MessageFilter, get_message
from mqtool.store.queues.pull import QueueOnDisk, units_from
from mqtool.store.store import Store

_DELAY_MARK = properties.mark(properties.DELAY_LEVEL)
_APPENDED = AppendStatus.PUT_OK
_REFUSED = frozenset(
    {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED}
)
"""Put statuses caused by the message, not by the store; a retry would not help."""

Rewrite = Callable[[OutgoingMessage], OutgoingMessage | PutStatus]
Arrived = Callable[[str, int, int], None]
"""Called with topic, queue id and queue offset of each message that was put, before or after its dispatch."""

T = TypeVar("T")


class ParsedRecord(NamedTuple):
    """A record of the log with its parsed properties."""

    record: Record
    properties: dict[str, str]

    @property
    def topic(self) -> str:
        """Topic of the record."""
        return java.decode_utf8(self.record.topic)

    @property
    def unique_key(self) -> str:
        """Unique key; "" if there is none."""
        return self.properties.get(properties.UNIQUE_KEY, "")


def parsed_record(data: "memoryview | bytes") -> ParsedRecord:
    """Parses a record and its properties; raises FormatError if the bytes are not a record."""
    record = commit_log.parse_record(data)
    return ParsedRecord(record, properties.decode(record.properties))


def parsed_records(data: "memoryview | bytes") -> Iterator[ParsedRecord]:
    """Yields the records of an answer's body, which are one after the other."""
    view = memoryview(data)
    while view:
        message = parsed_record(view)
        yield message
        view = view[message.record.total_size :]


def requeued(
    message: ParsedRecord, topic: str, queue_id: int, changed: dict[str, str], store_host: bytes
) -> OutgoingMessage:
    """Returns a message with changed properties that repeats a stored one in another queue."""
    record = message.record
    return OutgoingMessage(
        topic,
        queue_id,
        record.body,
        properties.encode(changed.items()),
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        store_host,
        record.reconsume_times,
    )


def with_place(message: ParsedRecord, topic: str, queue_id: int, queue_offset: int, encoded: bytes) -> bytes:
    """Returns a record with another topic, queue id, queue offset and other properties, to be sent to a client."""
    name = java.encode_utf8(topic)
    record = message.record
    grown = len(name) - len(record.topic) + len(encoded) - len(record.properties)
    placed = structs.replace(
        record,
        total_size=record.total_size + grown,
        queue_id=queue_id,
        queue_offset=queue_offset,
        topic=name,
        topic_length=len(name),
        properties=encoded,
        properties_length=len(encoded),
    )
    return commit_log.build_record(placed)


class ReadOnlyMessages:
    """Reads a store, with the methods of `MessageStore`; `options` are those of a store opened for writing."""

    def __init__(self, store: Store, options: StoreOptions) -> None:
        self._store = store
        self.path: Path = store.path
        self.options = options

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int = 32,
        message_filter: MessageFilter | None = None,
        max_bytes: int = LONGEST_PULL,
    ) -> GetResult:
        """Returns messages of a queue from a queue offset on; the arguments are those of `MessageStore.get_message`."""
        queue = self._store.queue(topic, queue_id)
        view = None if queue is None else QueueOnDisk(queue)
        result = get_message(view, self, queue_offset, max_msg_nums, message_filter, max_bytes)
        if result.status is GetStatus.OFFSET_FOUND_NULL:  # at this status a consumer waits before the next pull
            following = min(result.max_offset, queue_offset + 1)
            return result._replace(status=GetStatus.NO_MATCHED_MESSAGE, next_begin_offset=following)
        return result

    # -- the log as a view (`store.queues.get_message.LogView`) ------------------------------------

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte."""
        return self._store.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset after the last readable byte."""
        return self._store.commit_log.max_offset

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Returns the bytes of a record; None if it is damaged or missing."""
        record = self._valid_record(physical_offset, size)
        return None if record is None else memoryview(commit_log.build_record(record))

    def after_missing(self, physical_offset: int) -> int:
        """Returns the offset unchanged, because the record after a damaged one may be valid."""
        return physical_offset

    def properties(self, record: memoryview) -> dict[str, str]:
        """Returns the properties of a record."""
        return properties.decode(commit_log.parse_record(record).properties)

    def _valid_record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Returns the record at a physical offset; None if it is damaged or missing."""
        try:
            record = self._store.commit_log.record(physical_offset, size)
        except StoreError:
            return None
        return record if commit_log.body_crc(record.body) == record.body_crc else None

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the record at a physical offset; None if no valid record begins there."""
        try:
            record = self._store.commit_log.record_at(physical_offset)
        except StoreError:
            return None
        return memoryview(commit_log.build_record(record))

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = java.LONG_MAX, *, tag: bool = False
    ) -> QueryResult:
        """Returns messages by key; the arguments are those of `MessageStore.query_message`."""
        messages = self._store.query_message(topic, TAG_MARK + key if tag else key, max_num, begin, end)
        files = self._store.index_files()
        newest = files[-1].header if files and messages else None
        updated = (newest.end_timestamp, newest.end_physical_offset) if newest is not None else (0, 0)
        offsets = [message.physical_offset for message in messages]
        records = [data for data in map(self.message_at, offsets) if data is not None]
        return QueryResult(records, offsets, *updated)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Returns a queue offset by time; the arguments are those of `MessageStore.offset_in_queue_by_time`."""
        return self._store.offset_in_queue_by_time(topic, queue_id, timestamp, boundary.value)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns the store timestamp of a message; -1 if the message is missing or damaged."""
        units = self.units(topic, queue_id, queue_offset, 1)
        record = self._valid_record(units[0][0], units[0][1]) if units else None
        return record.store_timestamp if record is not None else -1

    def earliest_store_time(self) -> int:
        """Returns the store timestamp of the first record; -1 for an empty log."""
        record = self._valid_record(self.min_physical_offset) if self._store.commit_log.segments else None
        return record.store_timestamp if record is not None else -1

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns (min offset, max offset) of a queue; as the engine for one that does not exist."""
        queue = self._store.queue(topic, queue_id)
        if queue is None:
            return -1 if topic in self._store.dispatch_rules.batch_topics else 0, 0
        return queue.min_offset, queue.max_offset

    def queues(self) -> list[tuple[str, int]]:
        """Returns (topic, queue id) of all queues."""
        return [(queue.topic, queue.queue_id) for queue in self._store.queues()]

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Returns (physical offset, size, tags code) of units from a queue offset on."""
        queue = self._store.queue(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return []
        units: list[tuple[int, int, int]] = []
        for unit in units_from(queue, queue_offset, count):
            if len(units) == count or unit.queue_offset >= queue.max_offset:
                break
            units.append((unit.physical_offset, unit.size, unit.tags_code))
        return units

    min_physical_offset, max_physical_offset = min_offset, max_offset

    @property
    def flushed_offset(self) -> int:
        """End of the log, since all of it is on disk."""
        return self.max_physical_offset

    @property
    def dispatch_behind(self) -> int:
        """Always 0: the queues appear as a broker's start would complete them."""
        return 0

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Does nothing, because no message will arrive."""


async def uninterrupted(work: Awaitable[T]) -> T:
    """Returns the result of work; if the current task is cancelled meanwhile, both continue as if it were not.

    Use it for work after which the task has to clean up what it did for a client that may have left.
    """
    future = asyncio.ensure_future(work)
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
    return future.result()


class Writer:
    """Puts messages. Must be used in the event loop's thread.

    `rewrites` has pairs of a mark in encoded properties and a function that rewrites messages with this mark.
    """

    def __init__(self, store: MessageStore, arrived: Arrived, settled: Callable[[], None]) -> None:
        """Creates a writer; `arrived` is called after each put, `settled` after each flush."""
        self._store = store
        self._arrived = arrived
        self._settled = lambda _flushed: settled()
        self._delay: Hook = delay_message(store.options)
        self.rewrites: list[tuple[bytes, Rewrite]] = [(_DELAY_MARK, self._delay)]
        self._sync = store.options.sync

    def put(self, message: OutgoingMessage) -> PutResult:
        """Appends one message; a delayed message is rewritten first. Use `flushed` to wait until it is durable."""
        rewritten = self._rewritten(message)
        return PutResult(rewritten) if isinstance(rewritten, PutStatus) else self.put_as_it_is(rewritten)

    def _rewritten(self, message: OutgoingMessage) -> OutgoingMessage | PutStatus:
        encoded = message.properties
        for mark, rewrite in self.rewrites:
            if mark in encoded:
                answer = rewrite(message)
                if isinstance(answer, PutStatus):
                    return answer
                message = answer
        return message

    def put_as_it_is(self, message: OutgoingMessage) -> PutResult:
        """Appends one message without rewriting; a delivered message still has the properties that delayed it."""
        result = self._store.put(*message, wait=False)
        if result.append_status is _APPENDED:
            self._arrived(message.topic, message.queue_id, result.queue_offset)
            if self._sync:
                self._flush_soon(result)
        return result

    def deliver(self, message: OutgoingMessage) -> PutResult:
        """Appends a due message, as `put_as_it_is`; raises MessageRejectedError if the store never accepts it."""
        result = self.put_as_it_is(message)
        if result.status in _REFUSED:
            raise MessageRejectedError(
                f"the store refuses the message for topic {message.topic}: {result.status.value}"
            )
        return result

    def put_batch(self, batch: OutgoingMessage) -> PutResult:
        """Appends the messages of a batch request, one record each.

        As in the real broker, a delayed batch goes into the timer topic, although its messages lack the properties that
        the timer needs.
        """
        rewritten = batch if self._store.options.release < (5, 0) else self._rewritten(batch)
        if isinstance(rewritten, PutStatus):
            return PutResult(rewritten)
        batch = rewritten
        result = self._store.put_batch(
            batch.topic,
            batch.queue_id,
            batch.body,
            batch.properties,
            batch.sys_flag,
            batch.born_timestamp,
            batch.born_host,
            batch.store_host,
            batch.reconsume_times,
            wait=False,
        )
        if result.ok:
            last = result.queue_offset + max(1, len(result.physical_offsets)) - 1
            self._arrived(batch.topic, batch.queue_id, last)
            if self._sync:
                self._flush_soon(result)
        return result

    def _flush_soon(self, result: PutResult) -> asyncio.Future[PutStatus]:
        """Returns the future status of a put. Every put needs the flush, because dispatch also waits for it."""
        future = self._store.wait_flushed_async(result.end)
        future.add_done_callback(self._settled)
        return future

    def flushed(self, result: PutResult, encoded: bytes = b"") -> asyncio.Future[PutStatus] | None:
        """Returns a future for the status of a put after its flush; None if the answer need not wait for a flush."""
        if not (self._sync and result.ok) or not properties.waits(encoded):
            return None
        return self._flush_soon(result)

    async def store(self, message: OutgoingMessage) -> PutResult:
        """Appends one message and waits until it is as durable as the store's flush mode requires."""
        result = self.put(message)
        future = self.flushed(result, message.properties)
        if future is None:
            return result
        return result._replace(status=await future)
