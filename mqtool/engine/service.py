"""Service: the background threads of an open store, and the dispatch loop.

A store also works without threads: then the caller runs each step itself, as tests do. Source:
DefaultMessageStore.start/addScheduleTask, ReputMessageService (4.9.7, 5.5.0).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mqtool.engine.clock import Clock
from mqtool.engine.dispatcher import Dispatcher
from mqtool.engine.flusher import Flusher
from mqtool.engine.options import StoreOptions
from mqtool.engine.statuses import NO_SPACE, RunningFlag, RunningFlags
from mqtool.engine.write.commit_log import CommitLog

_LOG = logging.getLogger(__name__)

MAX_FAILURES = 30
_FILES_BEFORE_QUEUE_FLUSH = 4
_FILES_BEFORE_WRITER_WAITS = 8
"""Segments that dispatch, or the writer, may be ahead of the last flush of the queues. Recovery in 5.5 goes back at
most ten segments, so the position that the checkpoint confirms must not be older than that."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.010
_REST_OF_WORK = 3
"""Seconds of rest after a round of dispatch: three times its duration, within these bounds. A round costs as much for
ten records as for a hundred, and takes the interpreter lock from threads that put. The broker rests 1 ms after each
round (ReputMessageService.run)."""

_UNFLUSHED_PAUSE = 0.010
"""Seconds that records may wait for a flush with SYNC_FLUSH if no put waits for it. Consumers do not see them before.
Source: CommitLog.GroupCommitService.run, doCommit without requests (5.5.0)."""

Listener = Callable[[], None]
"""Called after records were dispatched."""


