"""Flusher: flushes log and queues to disk, then advances the checkpoint.

Each method of `Flusher` is one iteration of one of the broker's services; threads or a test call them. `GroupCommit`
needs no flush thread: the first waiting put becomes the leader and syncs; puts that arrive meanwhile wait for the next
sync, which one of them leads. A put thus waits for at most two syncs, a single producer for one. `AsyncCommit` lets
coroutines wait without a thread for each of them. Docs page: docs/engine.md. Source: FlushRealTimeService,
CommitRealTimeService, GroupCommitService, FlushDiskWatcher, FlushConsumeQueueService, StoreCheckpoint (4.9.7, 5.5.0).
"""

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from mqtool.engine.clock import Clock
from mqtool.engine.disk.files import Files
from mqtool.engine.dispatcher import Dispatcher
from mqtool.engine.options import StoreOptions
from mqtool.engine.queues import Queues
from mqtool.engine.statuses import PutStatus, RunningFlag, RunningFlags
from mqtool.engine.write.commit_log import CommitLog
from mqtool.formats import checkpoint
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.release import Release

_LOG = logging.getLogger(__name__)

_Loop = asyncio.AbstractEventLoop
_Answer = PutStatus | Exception
_Settled = list[tuple["asyncio.Future[PutStatus]", _Answer]]


class _Waiter:
    """One put that waits for another's flush. `done` is released when its result is known or it becomes the leader."""

    __slots__ = ("done", "end", "follower", "leads", "status")

    def __init__(self, end: int) -> None:
        self.end = end
        self.leads = False
        self.follower: _Waiter | None = None
        self.status: PutStatus | None = None
        self.done = threading.Lock()
        self.done.acquire()


class GroupCommit:
    """Makes puts wait until the log is on disk up to their end.

    The puts that one flush has completed wake each other in turn: woken all at once they would only contend for
    the interpreter lock. `flush` flushes the log completely, returns the flushed offset, and raises OSError.
    """

    def __init__(self, flush: Callable[[], int], timeout_ms: int) -> None:
        self._flush = flush
        self._timeout = timeout_ms / 1000
        self._guard = threading.Lock()
        self._waiting: list[_Waiter] = []
        self._leading = False

    @property
    def is_flushing(self) -> bool:
        """Whether a put is flushing, or is about to."""
        return self._leading

    def wait(self, end: int) -> PutStatus:
        """Returns PUT_OK when the log is durable up to `end`, else FLUSH_DISK_TIMEOUT.

        After a timeout the message is in the log all the same, and may become durable later.
        """
        with self._guard:
            if self._leading:
                waiter = _Waiter(end)
                self._waiting.append(waiter)
            else:
                self._leading, waiter = True, None
        if waiter is None:
            return self._lead(end, [])
        if not waiter.done.acquire(timeout=self._timeout):
            with self._guard:
                if waiter.status is None and not waiter.leads:  # timed out: the leader skips it
                    waiter.status = PutStatus.FLUSH_DISK_TIMEOUT
                    if waiter in self._waiting:
                        self._waiting.remove(waiter)
                    return waiter.status
        if waiter.leads:
            with self._guard:
                batch, self._waiting = self._waiting, []
            return self._lead(end, [other for other in batch if other is not waiter])
        if waiter.follower is not None:
            waiter.follower.done.release()
        return waiter.status or PutStatus.FLUSH_DISK_TIMEOUT

    def _lead(self, end: int, batch: list[_Waiter]) -> PutStatus:
        """Flushes for itself and a batch, passes the lead to a put that arrived meanwhile, and wakes the batch."""
        flushed = -1
        try:
            with contextlib.suppress(OSError):  # reported by the flusher; nothing is known to be on disk
                flushed = self._flush()
        finally:
            self._hand_over()
            self._complete(batch, flushed)
        return PutStatus.PUT_OK if end <= flushed else PutStatus.FLUSH_DISK_TIMEOUT

    def _complete(self, batch: list[_Waiter], flushed: int) -> None:
        with self._guard:
            waiters = [waiter for waiter in batch if waiter.status is None]
            if not waiters:  # all have given up
                return
            for waiter, follower in zip(waiters, [*waiters[1:], None], strict=True):
                waiter.follower = follower
                waiter.status = PutStatus.PUT_OK if waiter.end <= flushed else PutStatus.FLUSH_DISK_TIMEOUT
        waiters[0].done.release()

    def _hand_over(self) -> None:
        with self._guard:
            successor = self._waiting[0] if self._waiting else None
            self._leading = successor is not None
            if successor is not None:
                successor.leads = True
        if successor is not None:
            successor.done.release()


