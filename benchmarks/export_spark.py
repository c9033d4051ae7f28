"""What `export.py` measures on Spark: exports by executors, and ways through Spark's own Parquet writer."""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqtool.export.plain import export
from mqtool.export.run import ExportRequest
from mqtool.export.schema import messages_schema
from mqtool.export.sources import resolve
from mqtool.spark.job import SparkRunner
from mqtool.spark.options import SPLIT_BYTES
from mqtool.spark.reading import spark_schema
from mqtool.spark.session import build
from mqtool.store import Message, open_store

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Range(InputPartition):
    path: str
    start: int
    end: int


class RowSource(DataSource):
    """The obvious data source: a message object and a tuple for each record."""

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format()`."""
        return "rows-of-a-store"

    def schema(self) -> StructType:
        """Returns all columns."""
        return spark_schema(messages_schema())

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's protocol
        """Returns the reader."""
        return _RowReader(self.options["path"])


class _RowReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[_Range]:
        """Plans ranges of the log."""
        with open_store(self._path) as store:
            end = store.commit_log.max_offset
        step = min(SPLIT_BYTES, -(-end // 4))
        return [_Range(self._path, at, min(end, at + step)) for at in range(0, end, step)]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """Yields the messages of a range."""
        names = messages_schema().names
        with open_store(partition.path) as store:
            for item in store.messages(start=partition.start, end=partition.end):
                assert isinstance(item, Message)
                row = {name: getattr(item, name) for name in names if hasattr(item, name)}
                row |= {"broker": "bench", "record_class": "committed", "body_decoded": True, "keys": list(item.keys)}
                for clock in ("born_timestamp", "store_timestamp"):
                    row[clock] = _EPOCH + timedelta(milliseconds=row[clock])
                yield tuple(row[name] for name in names)


class OnSpark:
    """Jobs and the sessions that they need, one at a time."""

    def __init__(self, store: Path, told: Callable[[str, float], None]) -> None:
        """Starts nothing.

        Args:
            store: what is exported.
            told: is told of the start of each session and its seconds.
        """
        self._store = store
        self._told = told
        self._master = ""
        self._session: Any = None
        self.jobs: dict[str, tuple[str, Callable[[Path], Any]]] = {
            "spark, rows to spark's parquet, local[2]": ("local[2]", self._rows),
            "spark, data source to spark's parquet, local[2]": ("local[2]", self._data_source),
            "spark export, local[2]": ("local[2]", self._export),
            "spark export, local[1]": ("local[1]", self._export),
        }

    def prepare(self, name: str) -> None:
        """Starts the session of a job and warms it up, which is not measured with the job."""
        master, _ = self.jobs[name]
        if master == self._master:
            return
        if self._session is not None:
            self._session.stop()
        start = time.perf_counter()
        self._master, self._session = master, build(master, {"spark.driver.memory": "1g"})
        self._told(f"session {master}", time.perf_counter() - start)
        self._session.dataSource.register(RowSource)
        for job in {job for wanted, job in self.jobs.values() if wanted == master and job != self._rows}:
            with tempfile.TemporaryDirectory() as warm:
                job(Path(warm) / "out")

    def _export(self, target: Path) -> None:
        export(ExportRequest(tuple(resolve([str(self._store)])), str(target)), SparkRunner(self._session))

    def _data_source(self, target: Path) -> None:
        self._written("rocketmq-store", target)

    def _rows(self, target: Path) -> None:
        self._written(RowSource.name(), target)

    def _written(self, source: str, target: Path) -> None:
        frame = self._session.read.format(source).load(str(self._store))
        frame.write.option("compression", "zstd").parquet(str(target))


def main() -> None:
    """Exports a store by `local[2]`: the work whose memory `export.py --large` watches from outside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("target", help="new directory")
    args = parser.parse_args()
    session = build("local[2]", {"spark.driver.memory": "1g"})
    export(ExportRequest(tuple(resolve([args.store])), args.target), SparkRunner(session))
    session.stop()


if __name__ == "__main__":
    main()
