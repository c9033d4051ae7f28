"""Processes that share the work on one machine."""

import os
import signal


def available() -> int:
    """Returns the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker() -> None:
    """Begins a worker process: it keeps to one processor, and leaves Ctrl-C to its parent."""
    import pyarrow as pa  # noqa: PLC0415 - the parent need not load it

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
