"""`verify`: all checks of a store, and the verdict.

Start reading here: the files are surveyed, read once as independent tasks (`tasks`), and compared by checksums
(`facts`); data is read again only where checksums differ. Then `classifier` converts facts to findings, area by
area.
"""

import time
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from mqtool.jobs.progress import OnProgress, ignore
from mqtool.store import Store
from mqtool.verify.classifier import Classifier
from mqtool.verify.facts import Facts
from mqtool.verify.findings import Verification
from mqtool.verify.state import encode, state_file
from mqtool.verify.survey import Survey, survey
from mqtool.verify.tasks import Result, Task, run_all, tasks_of


class Options(Struct, frozen=True):
    """How to check."""

    # globs; None for all. Restricts queues, lost messages and consumer offsets, and skips files that do not belong to a
    # topic: index, timer and controller files. Damage of the log is reported for all topics.
    topics: tuple[str, ...] | None = None
    jobs: int = 1  # number of processes, or of threads if compiled passes do the work
    throttle: int | None = None  # bytes per second, None for no limit
    state: Path | None = None  # file that stores finished tasks, None for none
    max_seconds: float | None = None  # time after which no new task is started
    timeline: bool = False  # count messages by topic and minute, for a report
    broker: str | None = None  # release whose next start is evaluated, "4.9" or "5.5"; by default the detected one


def verify(store: Store, options: Options | None = None, on_progress: OnProgress = ignore) -> Verification:
    """Checks a store.

    Nothing is written, and no lock is taken. If a broker is writing to the store, the check describes its state at
    the time of the call, and only what is certain is reported.

    Raises:
        UsageError: the state file is not a state file of verify.
    """
    return examine(store, options, on_progress)[0]


def examine(
    store: Store, options: Options | None = None, on_progress: OnProgress = ignore
) -> tuple[Verification, Facts]:
    """Checks a store as `verify` does, and also returns the facts."""
    chosen = options or Options()
    begun = time.monotonic()
    throttle = max(1, chosen.throttle // chosen.jobs) if chosen.throttle else None
    store_survey = survey(store, chosen.topics, throttle=throttle, timeline=chosen.timeline, broker=chosen.broker)
    deadline = None if chosen.max_seconds is None else begun + chosen.max_seconds
    facts, complete = _read(store_survey, chosen, on_progress, deadline)
    classifier = Classifier(store, facts)
    if complete:
        classifier.classify()
    return classifier.verdict(time.monotonic() - begun, complete=complete), facts


def _read(
    store_survey: Survey, options: Options, on_progress: OnProgress, deadline: float | None
) -> tuple[Facts, bool]:
    """Runs all tasks; returns the facts, and whether all tasks were run."""
    tasks = tasks_of(store_survey)
    total = sum(task.bytes for task in tasks)
    state = state_file(options.state, store_survey) if options.state else None

    past = within = 0

    def tick(count: int) -> None:
        nonlocal within
        within += count
        on_progress(min(total, past + within), total)

    def finished(task: Task, result: Result) -> None:
        nonlocal past, within
        past, within = past + task.bytes, 0
        on_progress(min(total, past), total)
        if state is not None and result.is_complete:
            state.add(task.key, encode(result))

    with state or nullcontext():
        done = state.done if state else {}
        past = sum(task.bytes for task in tasks if task.key in done)
        results = run_all(store_survey, tasks, options.jobs, done, finished, deadline, tick)
    read = tuple(results[task.key] for task in tasks if task.key in results)
    return Facts(store_survey, read), len(read) == len(tasks)
