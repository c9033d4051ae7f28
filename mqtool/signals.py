"""Signals that wait until a step is done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Blocks signals; a process that is started meanwhile blocks them permanently."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupt_deferred() -> Iterator[None]:
    """Lets Ctrl-C wait in the main thread; no mask would, since another thread may receive the signal for it."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)
