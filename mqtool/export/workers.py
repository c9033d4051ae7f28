"""Runs tasks on this machine: in threads of this process, and in worker processes beyond those."""

from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from threading import BoundedSemaphore

from mqtool.errors import WorkerError
from mqtool.export.task import Task, TaskResult, run_task
from mqtool.jobs.pool import as_completed, available, process_pool, start_worker, thread_pool

_THREADS = 2
"""Tasks that one process runs at a time. Encoding and compressing, two thirds of a task, need no interpreter lock;
two threads take 1.1 times the processor time of one, and no process has to start. More would wait for each other."""


class WorkerDiedError(WorkerError):
    """A worker process ended without returning a result."""


class LocalRunner:
    """Runs two tasks at a time in this process, and each further one in a process of its own."""

    def __init__(self, workers: int | None = None) -> None:
        """Starts nothing yet.

        Args:
            workers: number of tasks at a time; None for one per processor.
        """
        self._workers = workers or available()

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """See `plain.Runner`.

        Raises:
            WorkerDiedError: the system killed a worker, most likely for lack of memory.
        """
        count = min(self._workers, len(tasks))
        if count < 2:
            for task in tasks:
                done(run_task(task))
            return
        others = max(0, count - _THREADS)
        waiting = 2 * others  # so that each process has its next task when it ends one
        with ExitStack() as opened:
            threads, is_over = opened.enter_context(thread_pool(_THREADS + waiting))
            # entered last, left first: the threads that wait for processes end once these are killed.
            # A fork would copy the locks of Arrow's threads, some of which may be held.
            pool = opened.enter_context(process_pool(others, start_worker, copies=False)) if others else None
            here = BoundedSemaphore(_THREADS)

            def work(task: Task) -> TaskResult:
                if not here.acquire(blocking=False):
                    assert pool is not None  # without one there are no more threads than may work here
                    return pool.submit(run_task, task).result()
                try:
                    return run_task(task, is_over)
                finally:
                    here.release()

            try:
                for _, result in as_completed(threads, work, tasks, _THREADS + waiting):
                    done(result)
            except BrokenProcessPool as error:
                raise WorkerDiedError("a worker process died, maybe for lack of memory: try fewer --jobs") from error