class StoreCheckpoint:
    """Timestamps up to which the files are on disk, for the next recovery: the file, and its values in memory.

    Safe to use from several threads.

    Attributes:
        flushed_timestamp: store timestamp up to which the log is on disk. Every flush sets it in memory only.
    """

    def __init__(self, files: Files, path: Path, *, release: Release) -> None:
        """Reads the file if it exists."""
        self._files = files
        self._path = path
        self._release = release
        self._guard = threading.Lock()
        self._written: Checkpoint | None = None
        self.flushed_timestamp = 0
        self._values = checkpoint.parse(path.read_bytes()) if path.is_file() else Checkpoint()

    @property
    def values(self) -> Checkpoint:
        """The values as they will be written next."""
        if self.flushed_timestamp > self._values.physic_msg_timestamp:
            return replace(self._values, physic_msg_timestamp=self.flushed_timestamp)
        return self._values

    def advance(self, **fields: int) -> None:
        """Increases fields; a field never decreases."""
        with self._guard:
            higher = {name: value for name, value in fields.items() if value > getattr(self._values, name)}
            if higher:
                self._values = replace(self._values, **higher)

    def set(self, **fields: int) -> None:
        """Sets fields, also to smaller values: after recovery has truncated the log."""
        with self._guard:
            self._values = replace(self._values, **fields)

    def flush(self) -> None:
        """Writes the values if they have changed. Durable on return.

        If it raises OSError, the old values may still be on disk, or a mixture at sector granularity.
        """
        with self._guard:
            values = written = self.values
            if values == self._written:
                return
            if self._release < (5, 5):  # fields that a release does not know stay zero
                known = checkpoint.TIMES + checkpoint.OFFSETS[: 2 if self._release >= (5, 1) else 0]
                values = Checkpoint(**{name: getattr(values, name) for name in known})
            if not self._path.exists():
                self._files.create(self._path, checkpoint.FILE_SIZE)
                self._files.sync_directory(self._path.parent)
            file = self._files.open(self._path, checkpoint.FILE_SIZE)
            try:
                file.write(0, checkpoint.build(values))
                file.sync()
            finally:
                file.close()
            self._written = written


