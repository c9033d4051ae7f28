"""Worker processes and threads on one machine, with results in order or as they are completed."""

import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mqtool.errors import UnavailableError

if TYPE_CHECKING:
    from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

Item = TypeVar("Item")

Answer = TypeVar("Answer")

SEMAPHORES = "/dev/shm"  # noqa: S108 - no file for data: the C library keeps named semaphores there
"""Missing or read-only in some containers and sandboxes."""

_PATIENCE = 2.0
"""Seconds in which the threads of a pool have to end after an exception."""

PART_BYTES = 32 << 20
"""Bytes of a part whose result is in memory until it is put together with others, about."""


class StartedTask(Protocol):
    """A started piece of work, here or in a worker; a future is one."""

    def done(self) -> bool:
        """Whether its result is available without waiting."""


Piece = TypeVar("Piece", bound=StartedTask)


def available() -> int:
    """Returns the number of processors for worker processes: 1 where the system has no semaphores for them."""
    if sys.platform == "linux" and not os.access(SEMAPHORES, os.W_OK | os.X_OK):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker() -> None:
    """Initializes a worker process: it uses one processor, and leaves Ctrl-C to its parent."""
    import pyarrow as pa  # noqa: PLC0415 - the parent need not load it

    ignore_interrupts()
    pa.set_cpu_count(1)


def ignore_interrupts() -> None:
    """Makes a process leave Ctrl-C to its parent, and end when its parent tells it to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a copy has its parent's handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


@contextmanager
def worker_pool(
    count: int, initializer: Callable[..., object] = ignore_interrupts, arguments: tuple[Any, ...] = ()
) -> "Iterator[ProcessPoolExecutor]":
    """Yields a pool of processes that are copies of this one where that is safe, otherwise new ones.

    A new process imports numpy and all of mqtool again, which takes as long as reading a hundred megabytes. A copy
    is safe if no Python thread runs that could hold a lock; the threads of numpy's own library are safe.
    """
    fork = sys.platform == "linux" and threading.active_count() == 1
    with process_pool(count, initializer, arguments, copies=fork) as pool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later count the library's threads too
            pool.submit(int)  # starts them all
        yield pool


@contextmanager
def process_pool(
    count: int, initializer: Callable[..., object], arguments: tuple[Any, ...] = (), *, copies: bool
) -> "Iterator[ProcessPoolExecutor]":
    """Yields a pool of processes that are killed at once if an exception, such as Ctrl-C, makes their work unneeded.

    Otherwise the parent would wait for a throttled worker, which can take hours, or leave it behind. Killing also ends
    a stopped worker; no worker holds anything that needs cleaning up. The initializer calls `ignore_interrupts`. With
    `copies`, workers are copies of this process. Raises UnavailableError if this system has no semaphores for them.
    """
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - one process does without
    from multiprocessing import active_children  # noqa: PLC0415

    from mqtool.jobs.worker_process import context  # noqa: PLC0415

    others = set(active_children())
    try:
        pool = ProcessPoolExecutor(count, context(copies=copies), initializer, arguments)
    except OSError as error:  # before the first process starts
        raise UnavailableError(
            f"worker processes need semaphores in {SEMAPHORES}: {error.strerror}. Make it writable, or use --jobs 1"
        ) from error
    try:
        yield pool
        pool.shutdown(wait=True, cancel_futures=True)
    except BaseException:
        for process in set(active_children()) - others:
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)
        raise


@contextmanager
def thread_pool(count: int) -> "Iterator[tuple[ThreadPoolExecutor, threading.Event]]":
    """Yields a pool of threads, for work that mostly runs without the interpreter's lock, and an event.

    Threads share this process's memory: no process has to start, and results are not copied. The event is set if an
    exception, such as Ctrl-C, makes the work unneeded. The work should then end soon, because a thread cannot be
    killed; one that waits for a disk that does not answer is left behind.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - one thread does without

    threads: list[threading.Thread] = []
    is_over = threading.Event()
    pool = ThreadPoolExecutor(count, initializer=lambda: threads.append(threading.current_thread()))
    try:
        yield pool, is_over
        pool.shutdown(wait=True, cancel_futures=True)
    except BaseException:
        is_over.set()
        pool.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + _PATIENCE
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        raise


def in_order(begun: Iterable[Piece], window: int) -> Iterator[Piece]:
    """Yields pieces of work in the order in which they were started, each as soon as it is done.

    While the first piece is not done and the window, the maximum number of pieces in work or waiting to be yielded, is
    not full, more are started. So workers are busy while the caller handles a result, and memory is bounded. `begun`
    starts a piece each time it is asked for the next one. The first piece of a full window is yielded before it is
    done.
    """
    source, waiting, is_more = iter(begun), deque[Piece](), True
    while is_more or waiting:
        while is_more and len(waiting) < window and not (waiting and waiting[0].done()):
            is_more = _take(source, waiting)
        if waiting:
            yield waiting.popleft()
            is_more = is_more and _take(source, waiting)


def _take(source: Iterator[Piece], waiting: deque[Piece]) -> bool:
    """Starts one more piece; returns False if there is none."""
    for piece in source:
        waiting.append(piece)
        return True
    return False


def ahead(items: Iterator[Item], count: int) -> Iterator[Item]:
    """Yields items while a thread produces up to `count` next ones; it ends when the caller stops iterating."""
    produced: Queue[tuple[list[Item], BaseException | None]] = Queue()
    room, is_over = threading.Semaphore(count), threading.Event()

    def make() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                produced.put(([item], None))
                room.acquire()
                if is_over.is_set():
                    return
        except BaseException as failure:  # noqa: BLE001 - raised where the items are taken
            error = failure
        produced.put(([], error))

    thread = threading.Thread(target=make, name="ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = produced.get()
            if error is not None:
                raise error
            if not item:
                return
            room.release()
            yield item[0]
    finally:
        is_over.set()
        room.release()
        thread.join()


def as_completed(
    pool: "Executor",
    work: Callable[[Item], Answer],
    items: Iterable[Item],
    window: int,
    *,
    may_begin: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Item, Answer]]:
    """Yields items with their results as they are completed; at most `window` of them are in the pool at a time.

    With processes, the work, its arguments and results must be picklable. `may_begin` is asked before each item; once
    it returns False, only started items are waited for.
    """
    from concurrent.futures import FIRST_COMPLETED, Future, wait  # noqa: PLC0415 - one process does without

    left = deque(items)
    running: dict[Future[Answer], Item] = {}
    while left or running:
        while left and len(running) < window and may_begin():
            item = left.popleft()
            running[pool.submit(work, item)] = item
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


def cut(low: int, high: int, size: int, find: Callable[[int, int], int | None]) -> Iterator[int]:
    """Yields positions that cut a half-open range into parts of about a size in bytes; neither bound is yielded.

    Those of a longer range begin with those of a shorter one, so work on a growing file is divided in the same way.
    `find` returns the first position in `[wanted, limit)` at which the range may be cut, such as the start of a record;
    None if there is none, and the two parts stay one.
    """
    count = max(1, round((high - low) / size))
    before = low
    for target in range(low + size, low + count * size, size):
        place = find(max(target, before + 1), high)
        if place is not None:
            yield place
            before = place
