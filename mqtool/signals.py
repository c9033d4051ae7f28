"""Signals that wait until a step is done."""

import signal
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
