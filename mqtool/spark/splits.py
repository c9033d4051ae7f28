"""The tasks of a read: what each reads of the log, planned on the driver."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from mqtool.choices import Trust
from mqtool.errors import NothingFoundError
from mqtool.export.plan import Partition, StorePlan, check_split, partitions, plan_store
from mqtool.export.sources import Source, require_different_logs
from mqtool.records.damage import Damage
from mqtool.records.number_sets import within
from mqtool.scan.paths import FOREVER, Path, Planner, PointReads, RangeScan
from mqtool.spark.options import SourceOptions
from mqtool.store.log.cuts import Cuts
from mqtool.store.log.selection import Selection
from mqtool.store.store import Store
from mqtool.store.topics import named_topics, unmatched

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads."""

    partition: Partition | None = None  # spans of the log; None if there are none
    damage: tuple[tuple[Source, Damage], ...] = ()  # found by planning
    # source, points: a store, and its records that a queue or an index names; None if there are none.
    source: Source | None = None
    points: PointReads | None = None
    condition: str = ""  # that the rows meet besides the option `where`; of a stream that began in the midst of queues

    @property
    def size(self) -> int:
        """Bytes of log."""
        read = 0 if self.partition is None else self.partition.size
        return read if self.points is None else read + int(self.points.sizes.sum())


def enough(options: SourceOptions, cut: Callable[[int], list[Split]]) -> list[Split]:
    """Returns tasks of the size that the options state, or of a smaller one if they state that there are more tasks.

    `cut` returns the tasks of a size.
    """
    splits = cut(options.split_bytes)
    if len(splits) >= options.min_partitions:
        return splits
    return cut(max(1, sum(split.size for split in splits) // options.min_partitions))


def splits_of(plans: list[StorePlan], split_bytes: int, condition: str = "") -> list[Split]:
    """Returns the tasks of a plan; empty ones are left out."""
    splits = [Split(partition, condition=condition) for partition in partitions(plans, split_bytes)]
    gaps = tuple((plan.source, damage) for plan in plans for damage in plan.damage)
    return [*splits, Split(None, gaps)] if gaps else splits


def splits_of_points(source: Source, points: PointReads, split_bytes: int) -> list[Split]:
    """Returns the tasks that read named records of a store."""
    number = np.cumsum(points.sizes) // split_bytes
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    parts = (slice(low, high) for low, high in pairwise(edges) if low < high)
    return [
        Split(source=source, points=PointReads(points.offsets[part], points.sizes[part], points.by_index))
        for part in parts
    ]


def splits_of_all(options: SourceOptions) -> list[Split]:
    """Returns the tasks that read all stores.

    Raises NothingFoundError if no store has a topic that the option `topics` names, UsageError if two hold the same
    log, or bounds of queues are not those of their queues.
    """
    with ExitStack() as opened:
        stores = [opened.enter_context(source.open()) for source in options.sources]
        require_different_logs(stores)
        _require_topics(options, stores)
        parts: list[tuple[Source, Store, Selection | PointReads]] = []
        for source, store in zip(options.sources, stores, strict=True):
            check_split(options.split_bytes, store.commit_log.max_offset - store.commit_log.min_offset)
            for bounds in (options.begin, options.end):
                if bounds is not None:
                    bounds.resolve(store, source, options.read, strict=options.fail_on_data_loss)
            parts += [(source, store, part) for part in parts_of_store(options, source, store)]

        def cut(size: int) -> list[Split]:
            plans = [
                plan_store(store, source, part, target=size)
                for source, store, part in parts
                if isinstance(part, Selection)
            ]
            named = (splits_of_points(source, part, size) for source, _, part in parts if isinstance(part, PointReads))
            return [*splits_of(plans, size), *chain.from_iterable(named)]

        return enough(options, cut)


def _require_topics(options: SourceOptions, stores: list[Store]) -> None:
    """Checks that the selected topics exist: no rows for a misspelt name look like an answer.

    A condition may name topics that do not exist, as in SQL; then a warning is logged.
    """
    missing: list[str] = list(options.read.selection.topics)
    for store in stores if missing else ():
        missing = unmatched(store, missing)
    paths = ", ".join(str(store.path) for store in stores)
    if missing:
        names = ", ".join(map(repr, missing))
        raise NothingFoundError(f"no topic matches {names}; correct option 'topics', or leave it out", paths)
    topics = options.where.facts["topic"].values or frozenset()
    unknown = topics.difference(*map(named_topics, stores)) if topics else topics
    if unknown:
        LOG.warning("option 'where': no queue and no configuration of topic %s in %s", min(unknown), paths)


def parts_of_store(options: SourceOptions, source: Source, store: Store) -> Iterator[Selection | PointReads]:
    """Yields what is read of a store: ranges of its log, and records that a queue or an index names."""
    selection, facts = options.read.selection, options.where.facts
    if facts.is_impossible or not facts["broker"].admits(source.broker):
        return
    every = options.read.every_class
    path = Planner(store, facts, options.trust, every_class=every).path()
    if len(path.parts) > 1 and not _begin_at_records(store, path):  # then two tasks might read a record
        path = Planner(store, facts, options.trust - {Trust.INDEX}, every_class=every).path()
    for part in path.parts:
        if isinstance(part, PointReads):
            kept = within(part.offsets, selection.start, selection.end)
            yield PointReads(part.offsets[kept], part.sizes[kept], part.by_index)
            continue
        start, end = max(part.low, selection.start or 0), part.high
        end = end if selection.end is None else min(end, selection.end)
        if start < end:
            yield replace(selection, start=start or None, end=None if end == FOREVER else end)


def start_of(part: Selection | PointReads) -> int:
    """Returns the physical offset before which a part reads nothing; FOREVER if it reads nothing at all."""
    if isinstance(part, Selection):
        return part.start or 0
    return int(part.offsets[0]) if len(part.offsets) else FOREVER


def _begin_at_records(store: Store, path: Path) -> bool:
    """Whether the ranges of a path with several parts begin and end at records, as far as they are in the log."""
    log, cuts = store.commit_log, Cuts(store)
    edges = {edge for part in path.parts if isinstance(part, RangeScan) for edge in (part.low, part.high)}
    return all(cuts.at(edge) is not None for edge in edges if log.min_offset < edge < log.max_offset)
