"""Flusher: flushes log and queues to disk, then advances the checkpoint.

Each method is one iteration of one of the broker's services; threads or a test call them. Docs page:
docs/engine.md. Source: FlushRealTimeService, CommitRealTimeService, GroupCommitService,
FlushConsumeQueueService, StoreCheckpoint (4.9.7, 5.5.0).
"""

import logging
import threading

from mqtool.engine.clock import Clock
from mqtool.engine.dispatch.dispatcher import Dispatcher
from mqtool.engine.flags import RunningFlag, RunningFlags
from mqtool.engine.flush.checkpoint import StoreCheckpoint
from mqtool.engine.flush.group_commit import GroupCommit
from mqtool.engine.options import StoreOptions
from mqtool.engine.queue.queues import Queues
from mqtool.engine.write.commit_log import CommitLog

_LOG = logging.getLogger(__name__)


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

    # -- the log -------------------------------------------------------------------------------------------------

    def log_turn(self) -> None:
        """One iteration of the asynchronous flush: if enough pages are dirty, or the thorough interval has passed.

        Raises:
            OSError: as `flush_log`.
        """
        now = self._clock.now()
        if now - self._last_thorough_flush >= self._options.flush_thorough_interval_ms:
            self._last_thorough_flush = now
            self.flush_log()
        else:
            self.flush_log(self._options.flush_least_pages)

    def flush_log(self, least_pages: int = 0) -> int:
        """Flushes the log if at least `least_pages` pages are dirty (0: always).

        Returns:
            The flushed offset: durable up to there.

        Raises:
            OSError: bytes after the flushed offset may be lost, and the store accepts no more messages; or a buffer
                of the pool could not be written: it is kept, and the next flush tries again.
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

        Raises:
            OSError: a buffer could not be written; it is kept, and the next iteration tries again.
        """
        now = self._clock.now()
        thorough = now - self._last_thorough_commit >= self._options.commit_thorough_interval_ms
        if thorough:
            self._last_thorough_commit = now
        with self._log_guard:
            self._log.queue.commit(0 if thorough else self._options.commit_least_pages)
            self._log.pool.reclaim(self._log.queue.files)

    # -- the queues ----------------------------------------------------------------------------------------------

    def queue_turn(self) -> None:
        """One iteration of the queues' flush: queues with enough dirty pages; all of them after the thorough interval.

        Raises:
            OSError: units may be lost; a recovery after a crash writes them again.
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

        Raises:
            OSError: as `queue_turn`.
        """
        with self._queue_guard:
            stored, offset = self._dispatcher.queued_timestamp, self._dispatcher.reput_from_offset
            self.flush_log()
            self._queues.flush()
            self._checkpoint.advance(logics_msg_timestamp=stored, logics_physical_offset=offset)

    def index_file_is_full(self, end_timestamp: int) -> None:
        """Advances the checkpoint's index timestamp after a full IndexFile is on disk; flushes the log up to it first.

        Raises:
            OSError: as `flush_log`.
        """
        self.flush_log()
        self._checkpoint.advance(index_msg_timestamp=end_timestamp)

    def flush_checkpoint(self) -> None:
        """Writes the checkpoint. Durable on return.

        Raises:
            OSError: the old one may still be there.
        """
        self._checkpoint.flush()
