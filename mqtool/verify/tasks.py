"""Reads a store as independent tasks, sequentially or in several processes or threads.

A task is one segment or a part of it, some queues, or one index file. Results are facts and checksums: they are
combined in the same order, whatever the number of processes and the order in which tasks finish.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool import native
from mqtool.jobs.pool import as_completed, thread_pool, worker_pool
from mqtool.jobs.progress import Throttle
from mqtool.verify.index.index_file import IndexFacts, check_index_file
from mqtool.verify.log.checksums import Buckets, Sums
from mqtool.verify.log.segment import SegmentFacts, check_segment
from mqtool.verify.log.segment_parts import merge_parts, parts_of
from mqtool.verify.queues.consume_queue import QueueFacts, check_queue
from mqtool.verify.survey import Survey

_QUEUE_BYTES = 32 << 20
"""Bytes of queue files that one task reads."""
_QUEUES = 512
"""Maximum number of queues of one task."""
_MANY = 8
"""Segments per process from which on none is divided: whole segments keep all processes busy."""

if TYPE_CHECKING:
    from concurrent.futures import Executor

Tick = Callable[[int], None]
"""Receives the number of bytes as they are read."""


class Task(Struct, frozen=True):
    """A unit of work."""

    kind: str  # "segment", "queues" or "index"
    first: int  # and last: numbers of segments, queues or index files, half-open
    last: int
    bytes: int  # to be read
    # Of a segment: positions of the first record and after the last one, None for the segment's end.
    part: tuple[int, int | None] = (0, None)

    @property
    def key(self) -> str:
        """Name that is stable for one survey."""
        key = f"{self.kind} {self.first}-{self.last}"
        return key if self.part == (0, None) else f"{key} from {self.part[0]} to {self.part[1]}"


class SparseSums(Struct):
    """The sums of the buckets that are not empty."""

    where: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    total: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    count: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, sums: Sums) -> "SparseSums":
        """Returns the sums that are not zero."""
        where = np.flatnonzero(sums.count)
        return cls(where, sums.total[where], sums.count[where])

    def add_to(self, sums: Sums) -> None:
        """Adds the sums to a complete table."""
        sums.total[self.where] += self.total
        sums.count[self.where] += self.count


class Result(Struct):
    """Result of a task; attributes of other kinds of tasks are empty."""

    segments: list[SegmentFacts] = field(default_factory=list)
    queues: list[QueueFacts] = field(default_factory=list)
    index: list[IndexFacts] = field(default_factory=list)
    sums: SparseSums = field(default_factory=SparseSums)

    @property
    def is_complete(self) -> bool:
        """Whether all files could be read; a later run may be able to read the others."""
        failures = [
            *(facts.failure for facts in self.segments),
            *(facts.failure or facts.ext_unread for facts in self.queues),
            *(facts.failure for facts in self.index),
        ]
        return not any(failures)


def tasks_of(survey: Survey) -> list[Task]:
    """Returns all tasks for a store."""
    tasks = [Task("segment", n, n + 1, s.size) for n, s in enumerate(survey.segments) if n <= survey.last_used]
    first = size = 0
    for number, queue in enumerate(survey.queues):
        size += sum(file.size for file in queue.files)
        if size >= _QUEUE_BYTES or number + 1 - first >= _QUEUES or number + 1 == len(survey.queues):
            tasks.append(Task("queues", first, number + 1, size))
            first, size = number + 1, 0
    if survey.with_index:
        tasks += [Task("index", n, n + 1, size) for n, (_, size) in enumerate(survey.index.files)]
    return tasks


def run_task(
    survey: Survey, task: Task, tick: Tick | None = None, sleep: Callable[[float], None] = time.sleep
) -> Result:
    """Runs one task.

    Args:
        survey: the store.
        task: one of `tasks_of`.
        tick: receives the number of bytes read.
        sleep: waits for seconds where a throttle asks for it.
    """
    throttle = Throttle(survey.throttle, tick, sleep=sleep)
    numbers = range(task.first, task.last)
    if task.kind == "segment":
        return Result(segments=[check_segment(survey, number, throttle, task.part) for number in numbers])
    buckets = Buckets(survey.segments)
    sums = Sums(buckets.count)
    if task.kind == "queues":
        queues = [check_queue(survey, survey.queues[number], buckets, sums, throttle) for number in numbers]
        return Result(queues=queues, sums=SparseSums.of(sums))
    shape = survey.index.shape
    assert shape is not None
    paths = [survey.index.files[number][0] for number in numbers]
    index = [check_index_file(survey, path, shape, buckets, sums, throttle) for path in paths]
    return Result(index=index, sums=SparseSums.of(sums))


def run_all(
    survey: Survey,
    tasks: list[Task],
    jobs: int,
    done: Mapping[str, Result],
    finished: Callable[[Task, Result], None],
    deadline: float | None,
    tick: Tick | None = None,
) -> dict[str, Result]:
    """Runs all tasks that are not done yet.

    Args:
        survey: the store.
        tasks: all of them.
        jobs: number of processes or threads; 1 for this process alone.
        done: results of an earlier run, by key.
        finished: called with each new result.
        deadline: `time.monotonic()` after which no new task is started; None for none.
        tick: receives the number of bytes that this process reads.

    Returns:
        Results by key; fewer than tasks if the deadline passed.
    """
    results = dict(done)

    def carry_out(pieces: list[Task]) -> None:
        left = [piece for piece in pieces if piece.key not in results]
        alone = jobs == 1 or len(left) < 2
        for task, result in _here(survey, left, deadline, tick) if alone else _spread(survey, left, jobs, deadline):
            results[task.key] = result
            finished(task, result)

    left = [task for task in tasks if task.key not in results]
    plan = {task: pieces for task in left if len(pieces := _cut(survey, task, jobs)) > 1}
    carry_out([piece for task in left for piece in plan.get(task, [task])])
    for task, pieces in plan.items():
        merged_pieces = [results[piece.key].segments[0] for piece in pieces if piece.key in results]
        merged = merge_parts(survey, merged_pieces) if len(merged_pieces) == len(pieces) else None
        if merged is not None:
            results[task.key] = Result(segments=[merged])
    carry_out([task for task, pieces in plan.items() if all(piece.key in results for piece in pieces)])
    return results


def _cut(survey: Survey, task: Task, jobs: int) -> list[Task]:
    """Returns the parts of a task that several processes can share."""
    if jobs == 1 or task.kind != "segment" or survey.last_used + 1 >= _MANY * jobs:
        return [task]
    parts = parts_of(survey, task.first, jobs)
    return [replace(task, part=part, bytes=(part[1] or task.bytes) - part[0]) for part in parts]


def _here(
    survey: Survey, tasks: list[Task], deadline: float | None, tick: Tick | None
) -> Iterator[tuple[Task, Result]]:
    for task in tasks:
        if _is_over(deadline):
            return
        yield task, run_task(survey, task, tick)


def _spread(survey: Survey, tasks: list[Task], jobs: int, deadline: float | None) -> Iterator[tuple[Task, Result]]:
    """Runs tasks in parallel, the longest first, at most `jobs` at a time."""
    queue = sorted(tasks, key=lambda task: -task.bytes)
    with _workers(survey, min(jobs, len(queue))) as (pool, work):
        yield from as_completed(pool, work, queue, jobs, may_begin=lambda: not _is_over(deadline))


@contextmanager
def _workers(survey: Survey, count: int) -> "Iterator[tuple[Executor, Callable[[Task], Result]]]":
    """Yields threads if compiled passes do the work, which run in parallel in one process; otherwise processes."""
    if not native.in_use():
        with worker_pool(count) as processes:
            yield processes, partial(run_task, survey)
    else:
        with thread_pool(count) as (threads, is_over):
            yield threads, partial(_run_until, is_over, survey)


def _run_until(is_over: Event, survey: Survey, task: Task) -> Result:
    """Runs a task, and aborts it soon after the event is set."""
    from concurrent.futures import CancelledError  # noqa: PLC0415 - one thread does without

    def sleep(seconds: float) -> None:
        if is_over.wait(seconds):
            raise CancelledError(task.key)

    return run_task(survey, task, lambda _: sleep(0), sleep)


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
