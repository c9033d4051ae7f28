"""`spark.read.format("rocketmq-store")`: stores as DataFrames.

Filters are not pushed down: in Spark 4.3 a pushed filter stays with the DataFrame and gives later queries wrong
results. Options, which belong to one `load()`, restrict what is read instead; `spark.options` derives them from the
plan of a query. Columns are selected by a schema given to `.schema(…)` or by the option `columns`.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from mqtool.choices import Trust
from mqtool.errors import NothingFoundError
from mqtool.export.plan import StorePlan, check_split, plan_store
from mqtool.export.sources import Source, require_different_logs
from mqtool.records.number_sets import within
from mqtool.scan.paths import FOREVER, Path, Planner, PointReads, RangeScan
from mqtool.spark.kinds import KindReader, source_of
from mqtool.spark.options import FORMAT, SourceOptions, parse
from mqtool.spark.reading import Split, read_split, require_subset, splits_of, splits_of_points, table_schema
from mqtool.store.log.cuts import Cuts
from mqtool.store.log.selection import Selection
from mqtool.store.store import Store
from mqtool.store.topics import named_topics, unmatched

if TYPE_CHECKING:
    from mqtool.spark.stream import StoreStreamReader

LOG = logging.getLogger(__name__)


class RocketMQStore(DataSource):
    """Message stores of RocketMQ brokers, read from their files; those of EQueue, EventStore and tiered storage, too.

    Name: `rocketmq-store`.

    Options (all strings; names in any case):
        path, paths, store: roots of stores, globs or URLs; `NAME=PATH` names the broker.
        config: a broker.conf.
        topics: globs, with commas. queueId: a number.
        startOffset, endOffset: physical offsets, half-open. startTime, endTime: ms or RFC 3339, half-open.
        include: `committed` (what a consumer could see) or `all`.
        columns: names with commas. body: `binary`, `text` or `json`. redact: columns with commas.
        where: a condition in words of SQL that every message meets; trust: `queues`, `index`, `clock`, with commas.
        mode: `permissive` or `failfast`. damageColumn: name of a column that reports damage among the messages.
        table: `messages`, `damage` or `rejected_values`.
        splitSize: log bytes of a task, e.g. `128m`.
        Stores of other systems: path, table (as `mqtool dump --table` names it) and columns only.
        Streams: startingOffsets (`earliest`, `latest`), maxBytesPerTrigger, failOnDataLoss.

    Schema: docs/lake.md.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format()`."""
        return FORMAT

    def schema(self) -> StructType:
        """Returns the schema that the options request; reads nothing."""
        other = source_of(self.options)
        if other is not None:
            return other.schema()
        options = parse(self.options)
        return table_schema(options.table, options.read, options.damage_column)

    def reader(self, schema: StructType) -> "StoreReader | KindReader":
        """Returns a reader of the columns in a schema."""
        require_subset(schema, self.schema())
        other = source_of(self.options)
        if other is not None:
            return KindReader(other, schema.fieldNames())
        return StoreReader(parse(self.options), schema.fieldNames())

    def streamReader(self, schema: StructType) -> "StoreStreamReader":  # noqa: N802 - Spark's name
        """Returns a stream reader of the columns in a schema."""
        from mqtool.spark.stream import StoreStreamReader  # noqa: PLC0415 - that module needs Spark 4.2

        require_subset(schema, self.schema())
        return StoreStreamReader(parse(self.options), schema.fieldNames())


class StoreReader(DataSourceReader):
    """Reads stores once, up to the bound that `partitions` fixes."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        """Opens nothing, because the reader is copied to every task."""
        self._options = options
        self._names = names

    def partitions(self) -> list[Split]:
        """Returns the tasks: record-aligned byte ranges of segments, a few for every core."""
        return splits_of_all(self._options)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yields the Arrow batches of a partition."""
        if isinstance(partition, Split):  # Spark makes one of None where there is none
            yield from read_split(partition, self._options, self._names)


def splits_of_all(options: SourceOptions) -> list[Split]:
    """Returns the tasks that read all stores.

    Raises NothingFoundError if no store has a topic that the option `topics` names, UsageError if two hold the same
    log.
    """
    plans: list[StorePlan] = []
    named: list[Split] = []
    with ExitStack() as opened:
        stores = [opened.enter_context(source.open()) for source in options.sources]
        require_different_logs(stores)
        _require_topics(options, stores)
        for source, store in zip(options.sources, stores, strict=True):
            check_split(options.split_bytes, store.commit_log.max_offset - store.commit_log.min_offset)
            for part in _parts(options, source, store):
                if isinstance(part, PointReads):
                    named += splits_of_points(source, part, options.split_bytes)
                else:
                    plans.append(plan_store(store, source, part, target=options.split_bytes))
    return splits_of(plans, options.split_bytes) + named


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


def _parts(options: SourceOptions, source: Source, store: Store) -> Iterator[Selection | PointReads]:
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


def _begin_at_records(store: Store, path: Path) -> bool:
    """Whether the ranges of a path with several parts begin and end at records, as far as they are in the log."""
    log, cuts = store.commit_log, Cuts(store)
    edges = {edge for part in path.parts if isinstance(part, RangeScan) for edge in (part.low, part.high)}
    return all(cuts.at(edge) is not None for edge in edges if log.min_offset < edge < log.max_offset)


def register(spark: SparkSession) -> None:
    """Registers `format("rocketmq-store")` with a session."""
    spark.dataSource.register(RocketMQStore)
