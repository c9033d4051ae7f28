"""Exports run by executors: Spark schedules the tasks, the tasks are those of the export on one machine.

Workers write Parquet themselves, which is nearly twice as fast as handing batches to the JVM, and so both ways give
the same files. The commit stays with the driver. The target and the stores must be reachable by every executor under
the same names.
"""

from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import TYPE_CHECKING

from pyspark import InheritableThread

from mqtool.errors import CorruptionError, MqtoolError
from mqtool.export.task import Task, TaskResult, run_task

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

GROUP = "mqtool-export"
_INTERVAL = 0.3


class SparkJobError(MqtoolError):
    """A Spark job failed for a reason that is not ours."""


class SparkRunner:
    """Runs tasks as one Spark job; see `plain.Runner`."""

    def __init__(self, session: "SparkSession", progress: Callable[[int, int], None] | None = None) -> None:
        """Takes a session that is running.

        Args:
            session: a classic one: the job is an RDD's.
            progress: is told several times a second how many bytes of log are done, about, and of how many.
        """
        self._context: SparkContext = session.sparkContext
        self._progress = progress

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """Runs all tasks.

        Raises:
            CorruptionError: damage, in mode failfast.
            SparkJobError: Spark gave up.
        """
        if not tasks:
            return
        for answer in self._answers(tasks):
            if isinstance(answer, CorruptionError):
                raise answer
            done(answer)

    def _answers(self, tasks: list[Task]) -> list[TaskResult | CorruptionError]:
        """Collects in a thread, so that Ctrl-C arrives and progress moves."""
        found: list[TaskResult | CorruptionError] = []
        failed: list[BaseException] = []
        ended = Event()

        def collect() -> None:
            try:
                self._context.setJobGroup(GROUP, f"export {len(tasks)} partitions", interruptOnCancel=True)
                found.extend(self._context.parallelize(tasks, len(tasks)).mapPartitions(_run).collect())
            except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
                failed.append(error)
            finally:
                ended.set()

        thread = InheritableThread(target=collect, daemon=True)
        thread.start()
        try:
            while not ended.wait(_INTERVAL):
                self._tell(tasks)
        except BaseException:
            self._context.cancelJobGroup(GROUP)
            ended.wait(30)
            raise
        thread.join()
        if failed:
            raise _translated(failed[0]) from failed[0]
        return found

    def _tell(self, tasks: list[Task]) -> None:
        if self._progress is None:
            return
        tracker = self._context.statusTracker()
        completed = 0
        for job in tracker.getJobIdsForGroup(GROUP):
            info = tracker.getJobInfo(job)
            stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
            completed += sum(stage.numCompletedTasks for stage in stages if stage)
        total = sum(task.partition.size for task in tasks)
        self._progress(total * completed // len(tasks), total)


def _run(tasks: Iterable[Task]) -> Iterator[TaskResult | CorruptionError]:
    """Runs on an executor. Damage that must not be lived with is an answer: trying again would find it again."""
    for task in tasks:
        try:
            yield run_task(task)
        except CorruptionError as error:
            yield error


def _translated(error: BaseException) -> BaseException:
    """Returns the last words of a failed job as one error; what is not Spark's passes as it is."""
    if not type(error).__module__.startswith(("py4j", "pyspark")):
        return error
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith(("mqtool.", "OSError", "PermissionError", "FileNotFoundError"))]
    said = ours[-1] if ours else next((line for line in lines if line), type(error).__name__)
    return SparkJobError(f"the Spark job failed, nothing was published: {said}")
