"""GroupCommit: many waiting puts, one fdatasync.

There is no flush thread: the first put that waits becomes the leader and syncs; puts that arrive while it
does wait for the next sync, which one of them leads. A put thus waits for at most two syncs, and a lone
producer for one. Source of what it stands for: GroupCommitService, FlushDiskWatcher (4.9.7, 5.5.0).
"""

import contextlib
import threading
import time
from collections.abc import Callable

from mqtool.engine.statuses import PutStatus


class _Waiter:
    """One put. `done` is released when its fate is known or it is to lead."""

    __slots__ = ("done", "end", "leads", "status")

    def __init__(self, end: int) -> None:
        self.end = end
        self.leads = False
        self.status: PutStatus | None = None
        self.done = threading.Lock()
        self.done.acquire()


class GroupCommit:
    """Makes puts wait until the log is on disk up to their end."""

    def __init__(self, flush: Callable[[], int], timeout_ms: int) -> None:
        """Takes the flush.

        Args:
            flush: brings the whole log to the disk, returns the flushed offset, raises OSError.
            timeout_ms: how long a put waits at most.
        """
        self._flush = flush
        self._timeout = timeout_ms / 1000
        self._guard = threading.Lock()
        self._waiting: list[_Waiter] = []
        self._leading = False

    def wait(self, end: int) -> PutStatus:
        """Returns PUT_OK when the log is durable up to `end`, else FLUSH_DISK_TIMEOUT.

        After a timeout the message is in the log all the same, and may become durable later.
        """
        waiter = _Waiter(end)
        with self._guard:
            self._waiting.append(waiter)
            leads = not self._leading
            self._leading = True
        deadline = time.monotonic() + self._timeout
        while not leads:
            if not waiter.done.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return self._give_up(waiter)
            if waiter.status is not None:
                return waiter.status
            leads = waiter.leads
        return self._lead(waiter)

    def _give_up(self, waiter: _Waiter) -> PutStatus:
        with self._guard:
            if waiter in self._waiting and not waiter.leads:
                self._waiting.remove(waiter)
                return PutStatus.FLUSH_DISK_TIMEOUT
        if waiter.leads:  # the lead came just now, and nobody else will take it
            return self._lead(waiter)
        return waiter.status or PutStatus.FLUSH_DISK_TIMEOUT

    def _lead(self, own: _Waiter) -> PutStatus:
        with self._guard:
            batch, self._waiting = self._waiting, []
        flushed = -1
        try:
            with contextlib.suppress(OSError):  # noted where it happened; nobody's message is known to be on disk
                flushed = self._flush()
        finally:
            for waiter in batch:
                waiter.status = PutStatus.PUT_OK if waiter.end <= flushed else PutStatus.FLUSH_DISK_TIMEOUT
            self._hand_over()
            for waiter in batch:
                if waiter is not own:
                    waiter.done.release()
        return own.status or PutStatus.FLUSH_DISK_TIMEOUT

    def _hand_over(self) -> None:
        with self._guard:
            successor = self._waiting[0] if self._waiting else None
            self._leading = successor is not None
            if successor is not None:
                successor.leads = True
        if successor is not None:
            successor.done.release()
