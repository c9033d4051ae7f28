"""Reads a store as independent tasks, sequentially or in several processes or threads.

A task is one segment or a part of it, some queues, or one index file. Results are facts and checksums: they are
combined in the same order, whatever the number of processes and the order in which tasks finish.

Parts are cut where a record seems to start. If one of them contains anything other than valid records up to the
exact position at which the next one begins, all results are discarded and the segment is read again as a whole.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from threading import Event
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool import native
from mqtool.errors import StoreError
from mqtool.jobs.pool import PART_BYTES, as_completed, thread_pool, worker_pool
from mqtool.jobs.progress import Throttle
from mqtool.store.log.cuts import cuts_of
from mqtool.verify.checksums import Buckets, Sums
from mqtool.verify.consume_queue import QueueFacts, check_queue
from mqtool.verify.finding_collector import MAX_OF_A_CODE, FindingCollector
from mqtool.verify.findings import Finding
from mqtool.verify.index_file import IndexFacts, check_index_file
from mqtool.verify.log_findings import time_spikes
from mqtool.verify.record_rules import MAX_JUMPS, join, report_without_crc
from mqtool.verify.segment import SegmentFacts, check_segment
from mqtool.verify.survey import Survey

if TYPE_CHECKING:
    from concurrent.futures import Executor

MAX_PARTS = 16
"""Parts of a large log for each process. A part begins without known topics and queues, which costs about 2 ms."""

T = TypeVar("T")

_QUEUE_BYTES = 32 << 20
"""Bytes of queue files that one task reads."""
_QUEUES = 512
"""Maximum number of queues of one task."""
_MANY = 8
"""Segments per process from which on none is divided: whole segments keep all processes busy."""

Tick = Callable[[int], None]
"""Receives the number of bytes as they are read."""


def parts_of(survey: Survey, number: int, jobs: int) -> list[tuple[int, int | None]]:
    """Returns start and end positions of the parts of a segment, None for its end; one part if it is not divided."""
    segment = survey.segments[number]
    log_bytes = sum(part.size for part in survey.segments[: survey.last_used + 1])
    size = max(PART_BYTES, log_bytes // (MAX_PARTS * jobs))
    is_indivisible = segment.entries or survey.live or survey.timeline
    try:
        cuts = [] if is_indivisible else list(cuts_of(segment, 0, size))
    except StoreError:  # whoever reads it will say so
        cuts = []
    return list(pairwise((0, *cuts, None)))  # type: ignore[arg-type]


def merge_parts(survey: Survey, parts: Sequence[SegmentFacts]) -> SegmentFacts | None:
    """Returns the facts of a segment from those of its parts, in order; None if the segment must be read as a whole."""
    if not all(_is_plain(part) for part in parts) or not all(_adjoin(*pair) for pair in pairwise(parts)):
        return None
    findings = _findings(survey, parts)
    span = join([part.span for part in parts])
    if len(span.jumps) >= MAX_JUMPS or len(findings) >= MAX_OF_A_CODE:
        return None  # of so many only the first are kept
    first, last = parts[0], parts[-1]
    joined = SegmentFacts(
        first.number,
        findings=findings,
        first_record=first.first_record.copy(),
        span=span,
        bad_bodies=_all(part.bad_bodies for part in parts),
        newest=max(part.newest for part in parts),
        end=last.end,
        ended_by_blank=last.ended_by_blank,
        tail=last.tail,
        first_times=first.first_times,
        last_times=last.last_times,
        has_plain_records=all(part.has_plain_records for part in parts),
    )
    joined.units, joined.keys = Sums(len(first.units.total)), Sums(len(first.keys.total))
    for part in parts:
        joined.records += part.records
        joined.bytes += part.bytes
        joined.units.merge(part.units)
        joined.keys.merge(part.keys)
        unknown = joined.first_record < 0
        joined.first_record[unknown] = part.first_record[unknown]
    return joined


def _is_plain(part: SegmentFacts) -> bool:
    """Whether nothing was found whose meaning depends on what is before or after the part."""
    return part.records > 1 and not part.damages and not part.failure and bool((part.span.messages > 0).all())


def _adjoin(before: SegmentFacts, after: SegmentFacts) -> bool:
    """Whether the records of one part lead exactly to the first record of the next."""
    return not before.ended_by_blank and before.end == after.first_times[0][1]


def _findings(survey: Survey, parts: Sequence[SegmentFacts]) -> list[Finding]:
    collector, segment = FindingCollector(survey.root, survey.config, survey.broker), survey.segments[parts[0].number]
    time_spikes(survey, parts, collector)
    without = [part for part in parts if part.without_crc]
    if without:
        report_without_crc(collector, segment, sum(part.without_crc for part in without), without[0].first_without_crc)
    return _all(part.findings for part in parts) + collector.findings()


def _all(lists: Iterable[list[T]]) -> list[T]:
    return list(chain.from_iterable(lists))


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
    """Runs one task; `tick` receives the number of bytes read, `sleep` waits for seconds where a throttle asks."""
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
    """Runs all tasks of which `done` has no result; returns results by key, fewer than tasks if the deadline passed.

    With `jobs` 1 they run in this process alone. `finished` is called with each new result, `tick` with the number of
    bytes that this process reads. After `deadline`, a `time.monotonic()`, no new task is started.
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
