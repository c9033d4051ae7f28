"""AsyncCommit: lets coroutines wait for the flush of their puts, without a thread for each of them.

One thread flushes while event loops continue to run; all messages put in the meantime share the next flush.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress

from mqtool.engine.statuses import PutStatus

_Loop = asyncio.AbstractEventLoop
_Answer = PutStatus | Exception
_Settled = list[tuple["asyncio.Future[PutStatus]", _Answer]]


class AsyncCommit:
    """Completes futures of any number of event loops once the log is durable up to the end of their messages."""

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
            with suppress(RuntimeError):  # the event loop is closed, and nobody waits in it
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
