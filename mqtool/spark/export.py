"""Exports run by executors: Spark schedules the tasks, the tasks are those of the export on one machine.

Workers write Parquet themselves, which is nearly twice as fast as handing batches to the JVM, and so both ways give
the same files. The commit stays with the driver. The target and the stores must be reachable by every executor under
the same names.
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
        """Takes a session that is running.

        Args:
            session: a classic one: the job is an RDD's.
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