class DispatchLoop:
    """Runs the dispatcher after the writer, in its own thread or when called.

    Attributes:
        idle: whether the thread sleeps until it is woken; an attribute because every put reads it.
        listeners: called after each round that dispatched something.
    """

    def __init__(
        self,
        options: StoreOptions,
        log: CommitLog,
        dispatcher: Dispatcher,
        flusher: Flusher,
        flags: RunningFlags,
        clock: Clock,
    ) -> None:
        self.idle = False
        self.listeners: list[Listener] = []
        self._options = options
        self._log = log
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._flags = flags
        self._clock = clock
        self._guard = threading.Lock()
        self._arrived = threading.Condition()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._flush_by: tuple[int, float] | None = None
        self.queues_flushed_at = dispatcher.reput_from_offset

    @property
    def end(self) -> int:
        """Physical offset up to which records may be dispatched: with SYNC_FLUSH only what is on disk (since 5.3.2)."""
        queue = self._log.queue
        return queue.flushed_offset if self._options.sync else queue.max_offset

    @property
    def behind(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self.end - self._dispatcher.reput_from_offset)

    @property
    def _is_unflushed(self) -> bool:
        """Whether records wait for a flush before they may be dispatched."""
        queue = self._log.queue
        return self._options.sync and queue.wrote_offset > queue.flushed_offset and not self._flags.flush_has_failed

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="mqtool-dispatch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread once it has caught up, or once an error prevents it from catching up."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wake(self) -> None:
        """Wakes an idle thread."""
        self._wake.set()

    def turn(self) -> int:
        """Dispatches all records up to `end`; returns how many. Units and entries are in the page cache on return.

        If it raises OSError, dispatch stays at its position.
        """
        with self._guard:
            done = self._dispatcher.run(self.end, self._bound_queue_lag)
        if done:
            with self._arrived:
                self._arrived.notify_all()
            for listener in self.listeners:
                listener()
        return done

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keeps records from being dispatched while the block runs."""
        with self._guard:
            yield

    def wait_until(self, arrived: Callable[[], bool], timeout: float | None) -> bool:
        """Waits for a condition that dispatch makes true; returns whether it is."""
        self.wake()  # ends a pause, since a caller waits for a record
        with self._arrived:
            return self._arrived.wait_for(arrived, timeout)

    def _bound_queue_lag(self) -> None:
        stands = self._dispatcher.reput_from_offset
        if stands - self.queues_flushed_at >= _FILES_BEFORE_QUEUE_FLUSH * self._options.commit_log_file_size:
            self._flusher.flush_queues()
            self._flusher.flush_checkpoint()
            self.queues_flushed_at = stands

    def relieve(self) -> None:
        """Waits for dispatch to catch up before the writer starts another segment, if the writer is too far ahead.

        If it raises OSError, dispatch cannot catch up, and the writer must stop.
        """
        ahead = self._log.queue.wrote_offset - self.queues_flushed_at
        if ahead >= _FILES_BEFORE_WRITER_WAITS * self._options.commit_log_file_size:
            self._flusher.flush_log()
            self.turn()
            self._flusher.flush_queues()
            self._flusher.flush_checkpoint()
            self.queues_flushed_at = self._dispatcher.reput_from_offset

    def _run(self) -> None:
        while True:
            worked = time.thread_time()
            try:
                if self.turn():
                    self._failures = 0
                    if not self.listeners:
                        self._pause(_REST_OF_WORK * (time.thread_time() - worked))
                    continue
            except OSError as error:
                self._note_failure(error)
                if self._stopping:
                    return
                self._clock.sleep(1)
                continue
            if self._stopping:
                return
            self.idle = True
            if not self.behind:
                pause = self._pause_before_flush()
                if pause == 0 or not self._wake.wait(pause):
                    self._flush_rest()
            self.idle = False
            self._wake.clear()

    def _pause_before_flush(self) -> float | None:
        """Returns the seconds until records that no put waits for are flushed; None if there are none.

        Puts that arrive meanwhile do not prolong it; a flush for other puts includes these records.
        """
        flushed, now = self._log.queue.flushed_offset, time.monotonic()
        if not self._is_unflushed:
            self._flush_by = None
            return None
        if self._flush_by is None or self._flush_by[0] != flushed:
            self._flush_by = flushed, now + _UNFLUSHED_PAUSE
        return max(0.0, self._flush_by[1] - now)

    def _flush_rest(self) -> None:
        """Flushes records that no put waits for; leaves them to the next flush of puts if there is one already."""
        self._flush_by = None
        if self._flusher.group.is_flushing:
            return
        try:
            self._flusher.flush_log()
        except OSError as error:
            _LOG.error("flush failed physical_offset=%d error=%s", self._log.queue.flushed_offset, error)
            self._clock.sleep(1)

    def _pause(self, seconds: float) -> None:
        """Lets records accumulate; ends at once if a caller waits for one or the thread is stopped."""
        if not self._stopping and self._wake.wait(min(max(seconds, _SHORTEST_PAUSE), _LONGEST_PAUSE)):
            self._wake.clear()

    def _note_failure(self, error: OSError) -> None:
        self._failures += error.errno not in NO_SPACE
        _LOG.error("dispatch failed physical_offset=%d error=%s", self._dispatcher.reput_from_offset, error)
        if self._failures >= MAX_FAILURES:
            self._flags.set(RunningFlag.LOGICS_QUEUE_ERROR)


class Service:
    """All background threads of a store; `clean` runs retention once."""

    def __init__(
        self, options: StoreOptions, loop: DispatchLoop, flusher: Flusher, clean: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._flusher = flusher
        self._tasks = [
            Periodic("flush", options.flush_interval_ms, flusher.log_turn),
            Periodic("queue-flush", options.queue_flush_interval_ms, flusher.queue_turn),
            Periodic("checkpoint", options.checkpoint_interval_ms, flusher.flush_checkpoint),
            Periodic("clean", options.clean_interval_ms, clean),
        ]
        if options.pool_buffers:
            self._tasks.append(Periodic("commit", options.commit_interval_ms, self._commit))

    def _commit(self) -> None:
        """Commits, then wakes dispatch, because the records were not readable yet when the put woke it."""
        self._flusher.commit_turn()
        self._loop.wake()

    def start(self) -> None:
        """Starts all threads."""
        self._loop.start()
        for task in self._tasks:
            task.start()

    def stop(self) -> None:
        """Ends all threads; dispatch last, once it has caught up."""
        for task in self._tasks:
            task.stop()


class Periodic:
    """Runs a task at an interval, from the end of one run to the start of the next. Errors are logged."""

    def __init__(self, name: str, interval_ms: int, task: Callable[[], object]) -> None:
        self._interval = interval_ms / 1000
        self._task = task
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mqtool-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the current run."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._task()
            except Exception:  # noqa: BLE001 - whatever it was, the next turn must come
                _LOG.exception("task failed name=%s", self._thread.name)
