"""Parts walked by several processes, their batches handed on in log order."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

from mqtool.jobs.pool import leave_interrupts, worker_pool
from mqtool.rebuild.digest import Batch, Digest, Wanted
from mqtool.rebuild.parts import Part, walk_part
from mqtool.records.dispatched import DispatchRules

_AHEAD = 2
"""Parts beyond one for each process that may be walked before the writer comes to them."""

_of_process: list[Digest] = []


def batches_of_workers(parts: list[Part], rules: DispatchRules, wanted: Wanted, jobs: int) -> Iterator[Batch]:
    """Yields the batches of all parts in order, as one process that walked the parts uncut would.

    A part whose walk does not end where the next one begins was cut at something else than a record: then its whole
    segment is walked from there by this process.
    """
    todo = deque(parts)
    with worker_pool(jobs, _start, (rules, wanted)) as pool:
        walked: deque[tuple[Part, Future[list[Batch]]]] = deque()
        while todo or walked:
            while todo and len(walked) < jobs + _AHEAD:
                walked.append((todo[0], pool.submit(_walk, todo.popleft(), wanted)))
            part, future = walked.popleft()
            batches = future.result()
            if part.end is None or batches[-1].end == part.segment.base + part.end:
                yield from batches
                continue
            rest = [one for one, _ in walked] + list(todo)
            same = [one for one in rest if one.segment == part.segment]
            for _ in same:
                walked.popleft() if walked else todo.popleft()
            yield from walk_part(replace(part, end=None, is_last=same[-1].is_last), Digest(rules, wanted), wanted)


def _start(rules: DispatchRules, wanted: Wanted) -> None:
    leave_interrupts()
    _of_process.append(Digest(rules, wanted))


def _walk(part: Part, wanted: Wanted) -> list[Batch]:
    return list(walk_part(part, _of_process[0], wanted))
