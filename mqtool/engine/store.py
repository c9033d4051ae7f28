"""MessageStore: open, put, get, query, close. The façade of the engine.

One process may write to a store; the lock file ensures it. Within that process any thread may call any method, and
the append lock serialises puts. Docs page: docs/engine.md.

`put` is the engine's hottest function. A plain message is appended by `native.engine`, if it was compiled; all others
by `write.messages`. Source: CommitLog.asyncPutMessage, DefaultMessageStore.asyncPutMessage/waitForPutResult (4.9.7,
5.5.0).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqtool import native
from mqtool.engine.clock import Clock, SystemClock
from mqtool.engine.components import Components, assemble, flush_all, named_errors, shut_down
from mqtool.engine.disk.files import Files
from mqtool.engine.options import StoreOptions
from mqtool.engine.queues import BatchQueue
from mqtool.engine.retention.rules import EarlyDeletion, RetentionPolicy, Verdict
from mqtool.engine.statuses import AppendStatus, GetResult, PutResult, PutStatus, QueryResult, RunningFlag
from mqtool.engine.write.columns import MessageColumns, PutManyResult, append_columns
from mqtool.engine.write.commit_log import CommitLog
from mqtool.engine.write.messages import NOT_PLAIN, BatchMessage, Hook, OutgoingMessage, append, append_batch
from mqtool.errors import StoreClosedError
from mqtool.formats import java
from mqtool.formats import properties as property_format
from mqtool.store.files import Closing
from mqtool.store.queues.by_time import Boundary
from mqtool.store.queues.get_message import LONGEST_PULL, MessageFilter

Append = Callable[..., PutResult | None]
"""Returns None, changing nothing, if `write.messages.append` or `append_batch` must be called instead."""

if TYPE_CHECKING:
    import asyncio

    from mqtool.engine.dispatcher import BitMapOf
    from mqtool.engine.flusher import AsyncCommit


class MessageStore(Closing):
    """One store, open for writing. Use `open_store`, and close it, or use it as a context manager.

    Attributes:
        path: root directory of the store.
        options: the options that it was opened with.
        recovered: what recovery did when it was opened.
    """

    def __init__(self, components: Components, hooks: Iterable[Hook]) -> None:
        self._components = components
        self.path = components.root
        self.options = components.options
        self.recovered = components.recovered
        self._closed = False
        options = components.options
        self._hooks = tuple(hooks)
        self._log: CommitLog = components.log
        self._loop = components.loop
        self._flags = components.flags
        self._store_host = components.log.store_host
        self._append: Append = _not_compiled
        self._append_batch: Append = _not_compiled
        self._sync = options.sync
        self._async_commit: AsyncCommit | None = None
        if not native.in_use() or options.append_record_crc or options.positional_writes or self._hooks:
            return
        clock = None if isinstance(components.clock, SystemClock) else components.clock.now
        stored = PutResult, PutStatus.PUT_OK, AppendStatus.PUT_OK
        appender = native.engine.Appender(self._log, self._flags, clock, *stored, BatchMessage, NOT_PLAIN)
        self._append, self._append_batch = appender.put, appender.put_batch

    @property
    def _open(self) -> Components:
        if self._closed:
            raise StoreClosedError("used after close", self._components.root)
        return self._components

    @property
    def writable(self) -> bool:
        """Whether messages are accepted: nothing has failed, and the disk is not full."""
        return not self._open.flags.refuses

    @property
    def disk_is_full(self) -> bool:
        """Whether messages are refused because the disk is too full."""
        return RunningFlag.DISK_FULL in self._open.flags

    # -- puts ----------------------------------------------------------------------------------------------------------

    @property
    def default_store_host(self) -> bytes:
        """The store host of records whose caller gives none; 8 or 20 bytes."""
        return self._store_host

    def put(  # noqa: PLR0917 - the fields of a record; keywords would cost a tenth of the call
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: bytes | None = None,
        store_host: bytes | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        *,
        wait: bool = True,
    ) -> PutResult:
        """Stores one message.

        On return it is durable with SYNC_FLUSH (unless its property WAIT says not to wait). With ASYNC_FLUSH it
        survives a kill of the process, but a power cut only after the next flush; with a transient store pool it
        survives a kill only after the next commit.

        Args:
            topic: any name that can be a directory.
            queue_id: 0 or above.
            body: the bytes to store; sys_flag states whether they are compressed.
            properties: encoded (`formats.properties.encode`); their order is kept.
            flag: the application's integer.
            sys_flag: bits of compression, transaction and batch; the bits of IPv6 hosts are set here.
            born_timestamp: ms since epoch; None for the current time.
            born_host, store_host: 8 or 20 bytes (`formats.hosts.build`); None for those of the options.
            reconsume_times: how often a consumer sent it back.
            prepared_transaction_offset: physical offset of the half message, for a committed one.
            wait: False to return before the flush of SYNC_FLUSH; then `wait_flushed` waits for it.

        Returns:
            Status and position. A message that the broker refuses is refused with the same status.
        """
        result = self._append(
            topic,
            queue_id,
            body,
            properties,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
        )
        if result is None:
            message = OutgoingMessage(
                topic,
                queue_id,
                body,
                properties,
                flag,
                sys_flag,
                born_timestamp,
                born_host,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
            )
            return self._put(message, wait=wait)
        if self._sync:
            return self._finish(result, properties, wait=wait)
        if self._loop.idle:
            self._loop.wake()
        return result

    def _put(self, message: OutgoingMessage, *, wait: bool) -> PutResult:
        """Stores a message of any kind, after the hooks, and waits for its flush if SYNC_FLUSH and WAIT require it."""
        for hook in self._hooks:
            answer = hook(message)
            if isinstance(answer, PutStatus):
                return PutResult(answer)
            message = answer
        return self._finish(append(self._log, message), message.properties, wait=wait)

    async def put_async(  # noqa: PLR0917 - in the order of `put`
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: bytes | None = None,
        store_host: bytes | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> PutResult:
        """Stores one message as `put` does; with SYNC_FLUSH the event loop continues while the message is flushed.

        The message is in the log as soon as the coroutine runs, so messages of one task, or of tasks in the order in
        which they were created, keep their order. All waiting puts share flushes. If the wait is cancelled, the
        message stays in the log and is still flushed. Only `asyncio.timeout` limits the wait. Without SYNC_FLUSH the
        call returns immediately, without yielding to other tasks. The status is FLUSH_DISK_TIMEOUT if the flush failed.
        """
        result = self.put(
            topic,
            queue_id,
            body,
            properties,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            wait=False,
        )
        if not self._sync or not result.ok or not property_format.waits(properties):
            return result
        status = await self.wait_flushed_async(result.end)
        return result if status is PutStatus.PUT_OK else result._replace(status=status)

    def wait_flushed_async(self, end: int) -> "asyncio.Future[PutStatus]":
        """Returns the future result of `wait_flushed` for the running event loop; for puts with `wait=False`."""
        if self._async_commit is None:
            from mqtool.engine.flusher import AsyncCommit  # noqa: PLC0415 - asyncio takes time to load

            with self._log.lock:
                if self._async_commit is None:
                    self._async_commit = AsyncCommit(self.wait_flushed, lambda: self._log.queue.flushed_offset)
        return self._async_commit.flushed(end)

    def put_batch(  # noqa: PLR0917 - in the order of `put`
        self,
        topic: str,
        queue_id: int,
        messages: "bytes | Iterable[BatchMessage]",
        properties: bytes = b"",
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: bytes | None = None,
        store_host: bytes | None = None,
        reconsume_times: int = 0,
        *,
        wait: bool = True,
    ) -> PutResult:
        """Stores messages of one queue atomically: contiguous in one segment, or not at all; durable as after `put`.

        `messages` may be the body of a client's batch request; 4.9 adds the batch's `properties` to those of every
        message. Other arguments are those of `put`. Returns status and position of the first, with the physical offsets
        of all.
        """
        if not properties and not isinstance(messages, bytes | bytearray | memoryview):
            messages = list(messages)
        if not properties:
            hosts = born_host, store_host
            result = self._append_batch(topic, queue_id, messages, sys_flag, born_timestamp, *hosts, reconsume_times)
            if result is not None:
                return self._finish(result, b"", wait=wait)
        result = append_batch(
            self._log,
            topic,
            queue_id,
            messages,
            properties,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
        )
        return self._finish(result, properties, wait=wait)

    def put_many(self, messages: MessageColumns) -> PutManyResult:
        """Stores messages given as columns, in order, each as `put` would; stops at the first that is refused.

        Durable on return as after `put`; with SYNC_FLUSH all share one flush. The status is that of the first one
        refused.
        """

        def put(message: OutgoingMessage) -> PutResult:
            return self.put(*message, wait=False)

        result = append_columns(self._log, messages, put, may_compile=not self._hooks)
        if result.end >= 0 and self._components.options.sync:
            status = self._components.flusher.group.wait(result.end)
            result = result if status is PutStatus.PUT_OK else result._replace(status=status)
        if self._loop.idle:
            self._loop.wake()
        return result

    def wait_flushed(self, end: int) -> PutStatus:
        """Waits until the log is durable up to a physical offset, as a put with SYNC_FLUSH does."""
        status = self._components.flusher.group.wait(end)
        if self._loop.idle:
            self._loop.wake()
        return status

    def _finish(self, result: PutResult, properties: bytes, *, wait: bool) -> PutResult:
        """Wakes dispatch, and waits for the flush if SYNC_FLUSH and the message's WAIT property require it."""
        if not result.ok:
            return result
        if wait and self._sync and property_format.waits(properties):
            status = self._components.flusher.group.wait(result.end)
            result = result if status is PutStatus.PUT_OK else result._replace(status=status)
        if self._loop.idle:
            self._loop.wake()
        return result

    # -- reads ---------------------------------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int = 32,
        message_filter: MessageFilter | None = None,
        max_bytes: int = LONGEST_PULL,
    ) -> GetResult:
        """Returns messages of a queue starting at an offset, as many as the broker would return in one answer.

        `max_bytes` limits the sum of the records' sizes.
        """
        return self._open.reader.get_message(topic, queue_id, queue_offset, max_msg_nums, message_filter, max_bytes)

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the record at a physical offset, None if no record starts there."""
        return self._open.searcher.record_at(physical_offset)

    def query_message(
        self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = java.LONG_MAX, *, tag: bool = False
    ) -> QueryResult:
        """Returns messages by key, oldest first. The index stores hashes: compare the key, since hashes may collide.

        Args:
            topic, key: one word of KEYS, or a unique key, of messages of a topic.
            max_num: maximum number of messages; the option `max_query` limits it further.
            begin, end: store timestamps, ms, both inclusive.
            tag: True if the key is a tag, which 5.5 indexes too.
        """
        return self._open.searcher.query(topic, key, max_num, begin, end, tag=tag)

    def offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Returns the queue offset of the first message at or after a time (ms), or of the last at or before it.

        0 is returned for a queue that does not exist.
        """
        return self._open.searcher.offset_by_time(topic, queue_id, timestamp, boundary)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Returns (physical offset, size, tags code) of units starting at a queue offset; [] for batch queues."""
        queue = self._open.queues.get(topic, queue_id)
        if queue is None or isinstance(queue, BatchQueue):
            return []
        units = (queue.unit(number) for number in range(max(queue_offset, queue.min_offset), queue_offset + count))
        return [unit for unit in units if unit is not None]

    def earliest_store_time(self) -> int:
        """Returns the store timestamp of the first record in the log, -1 if there is none."""
        return self._open.searcher.earliest_store_time()

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Returns the store timestamp of a message in ms, -1 if there is no such message."""
        return self._open.searcher.store_time_of(topic, queue_id, queue_offset)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns (min offset, max offset) of a queue; (0, 0) if it does not exist, (-1, 0) in a topic of batches."""
        queue = self._open.queues.get(topic, queue_id)
        return (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def queues(self) -> list[tuple[str, int]]:
        """Returns topic and queue id of every queue."""
        return sorted(self._open.queues.by_key)

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte of the oldest segment; -1 in an empty store."""
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
        """Bytes of the log that are not dispatched to queues and index yet."""
        return self._open.loop.behind

    @property
    def is_page_cache_busy(self) -> bool:
        """Whether a put has held the append lock for too long: new puts get OS_PAGE_CACHE_BUSY."""
        return self._open.log.is_busy()

    def wait_for(self, topic: str, queue_id: int, queue_offset: int, timeout: float | None = None) -> bool:
        """Waits until a queue has a message at an offset; returns False after the timeout (s)."""
        queues = self._open.queues

        def arrived() -> bool:
            queue = queues.get(topic, queue_id)
            return queue is not None and queue.max_offset > queue_offset

        return self._components.loop.wait_until(arrived, timeout)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Registers a function to call after each round of dispatch, in the dispatcher's thread; it must not block."""
        self._open.loop.listeners.append(listener)

    @contextmanager
    def hold(self, physical_offset: int) -> Iterator[bool]:
        """Keeps the segment of an offset from being deleted while the block runs.

        Retention waits `destroy_forcibly_ms` for holders; views of records stay valid even after that. Yields False if
        there is no such segment or its deletion has begun.
        """
        file = self._open.log.queue.find(physical_offset)
        is_held = file is not None and file.hold()
        try:
            yield is_held
        finally:
            if file is not None and is_held:
                file.release()

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def dispatch(self) -> int:
        """Dispatches all records that are not dispatched yet, in this thread; returns how many.

        Units are in the page cache on return. With background threads it is needed only to wait until queues and index
        contain every message so far. Raises StoreError if something could not be written.
        """
        with named_errors(self.path):
            return self._open.loop.turn()

    def flush(self) -> int:
        """Flushes log, queues, index and checkpoint; returns the physical offset up to which the log is durable.

        If it raises StoreError, messages since the last flush may be lost, and no more are accepted.
        """
        with named_errors(self.path):
            return flush_all(self._open)

    def clean(self) -> list[Path]:
        """Runs retention once, in this thread; returns the files that it deleted."""
        with named_errors(self.path):
            return self._open.cleaner.turn()

    def clean_soon(self) -> None:
        """Makes the next runs of retention delete expired files at any hour (not only at `delete_hours`)."""
        self._open.cleaner.request()

    def retention(self) -> list[Verdict]:
        """Returns what the next run of retention would do to each segment, and why."""
        return self._open.cleaner.verdicts()

    def add_batch_topic(self, topic: str) -> None:
        """Makes the queues of a new topic BatchConsumeQueues; does nothing if the topic has queues already."""
        with self._log.lock:
            components = self._open
            known = {name for name, _ in tuple(components.offsets.states)}
            if topic in components.offsets.batch_topics | known:
                return
            components.offsets.batch_topics |= {topic}
            components.queues.add_batch_topic(topic)
            components.dispatcher.add_batch_topic(topic)

    def take_early_deletions(self) -> list[EarlyDeletion]:
        """Returns what retention deleted since the last call before it expired, because the disk was full."""
        deletions = self._open.cleaner.early_deletions
        return [deletions.popleft() for _ in range(len(deletions))]

    def delete_topic(self, topic: str) -> int:
        """Deletes every queue of a topic; its records stay in the log. Returns how many queues were deleted.

        The next message of the topic gets queue offset 0. Records that wait for dispatch are dispatched first; else
        they would take the places of later ones in the new queues, as in the broker. If it raises StoreError, no queue
        was deleted.
        """
        with self._all_dispatched() as components:
            components.offsets.forget_topic(topic)
            return components.cleaner.delete_topic(topic)

    def delete_expired_queues(self) -> int:
        """Deletes the queues whose last record was deleted from the log; returns how many.

        Queues of system topics are kept. The next message of a deleted queue gets queue offset 0. Source:
        ConsumeQueueStore.cleanExpired (5.5.0).
        """
        with self._all_dispatched() as components:
            expired = components.cleaner.expired_queues()
            for queue in expired:
                components.offsets.forget_queue(queue.topic, queue.queue_id)
                components.queues.delete(queue)
            return len(expired)

    @contextmanager
    def _all_dispatched(self) -> Iterator[Components]:
        """Dispatches all records, and keeps writers and dispatch waiting until its end."""
        with named_errors(self.path), self._log.lock:
            components = self._open
            if components.loop.end < components.log.queue.wrote_offset:
                components.flusher.flush_log()
            components.loop.turn()
            with components.loop.paused():
                yield components

    def change_limits(self, options: StoreOptions) -> None:
        """Applies read limits and `max_message_size` of other options (`options.with_limits`) from now on."""
        components = self._open
        components.reader.change_limits(options)
        with components.log.lock:
            components.log.change_limits(options)

    def change_retention(self, policy: RetentionPolicy) -> None:
        """Applies another policy from the next run of retention on."""
        self._open.cleaner.policy = policy

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Shuts down cleanly; may be called twice.

        On return everything is durable and `abort` is deleted, unless dispatch could not catch up or the store had
        stopped accepting messages: then `abort` stays, and the next `open_store` recovers. It stays too if something
        could not be written, which raises StoreError.
        """
        if not self._closed:
            self._closed = True
            self._components.flags.set(RunningFlag.FENCED)
            if self._async_commit is not None:
                self._async_commit.stop()
            with named_errors(self.path):
                shut_down(self._components)


def open_store(
    path: "str | Path",
    options: StoreOptions | None = None,
    *,
    policy: RetentionPolicy | None = None,
    hooks: Iterable[Hook] = (),
    bit_map_of: "BitMapOf | None" = None,
    background: bool = True,
    clock: Clock | None = None,
    files: Files | None = None,
) -> MessageStore:
    """Recovers a store and opens it for writing; creates one if the directory is empty or does not exist.

    Args:
        path: root directory of the store. As for directories in `options`, a relative path means what it does now, even
            if the process changes its working directory later.
        options: sizes, flush mode, limits; None for the broker's defaults.
        policy: retention; None for the broker's defaults.
        hooks: called with every message before it is stored (`engine.write.messages`).
        bit_map_of: filter bit maps, for queues with an extension; `store.queues.filter_bit_maps` has the filters.
        background: whether threads flush, dispatch and clean. Without them call `dispatch`, `flush` and `close`.
        clock: source of the time; a test's own.
        files: access to the file system; a test's own.

    Raises:
        StoreLockedError: a broker, or another mqtool, has it open.
        LayoutError: its file sizes differ from the options, or the broker would refuse it.
        UnsupportedFormatError: it is another kind of store, or of an unknown release.
        StoreError: it cannot be written.
    """
    components = assemble(
        Path(path),
        options or StoreOptions(),
        policy or RetentionPolicy(),
        clock or SystemClock(),
        files or Files(),
        bit_map_of,
        background=background,
    )
    return MessageStore(components, hooks)


def _not_compiled(*_message: object) -> None:
    """Replaces the compiled appends where they are not in use."""
