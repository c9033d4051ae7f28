"""Running tasks on this machine: in this process, or in several."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from mqtool.errors import MqtoolError
from mqtool.export.task import Task, TaskResult, run_task


class WorkerDiedError(MqtoolError):
    """A worker process ended without an answer."""


def available() -> int:
    """Returns the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalRunner:
    """Worker processes; with one worker, or one task, none is started."""

    def __init__(self, workers: int | None = None) -> None:
        """Starts nothing yet.

        Args:
            workers: None for one a processor.
        """
        self._workers = workers or available()

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """See `plain.Runner`.

        Raises:
            WorkerDiedError: the system killed a worker, most likely for memory.
        """
        count = min(self._workers, len(tasks))
        if count <= 1:
            for task in tasks:
                done(run_task(task))
            return
        # A fork would copy the locks of Arrow's threads as they happen to stand.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, mp_context=context, initializer=_start) as pool:
            waiting: set[Future[TaskResult]] = {pool.submit(run_task, task) for task in tasks}
            try:
                while waiting:
                    ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in ended:
                        done(future.result())
            except BrokenProcessPool as error:
                raise WorkerDiedError("a worker process died, maybe for want of memory: try fewer --workers") from error
            finally:
                for future in waiting:
                    future.cancel()


def _start() -> None:
    """Keeps a worker to one processor, and leaves Ctrl-C to the parent."""
    import signal  # noqa: PLC0415

    import pyarrow as pa  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
