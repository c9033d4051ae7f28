"""Runs an export from beginning to end: recover, plan, run, commit; once, or again and again while a broker appends.

`LocalRunner` runs the tasks in threads of this process and in worker processes; `mqtool.spark.job` has its own
runner.
"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import UsageError, WorkerError
from mqtool.export import commit as protocol
from mqtool.export import tables
from mqtool.export.plan import check_split, log_end
from mqtool.export.run import ExportRequest, ExportResult, ExportRun, Runner
from mqtool.export.sources import require_different_logs
from mqtool.export.target import Target, target_of
from mqtool.export.task import Task, run_task
from mqtool.export.task_result import TaskResult
from mqtool.jobs.pool import as_completed, available, process_pool, start_worker, thread_pool
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.store import Store
from mqtool.store.describe import store_time
from mqtool.store.log.cuts import Cuts
from mqtool.store.paths import is_inside, require_regular
from mqtool.store.remote import absolute, is_url

_THREADS = 2
"""Tasks that one process runs at a time. Encoding and compressing, two thirds of a task, need no interpreter lock;
two threads take 1.1 times the processor time of one, and no process has to start. More would wait for each other."""


class WorkerDiedError(WorkerError):
    """A worker process ended without returning a result."""


class LocalRunner:
    """Runs two tasks at a time in this process, and each further one in a process of its own."""

    def __init__(self, workers: int | None = None) -> None:
        """Starts nothing yet; `workers` is the number of tasks at a time, by default one per processor."""
        self._workers = workers or available()

    def run(self, tasks: list[Task], done: Callable[[TaskResult], None]) -> None:
        """See `Runner`; raises WorkerDiedError if the system killed a worker, most likely for lack of memory."""
        count = min(self._workers, len(tasks))
        if count < 2:
            for task in tasks:
                done(run_task(task))
            return
        others = max(0, count - _THREADS)
        waiting = 2 * others  # so that each process has its next task when it ends one
        with ExitStack() as opened:
            threads, is_over = opened.enter_context(thread_pool(_THREADS + waiting))
            # entered last, left first: the threads that wait for processes end once these are killed.
            # A fork would copy the locks of Arrow's threads, some of which may be held.
            pool = opened.enter_context(process_pool(others, start_worker, copies=False)) if others else None
            here = BoundedSemaphore(_THREADS)

            def work(task: Task) -> TaskResult:
                if not here.acquire(blocking=False):
                    assert pool is not None  # without one there are no more threads than may work here
                    return pool.submit(run_task, task).result()
                try:
                    return run_task(task, is_over)
                finally:
                    here.release()

            try:
                for _, result in as_completed(threads, work, tasks, _THREADS + waiting):
                    done(result)
            except BrokenProcessPool as error:
                raise WorkerDiedError("a worker process died, maybe for lack of memory: try fewer --jobs") from error


def export(request: ExportRequest, runner: Runner, on_progress: OnProgress = ignore) -> ExportResult:
    """Exports; publishes all files of the run, or none; `on_progress` is called with bytes of logs.

    Raises, before anything is published: NotAStoreError if a path contains no part of a store; ExportError if the
    directory, the log or the request does not match the state; StoreLockedError if another export is writing into the
    directory, or has committed there during this run; CorruptionError for damage, with `fail_fast`; StoreError or
    OSError if reading or writing failed; WorkerError if a worker died, or does not share stores or target with this
    process.
    """
    _check(request)
    sources = tuple(source.absolute() for source in request.sources)
    request = replace(request, sources=sources, target=absolute(request.target))
    target = target_of(request.target)
    if request.table is not None:
        tables.require(request.table, target)
    with ExitStack() as opened:
        stores = [opened.enter_context(source.open()) for source in request.sources]
        require_different_logs(stores)
        for store in stores:
            check_split(request.split_bytes, log_bytes(store))
        alone = opened.enter_context(target.lock(f"{protocol.META}/lock"))
        _require_table(request, target)
        update_table = partial(tables.publish, request.table, target)
        last, finished = protocol.recover(target, update_table)
        completed = last if finished else None
        finished |= last is not None and update_table()
        if last is not None and finished and request.state is None:
            return ExportResult(last, finished_earlier=True)
        saved = None if request.state is None else protocol.load_state(request.state)
        state = protocol.starting_state(last, saved, request.state, request.target)
        protocol.check_shape(state, request.shape(), request.target)
        result = ExportRun(request, target, state, last, alone=alone).run(stores, runner, on_progress)
        return replace(result, finished_earlier=finished and not result.committed, completed=completed)


def _require_table(request: ExportRequest, target: Target) -> None:
    """Raises UsageError if a run removes files, but not from the table that refers to them."""
    kind = tables.existing(target)
    if kind in (None, request.table):
        return
    last = protocol.last_manifest(target)
    if request.rewind or (last is not None and last.removed and not protocol.is_published(target, last)):
        raise UsageError(
            f"{request.target}: a {kind} table refers to files that this run removes; add --table-format {kind}"
        )


def log_bytes(store: Store) -> int:
    """Returns the number of bytes of log to read."""
    return store.commit_log.max_offset - store.commit_log.min_offset


def _check(request: ExportRequest) -> None:
    """Raises UsageError for an invalid request before anything is read.

    That are options that contradict each other, a target inside a store, or a state that is not a regular file.
    """
    if request.state is not None and (request.read.selection.start, request.read.selection.end) != (None, None):
        raise UsageError("an export with --state determines its offsets itself; leave out --offset")
    if request.limits and request.state is None:
        raise UsageError(
            "a run with a limit needs the state of the export, from which the next one goes on; add --state"
        )
    if request.rewind and request.state is None:
        raise UsageError("--rewind needs the state of the export; add --state")
    if request.state is not None and not is_url(request.state):
        require_regular(Path(request.state))
    for place in (request.target, request.state):
        for source in request.sources:
            if place is None or is_url(place) or is_url(source.path):
                continue
            if is_inside(Path(place), Path(source.path)):
                raise UsageError(
                    f"{place}: this is inside the store {source.path}, which is only read; name a place elsewhere"
                )


class Patience(Struct, frozen=True):
    """When what is new is worth a run; together these decide how large the files of `follow` are."""

    min_bytes: int | None = None  # bytes of log, of all stores together; None if only the age counts
    # seconds since the oldest of the new records was stored, by the clocks of the broker and this machine
    max_wait: float = 0

    def is_over(self, request: ExportRequest) -> bool:
        """Whether enough is new, or something for long enough; raises as `export` about stores and state."""
        state = protocol.load_state(request.state or "")
        new, oldest = 0, math.inf
        for source in request.sources:
            with source.open() as store:
                mark = None if state is None else state.marks.get(source.broker)
                start = max(store.commit_log.min_offset, 0 if mark is None else mark.offset)
                end = log_end(store, Cuts(store))
                if mark is not None and end < mark.offset:
                    return True  # the run says what that means
                if start < end:
                    new, oldest = new + end - start, min(oldest, _stored_at(store, start))
        return new >= (self.min_bytes or math.inf) or time.time() - oldest >= self.max_wait


def _stored_at(store: Store, start: int) -> float:
    """Returns when the first record after a watermark was stored, in seconds since the epoch; 0 if it is damaged."""
    log = store.commit_log
    start = log.after_blank(start)
    index = log.segment_at(start)
    millis = None if index is None else store_time(store, start + log.segments[index].record_header)
    return (millis or 0) / 1000


def follow(
    request: ExportRequest, runner: Runner, wait: Callable[[], bool], patience: Patience | None = None
) -> Iterator[ExportResult]:
    """Exports repeatedly; each run that finds new messages is one commit.

    Yields the result of the first run, and of each later run that committed something. `wait` waits between two runs,
    and returns whether to go on; then a run is made, if patience is over or None. Raises as `export`, and UsageError
    without a state: each run would refuse the previous run's directory.
    """
    if request.state is None:
        raise UsageError("--follow needs a state file; add --state FILE")
    yield export(request, runner)
    while wait():
        if patience is None or patience.is_over(request):
            result = export(request, runner)
            if result.committed:
                yield result
