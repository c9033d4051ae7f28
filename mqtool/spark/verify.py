"""Checks a store on executors: tasks and classifier are those of `mqtool.verify`; the cluster does the reading.

The driver surveys the store and classifies; executors read segments, queues and index files, and return facts and
checksums. The findings are the same as on one machine, in the same order, because facts are combined in the survey's
order.
"""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from mqtool.jobs.progress import OnProgress, ignore
from mqtool.spark.job import SparkJob, context_of, require_shared
from mqtool.store import Store
from mqtool.verify import Verification
from mqtool.verify.classifier import Classifier
from mqtool.verify.facts import Facts
from mqtool.verify.survey import Survey, survey
from mqtool.verify.tasks import Result, Task, run_task, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "mqtool-verify"


def verify_on(
    session: "SparkSession",
    store: Store,
    topics: tuple[str, ...] | None = None,
    on_progress: OnProgress = ignore,
    broker: str | None = None,
) -> Verification:
    """Checks a store as `mqtool.verify.verify` does, on executors that reach it under the same name.

    Topics are globs, None for all. The next start is evaluated for the release `broker`, by default the detected one.
    Raises SparkJobError if Spark gave up, or an executor cannot reach the store, UsageError for Spark Connect.
    """
    context = context_of(session)
    begun = time.monotonic()
    store_survey = survey(store, topics, broker=broker)
    tasks = tasks_of(store_survey)
    longest_first = sorted(tasks, key=lambda task: -task.bytes)
    shared = context.broadcast(store_survey)
    job: SparkJob[Task, Result] = SparkJob(session, GROUP, partial(_run, shared), _size, on_progress)
    answers = job.run(longest_first, f"verify {len(tasks)} parts of {store_survey.root}")
    shared.destroy()
    results = {task.key: result for task, result in zip(longest_first, answers, strict=True)}
    classifier = Classifier(store, Facts(store_survey, tuple(results[task.key] for task in tasks)))
    classifier.classify()
    return classifier.verdict(time.monotonic() - begun, complete=True)


def _size(task: Task) -> int:
    return task.bytes


def _run(shared: Any, tasks: Iterable[Task]) -> Iterator[Result]:
    store_survey: Survey = shared.value
    _require_store(store_survey)
    for task in tasks:
        yield run_task(store_survey, task)


def _require_store(store_survey: Survey) -> None:
    """Raises SparkJobError if the newest segment that the driver saw does not exist here.

    So a store that is not mounted on this machine is not reported as a store with missing files.
    """
    witness = store_survey.segments[store_survey.last_used].path if store_survey.segments else store_survey.root
    require_shared(witness, is_here=witness.exists())
