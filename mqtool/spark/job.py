"""Runs independent work items as one Spark job: with progress, interruptible by Ctrl-C, and with one-line errors.

The tasks of an export are the same as those on one machine. Workers write Parquet themselves. This is nearly twice as
fast as passing batches to the JVM, and both ways produce the same files. The driver commits. The target and the stores
must be reachable by every executor under the same names.
"""

import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark import InheritableThread, TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkAttributeError

from mqtool.errors import CorruptionError, MqtoolError, UsageError, WorkerError
from mqtool.export.target import target_of
from mqtool.export.task import Task, run_task
from mqtool.export.task_result import TaskResult
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.store.remote import as_path, is_url

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


Item = TypeVar("Item")
Answer = TypeVar("Answer")
_INTERVAL = 0.3
_TRACEBACK = "Traceback (most recent call last):"

GROUP = "mqtool-export"


class SparkJobError(WorkerError):
    """A Spark job failed for a reason outside mqtool."""


def context_of(session: "SparkSession") -> "SparkContext":
    """Returns the context, with which jobs run; raises UsageError for Spark Connect, which has none."""
    try:
        return session.sparkContext
    except PySparkAttributeError as error:
        raise UsageError(
            "Spark Connect runs no jobs of mqtool: use a classic session, or read with format('rocketmq-store') and "
            "write the frame"
        ) from error


class SparkJob(Generic[Item, Answer]):
    """One job: one Spark task per item; returns the answers in the order of the items."""

    def __init__(
        self,
        session: "SparkSession",
        group: str,
        work: Callable[[Iterable[Item]], Iterator[Answer]],
        size: Callable[[Item], int],
        on_progress: OnProgress = ignore,
    ) -> None:
        """Uses a running session; raises UsageError for one of Spark Connect.

        Spark lists the job under the name `group`. `work` runs on an executor and yields one answer for each item;
        `size` returns the bytes of an item. `on_progress` is called several times a second with bytes, estimated from
        the tasks that have finished.
        """
        self._context = context_of(session)
        self._group, self._work, self._size, self._on_progress = group, work, size, on_progress

    def run(self, items: list[Item], what: str) -> list[Answer]:
        """Returns the answers; Spark shows `what` as the description.

        Raises CorruptionError if the work found damage that it must not tolerate, which is not retried; MqtoolError or
        OSError if it failed in every attempt that Spark made; SparkJobError if Spark gave up.
        """
        if not items:
            return []
        answers: list[Answer] = []
        failed: list[BaseException] = []
        ended = Event()
        errors: Any = self._context.accumulator([], _Lists())
        attempts = _Attempts(self._work, errors, self._max_attempts())

        def collect() -> None:
            """Runs in a thread, so that the caller's thread can be interrupted and report progress."""
            try:
                self._context.setJobGroup(self._group, what, interruptOnCancel=True)
                answers.extend(self._context.parallelize(items, len(items)).mapPartitions(attempts).collect())
            except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
                failed.append(error)
            finally:
                ended.set()

        thread = InheritableThread(target=collect, daemon=True)
        thread.start()
        try:
            while not ended.wait(_INTERVAL) and not errors.value:
                self._report_progress(items)
        except BaseException:
            self._cancel(ended)
            raise
        if errors.value:
            self._cancel(ended)
            raise errors.value[0]
        thread.join()
        if failed:
            raise _translated(failed[0]) from failed[0]
        return answers

    def _cancel(self, ended: Event) -> None:
        self._context.cancelJobGroup(self._group)
        ended.wait(_INTERVAL)

    def _max_attempts(self) -> int:
        """Returns how often Spark attempts a task; once with a local master."""
        if str(self._context.master).startswith("local"):
            return 1
        return int(self._context.getConf().get("spark.task.maxFailures") or 4)

    def _report_progress(self, items: list[Item]) -> None:
        tracker = self._context.statusTracker()
        completed = 0
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
            completed += sum(stage.numCompletedTasks for stage in stages if stage)
        total = sum(self._size(item) for item in items)
        self._on_progress(total * min(completed, len(items)) // len(items), total)


class _Lists(AccumulatorParam[list[BaseException]]):
    """Accumulator of lists to which executors append."""

    def zero(self, value: list[BaseException]) -> list[BaseException]:  # noqa: ARG002 - Spark's protocol
        return []

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: list[BaseException], value2: list[BaseException]
    ) -> list[BaseException]:
        return [*value1, *value2]


class _Attempts:
    """Runs the work on an executor, and passes the error of the last attempt to the driver, which then ends the job.

    Without this, Spark would raise a Java exception that contains the error's message somewhere in its text.
    """

    def __init__(self, work: Callable[[Iterable[Any]], Iterator[Any]], errors: Any, limit: int) -> None:
        self._work, self._errors, self._max_attempts = work, errors, limit

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from self._work(items)
        except (MqtoolError, OSError) as error:
            context = TaskContext.get()
            has_retry = context is not None and context.attemptNumber() + 1 < self._max_attempts
            if has_retry and not isinstance(error, CorruptionError):
                raise
            self._errors.add([error])


def _translated(error: BaseException) -> BaseException:
    """Returns the error of a failed Spark job as one mqtool error; other errors are returned unchanged."""
    if not type(error).__module__.startswith(("py4j", "pyspark")):
        return error
    return SparkJobError(f"the Spark job failed: {last_words(error)}")


def require_shared(path: object, *, is_here: bool) -> None:
    """Raises SparkJobError unless an executor sees a file that the driver saw or wrote."""
    if not is_here:
        where = f"is not on the executor {socket.gethostname()}"
        raise SparkJobError(f"{path}: {where}; driver and executors must reach stores and target under the same paths")


def last_words(error: BaseException) -> str:
    """Returns the line of a Spark failure that states the reason."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("mqtool.")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    stated = [cause for cause in causes if ": " in cause and not cause.endswith(_TRACEBACK)]
    raised = [line.removeprefix(": ").rstrip(": ") for line in lines if line.startswith(": ")]
    reasons = [*(raised[:1]), *(cause.rstrip(": ") for cause in stated), *_raised_in_python(error), *ours]
    reasons = reasons or [line for line in lines if line][:1] or [type(error).__name__]
    stopped = "stopped SparkContext" in reasons[-1]
    return "the master does not answer, or ended the application" if stopped else reasons[-1]


def _raised_in_python(error: BaseException) -> list[str]:
    """Returns the line after each traceback of Python in a failure."""
    lines, is_inside = [], False
    for line in str(error).splitlines():
        if line.endswith(_TRACEBACK):
            is_inside = True
        elif is_inside and not line.startswith(" "):
            lines.append(line.strip())
            is_inside = False
    return lines


class SparkRunner:
    """Runs tasks as one Spark job; see `plain.Runner`."""

    def __init__(self, session: "SparkSession", on_progress: OnProgress = ignore) -> None:
        """Uses a running session; see `SparkJob`."""
        self._session, self._on_progress = session, on_progress

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """Runs all tasks.

        Raises CorruptionError for damage, in mode failfast, StoreError or OSError if reading or writing failed,
        SparkJobError if Spark gave up, or an executor does not see the stores or the target of the driver.
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

    `newest` is the newest segment to read by broker: a directory without it is not the store that the driver saw.
    """
    for task in tasks:
        segment = newest[task.partition.source.broker]
        require_shared(segment, is_here=is_url(segment) or as_path(segment).exists())
        target = target_of(task.target)
        require_shared(f"{target.url}/{_probe(task)}", is_here=target.read(_probe(task)) is not None)
        yield run_task(task)