class Flusher:
    """Flushes log, queues and checkpoint of one store to disk. Safe to use from several threads."""

    def __init__(
        self,
        options: StoreOptions,
        log: CommitLog,
        queues: Queues,
        dispatcher: Dispatcher,
        checkpoint: StoreCheckpoint,
        flags: RunningFlags,
        clock: Clock,
    ) -> None:
        self.group = GroupCommit(self.flush_log, options.sync_flush_timeout_ms)
        self._options = options
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._flags = flags
        self._clock = clock
        self._log_guard = threading.Lock()
        self._queue_guard = threading.Lock()
        self._last_thorough_flush = self._last_thorough_commit = self._last_queue_flush = clock.now()

    def log_turn(self) -> None:
        """One iteration of the asynchronous flush: if enough pages are dirty, or the thorough interval has passed."""
        now = self._clock.now()
        if now - self._last_thorough_flush >= self._options.flush_thorough_interval_ms:
            self._last_thorough_flush = now
            self.flush_log()
        else:
            self.flush_log(self._options.flush_least_pages)

    def flush_log(self, least_pages: int = 0) -> int:
        """Flushes the log if at least `least_pages` pages are dirty (0: always); returns the flushed offset.

        If it raises OSError, bytes after the flushed offset may be lost, and the store accepts no more messages; or a
        buffer of the pool could not be written: it is kept, and the next flush tries again.
        """
        with self._log_guard:
            if self._flags.flush_has_failed:
                raise OSError("an earlier flush has failed")
            last = self._log.queue.last
            stored = last.store_timestamp if last else 0
            if self._options.pool_buffers and least_pages == 0:
                self._log.queue.commit()
                self._log.pool.reclaim(self._log.queue.files)
            try:
                flushed = self._log.queue.flush(least_pages)
            except OSError as error:
                # The kernel may drop pages that it could not write: no later flush proves anything.
                self._flags.set(RunningFlag.NOT_WRITEABLE)
                _LOG.error("flush of the CommitLog failed, no more puts error=%s", error)
                raise
        if least_pages == 0 and stored > self._checkpoint.flushed_timestamp:  # never decreases
            self._checkpoint.flushed_timestamp = stored
        return flushed

    def commit_turn(self) -> None:
        """One iteration of the transient store pool's commit: writes buffers to the page cache, then requests a flush.

        A buffer that cannot be written is kept, and the next iteration tries again.
        """
        now = self._clock.now()
        thorough = now - self._last_thorough_commit >= self._options.commit_thorough_interval_ms
        if thorough:
            self._last_thorough_commit = now
        with self._log_guard:
            self._log.queue.commit(0 if thorough else self._options.commit_least_pages)
            self._log.pool.reclaim(self._log.queue.files)

    def queue_turn(self) -> None:
        """One iteration of the queues' flush: queues with enough dirty pages; all of them after the thorough interval.

        If it raises OSError, units may be lost; a recovery after a crash writes them again.
        """
        now = self._clock.now()
        if now - self._last_queue_flush >= self._options.queue_flush_thorough_interval_ms:
            self._last_queue_flush = now
            self.flush_queues()
            self.flush_checkpoint()
        else:
            self._queues.flush(self._options.queue_flush_least_pages)

    def flush_queues(self) -> None:
        """Flushes the log and every queue and advances the checkpoint.

        The checkpoint is stricter than the broker's: it contains only the time up to which both log and queues are on
        disk. A recovery that trusts it never skips records or units that a power cut removed.
        """
        with self._queue_guard:
            stored, offset = self._dispatcher.queued_timestamp, self._dispatcher.reput_from_offset
            self.flush_log()
            self._queues.flush()
            self._checkpoint.advance(logics_msg_timestamp=stored, logics_physical_offset=offset)

    def index_file_is_full(self, end_timestamp: int) -> None:
        """Advances the checkpoint's index timestamp after a full IndexFile is on disk; flushes the log first."""
        self.flush_log()
        self._checkpoint.advance(index_msg_timestamp=end_timestamp)

    def flush_checkpoint(self) -> None:
        """Writes the checkpoint. Durable on return."""
        self._checkpoint.flush()


class AsyncCommit:
    """Completes futures of any number of event loops once the log is durable up to the end of their messages.

    One thread flushes while event loops continue to run; all messages put in the meantime share the next flush.
    """

    def __init__(self, wait: Callable[[int], PutStatus], flushed_offset: Callable[[], int]) -> None:
        """Starts no thread yet; the first put that waits does.

        `wait` blocks until the log is durable up to a physical offset, and returns the status of such a put.
        """
        self._wait = wait
        self._flushed_offset = flushed_offset
        self._waiting: deque[tuple[int, _Loop, asyncio.Future[PutStatus]]] = deque()
        self._wake = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def flushed(self, end: int) -> "asyncio.Future[PutStatus]":
        """Returns the future status of a put that ends at a physical offset; call it in the event loop that waits.

        The flush takes place even if the future is cancelled: dispatch waits for it too.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PutStatus] = loop.create_future()
        self._waiting.append((end, loop, future))
        if self._thread is None or self._stopping:
            self._start()
        self._wake.set()
        return future

    def _start(self) -> None:
        with self._guard:
            if self._stopping:  # the thread may have gone already
                self._round()
            elif self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mqtool-async-flush", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait()
            self._wake.clear()
            self._round()

    def _round(self) -> None:
        """Flushes for all waiting puts and completes their futures, each in its own event loop."""
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not waiting:
            return
        answer: _Answer
        try:
            answer = self._wait(max(end for end, _, _ in waiting))
        except Exception as error:  # noqa: BLE001 - whatever it was, all that wait must hear of it
            answer = error
        flushed = -1 if answer is PutStatus.PUT_OK else self._flushed_offset()
        by_loop: dict[_Loop, _Settled] = defaultdict(list)
        for end, loop, future in waiting:
            by_loop[loop].append((future, PutStatus.PUT_OK if end <= flushed else answer))
        for loop, settled in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and nobody waits in it
                loop.call_soon_threadsafe(_settle, settled)

    def stop(self) -> None:
        """Ends the thread after a last flush for all waiting puts; a later put is flushed by its own thread."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._guard:
            self._round()


def _settle(settled: _Settled) -> None:
    for future, answer in settled:
        if future.done():  # cancelled
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
