"""`verify`: all checks of a store, and the verdict.

Start reading here: the files are surveyed, read once as independent tasks (`tasks`), and compared by checksums
(`facts`); data is read again only where checksums differ. Then `classifier` converts facts to findings, area by
area.

The state file of a check that can be resumed has a line about the store, then a line of JSON per finished task. A file
of another store, or of this store before it changed, is ignored. So is a truncated last line.
"""

import base64
import hashlib
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from mqtool import __version__
from mqtool.formats.index_file import IndexHeader
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.jobs.resume import TaskLog
from mqtool.records.damage import Tail
from mqtool.store import Store
from mqtool.store.paths import require_regular
from mqtool.store.queues.consume_queue import ExtUnits
from mqtool.verify.checksums import Sums
from mqtool.verify.classifier import Classifier
from mqtool.verify.consume_queue import QueueFacts, Run
from mqtool.verify.facts import Facts
from mqtool.verify.findings import Finding, Severity, Verification
from mqtool.verify.index_file import IndexFacts, WrongEntry
from mqtool.verify.record_rules import Jump, QueueSpan
from mqtool.verify.segment import DamagedRange, SegmentFacts, Timeline
from mqtool.verify.survey import Survey, survey
from mqtool.verify.tasks import Result, SparseSums, Task, run_all, tasks_of

_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Result,
        SparseSums,
        SegmentFacts,
        QueueFacts,
        IndexFacts,
        DamagedRange,
        QueueSpan,
        Jump,
        Run,
        WrongEntry,
        Finding,
        Tail,
        Timeline,
        IndexHeader,
    )
}


def state_file(path: Path, survey: Survey) -> TaskLog[Result]:
    """Opens or creates the state file for a store; ignores results of another store, or of this one before it changed.

    Raises UsageError if it is another kind of file.
    """
    require_regular(path)
    return TaskLog(path, {"mqtool": __version__, "store": _digest(survey)}, "verify", decode)


def _digest(survey: Survey) -> str:
    """Returns a digest that changes whenever the store or the request changes."""
    files = [s.path for s in survey.segments] + [f.path for q in survey.queues for f in q.files]
    files += [path for path, _ in survey.index.files]
    files += [f.path for q in survey.queues for f in ExtUnits(survey.root, q.topic, q.queue_id).files]
    marks = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    request = (str(survey.root), survey.topics, survey.timeline, str(survey.config), survey.broker)
    known = (survey.end, survey.live, survey.has_dledger, repr(survey.rules), survey.index.shape)
    return hashlib.sha256(repr((request, known, marks)).encode()).hexdigest()


def encode(value: Any) -> Any:
    """Returns JSON for facts: value classes by name, arrays as bytes."""
    if isinstance(value, np.ndarray):
        return {"$array": value.dtype.str, "data": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, Sums):
        return {"$sums": [encode(value.total), encode(value.count)]}
    if isinstance(value, Struct):
        values = {name: encode(field) for name, field in structs.asdict(value).items()}
        return {"$class": type(value).__name__, **values}
    if isinstance(value, Counter):
        return {"$counter": [[encode(key), count] for key, count in value.items()]}
    if isinstance(value, Severity):
        return {"$severity": value.value}
    if isinstance(value, Path):
        return {"$path": str(value)}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    return value


def decode(value: Any) -> Any:
    """Returns the facts that `encode` wrote."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$class" in value:
        kind = _CLASSES[value["$class"]]
        return kind(**{name: decode(item) for name, item in value.items() if name != "$class"})
    if "$array" in value:
        return np.frombuffer(base64.b64decode(value["data"]), np.dtype(value["$array"])).copy()
    if "$sums" in value:
        sums = Sums(0)
        sums.total, sums.count = (decode(item) for item in value["$sums"])
        return sums
    if "$counter" in value:
        return Counter({decode(key): count for key, count in value["$counter"]})
    if "$severity" in value:
        return Severity(value["$severity"])
    return Path(value["$path"]) if "$path" in value else tuple(decode(item) for item in value["$tuple"])


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

    Nothing is written but the state file, and no lock is taken. If a broker is writing to the store, the check
    describes its state at the time of the call, and only what is certain is reported. Raises UsageError if the state
    file is another kind of file.
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
