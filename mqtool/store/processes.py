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
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - one process does without
    from multiprocessing import get_context  # noqa: PLC0415

    fork = sys.platform == "linux" and threading.active_count() == 1
    with ProcessPoolExecutor(count, get_context("fork" if fork else "spawn"), initializer, arguments) as pool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later count the library's threads too
            pool.submit(int)  # starts them all
        yield pool
