"""Exports run by executors: Spark schedules the tasks, which are the same as those of an export on one machine.

Workers write Parquet themselves. This is nearly twice as fast as passing batches to the JVM, and both ways produce
the same files. The driver commits. The target and the stores must be reachable by every executor under the same
names.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from mqtool.export.task import Task, TaskResult, run_task
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.spark.job import SparkJob

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
        self._job: SparkJob[Task, TaskResult] = SparkJob(session, GROUP, _run, _size, on_progress)

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """Runs all tasks.

        Raises:
            CorruptionError: damage, in mode failfast.
            StoreError, OSError: reading or writing failed.
            SparkJobError: Spark gave up.
        """
        for result in self._job.run(tasks, f"export {len(tasks)} partitions"):
            done(result)


def _size(task: Task) -> int:
    return task.partition.size


def _run(tasks: Iterable[Task]) -> Iterator[TaskResult]:
    """Runs on an executor."""
    for task in tasks:
        yield run_task(task)
