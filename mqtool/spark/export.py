"""Exports run by executors: Spark schedules the tasks, which are the same as those of an export on one machine.

Workers write Parquet themselves. This is nearly twice as fast as passing batches to the JVM, and both ways produce
the same files. The driver commits. The target and the stores must be reachable by every executor under the same
names.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from mqtool.export.target import target_of
from mqtool.export.task import Task, TaskResult, run_task
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.spark.job import SparkJob, require_shared
from mqtool.store.remote import as_path, is_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "mqtool-export"


class SparkRunner:
    """Runs tasks as one Spark job; see `plain.Runner`."""

    def __init__(self, session: "SparkSession", on_progress: OnProgress = ignore) -> None:
        """Uses a running session.

        Args:
            session: a classic session (not Spark Connect), because the job uses an RDD.
            on_progress: see `SparkJob`.
        """
        self._session, self._on_progress = session, on_progress

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """Runs all tasks.

        Raises:
            CorruptionError: damage, in mode failfast.
            StoreError, OSError: reading or writing failed.
            SparkJobError: Spark gave up, or an executor does not see the stores or the target of the driver.
        """
        for task in tasks[:1]:
            target_of(task.target).replace(_probe(task), b"")
        newest = {task.partition.source.broker: task.partition.spans[-1].path for task in tasks}
        work = partial(_run, newest)
        job: SparkJob[Task, TaskResult] = SparkJob(self._session, GROUP, work, _size, self._on_progress)
        for result in job.run(tasks, f"export {len(tasks)} partitions"):
            done(result)


def _probe(task: Task) -> str:
    """Returns the path of a file of the driver that every executor must find in the target."""
    return f"{task.staging}/driver"


def _size(task: Task) -> int:
    return task.partition.size


def _run(newest: dict[str, str], tasks: Iterable[Task]) -> Iterator[TaskResult]:
    """Runs on an executor.

    Args:
        newest: by broker, the newest segment to read: a directory without it is not the store that the driver saw.
        tasks: what to do.
    """
    for task in tasks:
        segment = newest[task.partition.source.broker]
        require_shared(segment, is_here=is_url(segment) or as_path(segment).exists())
        target = target_of(task.target)
        require_shared(f"{target.url}/{_probe(task)}", is_here=target.read(_probe(task)) is not None)
        yield run_task(task)
