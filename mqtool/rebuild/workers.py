"""Walks parts in several processes, and yields their batches in log order."""

from collections.abc import Iterator
from concurrent.futures import Future

from msgspec import Struct
from msgspec.structs import replace

from mqtool.jobs.pool import ignore_interrupts, in_order, worker_pool
from mqtool.rebuild.dispatch_batch import BatchBuilder, DispatchBatch, RebuildScope
from mqtool.rebuild.parts import Part, walk_part
from mqtool.records.dispatch import DispatchRules
from mqtool.store.log.commit_log import Segment

_AHEAD = 2
"""Number of parts, in addition to one per process, that may be walked before the writer reaches them."""

_of_process: list[BatchBuilder] = []


def batches_of_workers(
    parts: list[Part], rules: DispatchRules, scope: RebuildScope, jobs: int
) -> Iterator[DispatchBatch]:
    """Yields the batches of all parts in order, as a single process without parts would.

    If the walk over a part does not end where the next one begins, the cut was not at a record. This process then
    walks the rest of the segment from there.
    """
    last_of = {part.segment: part for part in parts}
    broken: Segment | None = None
    with worker_pool(jobs, _start, (rules, scope)) as pool:
        begun = (_Walk(part, pool.submit(_walk, part, scope)) for part in parts)
        for walk in in_order(begun, jobs + _AHEAD):
            part = walk.part
            if part.segment == broken:
                continue
            batches = walk.future.result()
            if part.end is None or batches[-1].end == part.segment.base + part.end:
                yield from batches
                continue
            broken = part.segment
            rest = replace(part, end=None, is_last=last_of[broken].is_last)
            yield from walk_part(rest, BatchBuilder(rules, scope), scope)


class _Walk(Struct, frozen=True):
    """A part that a worker walks."""

    part: Part
    future: "Future[list[DispatchBatch]]"

    def done(self) -> bool:
        """See `pool.StartedTask`."""
        return self.future.done()


def _start(rules: DispatchRules, scope: RebuildScope) -> None:
    ignore_interrupts()
    _of_process.append(BatchBuilder(rules, scope))


def _walk(part: Part, scope: RebuildScope) -> list[DispatchBatch]:
    return list(walk_part(part, _of_process[0], scope))
