"""Processes that share the work on one machine."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


def available() -> int:
    """Returns the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker() -> None:
    """Begins a worker process: it keeps to one processor, and leaves Ctrl-C to its parent."""
    import pyarrow as pa  # noqa: PLC0415 - the parent need not load it

    leave_interrupts()
    pa.set_cpu_count(1)


def leave_interrupts() -> None:
    """Makes a process leave Ctrl-C to its parent, which tells it when to end, and end when it is told so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a copy has its parent's handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


@contextmanager
def worker_pool(
    count: int, initializer: Callable[..., object] = leave_interrupts, arguments: tuple[Any, ...] = ()
) -> "Iterator[ProcessPoolExecutor]":
    """Gives processes that begin as copies of this one where that is safe, else as new ones.

    A new process imports numpy and all of mqtool again, which takes as long as reading a hundred megabytes. A copy is
    safe if no thread of Python runs that could hold a lock; the threads of numpy's own library look after themselves.

    Args:
        count: of processes.
        initializer: called first in each.
        arguments: of the initializer.
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
    """Gives processes, and ends them at once if an exception, such as Ctrl-C, leaves their work unneeded.

    Without that the parent would wait for a throttled worker, which can take hours, or leave it behind. They are
    killed, which also ends one that was stopped; none holds anything that has to be put in order.

    Args:
        count: of processes.
        initializer: called first in each, with `arguments`; it calls `leave_interrupts`.
        arguments: of the initializer.
        copies: of this process, not new ones.
    """
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - one process does without
    from multiprocessing import active_children  # noqa: PLC0415

    from mqtool.jobs.worker_process import context  # noqa: PLC0415

    others = set(active_children())
    pool = ProcessPoolExecutor(count, context(copies=copies), initializer, arguments)
    try:
        yield pool
        pool.shutdown(wait=True, cancel_futures=True)
    except BaseException:
        for process in set(active_children()) - others:
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
