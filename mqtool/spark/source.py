"""`spark.read.format("rocketmq-store")`: stores as DataFrames.

Filters are not pushed down: in Spark 4.3 a pushed filter stays with the DataFrame and gives later queries wrong
answers. What is to be read less is said by options, which belong to one `load()`. Columns are chosen by a schema
given to `.schema(…)` or by the option `columns`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from mqtool.export.fingerprints import require_different_logs
from mqtool.export.job import check_split
from mqtool.export.plan import StorePlan, plan_store
from mqtool.spark.kinds import KindReader, source_of
from mqtool.spark.options import SourceOptions, parse
from mqtool.spark.reading import Split, read_split, splits_of
from mqtool.spark.schema import require_subset, table_schema

if TYPE_CHECKING:
    from mqtool.spark.stream import StoreStreamReader

FORMAT = "rocketmq-store"


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

    def _parsed(self) -> SourceOptions:
        return parse(self.options)

    def schema(self) -> StructType:
        """Returns the schema that the options ask for; reads nothing."""
        other = source_of(self.options)
        if other is not None:
            return other.schema()
        options = self._parsed()
        return table_schema(options.table, options.read, options.damage_column)

    def reader(self, schema: StructType) -> "StoreReader | KindReader":
        """Returns a reader of the columns in a schema."""
        require_subset(schema, self.schema())
        other = source_of(self.options)
        if other is not None:
            return KindReader(other, schema.fieldNames())
        return StoreReader(self._parsed(), schema.fieldNames())

    def streamReader(self, schema: StructType) -> "StoreStreamReader":  # noqa: N802 - Spark's name
        """Returns a stream reader of the columns in a schema."""
        from mqtool.spark.stream import StoreStreamReader  # noqa: PLC0415 - that module needs Spark 4.2

        require_subset(schema, self.schema())
        return StoreStreamReader(self._parsed(), schema.fieldNames())


class StoreReader(DataSourceReader):
    """Reads stores once, up to the bound that `partitions` fixes."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        """Opens nothing: it is copied to every task.

        Args:
            options: of the `load()`.
            names: columns.
        """
        self._options = options
        self._names = names

    def partitions(self) -> list[Split]:
        """Plans: record-aligned byte ranges of segments, a few for every core."""
        return splits_of(plan_all(self._options), self._options.split_bytes)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yields the Arrow batches of a partition."""
        if isinstance(partition, Split):  # Spark makes one of None where there is none
            yield from read_split(partition, self._options, self._names)


def plan_all(options: SourceOptions) -> list[StorePlan]:
    """Returns the plans of all stores.

    Raises:
        UsageError: two stores hold the same log.
    """
    with ExitStack() as opened:
        stores = [opened.enter_context(source.open()) for source in options.sources]
        require_different_logs(stores)
        for store in stores:
            check_split(options.split_bytes, store.commit_log.max_offset - store.commit_log.min_offset)
        return [
            plan_store(store, source, options.read.selection, target=options.split_bytes)
            for source, store in zip(options.sources, stores, strict=True)
        ]


def register(spark: SparkSession) -> None:
    """Makes `format("rocketmq-store")` known to a session."""
    spark.dataSource.register(RocketMQStore)
