"""GroupCommit: one fdatasync for many waiting puts.

There is no flush thread: the first waiting put becomes the leader and syncs; puts that arrive meanwhile wait
for the next sync, which one of them leads. A put thus waits for at most two syncs, a single producer for
one. It replaces GroupCommitService and FlushDiskWatcher (4.9.7, 5.5.0).
"""

import contextlib
import threading
from collections.abc import Callable

from mqtool.engine.statuses import PutStatus


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
    the interpreter lock.
    """

    def __init__(self, flush: Callable[[], int], timeout_ms: int) -> None:
        """Starts without waiters.

        Args:
            flush: flushes the log completely, returns the flushed offset, raises OSError.
            timeout_ms: maximum wait of a put.
        """
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
            return self._lead_as(waiter)
        if waiter.follower is not None:
            waiter.follower.done.release()
        return waiter.status or PutStatus.FLUSH_DISK_TIMEOUT

    def _lead_as(self, own: _Waiter) -> PutStatus:
        with self._guard:
            batch, self._waiting = self._waiting, []
        return self._lead(own.end, [waiter for waiter in batch if waiter is not own])

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
