"""Runs tasks on this machine: in this process and in worker processes."""

from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool

from mqtool.errors import WorkerError
from mqtool.export.task import Task, TaskResult, run_task
from mqtool.jobs.pool import as_completed, available, process_pool, start_worker

_AHEAD = 2
"""Tasks queued for each process, so that it has work while this process is busy."""


class WorkerDiedError(WorkerError):
    """A worker process ended without returning a result."""


class LocalRunner:
    """Runs tasks in this process and in worker processes; this process works while they start."""

    def __init__(self, workers: int | None = None) -> None:
        """Starts nothing yet.

        Args:
            workers: number of processes including this one; None for one per processor.
        """
        self._workers = workers or available()

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """See `plain.Runner`.

        Raises:
            WorkerDiedError: the system killed a worker, most likely for lack of memory.
        """
        others = min(self._workers, len(tasks)) - 1
        if others < 1:
            for task in tasks:
                done(run_task(task))
            return
        # A fork would copy the locks of Arrow's threads, some of which may be held.
        with process_pool(others, start_worker, copies=False) as pool:
            try:
                for _, result in as_completed(pool, run_task, tasks, others * _AHEAD, helps=True):
                    done(result)
            except BrokenProcessPool as error:
                raise WorkerDiedError("a worker process died, maybe for lack of memory: try fewer --jobs") from error
