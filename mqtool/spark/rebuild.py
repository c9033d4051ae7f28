"""Rebuilds queues and index on executors; the tasks are those of `mqtool.rebuild.tasks`."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from mqtool.jobs.progress import OnProgress
from mqtool.rebuild.tasks import Answer, Job, Runner, Task, WalkTask
from mqtool.spark.job import SparkJob, require_shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "mqtool-rebuild"


def runner(session: "SparkSession") -> Runner:
    """Returns what runs the tasks of a rebuild as Spark jobs of a session; see `SparkJob`.

    It raises SparkJobError if Spark gave up, or an executor does not see the store or the target of the driver. What
    surveyors saw can be joined: Spark gives all its Python workers one PYTHONHASHSEED.
    """

    def run(job: Job, tasks: list[Task], what: str, on_progress: OnProgress) -> list[Answer]:
        work: SparkJob[Task, Answer] = SparkJob(session, GROUP, partial(_run, job), _size, on_progress)
        return work.run(tasks, f"rebuild {job.store}: {what}")

    return run


def _size(_task: Task) -> int:
    return 1


def _run(job: Job, tasks: Iterable[Task]) -> Iterator[Answer]:
    require_shared(job.attempts, is_here=job.attempts.is_dir())
    for task in tasks:
        if isinstance(task, WalkTask):
            segment = task.part.segment.path
            require_shared(segment, is_here=segment.exists())
        yield task.run(job)
