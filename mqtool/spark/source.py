"""`spark.read.format("rocketmq-store")`: stores as DataFrames.

Filters are not pushed down: in Spark 4.3 a pushed filter stays with the DataFrame and gives later queries wrong
results. Options, which belong to one `load()`, restrict what is read instead; `spark.plans` derives them from the
plan of a query. Columns are selected by a schema given to `.schema(…)` or by the option `columns`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from mqtool.errors import UsageError
from mqtool.spark.kinds import KindReader, source_of
from mqtool.spark.options import FORMAT, SourceOptions, parse
from mqtool.spark.reading import read_split, require_subset, table_schema
from mqtool.spark.splits import Split, splits_of_all

if TYPE_CHECKING:
    from mqtool.spark.stream import StoreStreamReader


class RocketMQStore(DataSource):
    """Message stores of RocketMQ brokers, read from their files; those of EQueue, EventStore and tiered storage, too.

    Name: `rocketmq-store`.

    Options (all strings; names in any case):
        path, paths, store: roots of stores, globs or URLs; `NAME=PATH` names the broker.
        config: a broker.conf.
        topics: globs, with commas. queueId: a number.
        startOffset, endOffset: physical offsets, half-open. startTime, endTime: ms or RFC 3339, half-open.
        startingOffsets, endingOffsets: `earliest`, `latest` or JSON; startingTimestamp, endingTimestamp; …ByTimestamp.
        include: `committed` (what a consumer could see) or `all`.
        columns: names with commas, or `kafka`, with includeHeaders. body: `binary`, `text` or `json`.
        redact: columns with commas.
        where: a condition in words of SQL that every message meets; trust: `queues`, `index`, `clock`, with commas.
        mode: `permissive` or `failfast`. damageColumn: name of a column that reports damage among the messages.
        table: `messages`, `damage` or `rejected_values`.
        splitSize: log bytes of a task, e.g. `128m`. minPartitions: about how many tasks at least.
        Stores of other systems: path, table (as `mqtool dump --table` names it) and columns only.
        Streams: maxBytesPerTrigger, maxOffsetsPerTrigger, failOnDataLoss.

    Docs page: docs/spark.md. Schema: docs/lake.md.
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
        return table_schema(parse(self.options))

    def reader(self, schema: StructType) -> "StoreReader | KindReader":
        """Returns a reader of the columns in a schema."""
        require_subset(schema, self.schema())
        other = source_of(self.options)
        if other is not None:
            return KindReader(other, schema.fieldNames())
        return StoreReader(parse(self.options).for_batch(), schema.fieldNames())

    def streamReader(self, schema: StructType) -> "StoreStreamReader":  # noqa: N802 - Spark's name
        """Returns a stream reader of the columns in a schema."""
        from mqtool.spark.stream import StoreStreamReader  # noqa: PLC0415 - that module needs Spark 4.2

        require_subset(schema, self.schema())
        return StoreStreamReader(parse(self.options).for_stream(), schema.fieldNames())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's protocol
        """Raises UsageError, because the source only reads."""
        raise UsageError(
            f"{FORMAT} only reads; to keep messages as a table, write CREATE TABLE … USING parquet AS SELECT …, to add "
            "messages to a store, use mqtool append"
        )


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


def register(spark: SparkSession) -> None:
    """Registers `format("rocketmq-store")` with a session."""
    spark.dataSource.register(RocketMQStore)
