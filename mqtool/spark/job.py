"""Independent pieces of work as one Spark job: progress while it runs, Ctrl-C that arrives, one line when it fails."""

from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark import InheritableThread

from mqtool.errors import MqtoolError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Progress = Callable[[int, int], None]
"""Is told several times a second how many bytes are done, about, and of how many."""

_INTERVAL = 0.3


class SparkJobError(MqtoolError):
    """A Spark job failed for a reason that is not ours."""


class SparkJob(Generic[Item, Answer]):
    """One job: a task of Spark for each item, answers in the order of the items."""

    def __init__(
        self, session: "SparkSession", group: str, work: Callable[[Iterable[Item]], Iterator[Answer]],
        size: Callable[[Item], int], progress: Progress | None = None,
    ) -> None:  # fmt: skip
        """Takes a session that is running.

        Args:
            session: a classic one: the job is an RDD's.
            group: name under which Spark lists it.
            work: runs on an executor; yields one answer for each item.
            size: bytes of an item.
            progress: see the type.
        """
        self._context: SparkContext = session.sparkContext
        self._group, self._work, self._size, self._progress = group, work, size, progress

    def run(self, items: list[Item], what: str) -> list[Answer]:
        """Returns the answers; `what` is shown by Spark.

        Raises:
            SparkJobError: Spark gave up.
        """
        if not items:
            return []
        found: list[Answer] = []
        failed: list[BaseException] = []
        ended = Event()

        def collect() -> None:
            """In a thread, so that the caller's can be interrupted and tells how far it is."""
            try:
                self._context.setJobGroup(self._group, what, interruptOnCancel=True)
                found.extend(self._context.parallelize(items, len(items)).mapPartitions(self._work).collect())
            except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
                failed.append(error)
            finally:
                ended.set()

        thread = InheritableThread(target=collect, daemon=True)
        thread.start()
        try:
            while not ended.wait(_INTERVAL):
                self._tell(items)
        except BaseException:
            self._context.cancelJobGroup(self._group)
            ended.wait(30)
            raise
        thread.join()
        if failed:
            raise _translated(failed[0]) from failed[0]
        return found

    def _tell(self, items: list[Item]) -> None:
        if self._progress is None:
            return
        tracker = self._context.statusTracker()
        completed = 0
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
            completed += sum(stage.numCompletedTasks for stage in stages if stage)
        total = sum(self._size(item) for item in items)
        self._progress(total * min(completed, len(items)) // len(items), total)


def _translated(error: BaseException) -> BaseException:
    """Returns the last words of a failed job as one error; what is not Spark's passes as it is."""
    if not type(error).__module__.startswith(("py4j", "pyspark")):
        return error
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith(("mqtool.", "OSError", "PermissionError", "FileNotFoundError"))]
    said = ours[-1] if ours else next((line for line in lines if line), type(error).__name__)
    return SparkJobError(f"the Spark job failed: {said}")
